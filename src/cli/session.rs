//! What a command needs before it can ask: the configuration, the operator's name, and Postgres. Commands work without a running
//! server; beside a running `holdfast dev` they find its servers by the file that it leaves in its data folder.

use super::Global;
use super::failure::{Code, Failure};
use super::output::{Format, note};
use crate::config::{Chain, Config, Database, Faults, Log, LogFormat, Overrides, Problem};
use crate::operator::{self, Desk, Limits};
use crate::{local, telemetry};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::path::Path;
use zeroize::Zeroizing;

/// What a running `holdfast dev` writes into its data folder.
#[derive(Deserialize)]
struct DevFile {
    database_url: SecretString,
    redis_url: SecretString,
    rpc_url: Option<SecretString>,
    chain_id: Option<u64>,
}

const DEV_FILE: &str = "dev.json";

/// What the command line sets.
pub fn overrides(global: &Global) -> Overrides {
    match &global.operator_id {
        Some(name) => Overrides::default().with("OPERATOR_ID", name),
        None => Overrides::default(),
    }
}

/// The configuration; without DATABASE_URL that of a running `holdfast dev`, if there is one.
pub fn config(global: &Global) -> Result<Config, Faults> {
    let overrides = overrides(global);
    let config = Config::from_process(global.config.as_deref(), &overrides)?;
    if config.database.is_some() || config.operator_url.is_some() {
        return Ok(config);
    }
    let path = global.data.clone().unwrap_or_else(local::default_dir).join(DEV_FILE);
    let Some(dev) = read(&path) else { return Ok(config) };
    note(global.output, &format!("DATABASE_URL is not set: using the servers of holdfast dev ({})", path.display()));
    let mut overrides = overrides.with("DATABASE_URL", dev.database_url.expose_secret()).with("REDIS_URL", dev.redis_url.expose_secret());
    if let Some(url) = &dev.rpc_url {
        overrides = overrides.with("RPC_URL", url.expose_secret()).with(Chain::SINGLE_ENDPOINT, "true");
    }
    if let Some(id) = dev.chain_id {
        overrides = overrides.with("CHAIN_ID", id.to_string());
    }
    Config::from_process(global.config.as_deref(), &overrides)
}

fn read(path: &Path) -> Option<DevFile> {
    let text = Zeroizing::new(std::fs::read_to_string(path).ok()?);
    serde_json::from_str(&text).ok()
}

/// `config` for a command that asks Postgres only: that REDIS_URL is missing is then no fault.
pub fn config_for_postgres(global: &Global) -> Result<Config, Failure> {
    let mut faults = match config(global) {
        Err(faults) => faults,
        Ok(config) => return Ok(config),
    };
    let all = faults.0.len();
    faults.0.retain(|fault| !(fault.name == "REDIS_URL" && matches!(fault.problem, Problem::PairIncomplete(_))));
    if faults.0.len() == all || !faults.0.is_empty() {
        return Err(faults.into());
    }
    // A name that is reserved for never existing; the section is taken out again.
    let overrides = overrides(global).with("REDIS_URL", "redis://not-set.invalid");
    let config = Config::from_process(global.config.as_deref(), &overrides)?;
    Ok(Config { queue: None, ..config })
}

/// Who is named in the log of operators.
pub fn operator(config: &Config) -> Result<&str, Failure> {
    config.operator_id.as_deref().ok_or_else(|| operator::Error::NoOperator.into())
}

/// Runs what a command has to wait for.
pub fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Code::Internal, "the runtime does not start", error.to_string()))?.block_on(work)
}

/// Logs of a command: to stderr, and only what an operator should see, unless more is asked for.
pub fn start_logs(global: &Global, config: &Config) {
    let quiet = config.log.level == "info";
    let format = if global.output == Format::Text { LogFormat::Text } else { LogFormat::Json };
    let log = Log { level: if quiet { "warn".into() } else { config.log.level.clone() }, format };
    let identity = telemetry::logs::Identity { role: "cli".into(), instance: config.service.instance_id.clone() };
    if let Err(error) = telemetry::logs::start(&log, identity) {
        note(global.output, &error.to_string());
    }
}

/// How a command reaches Postgres: by the login of operators, if there is one.
fn database(config: &Config) -> Option<Database> {
    match (&config.database, &config.operator_url) {
        (Some(settings), Some(url)) => Some(Database { url: url.clone(), ..settings.clone() }),
        (None, Some(url)) => Some(Database::at(url.expose_secret())),
        (settings, None) => settings.clone(),
    }
}

/// Asks Postgres.
pub fn at_desk<T>(global: &Global, ask: impl AsyncFnOnce(&Config, &Desk) -> Result<T, operator::Error>) -> Result<T, Failure> {
    let config = config_for_postgres(global)?;
    at_desk_of(global, &config, ask)
}

/// Asks Postgres, as this configuration says.
pub fn at_desk_of<T>(
    global: &Global,
    config: &Config,
    ask: impl AsyncFnOnce(&Config, &Desk) -> Result<T, operator::Error>,
) -> Result<T, Failure> {
    let Some(settings) = database(config) else {
        return Err(Failure::new(Code::Usage, "there is no Postgres to ask", "DATABASE_URL is not set and no holdfast dev runs here")
            .then("set DATABASE_URL and REDIS_URL, start `holdfast dev`, or name its folder with --data"));
    };
    start_logs(global, config);
    wait(async {
        let desk = Desk::open(&settings, Limits::of(config)).await?.knowing(&config.chains);
        let answer = ask(config, &desk).await;
        desk.close().await;
        Ok(answer?)
    })
}
