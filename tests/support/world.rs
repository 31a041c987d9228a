//! World: everything one test needs and nobody else has. A database, a part of Redis (or one of its own), a chain with three
//! providers in front of it, funded signers, an API key, and the real program as processes. `finish` checks the invariants.

use super::anvil::{Anvil, CHAIN_ID, Mining, Node, RECORDER, record_data};
use super::invariants;
use super::parts::{self, Database, HOLDFAST, OwnRedis, Servers};
use super::process::{Process, free_port};
use super::rpc_proxy::{RpcProxy, Sent};
use super::tcp_proxy::TcpProxy;
use super::wait::{eventually, found};
use entity::values::{Address, hex_from_bytes};
use holdfast::domain::api_key;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Each is another provider to the program, all on this machine.
const PROVIDERS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
pub const POOL: &str = "local:relayer";
/// Long enough for a busy machine, short enough to be noticed.
pub const SOON: Duration = Duration::from_secs(60);
const FINAL: [&str; 6] = ["completed", "not_actionable", "reverted", "dead", "quarantined", "cancelled"];

/// What a world is to be like.
pub struct Setup {
    pub node: Node,
    pub lanes: usize,
    pub mining: Mining,
    pub hardfork: &'static str,
    /// The nonce of every signer before the program sees it.
    pub first_nonce: u64,
    pub redis: Redis,
    /// A proxy between the program and Postgres.
    pub postgres_proxy: bool,
    /// Servers that the test may stop, instead of the shared ones.
    pub servers: Option<Servers>,
    pub environment: Vec<(&'static str, String)>,
}

/// Which Redis the program works with.
pub enum Redis {
    Shared,
    Own(OwnRedis),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            node: Node::Anvil,
            lanes: 1,
            mining: Mining::Every(Duration::from_millis(200)),
            hardfork: "prague",
            first_nonce: 0,
            redis: Redis::Shared,
            postgres_proxy: false,
            servers: None,
            environment: Vec::new(),
        }
    }
}

impl Setup {
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.environment.push((name, value.to_string()));
        self
    }
}

pub struct Signer {
    pub address: Address,
    key: [u8; 32],
}

/// An answer of the program's API.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Reply {
    pub fn id(&self) -> String {
        self.body["id"].as_str().unwrap_or_else(|| panic!("no id in {self:?}")).to_owned()
    }
}

/// A process of the program under test.
pub struct Instance {
    pub process: Process,
    pub http: String,
    pub admin: String,
}

