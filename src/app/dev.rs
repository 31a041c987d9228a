//! `dev`: the embedded default. Starts its own Postgres, Redis and EVM node, makes schema, signers, a key and a contract to call,
//! serves every role, says one line when it is ready, and stops all it started.

use super::{Error, Progress, servers};
use crate::chain::dev_node::{DevNode, bytecode};
use crate::config::{Chain, Config, Overrides, Problem};
use crate::domain::api_key;
use crate::local::{self, Evm, Options, Parts, Running};
use crate::signer::LocalSigner;
use crate::signer::Signer;
use crate::store::{self, Db};
use entity::values::{Address, Wei, hex_from_bytes};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The contract that `dev` deploys and `demo` calls.
pub const RECORDER: &str = include_str!("../../contracts/Recorder.json");
/// Where the lanes of `dev` stand.
pub const POOL: &str = "local:relayer";
/// What each dev signer gets, in wei: 1,000 units.
const ENDOWMENT: &str = "1000000000000000000000";
const LANES: u32 = 2;
/// The file that other commands find a running `dev` by.
pub const DEV_FILE: &str = "dev.json";
const SECRETS: &str = "secrets.json";

#[derive(Clone, Debug, Default)]
pub struct DevOptions {
    pub http: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
    pub data: Option<PathBuf>,
    /// The operator's own file, if any.
    pub config: Option<PathBuf>,
    /// Between blocks; 1 s if not given, zero for a block a transaction.
    pub block_time: Option<Duration>,
    /// Signers; 2 if not given.
    pub lanes: Option<u32>,
    pub json: bool,
}

impl DevOptions {
    /// The addresses that the command line gave.
    fn listeners(&self, mut overrides: Overrides) -> Overrides {
        for (name, value) in [("HTTP_LISTEN", &self.http), ("ADMIN_LISTEN", &self.admin)] {
            if let Some(value) = value {
                overrides = overrides.with(name, value.to_string());
            }
        }
        overrides
    }
}

/// The secrets of a dev folder, made once and kept with mode 0600.
#[derive(Clone, Serialize, Deserialize)]
struct Secrets {
    journal_key: String,
    signers: Vec<String>,
    admin_token: String,
    api_key: Option<String>,
    recorder: Option<Address>,
}

/// A dev world: what is running, and how to reach it.
pub struct World {
    pub running: Running,
    pub rpc_url: SecretString,
    pub chain_id: u64,
    pub signers: Vec<Address>,
    pub signer_keys: SecretString,
    pub journal_keys: SecretString,
    pub admin_token: String,
    pub api_key: String,
    pub recorder: Address,
    pub dir: PathBuf,
}

fn broken(path: &Path, detail: &str) -> Error {
    Error::Secrets { path: path.to_owned(), detail: detail.into() }
}

fn files(what: &Path) -> impl Fn(std::io::Error) -> Error {
    let what = what.display().to_string();
    move |error| Error::Files { what: what.clone(), detail: error.to_string() }
}

fn random_hex() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Runtime(format!("no random bytes: {error}")))?;
    Ok(hex_from_bytes(&bytes))
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh).map_err(files(&fresh))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(files(&fresh))?;
    std::fs::rename(&fresh, path).map_err(files(path))
}

impl Secrets {
    fn load(path: &Path, lanes: usize) -> Result<Self, Error> {
        let mut secrets = match std::fs::read_to_string(path) {
            // Not the parser's own words: they quote what they found, and that may be a key.
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| broken(path, &format!("it holds no secrets as this program writes them, see line {}", error.line())))?,
            // Whether it can be a folder at all is told by whoever takes it.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Self {
                journal_key: random_hex()?,
                signers: Vec::new(),
                admin_token: random_hex()?[2..].to_owned(),
                api_key: None,
                recorder: None,
            },
            Err(error) => return Err(local::Error::Folder { at: path.to_owned(), detail: error.to_string() }.into()),
        };
        if secrets.signers.iter().any(|key| address_of(key).is_err()) {
            return Err(broken(path, "one of its signers is no private key"));
        }
        while secrets.signers.len() < lanes {
            secrets.signers.push(random_hex()?);
        }
        Ok(secrets)
    }

    fn save(&self, path: &Path) -> Result<(), Error> {
        write_private(path, &serde_json::to_string(self).unwrap_or_default())
    }
}

