//! The rules of the configuration, each shown once, through the one way in: `Config::load`.

use super::*;
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee01";
const PG: (&str, &str) = ("DATABASE_URL", "postgres://app:c0ffee-pg@db/holdfast");
const REDIS: (&str, &str) = ("REDIS_URL", "redis://:c0ffee-redis@cache/0");
const VOTERS: (&str, &str) = ("RPC_READ_URLS", "https://a.example/c0ffee, https://b.example/c0ffee,https://c.example/c0ffee");
const RPC: (&str, &str) = ("RPC_URL", "https://write.example/v3/c0ffee");

fn load_with(file: Option<&Path>, set: &[(&str, &str)], overrides: &Overrides) -> Result<Config, Faults> {
    let env: BTreeMap<String, String> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let loaded = Config::load(file, &|name| env.get(name).cloned(), overrides);
    let shown = match &loaded {
        Ok(config) => format!("{config:?} {config:#?}"),
        Err(faults) => format!("{faults} {faults:?}"),
    };
    assert!(!shown.to_lowercase().contains("c0ffee"), "a secret is shown: {shown}");
    loaded
}

fn load(set: &[(&str, &str)]) -> Result<Config, Faults> {
    load_with(None, set, &Overrides::default())
}

fn faults(set: &[(&str, &str)]) -> Vec<Fault> {
    load(set).err().map(|faults| faults.0).unwrap_or_default()
}

fn fault(name: &str, problem: Problem) -> Fault {
    Fault { name: name.into(), problem }
}

fn journal() -> String {
    format!(r#"{{"k1":"0x{KEY}"}}"#)
}

fn signers() -> String {
    format!(r#"{{"live:relayer":["0x{KEY}"]}}"#)
}

/// A file that goes when the test ends.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdfast-config-{}", uuid::Uuid::now_v7()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load_file(text: &str, set: &[(&str, &str)]) -> Result<Config, Faults> {
    let file = TempFile::new(text);
    load_with(Some(&file.0), set, &Overrides::default())
}

#[test]
fn the_defaults_are_sound_and_are_the_documented_ones() {
    let config = load(&[PG, REDIS, RPC]).unwrap();
    let (database, queue, chain) = (config.database.unwrap(), config.queue.unwrap(), &config.chains[0]);
    assert_eq!((database.pool_min, database.pool_max, database.queue_limit, database.pool_mode), (2, 10, 50, PoolMode::Session));
    assert_eq!(
        [database.connection_timeout, database.idle_timeout, database.statement_timeout, database.slow_statement].map(|d| d.as_millis()),
        [5000, 30000, 5000, 1000]
    );
    assert_eq!((queue.prefix.as_str(), queue.concurrency, queue.max_attempts), ("holdfast", 64, 8));
    assert_eq!([queue.lock, queue.reconcile, queue.outbox_poll].map(|d| d.as_millis()), [30_000, 30_000, 500]);
    assert_eq!((chain.id, chain.confirmations, chain.reorg_lookback, chain.lane_width, chain.batch_requests), (31337, 12, 64, 0, 100));
    assert_eq!((chain.fee_bump_bps, chain.max_replacements, chain.gas_buffer_bps, chain.single_endpoint), (1250, 10, 2000, false));
    assert_eq!((chain.max_fee_per_gas.to_string(), chain.min_priority_fee.to_string()), ("500000000000".into(), "1000000000".into()));
    assert_eq!([chain.circuit_cooldown, chain.timeout, chain.hedge, chain.head_poll].map(|d| d.as_millis()), [5000, 5000, 150, 500]);
    assert_eq!([chain.reconcile, chain.stuck].map(|d| d.as_secs()), [5, 60]);
    assert_eq!(chain.read_urls[0].expose_secret(), RPC.1);
    assert_eq!((config.http.listen.port(), config.http.admin_listen.port(), config.http.workers), (8080, 9090, 2));
    assert_eq!((config.service.role, config.service.shutdown_deadline), (Role::All, Duration::from_secs(30)));
    assert!(!config.service.instance_id.is_empty() && !config.service.infrastructure_required && config.operator_id.is_none());
}

#[test]
fn a_section_made_for_one_url_holds_the_same_defaults() {
    assert_eq!((Database::at(PG.1).pool_max, Queue::at(REDIS.1).concurrency), (10, 64));
    let chain = Chain::at(1, "http://127.0.0.1:8545");
    assert_eq!((chain.id, chain.confirmations, chain.single_endpoint, chain.read_urls.len()), (1, 12, true, 1));
}

#[test]
fn every_key_of_the_embedded_file_has_a_line_of_meaning() {
    for line in EMBEDDED.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains("# "), "{line}");
    }
}

