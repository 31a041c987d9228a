//! Owns what the operator sets: reads it, checks it, and says everything that is wrong at once. Alone looks at the environment.
//! Never acts on a setting and never shows a secret. `cli` and `local` load it; every part is then handed its own section.
//!
//! Order of strength: embedded config.toml < file < environment (NAME, or NAME_FILE for a secret) < command line (`Overrides`).

mod chain;
mod database;
mod fault;
mod http;
mod journal;
mod layers;
mod log;
mod membership;
mod queue;
mod remote;
mod retirement;
mod rpc_words;
mod secrets;
mod service;
mod signers;
mod typos;
pub mod url;
mod warnings;

pub use chain::Chain;
pub use database::{Database, PoolMode};
pub use fault::{Fault, Faults, Problem};
pub use http::Http;
pub use journal::{Error as JournalError, Journal, JournalKey, SEALS_MAX as JOURNAL_SEALS_MAX};
pub use layers::{EMBEDDED, Env, Overrides};
pub use log::{Log, LogFormat};
pub use queue::Queue;
pub use remote::{Error as RemoteError, Remote, RemotePool};
pub use retirement::Retirement;
pub use rpc_words::ErrorOverride;
pub use service::{Role, Service};
pub use signers::{Error as SignersError, PoolKeys, SecretKey32, SignerKeys};
pub use warnings::Warning;

use layers::{Layers, Section};
use secrecy::SecretString;
use std::path::Path;

/// Independent hosts that live signers need: two of three decide, and one provider may fail or lie.
const QUORUM_HOSTS: usize = 3;

#[derive(Clone, Debug)]
pub struct Config {
    pub service: Service,
    /// Present exactly when `queue` is. Without both, only the embedded default can run.
    pub database: Option<Database>,
    pub queue: Option<Queue>,
    pub chains: Vec<Chain>,
    pub journal: Option<Journal>,
    pub signers: SignerKeys,
    pub retirement: Retirement,
    pub http: Http,
    pub log: Log,
    /// The login of operators' commands, which sees no bytes of the journal; without it they use that of the service.
    pub operator_url: Option<SecretString>,
    /// The owner of the schema; for migrations alone.
    pub migration_url: Option<SecretString>,
    /// Who is named in the audit rows of operator commands.
    pub operator_id: Option<String>,
    /// What can be, and is most likely not meant: told when a service starts, and by `doctor`.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// Reads all layers. The file is the one given, else the one that HOLDFAST_CONFIG names, else none.
    ///
    /// # Errors
    /// Every fault that was found, not the first alone.
    pub fn load(file: Option<&Path>, env: &Env<'_>, overrides: &Overrides) -> Result<Self, Faults> {
        let layers = Layers::new(file, env, overrides);
        let config = Self::read(&layers);
        let faults = layers.into_faults();
        if faults.is_empty() { Ok(config) } else { Err(Faults(faults)) }
    }

    /// `load` with the environment of this process.
    ///
    /// # Errors
    /// As `load`.
    pub fn from_process(file: Option<&Path>, overrides: &Overrides) -> Result<Self, Faults> {
        // Lossy, so that a variable that is no Unicode is seen and refused instead of passing for unset.
        let mut config = Self::load(file, &|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()), overrides)?;
        config.warnings.extend(typos::of(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())));
        Ok(config)
    }

    /// What a long-running role needs beyond what every command needs.
    ///
    /// # Errors
    /// Every missing part.
    pub fn check_service(&self) -> Result<(), Faults> {
        let role = self.service.role;
        let mut faults = Vec::new();
        let mut require = |present: bool, name: &str| {
            if !present {
                faults.push(Fault { name: name.into(), problem: Problem::RequiredByRole(role.as_str()) });
            }
        };
        require(self.database.is_some(), "DATABASE_URL");
        require(self.queue.is_some(), "REDIS_URL");
        require(!self.chains.is_empty(), "RPC_URL");
        if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
    }

    fn read(layers: &Layers<'_>) -> Self {
        let service_section = layers.section("service");
        let service = Service::read(&service_section);
        let (database, queue, migration_url) = read_infrastructure(layers, service.infrastructure_required);
        let chains = Chain::read_all(layers);
        let journal_section = layers.section("journal");
        let signers_section = layers.section("signers");
        let journal = Journal::read(&journal_section);
        let signers = SignerKeys::read(&signers_section);
        check_keys(service.role, &journal_section, &signers_section);
        check_hosts(layers, &chains, &signers);
        check_depths(layers, &chains);
        let http = Http::read(&layers.section("http"));
        let slowest = chains.iter().map(|chain| chain.timeout).max();
        let warnings = warnings::of(service.role, !signers.is_empty(), &http, queue.as_ref().map(|queue| queue.lock), slowest);
        Self {
            database,
            queue,
            chains,
            journal,
            signers,
            retirement: Retirement::read(&layers.section("retirement")),
            http,
            log: Log::read(&layers.section("log")),
            operator_url: Database::url(&layers.section("database"), "operator_url", "DATABASE_OPERATOR_URL"),
            migration_url,
            operator_id: service_section.plain_name("operator_id", "OPERATOR_ID", 128, "_.:@+-/ "),
            service,
            warnings,
        }
    }
}

