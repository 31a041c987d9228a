//! Owns a JSON-RPC provider that misbehaves on demand: an HTTP server in front of a real node. Verbs can be switched while
//! it runs, apply to each call of a batch, and every raw transaction it sees is written down.

use super::http_wire::{self, Client, Connection};
use super::raw_transaction::{self, RawTransaction};
use super::rpc_view::{Read, View, hex, key, number};
use entity::values::{Address, Hash, bytes_from_hex};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const SEND: &str = "eth_sendRawTransaction";

pub type Hook = Arc<dyn Fn(&Value) + Send + Sync>;

#[derive(Clone)]
enum Verb {
    AcceptThenDrop,
    Hang(Duration),
    Reset,
    Reply(Value),
    Status(u16),
    /// A status with further header lines, and a body of any kind.
    Raw(u16, String, String),
    HookBefore(Hook),
    HookAfter(Hook),
    StrictNonce,
    MaxSlots(u64),
    RefuseBeyond(u64, &'static str),
    Replacement {
        needs_more: bool,
    },
    MinTip(u128),
}

struct Planned {
    id: u64,
    method: String,
    verb: Verb,
    left: Option<u32>,
    every: u32,
    met: u32,
    applied: u64,
}

/// A verb in force. Dropping the handle leaves it in force.
#[derive(Clone)]
pub struct Rule {
    id: u64,
    inner: Arc<Inner>,
}

impl Rule {
    fn change<T>(&self, change: impl FnOnce(&mut Planned) -> T) -> Option<T> {
        self.inner.rules.lock().unwrap().iter_mut().find(|rule| rule.id == self.id).map(change)
    }

    /// Applies so often and then no more.
    pub fn times(self, times: u32) -> Self {
        self.change(|rule| rule.left = Some(times));
        self
    }

    /// Applies only to each n-th call that it meets.
    pub fn every(self, every: u32) -> Self {
        self.change(|rule| rule.every = every.max(1));
        self
    }

    pub fn applied(&self) -> u64 {
        self.change(|rule| rule.applied).unwrap_or_default()
    }