#[test]
fn the_embedded_file_is_beaten_by_a_file_the_file_by_the_environment_and_that_by_the_command_line() {
    let file = TempFile::new("[queue]\nconcurrency = 7\nmax_attempts = 3\nlock_seconds = 9\n");
    let overrides = Overrides::default().with("QUEUE_LOCK_SECONDS", "11");
    let set = [PG, REDIS, ("JOB_MAX_ATTEMPTS", "4"), ("QUEUE_LOCK_SECONDS", "10"), ("HOLDFAST_CONFIG", file.path())];
    let queue = load_with(None, &set, &overrides).unwrap().queue.unwrap();
    assert_eq!((queue.concurrency, queue.max_attempts, queue.lock.as_secs(), queue.prefix.as_str()), (7, 4, 11, "holdfast"));
}

#[test]
fn an_empty_variable_is_not_set() {
    assert!(load(&[("DATABASE_URL", ""), ("TX_CONFIRMATIONS", ""), ("SIGNER_KEYS", ""), ("DATABASE_URL_FILE", "")]).is_ok());
}

#[test]
fn the_database_and_the_queue_are_set_together_or_not_at_all() {
    assert_eq!(faults(&[PG]), [fault("REDIS_URL", Problem::PairIncomplete("DATABASE_URL"))]);
    assert_eq!(faults(&[REDIS]), [fault("DATABASE_URL", Problem::PairIncomplete("REDIS_URL"))]);
    let none = load(&[]).unwrap();
    assert!(none.database.is_none() && none.queue.is_none() && none.chains.is_empty());
    assert!(load(&[PG, REDIS]).is_ok());
}

#[test]
fn required_infrastructure_refuses_the_embedded_default() {
    let missing = faults(&[("INFRASTRUCTURE_REQUIRED", "true")]);
    assert_eq!(missing.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["DATABASE_URL", "REDIS_URL"]);
    assert!(load(&[PG, REDIS, ("INFRASTRUCTURE_REQUIRED", "true")]).is_ok());
    assert_eq!(faults(&[("INFRASTRUCTURE_REQUIRED", "yes")]), [fault("INFRASTRUCTURE_REQUIRED", Problem::NotAFlag)]);
}

#[test]
fn urls_of_another_kind_are_refused() {
    for url in ["mysql://u:c0ffee@h/d", "c0ffee", "postgres://"] {
        let problem = Problem::NotAUrl("postgres:// or postgresql://");
        assert_eq!(faults(&[("DATABASE_URL", url), REDIS]), [fault("DATABASE_URL", problem.clone())]);
        assert_eq!(faults(&[("DATABASE_MIGRATION_URL", url)]), [fault("DATABASE_MIGRATION_URL", problem)]);
    }
    assert_eq!(faults(&[PG, ("REDIS_URL", "http://c0ffee@h")]), [fault("REDIS_URL", Problem::NotAUrl("redis:// or rediss://"))]);
    assert_eq!(faults(&[("RPC_URL", "ftp://c0ffee@h")]), [fault("RPC_URL", Problem::NotAUrl("http:// or https://"))]);
    assert!(load(&[("DATABASE_URL", "postgresql://h/d"), ("REDIS_URL", "rediss://h")]).is_ok());
}

#[test]
fn what_is_no_plain_integer_in_range_is_refused_by_name() {
    for name in ["DB_CONNECTION_TIMEOUT", "DB_IDLE_TIMEOUT", "STATEMENT_TIMEOUT_MS", "POOL_QUEUE_LIMIT", "DB_POOL_MAX", "TX_CONFIRMATIONS"]
    {
        for text in ["-1", "1.5", "abc", "+1", " 1", "1e3", "0x1", "99999999999999999999999"] {
            let found = faults(&[(name, text)]);
            assert_eq!(found.len(), 1, "{name}={text}: {found:?}");
            assert!(found[0].name == name && matches!(found[0].problem, Problem::NotAnInteger { .. }), "{found:?}");
        }
    }
    for text in ["-1", "1.5", "01", "abc", "1e18"] {
        assert_eq!(faults(&[("TX_MAX_FEE_PER_GAS_WEI", text)]), [fault("TX_MAX_FEE_PER_GAS_WEI", Problem::NotWei)], "{text}");
    }
    assert_eq!(faults(&[("QUEUE_LOCK_SECONDS", "4")]), [fault("QUEUE_LOCK_SECONDS", Problem::NotAnInteger { min: 5, max: 86_400 })]);
}

