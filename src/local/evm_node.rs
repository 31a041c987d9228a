//! How the EVM node of the embedded default is run: anvil, with a pinned fork and a chain that survives a restart.
//! Called by `guard`.

use std::{
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::{
    child::Program,
    folder::make_dir,
    messages::{Fault, Part},
};

/// The mnemonic that every development node uses, and that everyone knows: worth nothing on a real chain.
pub const DEV_MNEMONIC: &str = "test test test test test test test test test test test junk";
/// The key of its first account, which the node has made rich.
pub const DEV_FUNDER_KEY: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

const ACCOUNTS: &str = "20";
const GAS_LIMIT: &str = "100000000";
const BASE_FEE: &str = "1000000000";
/// How much of the chain a crash of the node may lose; a clean stop loses nothing.
const STATE_SECONDS: &str = "5";
/// It writes the chain down before it ends.
const STOP: &[(Signal, Duration)] = &[(Signal::SIGINT, Duration::from_secs(10))];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hardfork {
    Cancun,
    Prague,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evm {
    pub chain_id: u64,
    /// `None`: a block for each transaction, at once.
    pub block_time: Option<Duration>,
    pub hardfork: Hardfork,
    /// Keep the chain in the folder. Off, a restart begins a new chain: for tests and measurements that throw it away.
    pub keep_chain: bool,
}

impl Default for Evm {
    fn default() -> Self {
        Self { chain_id: 31337, block_time: Some(Duration::from_secs(1)), hardfork: Hardfork::Prague, keep_chain: true }
    }
}

/// Makes the node's folder. A chain that a crash cut off in the middle of a write is put aside: the node would refuse it.
/// Returns what to tell the operator then.
pub(super) fn prepare(dir: &Path) -> Result<Option<String>, Fault> {
    let home = dir.join(Part::EvmNode.word());
    make_dir(&home, 0o700)?;
    let chain = home.join("chain.json");
    let Ok(file) = File::open(&chain) else { return Ok(None) };
    if serde_json::from_reader::<_, serde::de::IgnoredAny>(BufReader::new(file)).is_ok() {
        return Ok(None);
    }
    let aside = home.join("chain.broken.json");
    fs::rename(&chain, &aside).map_err(|e| Fault::io(format!("putting {} aside", chain.display()), &e))?;
    Ok(Some(format!("the saved chain cannot be read and is now {}; a new chain begins", aside.display())))
}

pub(super) fn program(dir: &Path, anvil: &Path, evm: &Evm, port: u16) -> Program {
    let home = dir.join(Part::EvmNode.word());
    let mut arguments: Vec<String> = ["--quiet", "--host", "127.0.0.1", "--accounts", ACCOUNTS, "--gas-limit", GAS_LIMIT]
        .into_iter()
        .chain(["--base-fee", BASE_FEE, "--no-request-size-limit", "--mnemonic", DEV_MNEMONIC])
        .map(str::to_owned)
        .collect();
    let mut more = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    more("--port", port.to_string());
    more("--chain-id", evm.chain_id.to_string());
    // The newest fork is anvil's default, and changes with its version.
    more("--hardfork", if evm.hardfork == Hardfork::Prague { "prague" } else { "cancun" }.to_owned());
    more("--cache-path", home.join("cache").display().to_string());
    if let Some(every) = evm.block_time {
        more("--block-time", every.as_secs_f64().to_string());
    }
    if evm.keep_chain {
        more("--state", home.join("chain.json").display().to_string());
        more("--state-interval", STATE_SECONDS.to_owned());
    }
    Program { path: PathBuf::from(anvil), arguments, home, environment: Vec::new(), user: None, stop_signals: STOP }
}

/// It listens only when it can answer.
pub(super) async fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_was_cut_off_is_put_aside_and_said_so() {
        let dir = std::env::temp_dir().join(format!("holdfast-evm-{}", std::process::id()));
        assert!(prepare(&dir).unwrap().is_none());
        fs::write(dir.join("evm/chain.json"), r#"{"block":{"number":"0x1""#).unwrap();
        assert!(prepare(&dir).unwrap().unwrap().contains("chain.broken.json"));
        assert!(!dir.join("evm/chain.json").exists());
        fs::write(dir.join("evm/chain.json"), r#"{"block":{"number":"0x1"}}"#).unwrap();
        assert!(prepare(&dir).unwrap().is_none());
        assert!(dir.join("evm/chain.json").exists());
        fs::remove_dir_all(dir).unwrap();
    }
}