fn address_of(key: &str) -> Result<Address, Error> {
    let bytes = entity::values::bytes_from_hex(key).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let signer = bytes.as_ref().and_then(LocalSigner::new);
    signer.map(|signer| signer.address()).ok_or_else(|| Error::Files { what: "dev signer".into(), detail: "is no private key".into() })
}

impl World {
    /// Brings the parts up and prepares them; running it again in the same folder changes nothing that is there.
    ///
    /// # Errors
    /// A missing part is named with the command that gets it.
    pub async fn start(options: &DevOptions, external_rpc: Option<SecretString>) -> Result<Self, Error> {
        let progress = Progress { json: options.json };
        let dir = options.data.clone().unwrap_or_else(local::default_dir);
        let lanes = usize::try_from(options.lanes.unwrap_or(LANES)).unwrap_or(1);
        // Also before anything is started: what cannot be read later is known now.
        Secrets::load(&dir.join(SECRETS), lanes)?;
        let near = std::path::absolute(".").unwrap_or_default();
        let parts = Parts::find(None, &near, external_rpc.is_none()).map_err(local::Error::from)?;
        let mut start = Options::new(dir, parts);
        start.external_rpc = external_rpc;
        let block_time = options.block_time.unwrap_or(Duration::from_secs(1));
        start.evm = Evm { block_time: Some(block_time).filter(|time| !time.is_zero()), ..Evm::default() };
        let running = Running::start(start, move |line| progress.tell(line)).await?;
        let dir = running.dir.clone();
        progress.tell("migrating the schema");
        let logins = [migration::Login { role: "runtime", name: local::RUNTIME_LOGIN, password: running.runtime_password.expose_secret() }];
        store::owner::migrate(&running.owner_url, &logins).await.map_err(|error| Error::Migration(error.to_string()))?;
        let path = dir.join(SECRETS);
        let mut secrets = Secrets::load(&path, lanes)?;
        let keys = secrets.signers[..lanes].to_vec();
        let signers = keys.iter().map(|key| address_of(key)).collect::<Result<Vec<_>, _>>()?;
        let node = DevNode::new(running.rpc_url.clone())?;
        let recorder = prepare_chain(&node, &signers, secrets.recorder, progress).await?;
        secrets.recorder = Some(recorder);
        let api_key = prepare_key(&running, secrets.api_key.take()).await?;
        secrets.api_key = Some(api_key.clone());
        secrets.save(&path)?;
        let chain_id = node.chain_id().await?;
        Ok(Self {
            rpc_url: running.rpc_url.clone(),
            chain_id,
            signers,
            signer_keys: serde_json::json!({ POOL: keys }).to_string().into(),
            journal_keys: serde_json::json!({"dev": secrets.journal_key}).to_string().into(),
            admin_token: secrets.admin_token,
            api_key,
            recorder,
            dir,
            running,
        })
    }