#[test]
fn a_statement_timeout_of_zero_is_off() {
    let database = load(&[PG, REDIS, ("STATEMENT_TIMEOUT_MS", "0")]).unwrap().database.unwrap();
    assert_eq!(database.statement_timeout, Duration::ZERO);
}

#[test]
fn the_pool_size_has_two_names_that_may_only_agree() {
    let max = |set: &[(&str, &str)]| load(&[&[PG, REDIS], set].concat()).map(|config| config.database.unwrap().pool_max);
    assert_eq!(max(&[("DATABASE_POOL_SIZE", "20")]).unwrap(), 20);
    assert_eq!(max(&[("DATABASE_POOL_SIZE", "20"), ("DB_POOL_MAX", "20")]).unwrap(), 20);
    let differ = max(&[("DATABASE_POOL_SIZE", "20"), ("DB_POOL_MAX", "21")]).unwrap_err();
    assert_eq!(differ.0, [fault("DATABASE_POOL_SIZE", Problem::AliasDiffers("DB_POOL_MAX"))]);
    assert_eq!(max(&[("DATABASE_POOL_SIZE", "x")]).unwrap_err().0[0].name, "DATABASE_POOL_SIZE");
    assert_eq!(max(&[("DB_POOL_MIN", "11")]).unwrap_err().0, [fault("DB_POOL_MIN", Problem::Above("DB_POOL_MAX"))]);
}

#[test]
fn a_secret_can_be_read_from_a_file_but_not_be_given_twice() {
    let file = TempFile::new(&format!("{}\n", PG.1));
    let config = load(&[("DATABASE_URL_FILE", file.path()), REDIS]).unwrap();
    assert_eq!(config.database.unwrap().url.expose_secret(), PG.1);
    let both = faults(&[("DATABASE_URL_FILE", file.path()), PG, REDIS]);
    assert_eq!(both, [fault("DATABASE_URL", Problem::BothSet("DATABASE_URL_FILE".into()))]);
    let gone = faults(&[("DATABASE_URL_FILE", "/nowhere/c0ffee"), REDIS]);
    assert_eq!(gone, [fault("DATABASE_URL_FILE", Problem::Unreadable(std::io::ErrorKind::NotFound))]);
    let voters = TempFile::new(VOTERS.1);
    assert_eq!(load(&[RPC, ("RPC_READ_URLS_FILE", voters.path())]).unwrap().chains[0].distinct_hosts(), 3);
    for name in ["REDIS_URL", "RPC_URL", "TX_JOURNAL_KEYS", "SIGNER_KEYS", "ADMIN_TOKEN", "DATABASE_MIGRATION_URL"] {
        let empty = TempFile::new(" \n");
        let pointer = format!("{name}_FILE");
        assert!(faults(&[(&pointer, empty.path())]).contains(&fault(&pointer, Problem::Required)), "{name}");
    }
}

