//! A chain of a test's own, and the Recorder on it: what happened exactly once, and what never happened.

use super::http_wire::Client;
use super::parts::programs;
use super::process::{Process, free_port};
use super::wait::eventually;
use entity::values::{Address, Hash, bytes_from_hex, hex_from_bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub const CHAIN_ID: u64 = 31_337;
/// Where the Recorder stands on every chain of the tests.
pub const RECORDER: Address = Address([0x5e; 20]);
/// `record(bytes32)`
pub const RECORD: [u8; 4] = [0xb5, 0xc6, 0x45, 0xbd];

/// When blocks come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mining {
    Every(Duration),
    /// Only when the test says so.
    OnDemand,
}

/// Which program plays the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Anvil,
    /// Holds replacements to 10 % on both fields, and keeps what the base fee has left behind.
    Hardhat,
    /// Keeps blocks that a fork has left, as a client of a real network does.
    EthereumJs,
}

/// The folder that `make test` fetches the nodes into.
fn tools() -> std::path::PathBuf {
    let anvil = programs(&std::env::temp_dir(), true).anvil.expect("anvil");
    anvil.ancestors().find(|folder| folder.ends_with(".tools")).expect("the folder of the tools").to_owned()
}

/// A node of a test's own, told what to do by the names that anvil and Hardhat share.
pub struct Anvil {
    pub url: String,
    client: Client,
    process: Process,
    prefix: &'static str,
    engine: Option<super::ethereumjs::Engine>,
}

fn artefact() -> Value {
    serde_json::from_str(include_str!("../../contracts/Recorder.json")).expect("the artefact of the Recorder")
}

/// The call that records a number.
pub fn record_data(number: u128) -> String {
    let mut data = RECORD.to_vec();
    data.extend_from_slice(&record_id(number).0);
    hex_from_bytes(&data)
}

pub fn record_id(number: u128) -> Hash {
    let mut id = [0; 32];
    id[16..].copy_from_slice(&number.to_be_bytes());
    Hash(id)
}

fn selector(signature: &str) -> String {
    hex_from_bytes(&web3::signing::keccak256(signature.as_bytes())[..4])
}

/// The call that always reverts with a reason.
pub fn revert_data() -> String {
    selector("revertAlways()")
}

fn number(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no number of JSON-RPC"));
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex digits")
}

impl Anvil {
    pub async fn start(mining: Mining) -> Self {
        Self::start_at(mining, "prague").await
    }