impl std::ops::Deref for Instance {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

pub struct World {
    pub anvil: Anvil,
    pub providers: Vec<RpcProxy>,
    pub database: Database,
    pub pool: PgPool,
    pub postgres: Option<TcpProxy>,
    pub redis: Option<tokio::sync::Mutex<OwnRedis>>,
    pub redis_url: String,
    pub prefix: String,
    pub signers: Vec<Signer>,
    pub first_nonce: u64,
    pub api_key: String,
    pub admin_token: String,
    pub servers: Option<Servers>,
    pub client: reqwest::Client,
    pub panics_expected: AtomicBool,
    /// Nonces that somebody else used up: the program gives them to no job.
    pub foreign_nonces: Mutex<BTreeSet<u64>>,
    secrets: Vec<String>,
    environment: BTreeMap<String, String>,
    instances: Mutex<Vec<Arc<Instance>>>,
    next: AtomicU64,
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

fn signer() -> Signer {
    use web3::signing::Key;
    let key = random::<32>();
    let secret = web3::signing::SecretKey::from_slice(&key).expect("a key below the order of the curve");
    Signer { address: Address(web3::signing::SecretKeyRef::new(&secret).address().0), key }
}

/// host:port of a URL.
fn authority(url: &str) -> (String, SocketAddr) {
    let (_, rest) = url.split_once("://").expect("a URL");
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    (host.to_owned(), host.parse().expect("an address"))
}

impl World {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let servers: &Servers = match &setup.servers {
            Some(own) => own,
            None => parts::shared(),
        };
        let signers: Vec<Signer> = (0..setup.lanes).map(|_| signer()).collect();
        let node = async {
            match setup.node {
                Node::Anvil => Anvil::start_at(setup.mining, setup.hardfork).await,
                Node::Hardhat => Anvil::hardhat(setup.mining).await,
                Node::EthereumJs => Anvil::ethereumjs(&signers.iter().map(|signer| signer.address).collect::<Vec<_>>()).await,
            }
        };
        let (anvil, database) = tokio::join!(node, servers.database());
        let pool = PgPoolOptions::new().max_connections(3).connect(database.owner.expose_secret()).await.expect("the owner logs in");
        let mut providers = Vec::new();
        for host in PROVIDERS {
            providers.push(RpcProxy::start_on(host, &anvil.url).await);
        }
        for signer in signers.iter().filter(|_| setup.node != Node::EthereumJs) {
            anvil.fund(signer.address, 10_000).await;
            anvil.set_nonce(signer.address, setup.first_nonce).await;
        }
        let (shared_redis, prefix) = (servers.redis_url(), format!("w{}-{}", std::process::id(), parts::serial()));
        let (redis_url, redis) = match setup.redis {
            Redis::Shared => (shared_redis, None),
            Redis::Own(own) => (own.url(), Some(tokio::sync::Mutex::new(own))),
        };
        let mut runtime_url = database.runtime.expose_secret().to_owned();
        let mut postgres = None;
        if setup.postgres_proxy {
            let (host, address) = authority(&runtime_url);
            let proxy = TcpProxy::start(address).await;
            runtime_url = runtime_url.replace(&host, &format!("127.0.0.1:{}", proxy.port));
            postgres = Some(proxy);
        }
        let minted = api_key::mint("test").expect("random bytes");
        sqlx::query("INSERT INTO holdfast.api_keys (id, project, secret_hash) VALUES ($1, 'tests', $2)")
            .bind(&minted.id)
            .bind(minted.hash.0.to_vec())
            .execute(&pool)
            .await
            .expect("a new key");
        let journal_key = hex_from_bytes(&random::<32>());
        let admin_token = hex_from_bytes(&random::<16>());
        let keys: Vec<String> = signers.iter().map(|signer| hex_from_bytes(&signer.key)).collect();
        let mut secrets = keys.clone();
        secrets.extend([journal_key.clone(), minted.plaintext.to_string(), admin_token.clone(), servers.runtime_password().to_owned()]);
        let read_urls: Vec<&str> = providers.iter().map(|provider| provider.url.as_str()).collect();
        let mut environment: BTreeMap<String, String> = [
            ("DATABASE_URL", runtime_url),
            ("REDIS_URL", redis_url.clone()),
            ("QUEUE_PREFIX", prefix.clone()),
            ("RPC_URL", providers[0].url.clone()),
            ("RPC_READ_URLS", read_urls.join(",")),
            ("CHAIN_ID", CHAIN_ID.to_string()),
            ("SIGNER_KEYS", json!({ POOL: keys }).to_string()),
            ("TX_JOURNAL_KEYS", json!({ "test-1": journal_key }).to_string()),
            ("TX_JOURNAL_ACTIVE_KEY_ID", "test-1".to_owned()),
            ("ADMIN_TOKEN", admin_token.clone()),
            // Short, so that a test waits for what happens and not for a clock.
            ("TX_CONFIRMATIONS", "2".to_owned()),
            ("TX_RECONCILE_SECONDS", "1".to_owned()),
            ("TX_LANE_WIDTH", "64".to_owned()),
            ("RPC_HEAD_POLL_MILLISECONDS", "100".to_owned()),
            ("RPC_TIMEOUT_MILLISECONDS", "2000".to_owned()),
            ("RPC_CIRCUIT_COOLDOWN_MILLISECONDS", "500".to_owned()),
            ("QUEUE_LOCK_SECONDS", "5".to_owned()),
            ("QUEUE_RECONCILE_SECONDS", "2".to_owned()),
            ("OUTBOX_POLL_MILLISECONDS", "200".to_owned()),
            ("DB_POOL_MIN", "0".to_owned()),
            ("DB_POOL_MAX", "6".to_owned()),
            ("SHUTDOWN_DEADLINE_SECONDS", "10".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        for (name, value) in setup.environment {
            environment.insert(name.to_owned(), value);
        }
        Self {
            anvil,
            providers,
            database,
            pool,
            postgres,
            redis,
            redis_url,
            prefix,
            signers,
            first_nonce: setup.first_nonce,
            api_key: minted.plaintext.to_string(),
            admin_token,
            servers: setup.servers,
            client: reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().expect("a client"),
            panics_expected: AtomicBool::new(false),
            foreign_nonces: Mutex::default(),
            secrets,
            environment,
            instances: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// What the processes of this world are given under this name.
    pub fn setting(&self, name: &str) -> &str {
        &self.environment[name]
    }

    /// The shared servers, or the world's own.
    pub fn servers(&self) -> &Servers {
        self.servers.as_ref().unwrap_or_else(|| parts::shared())
    }

    /// A process of the program that may not be ready yet.
    pub fn launch(&self, role: &str, changes: &[(&str, &str)]) -> Arc<Instance> {
        self.launch_as(HOLDFAST, &["serve", "--role", role], role, changes)
    }

    /// A process of the program whose log nobody reads: `log` is a pipe that a test holds open.
    pub fn launch_unheard(&self, log: &std::path::Path) -> Arc<Instance> {
        let run = format!("exec '{HOLDFAST}' serve --role all 2>'{}'", log.display());
        self.launch_as("/bin/sh", &["-c", &run], "all", &[("LOG_LEVEL", "trace")])
    }

    fn launch_as(&self, program: &str, arguments: &[&str], role: &str, changes: &[(&str, &str)]) -> Arc<Instance> {
        let (http, admin) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let mut environment = self.environment.clone();
        environment.insert("HTTP_LISTEN".to_owned(), http.clone());
        environment.insert("ADMIN_LISTEN".to_owned(), admin.clone());
        if role == "engine" {
            for secret in ["SIGNER_KEYS", "TX_JOURNAL_KEYS", "TX_JOURNAL_ACTIVE_KEY_ID"] {
                environment.remove(secret);
            }
        }
        for (name, value) in changes {
            environment.insert((*name).to_owned(), (*value).to_owned());
        }
        let process = Process::spawn(&format!("serve --role {role}"), program, arguments, &environment);
        let instance = Arc::new(Instance { process, http: format!("http://{http}"), admin: format!("http://{admin}") });
        self.instances.lock().unwrap().push(instance.clone());
        instance
    }

    /// A process of the program, ready to serve.
    pub async fn serve(&self, role: &str, changes: &[(&str, &str)]) -> Arc<Instance> {
        let instance = self.launch(role, changes);
        self.until_ready(&instance).await;
        instance
    }

    /// A process that answers callers and holds no key, on lanes that exist already.
    pub async fn engine(&self) -> Arc<Instance> {
        self.register_lanes().await;
        self.serve("engine", &[]).await
    }

    async fn register_lanes(&self) {
        let mut settings = holdfast::config::Database::at(self.database.runtime.expose_secret());
        settings.pool_min = 0;
        let db = holdfast::store::Db::connect(&settings).await.expect("the runtime logs in");
        let width = self.environment["TX_LANE_WIDTH"].parse().expect("a width");
        for signer in &self.signers {
            let (chain, nonce) = (i64::try_from(CHAIN_ID).unwrap(), i64::try_from(self.first_nonce).unwrap());
            holdfast::store::lanes::register(&db, chain, POOL, signer.address, nonce, width, "test").await.expect("a lane");
        }
        db.close().await;
    }

    pub async fn until_ready(&self, instance: &Instance) {
        eventually("the program is ready", SOON, async || {
            assert!(instance.is_alive(), "ended before it was ready\n{}", instance.tail());
            self.is_ready(instance).await
        })
        .await;
    }

    pub async fn is_ready(&self, instance: &Instance) -> bool {
        let answer = self.client.get(format!("{}/readyz", instance.admin)).timeout(Duration::from_secs(3)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    pub fn instances(&self) -> Vec<Arc<Instance>> {
        self.instances.lock().unwrap().clone()
    }

    /// The write endpoint's provider.
    pub fn writer(&self) -> &RpcProxy {
        &self.providers[0]
    }

    /// Every raw transaction that any provider saw.
    pub fn sent(&self) -> Vec<Sent> {
        self.providers.iter().flat_map(RpcProxy::sent).collect()
    }

    pub fn fresh_number(&self) -> u128 {
        u128::from(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A job that records a number nobody else records.
    pub fn record(&self) -> Value {
        json!({
            "kind": "contract_call", "chain_id": CHAIN_ID, "pool": POOL, "to": RECORDER.to_string(), "value": "0",
            "data": record_data(self.fresh_number()),
        })
    }

    pub async fn try_post(&self, at: &Instance, path: &str, key: &str, body: &Value) -> Result<Reply, reqwest::Error> {
        let request = self.client.post(format!("{}{path}", at.http)).bearer_auth(&self.api_key).header("idempotency-key", key).json(body);
        reply(request.send().await?).await
    }

    pub async fn post(&self, at: &Instance, path: &str, key: &str, body: &Value) -> Reply {
        self.try_post(at, path, key, body).await.unwrap_or_else(|error| panic!("{path}: {error:?}\n{}", at.tail()))
    }

    pub async fn submit(&self, at: &Instance, key: &str, body: &Value) -> Reply {
        self.post(at, "/v1/jobs", key, body).await
    }

    /// Submits and insists on acceptance; the id.
    pub async fn accept(&self, at: &Instance, body: &Value) -> String {
        let reply = self.submit(at, &uuid::Uuid::new_v4().to_string(), body).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.id()
    }

    /// So many records, in batches.
    pub async fn accept_records(&self, at: &Instance, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        while ids.len() < count {
            let jobs: Vec<Value> = (ids.len()..count.min(ids.len() + 500))
                .map(|_| {
                    let mut job = self.record();
                    job["idempotency_key"] = uuid::Uuid::new_v4().to_string().into();
                    job
                })
                .collect();
            let reply = self.post(at, "/v1/jobs/batch", "", &json!({ "jobs": jobs })).await;
            assert!(reply.status < 300, "{reply:?}");
            let results = reply.body["jobs"].as_array().or(reply.body["results"].as_array()).expect("a list of results").clone();
            ids.extend(results.iter().map(|result| {
                let id = result["job"]["id"].as_str().or(result["id"].as_str());
                id.unwrap_or_else(|| panic!("not accepted: {result}")).to_owned()
            }));
        }
        ids
    }

    pub async fn get(&self, at: &Instance, path: &str) -> Reply {
        let answer = self.client.get(format!("{}{path}", at.http)).bearer_auth(&self.api_key).send().await;
        reply(answer.unwrap_or_else(|error| panic!("{path}: {error:?}\n{}", at.tail()))).await.expect("an answer")
    }

    pub async fn job(&self, at: &Instance, id: &str) -> Value {
        let reply = self.get(at, &format!("/v1/jobs/{id}")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.body
    }

    /// A figure of an instance: the sum of a metric's lines that hold all of `labels`.
    pub async fn metric(&self, at: &Instance, name: &str, labels: &[&str]) -> f64 {
        let text = self.client.get(format!("{}/metrics", at.admin)).send().await.expect("metrics").text().await.expect("text");
        let lines = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// The state of a job, from the database.
    pub async fn state(&self, id: &str) -> String {
        self.scalar(&format!("SELECT state FROM holdfast.jobs WHERE id = '{id}'")).await
    }

    pub async fn scalar<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        row.get::<T, _>(0)
    }

    /// Each row as one line of text, the columns parted by a bar.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        let sql = format!("SELECT array_to_string(ARRAY(SELECT value FROM json_each_text(to_json(q.*))), '|', '') FROM ({sql}) q");
        let rows = sqlx::query(AssertSqlSafe(sql.clone())).fetch_all(&self.pool).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The same while the server may be away.
    pub async fn try_count(&self, what: &str) -> Option<i64> {
        let sql = format!("SELECT count(*) FROM holdfast.{what}");
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await.ok().map(|row| row.get(0))
    }

    pub async fn count(&self, what: &str) -> i64 {
        self.scalar(&format!("SELECT count(*) FROM holdfast.{what}")).await
    }

    pub async fn until_state(&self, id: &str, state: &str) {
        let mut last = String::new();
        let since = std::time::Instant::now();
        while last != state {
            last = self.state(id).await;
            let over = since.elapsed() > SOON || (last != state && FINAL.contains(&last.as_str()));
            assert!(last == state || !over, "job {id} is {last}, not {state}\n{}", self.told().await);
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Mines a block again and again until a query over jobs or lineages counts none.
    pub async fn mine_until_none(&self, what: &str, within: Duration) {
        let since = std::time::Instant::now();
        while self.count(what).await > 0 {
            assert!(since.elapsed() < within, "{what} are left after {within:?}\n{}", self.told().await);
            self.anvil.mine(1).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    /// The events of a job, oldest first.
    pub async fn events(&self, id: &str) -> Vec<String> {
        self.rows(&format!("SELECT type FROM holdfast.stream_events WHERE domain = 'job' AND key = '{id}' ORDER BY version")).await
    }

    /// Waits until all jobs of the world have ended.
    pub async fn until_final(&self, within: Duration) {
        let since = std::time::Instant::now();
        loop {
            let open = self.count("jobs WHERE finished_at IS NULL").await;
            if open == 0 {
                return;
            }
            if since.elapsed() > within {
                panic!("{open} jobs have not ended within {within:?}\n{}", self.told().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until all jobs have ended, and insists that they are completed.
    pub async fn until_completed(&self, within: Duration) {
        self.until_final(within).await;
        let others = self.rows("SELECT id, state, error_type, error_detail FROM holdfast.jobs WHERE state <> 'completed' LIMIT 20").await;
        assert!(others.is_empty(), "not completed: {others:#?}\n{}", self.told().await);
    }

    /// How everything stands, for the message of a failed test.
    pub async fn told(&self) -> String {
        let mut told = vec!["--- open jobs".to_owned()];
        told.extend(
            self.rows(
                "SELECT j.id, j.state, j.attempts, j.error_type, j.error_detail, o.generation, o.next_at - now() AS next, o.published_at IS NOT NULL AS published,
                        o.failures, l.nonce, l.state AS lineage, l.sends, l.last_answer
                 FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id LEFT JOIN holdfast.lineages l ON l.job_id = j.id
                 WHERE j.finished_at IS NULL ORDER BY l.nonce NULLS LAST LIMIT 20",
            )
            .await,
        );
        told.push("--- lanes".into());
        told.extend(self.rows("SELECT id, state, reason, next_nonce, latest_nonce, settled_nonce, width, lease_holder, lease_until - now() AS lease FROM holdfast.lanes").await);
        told.push("--- workers".into());
        told.extend(self.rows("SELECT id, instance, state, processing, now() - heartbeat_at AS silent FROM holdfast.workers").await);
        told.extend(self.instances().iter().map(|instance| instance.tail()));
        told.join("\n")
    }

    /// A raw connection to the world's Redis.
    pub async fn redis(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.redis_url.as_str()).expect("url").get_multiplexed_async_connection().await.expect("redis")
    }

    pub fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Checks what may never be false, and takes everything down.
    pub async fn finish(self) {
        self.until_final(SOON).await;
        self.finish_open().await;
    }

    /// The same for a world in which jobs may still be open.
    pub async fn finish_open(self) {
        invariants::check(&self).await;
        for instance in self.instances() {
            instance.kill9();
        }
        self.pool.close().await;
        match self.servers {
            Some(own) => own.stop().await,
            None => parts::shared().drop_database(&self.database).await,
        }
    }
}

async fn reply(answer: reqwest::Response) -> Result<Reply, reqwest::Error> {
    let status = answer.status().as_u16();
    let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let headers = answer.headers().iter().map(header).collect();
    let text = answer.text().await?;
    Ok(Reply { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
}

/// For tests that want a URL as the program sees it.
pub fn secret(url: &str) -> SecretString {
    SecretString::from(url.to_owned())
}

/// Waits until the answer of a query satisfies.
pub async fn until_count(world: &World, what: &str, within: Duration, satisfies: impl Fn(i64) -> bool) -> i64 {
    found(&format!("count of {what}"), within, async || {
        let count = world.count(what).await;
        satisfies(count).then_some(count)
    })
    .await
}