    pub fn lift(self) {
        self.inner.rules.lock().unwrap().retain(|rule| rule.id != self.id);
    }
}

/// A raw transaction as it came by.
#[derive(Clone, Debug)]
pub struct Sent {
    pub transaction: RawTransaction,
    pub raw: Vec<u8>,
    /// The node saw it.
    pub forwarded: bool,
    /// What the provider said, whether or not the caller came to hear it. None: nothing.
    pub answer: Option<Result<Hash, (i64, String)>>,
}

struct Inner {
    upstream: Client,
    rules: Mutex<Vec<Planned>>,
    next: AtomicU64,
    view: Mutex<View>,
    sent: Mutex<Vec<Sent>>,
    unreadable: AtomicU64,
    requests: AtomicU64,
    /// Connections that the callers still hold.
    open: AtomicU64,
    calls: Mutex<BTreeMap<String, u64>>,
    /// Last transaction taken by the node for each signer and nonce: what a replacement is measured against.
    pool: Mutex<HashMap<(Address, u64), RawTransaction>>,
}

/// The provider. Its connections end when it is dropped.
pub struct RpcProxy {
    pub url: String,
    inner: Arc<Inner>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for RpcProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl RpcProxy {
    pub async fn start(upstream: &str) -> Self {
        Self::start_on("127.0.0.1", upstream).await
    }

    /// On a host of its own: a provider that votes needs one.
    pub async fn start_on(host: &str, upstream: &str) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            upstream: Client::new(upstream),
            rules: Mutex::default(),
            next: AtomicU64::new(1),
            view: Mutex::default(),
            sent: Mutex::default(),
            unreadable: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            open: AtomicU64::new(0),
            calls: Mutex::default(),
            pool: Mutex::default(),
        });
        let shared = Arc::clone(&inner);
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(Arc::clone(&shared), stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, inner, server }
    }

    fn rule(&self, method: &str, verb: Verb) -> Rule {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let method = method.to_owned();
        self.inner.rules.lock().unwrap().push(Planned { id, method, verb, left: None, every: 1, met: 0, applied: 0 });
        Rule { id, inner: Arc::clone(&self.inner) }
    }

    /// Forwards and then closes the connection without an answer. The method `*` is any method, here and below.
    pub fn accept_then_drop(&self, method: &str) -> Rule {
        self.rule(method, Verb::AcceptThenDrop)
    }

    /// Keeps the caller waiting, then goes on as usual: the node sees the call even when the caller has left.
    pub fn hang(&self, method: &str, time: Duration) -> Rule {
        self.rule(method, Verb::Hang(time))
    }

    /// Does not forward; the caller's connection is reset.
    pub fn reset(&self, method: &str) -> Rule {
        self.rule(method, Verb::Reset)
    }

    /// Does not forward; answers this, an object with `result` or `error`.
    pub fn reply(&self, method: &str, body: Value) -> Rule {
        assert!(body.get("result").is_some() || body.get("error").is_some(), "an answer has a result or an error");
        self.rule(method, Verb::Reply(body))
    }

    /// Does not forward; answers the whole request with a status of HTTP.
    pub fn status(&self, method: &str, status: u16) -> Rule {
        self.rule(method, Verb::Status(status))
    }

    /// Does not forward; answers the whole request with this status, these further header lines and this body.
    pub fn raw(&self, method: &str, status: u16, headers: &str, body: &str) -> Rule {
        self.rule(method, Verb::Raw(status, headers.to_owned(), body.to_owned()))
    }

    /// Calls the hook before the call is forwarded.
    pub fn crash_before(&self, method: &str, hook: Hook) -> Rule {
        self.rule(method, Verb::HookBefore(hook))
    }

    /// Calls the hook when the node has answered and the caller does not know it yet.
    pub fn crash_after(&self, method: &str, hook: Hook) -> Rule {
        self.rule(method, Verb::HookAfter(hook))
    }

    /// Refuses a nonce above the next one.
    pub fn strict_nonce(&self) -> Rule {
        self.rule(SEND, Verb::StrictNonce)
    }

    /// Answers a hash but drops nonces above the chain's next nonce + `slots` - 1.
    pub fn max_slots(&self, slots: u64) -> Rule {
        self.rule(SEND, Verb::MaxSlots(slots))
    }

    /// Refuses nonces above the chain's next nonce + `slots` - 1 with these words.
    pub fn refuse_beyond(&self, slots: u64, words: &'static str) -> Rule {
        self.rule(SEND, Verb::RefuseBeyond(slots, words))
    }

    /// A replacement needs tip and cap each higher and at least 10 % more, rounded down.
    pub fn geth_rule(&self) -> Rule {
        self.rule(SEND, Verb::Replacement { needs_more: false })
    }

    /// A replacement needs tip and cap each above 110 %, rounded down.
    pub fn reth_rule(&self) -> Rule {
        self.rule(SEND, Verb::Replacement { needs_more: true })
    }

    /// Refuses tips below.
    pub fn min_tip(&self, wei: u128) -> Rule {
        self.rule(SEND, Verb::MinTip(wei))
    }

    /// Answers reads as of so many blocks before the head.
    pub fn lag(&self, blocks: u64) {
        *self.inner.view.lock().unwrap() = View::Behind(blocks);
    }

    /// Stays at the present block.
    pub async fn freeze_head(&self) {
        let head = self.inner.real_head().await.expect("the node answers");
        *self.inner.view.lock().unwrap() = View::At(head);
    }

    /// Stays on the present fork: the last blocks with their transactions and receipts are kept as they are now.
    pub async fn freeze_view(&self) {
        const BLOCKS: u64 = 64;
        let head = self.inner.real_head().await.expect("the node answers");
        let mut answers = HashMap::new();
        for block in head.saturating_sub(BLOCKS)..=head {
            self.inner.record(block, block == head, &mut answers).await.expect("the node answers");
        }
        *self.inner.view.lock().unwrap() = View::Recorded { head, answers };
    }

    /// Follows the node again.
    pub fn unfreeze(&self) {
        *self.inner.view.lock().unwrap() = View::Live;
    }

    /// Lifts every verb and follows the node.
    pub fn heal(&self) {
        self.inner.rules.lock().unwrap().clear();
        self.unfreeze();
    }

    /// Every raw transaction seen, in order.
    pub fn sent(&self) -> Vec<Sent> {
        self.inner.sent.lock().unwrap().clone()
    }

    /// Raw transactions that are no well-formed type 2.
    pub fn unreadable(&self) -> u64 {
        self.inner.unreadable.load(Ordering::Relaxed)
    }

    /// Calls of a method so far.
    pub fn calls(&self, method: &str) -> u64 {
        self.inner.calls.lock().unwrap().get(method).copied().unwrap_or_default()
    }

    /// Connections that callers hold now; one that hung up while it waited is not among them.
    pub fn open(&self) -> u64 {
        self.inner.open.load(Ordering::Relaxed)
    }

    /// Requests of HTTP so far; a batch is one.
    pub fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::Relaxed)
    }
}