    pub async fn start_at(mining: Mining, hardfork: &str) -> Self {
        let program = programs(&std::env::temp_dir(), true).anvil.expect("anvil");
        let port = free_port();
        let port_text = port.to_string();
        let mut arguments = vec!["--quiet", "--host", "127.0.0.1", "--port", &port_text, "--accounts", "1", "--gas-limit", "100000000"];
        arguments.extend(["--base-fee", "1000000000", "--hardfork", hardfork, "--slots-in-an-epoch", "1", "--order", "fees"]);
        let every = match mining {
            Mining::Every(time) => time.as_secs_f64().to_string(),
            Mining::OnDemand => String::new(),
        };
        match mining {
            Mining::Every(_) => arguments.extend(["--block-time", &every]),
            Mining::OnDemand => arguments.push("--no-mining"),
        }
        let home = BTreeMap::from([("HOME".to_owned(), std::env::temp_dir().display().to_string())]);
        let process = Process::spawn("anvil", program, arguments, &home);
        let url = format!("http://127.0.0.1:{port}");
        eventually("anvil takes connections", Duration::from_secs(20), async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        Self { client: Client::new(&url), url, process, prefix: "anvil", engine: None }.with_recorder().await
    }

    /// Hardhat's node, on `mining` as anvil; `make test` fetches it.
    pub async fn hardhat(mining: Mining) -> Self {
        let tools = tools();
        let port = free_port();
        let interval = match mining {
            Mining::Every(time) => time.as_millis(),
            Mining::OnDemand => 0,
        };
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodes/hardhat/config.cjs");
        let scratch = std::env::temp_dir().join(format!("hardhat-{}-{port}", std::process::id()));
        super::process::remove_at_the_end(&scratch);
        let environment = [
            ("HOME", scratch.display().to_string()),
            ("SCRATCH", scratch.display().to_string()),
            ("CHAIN_ID", CHAIN_ID.to_string()),
            ("MINING_INTERVAL_MS", interval.to_string()),
            ("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true".to_owned()),
            ("CI", "true".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        // Hardhat insists on being started where it is installed.
        let run = format!(
            "cd '{}/hardhat' && exec node_modules/.bin/hardhat --config '{config}' node --hostname 127.0.0.1 --port {port}",
            tools.display()
        );
        let process = Process::spawn("hardhat", "/bin/sh", ["-c", &run], &environment);
        let url = format!("http://127.0.0.1:{port}");
        eventually("Hardhat takes connections", Duration::from_secs(60), async || {
            assert!(process.is_alive(), "Hardhat ended: is it there? make test fetches it\n{}", process.tail());
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        Self { client: Client::new(&url), url, process, prefix: "hardhat", engine: None }.with_recorder().await
    }

    /// A client whose fork the test decides; `make test` fetches it. The signers have money from the first block on.
    pub async fn ethereumjs(funded: &[Address]) -> Self {
        let code = artefact()["deployedBytecode"].as_str().expect("code").to_owned();
        let (process, url, engine) = super::ethereumjs::start(&tools(), CHAIN_ID, funded, (RECORDER, &code)).await;
        Self { client: Client::new(&url), url, process, prefix: "ethereumjs", engine: Some(engine) }
    }

    async fn with_recorder(self) -> Self {
        self.tell("setCode", json!([RECORDER.to_string(), artefact()["deployedBytecode"]])).await;
        self
    }

    async fn tell(&self, what: &str, params: Value) {
        self.ask(&format!("{}_{what}", self.prefix), params).await;
    }

    /// Nothing of the chain answers until it is thawed.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// The result of a call; an error is a fault of the test.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let answer = self.client.post(call.as_bytes()).await.unwrap_or_else(|error| panic!("{method}: {error}"));
        let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].take()
    }

    pub async fn fund(&self, who: Address, ether: u64) {
        let wei = u128::from(ether) * 1_000_000_000_000_000_000;
        self.tell("setBalance", json!([who.to_string(), format!("{wei:#x}")])).await;
    }

    pub async fn set_nonce(&self, who: Address, nonce: u64) {
        self.tell("setNonce", json!([who.to_string(), format!("{nonce:#x}")])).await;
    }

    pub async fn mine(&self, blocks: u64) {
        if let Some(engine) = &self.engine {
            return engine.mine(blocks).await;
        }
        self.tell("mine", json!([format!("{blocks:#x}")])).await;
    }

    pub async fn height(&self) -> u64 {
        number(&self.ask("eth_blockNumber", json!([])).await)
    }

    /// The nonce that the chain takes next, at its newest block.
    pub async fn next_nonce(&self, of: Address) -> u64 {
        number(&self.ask("eth_getTransactionCount", json!([of.to_string(), "latest"])).await)
    }

    pub async fn balance(&self, of: Address) -> u128 {
        let text = self.ask("eth_getBalance", json!([of.to_string(), "latest"])).await;
        u128::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).expect("a balance below 2^128")
    }

    /// Replaces the newest `depth` blocks by others, with these raw transactions at these places among them (0 is the lowest).
    pub async fn reorg(&self, depth: u64, transactions: &[(String, u64)]) {
        if let Some(engine) = &self.engine {
            assert!(transactions.is_empty(), "the blocks of this node have what its pool has");
            return engine.reorg(usize::try_from(depth).unwrap()).await;
        }
        self.ask("anvil_reorg", json!([depth, transactions])).await;
    }

    pub async fn drop_all_transactions(&self) {
        self.tell("dropAllTransactions", json!([])).await;
    }

    pub async fn set_next_base_fee(&self, wei: u64) {
        self.tell("setNextBlockBaseFeePerGas", json!([format!("{wei:#x}")])).await;
    }

    /// A transfer of nothing by `who` itself, past the program; mined with the next block.
    pub async fn use_nonce(&self, who: Address) {
        self.tell("impersonateAccount", json!([who.to_string()])).await;
        let transfer =
            json!([{"from": who.to_string(), "to": who.to_string(), "value": "0x0", "gas": "0x5208", "gasPrice": "0x174876e800"}]);
        self.ask("eth_sendTransaction", transfer).await;
        self.tell("stopImpersonatingAccount", json!([who.to_string()])).await;
    }

    pub async fn drop_transaction(&self, hash: Hash) {
        self.tell("dropTransaction", json!([hash.to_string()])).await;
    }

    pub async fn receipt(&self, hash: &str) -> Value {
        self.ask("eth_getTransactionReceipt", json!([hash])).await
    }

    /// Makes `record` revert, or work again.
    pub async fn set_failing(&self, failing: bool) {
        // The slot after `times` and `total`.
        let word = format!("0x{:064x}", u8::from(failing));
        self.tell("setStorageAt", json!([RECORDER.to_string(), "0x2", word])).await;
    }

    /// How often each id was recorded on the canonical chain.
    pub async fn recorded(&self) -> BTreeMap<String, usize> {
        let topic = hex_from_bytes(&web3::signing::keccak256(b"Recorded(bytes32,address)"));
        let filter = json!([{"fromBlock": "0x0", "toBlock": "latest", "address": RECORDER.to_string(), "topics": [topic]}]);
        let logs = self.ask("eth_getLogs", filter).await;
        let mut times = BTreeMap::new();
        for log in logs.as_array().expect("a list of logs") {
            *times.entry(log["topics"][1].as_str().expect("an id").to_owned()).or_default() += 1;
        }
        times
    }
}

/// The id that a call records, if it is a call of `record`.
pub fn recorded_by(data: &str) -> Option<String> {
    let bytes = bytes_from_hex(data)?;
    (bytes.len() == 36 && bytes.starts_with(&RECORD)).then(|| hex_from_bytes(&bytes[4..]))
}