/// DATABASE_URL and REDIS_URL are set together or not at all: half of the pair would accept work that nobody carries.
fn read_infrastructure(layers: &Layers<'_>, required: bool) -> (Option<Database>, Option<Queue>, Option<SecretString>) {
    const DATABASE: &str = "DATABASE_URL";
    const REDIS: &str = "REDIS_URL";
    let (database, queue) = (layers.section("database"), layers.section("queue"));
    match (database.is_given("url", DATABASE), queue.is_given("url", REDIS)) {
        (true, false) => layers.fault(REDIS, Problem::PairIncomplete(DATABASE)),
        (false, true) => layers.fault(DATABASE, Problem::PairIncomplete(REDIS)),
        (false, false) if required => {
            layers.fault(DATABASE, Problem::InfrastructureRequired);
            layers.fault(REDIS, Problem::InfrastructureRequired);
        }
        _ => {}
    }
    let database_url = Database::url(&database, "url", DATABASE);
    let queue_url = Queue::url(&queue);
    let migration_url = Database::url(&database, "migration_url", "DATABASE_MIGRATION_URL");
    // Read even when there is no URL, so that a fault in the rest is found in the same pass.
    let (has_database, has_queue) = (database_url.is_some(), queue_url.is_some());
    let database = Database::read(&database, database_url.unwrap_or_default());
    let queue = Queue::read(&queue, queue_url.unwrap_or_default());
    (has_database.then_some(database), has_queue.then_some(queue), migration_url)
}

/// Roles without keys refuse them; a role that signs cannot start without the journal that remembers what it signed.
fn check_keys(role: Role, journal: &Section<'_>, signers: &Section<'_>) {
    let keys = [(signers, "keys", "SIGNER_KEYS"), (signers, "remote_urls", "SIGNER_REMOTE_URLS"), (journal, "keys", "TX_JOURNAL_KEYS")];
    let fault = |name, problem| signers.layers().fault(name, problem);
    if !role.may_hold_keys() {
        for (section, key, name) in keys {
            if section.is_given(key, name) {
                fault(name, Problem::KeysRefused(role.as_str()));
            }
        }
    } else if !journal.is_given("keys", "TX_JOURNAL_KEYS") {
        if role == Role::Relayer {
            fault("TX_JOURNAL_KEYS", Problem::RequiredByRole(role.as_str()));
        } else if signers.is_given("keys", "SIGNER_KEYS") {
            fault("TX_JOURNAL_KEYS", Problem::RequiredBy("SIGNER_KEYS"));
        } else if signers.is_given("remote_urls", "SIGNER_REMOTE_URLS") {
            fault("TX_JOURNAL_KEYS", Problem::RequiredBy("SIGNER_REMOTE_URLS"));
        }
    }
}

fn check_hosts(layers: &Layers<'_>, chains: &[Chain], signers: &SignerKeys) {
    if signers.is_empty() {
        return;
    }
    for chain in chains.iter().filter(|chain| !chain.single_endpoint) {
        let found = chain.distinct_hosts();
        if found < QUORUM_HOSTS {
            layers.fault("RPC_READ_URLS", Problem::TooFewHosts { chain: chain.id, found });
        }
    }
}

/// An outcome is final at TX_CONFIRMATIONS: a reorganisation has to be followed at least as deep.
fn check_depths(layers: &Layers<'_>, chains: &[Chain]) {
    const DEPTH: &str = "TX_CONFIRMATIONS";
    const LOOKBACK: &str = "TX_REORG_LOOKBACK_BLOCKS";
    // One mistake is one line: after a fault of either its value is none that was set.
    if layers.is_faulty(DEPTH) || layers.is_faulty(LOOKBACK) {
        return;
    }
    for _ in chains.iter().filter(|chain| chain.confirmations > chain.reorg_lookback) {
        layers.fault(DEPTH, Problem::Above(LOOKBACK));
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