/// What a call, and with it its whole request, comes to. The later ones win over the earlier.
enum Outcome {
    Answer(Value),
    Raw(u16, String, String),
    Status(u16),
    Close,
    Reset,
}

/// A connection that its caller holds.
struct Held(Arc<Inner>);

impl Held {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(inner))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Resolves when the caller has hung up.
async fn hung_up(stream: &TcpStream) {
    if stream.peek(&mut [0]).await.is_ok_and(|bytes| bytes > 0) {
        std::future::pending::<()>().await;
    }
}

async fn serve(inner: Arc<Inner>, stream: TcpStream) {
    let mut held = Some(Held::new(&inner));
    let mut connection: Connection = BufReader::new(stream);
    while let Ok(Some(request)) = http_wire::read(&mut connection).await {
        inner.requests.fetch_add(1, Ordering::Relaxed);
        let mut work = std::pin::pin!(inner.request(&request.body));
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = hung_up(connection.get_ref()) => {
                held.take();
                work.await
            }
        };
        let (status, body) = match outcome {
            Outcome::Answer(body) => ("200 -".to_owned(), body.to_string()),
            Outcome::Status(status) => (status.to_string() + " -", String::new()),
            Outcome::Raw(status, headers, body) => (format!("{status} -{headers}"), body),
            Outcome::Close => return,
            Outcome::Reset => {
                let _ = connection.get_ref().set_zero_linger();
                return;
            }
        };
        if http_wire::write(&mut connection, &format!("HTTP/1.1 {status}"), body.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Inner {
    async fn request(&self, body: &[u8]) -> Outcome {
        let Ok(request) = serde_json::from_slice::<Value>(body) else { return Outcome::Status(400) };
        let Value::Array(calls) = request else { return self.call(request).await };
        let (mut answers, mut worst) = (Vec::new(), None);
        for call in calls {
            match (self.call(call).await, &worst) {
                (Outcome::Answer(answer), _) => answers.push(answer),
                (Outcome::Reset, _) => worst = Some(Outcome::Reset),
                (Outcome::Close, None | Some(Outcome::Status(_) | Outcome::Raw(..))) => worst = Some(Outcome::Close),
                (status, None) => worst = Some(status),
                _ => {}
            }
        }
        worst.unwrap_or(Outcome::Answer(Value::Array(answers)))
    }

    async fn call(&self, call: Value) -> Outcome {
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        *self.calls.lock().unwrap().entry(method.clone()).or_default() += 1;
        let verbs = self.due(&method);
        let raw = (method == SEND).then(|| call["params"][0].as_str().and_then(bytes_from_hex)).flatten();
        let logged = raw.and_then(|raw| self.log(raw));
        let mut refused = None;
        for verb in &verbs {
            match verb {
                Verb::Hang(time) => tokio::time::sleep(*time).await,
                Verb::Reset => return Outcome::Reset,
                Verb::Status(status) => return Outcome::Status(*status),
                Verb::Raw(status, headers, body) => {
                    let headers = headers.lines().map(|line| format!("\r\n{line}")).collect();
                    return Outcome::Raw(*status, headers, body.clone());
                }
                Verb::HookBefore(hook) => hook(&call),
                Verb::Reply(body) => refused = refused.or_else(|| Some(body.clone())),
                _ if refused.is_none() => {
                    if let Some((_, transaction)) = &logged {
                        refused = self.refusal(verb, transaction).await;
                    }
                }
                _ => {}
            }
        }
        let forwarded = refused.is_none();
        let answer = match refused {
            Some(answer) => answer,
            None => match self.forward(&method, call["params"].clone()).await {
                Ok(answer) => answer,
                Err(_) => return Outcome::Close,
            },
        };
        if let Some((at, transaction)) = logged {
            self.settle(at, transaction, forwarded, &answer);
        }
        let mut dropped = false;
        for verb in verbs {
            match verb {
                Verb::HookAfter(hook) => hook(&call),
                Verb::AcceptThenDrop => dropped = true,
                _ => {}
            }
        }
        if dropped { Outcome::Close } else { Outcome::Answer(labelled(answer, &call)) }
    }

    /// The verbs that apply to this call, each counted.
    fn due(&self, method: &str) -> Vec<Verb> {
        let mut due = Vec::new();
        for rule in self.rules.lock().unwrap().iter_mut().filter(|rule| rule.method == "*" || rule.method == method) {
            rule.met += 1;
            if rule.met % rule.every == 0 && rule.left != Some(0) {
                rule.left = rule.left.map(|left| left - 1);
                rule.applied += 1;
                due.push(rule.verb.clone());
            }
        }
        due
    }

    fn log(&self, raw: Vec<u8>) -> Option<(usize, RawTransaction)> {
        let Some(transaction) = raw_transaction::decode(&raw) else {
            self.unreadable.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let mut sent = self.sent.lock().unwrap();
        sent.push(Sent { transaction: transaction.clone(), raw, forwarded: false, answer: None });
        Some((sent.len() - 1, transaction))
    }

    fn settle(&self, at: usize, transaction: RawTransaction, forwarded: bool, answer: &Value) {
        let accepted = answer.get("result").is_some();
        let told = match answer.get("error") {
            Some(error) => Err((error["code"].as_i64().unwrap_or_default(), error["message"].as_str().unwrap_or_default().to_owned())),
            None => answer["result"].as_str().unwrap_or_default().parse().map_err(|_| (0, "no hash".to_owned())),
        };
        if accepted && forwarded {
            self.pool.lock().unwrap().insert((transaction.from, transaction.nonce), transaction);
        }
        let mut sent = self.sent.lock().unwrap();
        sent[at].forwarded = forwarded;
        sent[at].answer = Some(told);
    }

    /// What the rules of a stricter node say to this transaction.
    async fn refusal(&self, verb: &Verb, new: &RawTransaction) -> Option<Value> {
        let error = |message: String| Some(json!({ "error": { "code": -32000, "message": message } }));
        match verb {
            Verb::MinTip(wei) if new.tip < *wei => error(format!("transaction underpriced: gas tip cap {}, minimum needed {wei}", new.tip)),
            Verb::StrictNonce => {
                let next = self.nonce(new.from, "pending").await?;
                (new.nonce > next)
                    .then(|| error(format!("nonce too high: address {}, tx: {} state: {next}", new.from, new.nonce)))
                    .flatten()
            }
            Verb::MaxSlots(slots) => {
                let next = self.nonce(new.from, "latest").await?;
                (new.nonce >= next + slots).then(|| json!({ "result": new.hash }))
            }
            Verb::RefuseBeyond(slots, words) => {
                let next = self.nonce(new.from, "latest").await?;
                (new.nonce >= next + slots).then(|| error((*words).to_owned())).flatten()
            }
            Verb::Replacement { needs_more } => {
                let old = self.pool.lock().unwrap().get(&(new.from, new.nonce)).cloned().filter(|old| old.hash != new.hash)?;
                let enough = |old: u128, new: u128| {
                    let bar = old * 110 / 100;
                    new > old && if *needs_more { new > bar } else { new >= bar }
                };
                if enough(old.tip, new.tip) && enough(old.cap, new.cap) || !self.is_pending(&old).await {
                    return None;
                }
                error("replacement transaction underpriced".to_owned())
            }
            _ => None,
        }
    }

    async fn is_pending(&self, old: &RawTransaction) -> bool {
        let known = self.ask("eth_getTransactionByHash", json!([old.hash])).await;
        known.is_ok_and(|answer| answer["result"].is_object() && answer["result"]["blockNumber"].is_null())
    }

    async fn nonce(&self, of: Address, block: &str) -> Option<u64> {
        number(&self.ask("eth_getTransactionCount", json!([of, block])).await.ok()?["result"])
    }

    async fn real_head(&self) -> Option<u64> {
        number(&self.ask("eth_blockNumber", json!([])).await.ok()?["result"])
    }

    /// Forwards through the view the provider has of the chain.
    async fn forward(&self, method: &str, params: Value) -> std::io::Result<Value> {
        let view = self.view.lock().unwrap().clone();
        if matches!(view, View::Live) || method == SEND {
            return self.ask(method, params).await;
        }
        let real = self.real_head().await.ok_or(std::io::ErrorKind::InvalidData)?;
        let head = view.head(real);
        match view.before(head, method, &params) {
            Read::Answer(answer) => Ok(answer),
            Read::Forward(params) => {
                let mut answer = self.ask(method, params).await?;
                View::after(head, method, &mut answer);
                Ok(answer)
            }
        }
    }

    async fn ask(&self, method: &str, params: Value) -> std::io::Result<Value> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.upstream.post(call.to_string().as_bytes()).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Keeps one block with all that can be asked about it.
    async fn record(&self, block: u64, latest: bool, answers: &mut HashMap<String, Value>) -> std::io::Result<()> {
        let full = self.ask("eth_getBlockByNumber", json!([hex(block), true])).await?;
        let mut slim = full.clone();
        let transactions = full["result"]["transactions"].as_array().cloned().unwrap_or_default();
        slim["result"]["transactions"] = transactions.iter().map(|transaction| transaction["hash"].clone()).collect();
        for (whole, answer) in [(true, &full), (false, &slim)] {
            answers.insert(key("eth_getBlockByNumber", &json!([hex(block), whole])), answer.clone());
            answers.insert(key("eth_getBlockByHash", &json!([full["result"]["hash"], whole])), answer.clone());
            if latest {
                answers.insert(key("eth_getBlockByNumber", &json!(["latest", whole])), answer.clone());
            }
        }
        for transaction in transactions {
            let params = json!([transaction["hash"]]);
            for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash"] {
                let answer = self.ask(method, params.clone()).await?;
                answers.insert(key(method, &params), answer);
            }
        }
        Ok(())
    }
}

/// The answer under the number of the call.
fn labelled(mut answer: Value, call: &Value) -> Value {
    answer["jsonrpc"] = json!("2.0");
    answer["id"] = call["id"].clone();
    answer
}

#[cfg(test)]
#[path = "rpc_proxy_tests.rs"]
mod tests;