#[test]
fn unknown_keys_of_a_file_are_refused() {
    let found = load_file("[queue]\nconcurency = 1\n[quue]\n[[chains]]\nrpc_url = 'http://a'\nsingle_endpoint = true\n", &[]).unwrap_err();
    let names: Vec<_> = found.0.iter().map(|f| (f.name.as_str(), f.problem == Problem::UnknownKey)).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in ["queue.concurency", "quue", "chains[0].single_endpoint"] {
        assert!(names.contains(&(name, true)), "{names:?}");
    }
    assert_eq!(load_file("queue = 1", &[]).unwrap_err().0, [fault("queue", Problem::NotATable)]);
    assert_eq!(load_file(&format!("{KEY} = 1"), &[]).unwrap_err().0, [fault("(a key)", Problem::UnknownKey)]);
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_named_without_its_text() {
    assert_eq!(faults(&[("HOLDFAST_CONFIG", "/nowhere")]), [fault("HOLDFAST_CONFIG", Problem::Unreadable(std::io::ErrorKind::NotFound))]);
    let broken = load_file("[database]\nurl = postgres://u:c0ffee@h\n", &[]).unwrap_err();
    assert_eq!(broken.0, [fault("--config", Problem::NotToml { line: 2 })]);
}

#[test]
fn a_value_of_a_wrong_type_in_a_file_is_named_by_variable_and_place() {
    let text = "[queue]\nconcurrency = '7'\nprefix = 3\n[chain]\nread_urls = [1]\n[service]\ninfrastructure_required = 'c0ffee'\n";
    let lines = load_file(text, &[]).unwrap_err().to_string();
    for wanted in [
        "QUEUE_CONCURRENCY (queue.concurrency): must be an integer",
        "QUEUE_PREFIX (queue.prefix): must be a string",
        "RPC_READ_URLS (chain.read_urls): must be a list",
        "INFRASTRUCTURE_REQUIRED (service.infrastructure_required): must be true or false",
    ] {
        assert!(lines.contains(wanted), "{lines}");
    }
}

#[test]
fn all_faults_are_reported_at_once_one_line_each() {
    let found =
        load(&[PG, ("DB_POOL_MAX", "abc"), ("TX_CONFIRMATIONS", "-1"), ("POOL_MODE", "c0ffee"), ("HTTP_LISTEN", "c0ffee")]).unwrap_err();
    let lines = found.to_string();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    for name in ["REDIS_URL: ", "DB_POOL_MAX: ", "TX_CONFIRMATIONS: ", "POOL_MODE: must be one of session, transaction", "HTTP_LISTEN: "] {
        assert!(lines.lines().any(|line| line.starts_with(name)), "{name} in {lines}");
    }
}

#[test]
fn roles_without_keys_refuse_to_be_given_any() {
    let file = TempFile::new(&signers());
    for role in ["engine", "auditor"] {
        let base = [PG, REDIS, RPC, VOTERS, ("HOLDFAST_ROLE", role)];
        assert!(load(&base).is_ok());
        let given = [("SIGNER_KEYS_FILE", file.path()), ("TX_JOURNAL_KEYS", &journal()), ("TX_JOURNAL_ACTIVE_KEY_ID", "k1")];
        let found = faults(&[&base[..], &given[..]].concat());
        assert_eq!(found, ["SIGNER_KEYS", "TX_JOURNAL_KEYS"].map(|name| fault(name, Problem::KeysRefused(role))));
    }
}

#[test]
fn a_role_that_signs_needs_the_journal() {
    let keys = signers();
    let all = [PG, REDIS, RPC, VOTERS, ("SIGNER_KEYS", keys.as_str())];
    assert_eq!(faults(&all), [fault("TX_JOURNAL_KEYS", Problem::RequiredBy("SIGNER_KEYS"))]);
    let relayer = [PG, REDIS, RPC, ("HOLDFAST_ROLE", "relayer")];
    assert_eq!(faults(&relayer), [fault("TX_JOURNAL_KEYS", Problem::RequiredByRole("relayer"))]);
    let journal = journal();
    let with = [("TX_JOURNAL_KEYS", journal.as_str()), ("TX_JOURNAL_ACTIVE_KEY_ID", "k1")];
    let config = load(&[&all[..], &with[..]].concat()).unwrap();
    assert_eq!((config.journal.unwrap().active.as_str(), config.signers.pools.len()), ("k1", 1));
}

#[test]
fn the_active_journal_key_has_to_be_one_of_the_keys() {
    let journal = journal();
    let keys = ("TX_JOURNAL_KEYS", journal.as_str());
    assert_eq!(faults(&[keys]), [fault("TX_JOURNAL_ACTIVE_KEY_ID", Problem::RequiredBy("TX_JOURNAL_KEYS"))]);
    let unknown = faults(&[keys, ("TX_JOURNAL_ACTIVE_KEY_ID", "c0ffee")]);
    assert_eq!(unknown, [fault("TX_JOURNAL_ACTIVE_KEY_ID", JournalError::ActiveUnknown.into())]);
    assert_eq!(faults(&[("TX_JOURNAL_ACTIVE_KEY_ID", "k1")]), [fault("TX_JOURNAL_KEYS", Problem::RequiredBy("TX_JOURNAL_ACTIVE_KEY_ID"))]);
    let malformed = faults(&[("TX_JOURNAL_KEYS", "{}"), ("TX_JOURNAL_ACTIVE_KEY_ID", "k1")]);
    assert_eq!(malformed, [fault("TX_JOURNAL_KEYS", JournalError::Empty.into())]);
    assert_eq!(faults(&[("SIGNER_KEYS", "[]"), keys, ("TX_JOURNAL_ACTIVE_KEY_ID", "k1")])[0].problem, SignersError::NotAnObject.into());
}

#[test]
fn live_local_signers_need_voters_on_three_hosts() {
    let (journal, keys) = (journal(), signers());
    let base = [PG, REDIS, RPC, ("SIGNER_KEYS", keys.as_str()), ("TX_JOURNAL_KEYS", journal.as_str()), ("TX_JOURNAL_ACTIVE_KEY_ID", "k1")];
    let with = |urls| faults(&[&base[..], &[("RPC_READ_URLS", urls)]].concat());
    let few = |found| vec![fault("RPC_READ_URLS", Problem::TooFewHosts { chain: 31337, found })];
    assert_eq!(faults(&base), few(1));
    assert_eq!(with("https://a.example,https://b.example"), few(2));
    assert_eq!(with("https://a.example,https://b.example,https://c.example"), []);
    let development = Overrides::default().with(Chain::SINGLE_ENDPOINT, "true");
    assert!(load_with(None, &base, &development).unwrap().chains[0].single_endpoint);
    assert_eq!(faults(&[&base[..], &[(Chain::SINGLE_ENDPOINT, "true")]].concat()), few(1), "the environment cannot ask for the exception");
}

#[test]
fn a_host_votes_once_whatever_its_port_path_case_or_user() {
    for twin in ["https://A.example:8545", "http://a.example/other/c0ffee", "https://u:c0ffee@a.example", "https://a.example."] {
        let urls = format!("https://b.example,https://a.example,{twin}");
        let problem = Problem::DuplicateHost { chain: 31337, first: 2, second: 3 };
        assert_eq!(faults(&[RPC, ("RPC_READ_URLS", &urls)]), [fault("RPC_READ_URLS", problem)], "{twin}");
    }
    let name = "RPC_READ_URLS";
    assert_eq!(faults(&[RPC, (name, "https://127.1/c0ffee")]), [fault(name, Problem::NotAUrl("http:// or https://"))]);
    assert_eq!(faults(&[VOTERS]), [fault("RPC_URL", Problem::Required)]);
}

#[test]
fn several_chains_stand_in_a_file_and_share_its_defaults() {
    let text = "[chain]\nconfirmations = 3\n[[chains]]\nid = 1\nrpc_url = 'https://one.example'\n\
                [[chains]]\nid = 10\nrpc_url = 'https://ten.example'\nconfirmations = 64\nread_urls = ['https://t.example']\n";
    let config = load_file(text, &[]).unwrap();
    let seen: Vec<_> = config.chains.iter().map(|chain| (chain.id, chain.confirmations, chain.stuck.as_secs())).collect();
    assert_eq!(seen, [(1, 3, 60), (10, 64, 60)]);
    let found = load_file(text, &[RPC, ("TX_CONFIRMATIONS", "2")]).unwrap_err();
    assert_eq!(found.0, ["RPC_URL", "TX_CONFIRMATIONS"].map(|name| fault(name, Problem::AmbiguousChain(2))));
    let twice = load_file(&text.replace("id = 10", "id = 1"), &[]).unwrap_err();
    assert_eq!(twice.0, [fault("CHAIN_ID (chains[1].id)", Problem::DuplicateChain(1))]);
    let without = load_file("[[chains]]\nid = 1\n", &[]).unwrap_err();
    assert_eq!(without.0, [fault("RPC_URL", Problem::Required)]);
}

#[test]
fn the_environment_beats_the_file_for_its_only_chain() {
    let text = "[[chains]]\nid = 5\nrpc_url = 'https://one.example'\nconfirmations = 7\n";
    let chain = load_file(text, &[("TX_CONFIRMATIONS", "2")]).unwrap().chains.remove(0);
    assert_eq!((chain.id, chain.confirmations, chain.rpc_url.expose_secret()), (5, 2, "https://one.example"));
}

#[test]
fn names_that_end_up_in_rows_and_keys_are_plain() {
    let plain = |name: &str, value: &str| load(&[PG, REDIS, (name, value)]);
    assert_eq!(plain("INSTANCE_ID", "relayer-0.a:1").unwrap().service.instance_id, "relayer-0.a:1");
    assert_eq!(plain("OPERATOR_ID", "ann@example.org").unwrap().operator_id.as_deref(), Some("ann@example.org"));
    for (name, value) in [("INSTANCE_ID", "a b"), ("QUEUE_PREFIX", "{c0ffee}"), ("QUEUE_PREFIX", "a:b"), ("OPERATOR_ID", "a\nb")] {
        let found = plain(name, value).unwrap_err();
        assert!(found.0.len() == 1 && found.0[0].name == name && matches!(found.0[0].problem, Problem::NotAName { .. }), "{found}");
    }
    let mine = |role| load(&[("HOSTNAME", "pod-7"), ("HOLDFAST_ROLE", role)]).unwrap().service.instance_id;
    assert!(mine("all").starts_with("pod-7-"));
}

#[test]
fn a_service_says_what_it_lacks() {
    let missing = load(&[]).unwrap().check_service().unwrap_err();
    assert_eq!(missing.0, ["DATABASE_URL", "REDIS_URL", "RPC_URL"].map(|name| fault(name, Problem::RequiredByRole("all"))));
    assert!(load(&[PG, REDIS, RPC]).unwrap().check_service().is_ok());
}

#[test]
fn what_words_mean_can_be_set_for_each_chain_and_a_bad_row_is_named() {
    let text = "[chain]\nrpc_error_overrides = [{pattern = 'says no', class = 'txpool_full'}]\n\
                [[chains]]\nid = 1\nrpc_url = 'https://one.example'\nrpc_error_overrides = [{pattern = '^a$', class = 'revert'}, {pattern = 'b', class = 'unknown'}]\n\
                [[chains]]\nid = 10\nrpc_url = 'https://ten.example'\n";
    let chains = load_file(text, &[]).unwrap().chains;
    let row = |pattern: &str, class| ErrorOverride { pattern: pattern.into(), class };
    assert_eq!(chains[0].error_overrides, [row("^a$", "revert"), row("b", "unknown")]);
    assert_eq!(chains[1].error_overrides, [row("says no", "txpool_full")]);
    let name = "RPC_ERROR_OVERRIDES";
    let by_env = |value: &str| load(&[RPC, (name, value)]);
    assert_eq!(by_env(r#"[{"pattern":"x","class":"already_known"}]"#).unwrap().chains[0].error_overrides, [row("x", "already_known")]);
    for bad in
        ["x", "{}", r#"[{"pattern":"x"}]"#, r#"[{"pattern":"x","class":"revert","more":"1"}]"#, r#"[{"pattern":1,"class":"revert"}]"#]
    {
        assert_eq!(by_env(bad).unwrap_err().0, [fault(name, Problem::NotRecords("pattern and class"))], "{bad}");
    }
    for pattern in ["(", "", "(x{1000}){1000}"] {
        let rows = serde_json::json!([{"pattern": "y", "class": "revert"}, {"pattern": pattern, "class": "revert"}]);
        assert_eq!(by_env(&rows.to_string()).unwrap_err().0, [fault(name, Problem::NotAPattern { row: 2 })], "{pattern}");
    }
    for class in ["reverted", "", "ok", "no_answer"] {
        let rows = serde_json::json!([{"pattern": "y", "class": class}]);
        let found = by_env(&rows.to_string()).unwrap_err().0;
        assert!(
            matches!(&found[..], [Fault { problem: Problem::NotAClass { row: 1, classes }, .. }] if classes.contains("revert")),
            "{class}"
        );
    }
    let in_file = load_file("[chain]\nrpc_url = 'http://a'\nrpc_error_overrides = [{pattern = 'a'}]\n", &[]).unwrap_err();
    assert_eq!(in_file.0, [fault("RPC_ERROR_OVERRIDES (chain.rpc_error_overrides)", Problem::NotRecords("pattern and class"))]);
}

#[test]
fn the_window_of_a_lane_is_set_by_profile_by_chain_and_by_signer() {
    let signer: entity::values::Address = "0x5fbdb2315678afecb367f032d93f642f64180aa3".parse().unwrap();
    let config = load(&[PG, REDIS, RPC]).unwrap();
    assert_eq!((config.chains[0].profile.as_str(), config.chains[0].lane_widths.len()), ("default", 0));
    let of_environment = [("TX_CHAIN_PROFILE", "hyperevm"), ("TX_LANE_WIDTHS", "{\"0x5fbdb2315678afecb367f032d93f642f64180aa3\": 4}")];
    let config = load(&[&[PG, REDIS, RPC][..], &of_environment].concat()).unwrap();
    assert_eq!((config.chains[0].profile.as_str(), config.chains[0].lane_widths.get(&signer)), ("hyperevm", Some(&4)));
    let file = "[chain]\nrpc_url = \"http://127.0.0.1:8545\"\nprofile = \"geth\"\nlane_widths = { \"0x5fbdb2315678afecb367f032d93f642f64180aa3\" = 64 }\nsigner_balance_floor_wei = \"5\"\n";
    let chain = &load_file(file, &[PG, REDIS]).unwrap().chains[0];
    assert_eq!((chain.profile.as_str(), chain.lane_widths.get(&signer), chain.signer_balance_floor), ("geth", Some(&64), 5.into()));
    let width = || Problem::NotAWidth { max: 10_000 };
    for (value, problem) in
        [("4", Problem::NotNumbers), ("{\"0x12\": 4}", width()), ("{\"0x5fbdb2315678afecb367f032d93f642f64180aa3\": 0}", width())]
    {
        assert_eq!(faults(&[PG, REDIS, RPC, ("TX_LANE_WIDTHS", value)]), [fault("TX_LANE_WIDTHS", problem)], "{value}");
    }
}

#[test]
fn a_level_of_the_log_that_does_not_exist_is_a_fault_beside_the_others() {
    for level in ["verbose", "info,c0ffee", "holdfast=loud", "=debug", "info,,debug", "holdfast=debug=1"] {
        let found = faults(&[("LOG_LEVEL", level), ("DB_POOL_MAX", "x")]);
        let names: Vec<_> = found.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(names, ["DB_POOL_MAX", "LOG_LEVEL"], "{level}: {found:?}");
    }
    for level in ["info", "WARN", "off", "info,holdfast=debug", "warn, sqlx::query=trace"] {
        assert_eq!(faults(&[("LOG_LEVEL", level)]), [], "{level}");
    }
}

#[test]
fn settings_that_cannot_work_together_are_faults() {
    let above = fault("TX_CONFIRMATIONS", Problem::Above("TX_REORG_LOOKBACK_BLOCKS"));
    assert_eq!(faults(&[RPC, ("TX_CONFIRMATIONS", "65")]), [above]);
    assert_eq!(faults(&[RPC, ("TX_CONFIRMATIONS", "64")]), []);
    assert_eq!(faults(&[RPC, ("TX_CONFIRMATIONS", "12"), ("TX_REORG_LOOKBACK_BLOCKS", "x")]).len(), 1);
    assert_eq!(faults(&[("DB_CONNECTION_TIMEOUT", "0")])[0].name, "DB_CONNECTION_TIMEOUT");
    assert_eq!(faults(&[("ADMIN_TOKEN", "short-and-known")]), [fault("ADMIN_TOKEN", Problem::TooShort(16))]);
    assert_eq!(faults(&[("ADMIN_TOKEN", "just-long-enough")]), []);
}

#[test]
fn what_is_most_likely_not_meant_is_a_warning() {
    let names = |set: &[(&str, &str)]| load(set).unwrap().warnings.into_iter().map(|warning| warning.name).collect::<Vec<_>>();
    assert_eq!(names(&[PG, REDIS, RPC]), ["SIGNER_KEYS"]);
    assert_eq!(names(&[PG, REDIS, RPC, ("HOLDFAST_ROLE", "engine")]), [""; 0]);
    let open = ("ADMIN_LISTEN", "0.0.0.0:9090");
    assert_eq!(names(&[PG, REDIS, RPC, ("HOLDFAST_ROLE", "engine"), open]), ["ADMIN_TOKEN"]);
    assert_eq!(names(&[("HOLDFAST_ROLE", "engine"), open, ("ADMIN_TOKEN", "0123456789abcdef")]), [""; 0]);
    let lock = |seconds| ("QUEUE_LOCK_SECONDS", seconds);
    let slow = ("RPC_TIMEOUT_MILLISECONDS", "5000");
    assert_eq!(names(&[PG, REDIS, RPC, ("HOLDFAST_ROLE", "engine"), slow, lock("9")]), ["QUEUE_LOCK_SECONDS"]);
    assert_eq!(names(&[PG, REDIS, RPC, ("HOLDFAST_ROLE", "engine"), slow, lock("10")]), [""; 0]);
}