    /// What a process of this world reads as its environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let secret = |secret: &SecretString| secret.expose_secret().to_owned();
        vec![
            ("DATABASE_URL", secret(&self.running.database_url)),
            ("REDIS_URL", secret(&self.running.redis_url)),
            ("RPC_URL", secret(&self.rpc_url)),
            ("CHAIN_ID", self.chain_id.to_string()),
            ("SIGNER_KEYS", secret(&self.signer_keys)),
            ("TX_JOURNAL_KEYS", secret(&self.journal_keys)),
            ("TX_JOURNAL_ACTIVE_KEY_ID", "dev".into()),
            ("ADMIN_TOKEN", self.admin_token.clone()),
            ("TX_CONFIRMATIONS", "2".into()),
            ("TX_RECONCILE_SECONDS", "2".into()),
            ("TX_LANE_WIDTH", "4096".into()),
            ("RPC_HEAD_POLL_MILLISECONDS", "200".into()),
            ("OUTBOX_POLL_MILLISECONDS", "200".into()),
            ("QUEUE_RECONCILE_SECONDS", "5".into()),
        ]
    }

    /// The configuration of a process of this world: one host is the whole quorum, which only `dev` and `demo` may say.
    ///
    /// # Errors
    /// What the operator's own file or environment says wrongly.
    pub fn config(&self, options: &DevOptions, more: &[(&'static str, String)]) -> Result<Config, Error> {
        self.read(self.environment(), options, more)
    }

    /// `config` for a process that may hold no key.
    ///
    /// # Errors
    /// As `config`.
    pub fn config_without_keys(&self, options: &DevOptions, more: &[(&'static str, String)]) -> Result<Config, Error> {
        let public = self.environment().into_iter().filter(|(name, _)| *name != "SIGNER_KEYS" && !name.starts_with("TX_JOURNAL"));
        self.read(public.collect(), options, more)
    }

    fn read(
        &self,
        environment: Vec<(&'static str, String)>,
        options: &DevOptions,
        more: &[(&'static str, String)],
    ) -> Result<Config, Error> {
        let mut overrides =
            Overrides::default().with(Chain::SINGLE_ENDPOINT, "true").with("LOG_FORMAT", if options.json { "json" } else { "text" });
        for (name, value) in environment.into_iter().chain(more.iter().cloned()) {
            overrides = overrides.with(name, value);
        }
        Ok(Config::from_process(options.config.as_deref(), &options.listeners(overrides))?)
    }
}

/// Pays the signers and deploys the Recorder where that has not been done.
async fn prepare_chain(node: &DevNode, signers: &[Address], recorder: Option<Address>, progress: Progress) -> Result<Address, Error> {
    let endowment: Wei = ENDOWMENT.parse().unwrap_or_default();
    progress.tell("paying the signers");
    let mut poor = Vec::new();
    for signer in signers {
        if node.balance(*signer).await? < endowment {
            poor.push(*signer);
        }
    }
    node.pay(&poor, endowment).await?;
    if let Some(address) = recorder
        && node.has_code(address).await?
    {
        return Ok(address);
    }
    progress.tell("deploying the Recorder");
    let code =
        bytecode(RECORDER).ok_or_else(|| Error::Files { what: "contracts/Recorder.json".into(), detail: "names no bytecode".into() })?;
    Ok(node.deploy(&code).await?)
}

/// The API key of this folder; a new one when there is none or the database does not know it.
async fn prepare_key(running: &Running, kept: Option<String>) -> Result<String, Error> {
    let settings = crate::config::Database::at(running.database_url.expose_secret());
    let db = Db::connect(&settings).await?;
    let known = match kept.as_deref().and_then(api_key::parse) {
        Some(parts) => store::keys::live(&db.reader(), parts.id()).await?.is_some(),
        None => false,
    };
    let key = match kept.filter(|_| known) {
        Some(key) => key,
        None => {
            let minted = api_key::mint("dev").map_err(|error| Error::Runtime(error.to_string()))?;
            store::keys::create(&db, &minted.id, "dev", minted.hash).await?;
            minted.plaintext.to_string()
        }
    };
    db.close().await;
    Ok(key)
}

/// What other commands read to find this process.
#[derive(Serialize)]
struct Found<'a> {
    database_url: &'a str,
    redis_url: &'a str,
    rpc_url: &'a str,
    chain_id: u64,
    http: String,
    admin: String,
    admin_token: &'a str,
}

/// Runs `dev` until it is told to stop; gives the exit code.
///
/// # Errors
/// What kept it from starting.
pub fn dev(options: DevOptions) -> Result<i32, Error> {
    super::run(serve(options))
}

/// What is set for a command that brings its own Postgres and Redis: none of ours may be named, and none may be insisted on.
///
/// # Errors
/// `NotLocal` when one or both are named, and every fault of the rest.
pub fn embedded(command: &'static str, options: &DevOptions) -> Result<Config, Error> {
    let overrides = options.listeners(Overrides::default().with(Chain::SINGLE_ENDPOINT, "true"));
    match Config::from_process(options.config.as_deref(), &overrides) {
        Ok(config) if config.database.is_some() => Err(Error::NotLocal(command)),
        Ok(config) => Ok(config),
        // One of the two alone is a fault of a service; here it is one too many.
        Err(faults) if faults.0.iter().all(|fault| matches!(fault.problem, Problem::PairIncomplete(_))) => Err(Error::NotLocal(command)),
        Err(faults) => Err(faults.into()),
    }
}

async fn serve(options: DevOptions) -> Result<i32, Error> {
    let as_json = options.json;
    let given = embedded("dev", &options)?;
    servers::check(&given.http, true)?;
    // The operator's own node, when RPC_URL names one.
    let external_node = given.chains.into_iter().next().map(|chain| chain.rpc_url);
    let world = World::start(&options, external_node).await?;
    let config = world.config(&options, &[("HOLDFAST_ROLE", "all".into())])?;
    let file = world.dir.join(DEV_FILE);
    let shown = |http: std::net::SocketAddr, admin: std::net::SocketAddr| {
        let found = Found {
            database_url: world.running.database_url.expose_secret(),
            redis_url: world.running.redis_url.expose_secret(),
            rpc_url: world.rpc_url.expose_secret(),
            chain_id: world.chain_id,
            http: format!("http://{http}"),
            admin: format!("http://{admin}"),
            admin_token: &world.admin_token,
        };
        if let Err(error) = write_private(&file, &serde_json::to_string(&found).unwrap_or_default()) {
            tracing::warn!(%error, "other commands will not find this process by themselves");
        }
        say_ready(&world, &found, as_json);
    };
    let ended = tokio::select! {
        ended = super::serve::serve_until(&config, tokio_util::sync::CancellationToken::new(), shown) => ended,
        () = world.running.ended() => Err(Error::GaveUp("the local Postgres, Redis and EVM node are gone".into())),
    };
    let _ = std::fs::remove_file(&file);
    Progress { json: as_json }.tell("stopping the local parts");
    world.running.stop().await?;
    ended
}

#[expect(clippy::print_stdout, reason = "the one line that callers wait for")]
fn say_ready(world: &World, found: &Found<'_>, as_json: bool) {
    let signers: Vec<String> = world.signers.iter().map(crate::domain::encoding::checksummed).collect();
    let recorder = crate::domain::encoding::checksummed(&world.recorder);
    if as_json {
        let line = serde_json::json!({
            "event": "ready", "http": found.http, "admin": found.admin, "rpc_url": found.rpc_url, "chain_id": world.chain_id, "pool": POOL,
            "signers": signers, "api_key": world.api_key, "recorder": recorder, "database_url": found.database_url, "redis_url": found.redis_url, "admin_token": found.admin_token,
        });
        println!("{line}");
    } else {
        println!(
            "ready: {} (admin {}), chain {}, pool {POOL}, recorder {recorder}, data in {}\nexport HOLDFAST_URL={} HOLDFAST_KEY={} HOLDFAST_RECORDER={recorder}\nexport HOLDFAST_ADMIN={} HOLDFAST_ADMIN_TOKEN={}",
            found.http,
            found.admin,
            world.chain_id,
            world.dir.display(),
            found.http,
            world.api_key,
            found.admin,
            found.admin_token,
        );
    }
}
