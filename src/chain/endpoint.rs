//! One endpoint of a chain: asks it in batches, checks that it is on the right chain, and keeps its health. Never chooses between
//! endpoints and never retries a call that may have been taken. Called by `pool`.

use super::bucket::Bucket;
use super::calm::Calm;
use super::classify::Words;
use super::error::{Error, Failure, Unsent};
use super::health::{Admission, Health, Identity, Outcome};
use super::http::{Http, Reply};
use super::types::{Capabilities, EndpointView, Role};
use super::wire::{self, Quantity, Request, Whole};
use crate::config;
use crate::domain::rpc_verdict::Class;
use crate::telemetry::metrics;
use futures::stream::{FuturesOrdered, StreamExt};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Exchanges under way at one endpoint. What is over it waits, so that an endpoint that hangs holds no growing pile of sockets.
const UNDER_WAY_MAX: usize = 32;
/// Batches of one question asked at the same time.
const BATCHES_ABREAST: usize = 4;
/// A refused batch with a body under this was refused for being a batch, not for its size.
const BODY_MODEST: usize = 128 * 1024;
/// Most bytes of one request, until the endpoint has shown that it takes fewer.
const BODY_MAX: usize = 512 * 1024;
/// What a call needs besides its parameters.
const CALL_BYTES: usize = 96;

#[derive(Debug)]
pub struct Endpoint {
    pub role: Role,
    pub health: Health,
    name: String,
    http: Http,
    chain_id: u64,
    /// The chain id as a label.
    chain: String,
    timeout: Duration,
    next_id: AtomicU64,
    /// Most calls in one batch, as configured.
    pub(super) batch_max: usize,
    /// The same, learnt from refusals.
    batch: AtomicUsize,
    /// Most bytes in one request.
    body: AtomicUsize,
    budget: Option<Bucket>,
    capabilities: Mutex<Capabilities>,
    /// It has shown its chain since it was last asked what it can do.
    unprobed: AtomicBool,
    under_way: Semaphore,
    /// Where its calls count; None for one that does not vote.
    calm: Option<Arc<Calm>>,
    words: Arc<Words>,
}

/// What the endpoints of a chain have in common.
#[derive(Debug)]
pub struct Common<'a> {
    pub chain: &'a config::Chain,
    pub calm: &'a Arc<Calm>,
    pub words: &'a Arc<Words>,
}

/// One exchange. Dropped before its end it gives the probe back and tells how long nobody got an answer.
struct Flight<'a> {
    health: &'a Health,
    began: Instant,
    done: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.health.withdraw();
            self.health.abandoned(self.began.elapsed());
        }
    }
}

impl Endpoint {
    pub fn new(url: &SecretString, index: usize, role: Role, common: &Common<'_>) -> Result<Self, Error> {
        let chain = common.chain;
        let http = Http::new(url, index, chain.timeout)?;
        let budget = usize::try_from(chain.requests_per_second).unwrap_or(usize::MAX);
        let batch_max = if budget > 0 { chain.batch_requests.min(budget) } else { chain.batch_requests }.max(1);
        Ok(Self {
            role,
            health: Health::new(chain.circuit_cooldown, chain.hedge),
            name: http.name().to_owned(),
            http,
            chain_id: chain.id,
            chain: chain.id.to_string(),
            timeout: chain.timeout,
            next_id: AtomicU64::new(1),
            batch_max,
            batch: AtomicUsize::new(batch_max),
            body: AtomicUsize::new(BODY_MAX),
            budget: Bucket::new(chain.requests_per_second),
            capabilities: Mutex::default(),
            unprobed: AtomicBool::new(false),
            under_way: Semaphore::new(UNDER_WAY_MAX),
            calm: role.votes().then(|| Arc::clone(common.calm)),
            words: Arc::clone(common.words),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells two URLs of one host and port apart.
    pub fn rename(&mut self, name: String) {
        self.name = name;
    }

    pub fn view(&self) -> EndpointView {
        let now = self.health.snapshot(Instant::now());
        EndpointView {
            name: self.name.clone(),
            role: self.role,
            score: now.score,
            circuit: now.circuit,
            head: now.head,
            lag: now.lag,
            chain_id_ok: match now.identity {
                Identity::Unknown => None,
                Identity::Right => Some(true),
                Identity::Wrong => Some(false),
            },
            requests: now.requests,
            errors: now.errors,
            capabilities: *self.capabilities.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Asks some calls in any order; one outcome each, in the order of the calls.
    pub async fn ask<T: DeserializeOwned>(&self, calls: &[Request]) -> Vec<Result<T, Failure>> {
        if let Err(failure) = self.enter(calls).await {
            return calls.iter().map(|_| Err(failure.clone())).collect();
        }
        let deadline = Instant::now() + self.timeout;
        let size = self.batch.load(Relaxed);
        if calls.len() <= size {
            return self.batches(calls, deadline).await;
        }
        let mut answers = Vec::with_capacity(calls.len());
        for group in calls.chunks(size * BATCHES_ABREAST) {
            let mut parts = FuturesOrdered::new();
            for part in group.chunks(size) {
                parts.push_back(self.batches(part, deadline));
            }
            while let Some(part) = parts.next().await {
                answers.extend(part);
            }
        }
        answers
    }

    /// Asks some calls one batch after the other, so that the endpoint sees them in their order.
    pub async fn ask_in_order<T: DeserializeOwned>(&self, calls: &[Request]) -> Vec<Result<T, Failure>> {
        match self.enter(calls).await {
            Ok(()) => self.batches(calls, Instant::now() + self.timeout).await,
            Err(failure) => calls.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    pub async fn ask_one<T: DeserializeOwned>(&self, call: Request) -> Result<T, Failure> {
        self.ask(&[call]).await.pop().unwrap_or(Err(Failure::Malformed("no answer")))
    }

    /// Its newest block as it is known, asked for where it has not shown `since` yet.
    pub async fn head_since(&self, since: u64) -> Option<u64> {
        let known = self.health.head();
        if known.is_some_and(|head| head >= since) {
            return known;
        }
        let Ok(Quantity(head)) = self.ask_one(Request::new("eth_blockNumber", "[]".to_owned())).await else { return known };
        self.health.set_head(head);
        Some(head)
    }

    /// Whether the endpoint may be asked now. An endpoint that is not known to be on the right chain shows it first.
    async fn enter(&self, calls: &[Request]) -> Result<(), Failure> {
        let admission = self.health.admit(Instant::now());
        match admission {
            Admission::CircuitOpen => return Err(Failure::NotSent(Unsent::CircuitOpen)),
            Admission::Pausing => return Err(Failure::NotSent(Unsent::Pausing)),
            Admission::Yes | Admission::Probe => {}
        }
        let asks_identity = calls.iter().all(|call| call.method == "eth_chainId");
        if !asks_identity && (admission == Admission::Probe || self.health.identity() == Identity::Unknown) {
            self.identify().await.map_err(|failure| match failure {
                // A call of its own failed; the calls behind it were not sent.
                Failure::NotSent(_) => failure,
                _ => Failure::NotSent(Unsent::NoConnection),
            })?;
        }
        if self.health.identity() == Identity::Wrong && !asks_identity {
            if admission == Admission::Probe {
                self.health.withdraw();
            }
            return Err(Failure::NotSent(Unsent::WrongChain));
        }
        Ok(())
    }

    /// Asks for the chain id where that is due, as far as the circuit lets it.
    pub async fn refresh_identity(&self) {
        if (self.health.identity_is_stale(Instant::now()) || self.health.is_open(Instant::now()))
            && matches!(self.health.admit(Instant::now()), Admission::Yes | Admission::Probe)
        {
            // What came of it is in the health.
            let _ = self.identify().await;
        }
    }

    /// No answer within a deadline of the caller's own.
    pub fn overdue(&self, after: Duration) {
        self.health.doubt_identity();
        self.record(Outcome::Fault, after, 1, "overdue");
    }

    fn record(&self, outcome: Outcome, took: Duration, calls: usize, reason: &str) {
        let recorded = self.health.record(Instant::now(), outcome, took, calls);
        if let Some(calm) = self.calm.as_ref().filter(|_| recorded.in_rotation) {
            calm.record(outcome != Outcome::Answered);
        }
        if recorded.turned {
            let circuit = self.health.snapshot(Instant::now()).circuit.as_str();
            tracing::warn!(event = "rpc_circuit_changed", endpoint = self.name, circuit, reason, "circuit changed");
        }
    }

    /// Asks for the chain id and remembers whether it is the configured one.
    pub async fn identify(&self) -> Result<u64, Failure> {
        let calls = [Request::new("eth_chainId", "[]".to_owned())];
        let answer = match self.exchange::<Quantity>(&calls, Instant::now() + self.timeout).await {
            Ok(mut answers) => answers.pop().unwrap_or(Err(Failure::Malformed("no answer"))),
            Err(Whole::TooMany { .. }) => Err(Failure::Malformed("no answer")),
            Err(Whole::Failed(failure)) => Err(failure),
        };
        let Quantity(found) = answer?;
        let before = self.health.identity();
        if found == self.chain_id {
            self.health.set_identity(Instant::now(), Identity::Right);
            if before != Identity::Right {
                self.unprobed.store(true, Relaxed);
            }
        } else {
            self.health.set_identity(Instant::now(), Identity::Wrong);
            if before != Identity::Wrong {
                metrics::RPC_WRONG_CHAIN.add(1, &[&self.chain, &self.name]);
                tracing::error!(
                    event = "rpc_chain_id_mismatch",
                    endpoint = self.name,
                    configured = self.chain_id,
                    found,
                    "endpoint is on another chain and is not used"
                );
            }
        }
        Ok(found)
    }

    /// Cuts the calls into batches that the endpoint takes. Where a batch as a whole fails, the rest is not sent.
    async fn batches<T: DeserializeOwned>(&self, calls: &[Request], deadline: Instant) -> Vec<Result<T, Failure>> {
        let mut answers = Vec::with_capacity(calls.len());
        while answers.len() < calls.len() {
            let rest = &calls[answers.len()..];
            let size = self.fitting(rest);
            match self.exchange::<T>(&rest[..size], deadline).await {
                Ok(part) => answers.extend(part),
                Err(Whole::TooMany { sized }) if size > 1 => self.shrink(&rest[..size], sized),
                Err(whole) => {
                    let failure = match whole {
                        Whole::TooMany { .. } => Failure::Malformed("a single call was taken for a batch"),
                        Whole::Failed(failure) => failure,
                    };
                    answers.extend((0..size).map(|_| Err(failure.clone())));
                    answers.extend((size..rest.len()).map(|_| Err(Failure::NotSent(Unsent::Skipped))));
                }
            }
        }
        answers
    }

    /// How many of the calls go into one request.
    fn fitting(&self, calls: &[Request]) -> usize {
        let (most, room) = (self.batch.load(Relaxed), self.body.load(Relaxed));
        let mut bytes = 0;
        let fits = |call: &&Request| {
            bytes += call.params.len() + CALL_BYTES;
            bytes <= room
        };
        calls.iter().take(most).take_while(fits).count().max(1)
    }

    fn shrink(&self, refused: &[Request], sized: bool) {
        let body: usize = refused.iter().map(|call| call.params.len()).sum();
        let size = if sized || body > BODY_MODEST { refused.len() / 2 } else { 1 };
        self.batch.fetch_min(size.max(1), Relaxed);
        tracing::warn!(endpoint = self.name, refused = refused.len(), now = size, "endpoint refuses batches of this size");
    }

    async fn exchange<T: DeserializeOwned>(&self, calls: &[Request], deadline: Instant) -> Result<Vec<Result<T, Failure>>, Whole> {
        let method = calls.first().map_or("", |call| &*call.method);
        let mut flight = Flight { health: &self.health, began: Instant::now(), done: false };
        let Ok(Ok(_permit)) = timeout_at(deadline, self.under_way.acquire()).await else {
            return Err(Whole::Failed(Failure::NotSent(Unsent::Busy)));
        };
        if !self.pay(calls.len(), deadline).await {
            // No slowness of the endpoint.
            flight.began = Instant::now();
            return Err(Whole::Failed(Failure::NotSent(Unsent::Throttled)));
        }
        flight.began = Instant::now();
        let first = self.next_id.fetch_add(calls.len() as u64, Relaxed);
        let reply = match timeout_at(deadline, self.http.post(wire::body(calls, first))).await {
            Ok(reply) => reply,
            Err(_) => Err(Failure::Timeout),
        };
        let took = flight.began.elapsed();
        flight.done = true;
        let (read, retry_after) = match reply {
            Ok(reply) => (wire::read::<T>(reply.status, &reply.bytes, (first, calls.len()), &self.words), reply.retry_after),
            Err(failure) => (Err(Whole::Failed(failure)), None),
        };
        self.note(method, calls.len(), &read, retry_after, took);
        read
    }

    /// Waits for the budget of some calls; false where it is not there in time.
    async fn pay(&self, calls: usize, deadline: Instant) -> bool {
        let Some(budget) = &self.budget else { return true };
        let Some(start) = budget.take(Instant::now(), calls, deadline) else { return false };
        sleep_until(start).await;
        true
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    /// An exchange that counts neither for nor against it. None: no answer.
    pub(super) async fn exchange_unheeded(&self, body: Vec<u8>, calls: usize) -> Option<Reply> {
        let deadline = Instant::now() + self.timeout;
        let _permit = timeout_at(deadline, self.under_way.acquire()).await.ok()?.ok()?;
        if !self.pay(calls, deadline).await {
            return None;
        }
        timeout_at(deadline, self.http.post(body)).await.ok()?.ok()
    }

    /// Asks what it can do, where it has connected anew since it was last asked.
    pub async fn probe(&self) {
        if self.health.identity() != Identity::Right || self.health.is_open(Instant::now()) || !self.unprobed.swap(false, Relaxed) {
            return;
        }
        let found = self.find_capabilities().await;
        if let Some(batch) = found.batch_requests {
            self.batch.store(batch, Relaxed);
        }
        if let Some(bytes) = found.request_bytes {
            self.body.store(bytes, Relaxed);
        }
        *self.capabilities.lock().unwrap_or_else(PoisonError::into_inner) = found;
        tracing::info!(
            event = "rpc_capabilities",
            endpoint = self.name,
            finalized_tag = found.finalized_tag,
            block_receipts = found.block_receipts,
            batch_requests = found.batch_requests,
            request_bytes = found.request_bytes,
            "what the endpoint can do"
        );
    }

    fn note<T>(&self, method: &str, calls: usize, read: &Result<Vec<Result<T, Failure>>, Whole>, pause: Option<Duration>, took: Duration) {
        let outcome = match read {
            Ok(answers) => {
                self.count_unknown(answers);
                let each = answers.iter().map(|answer| answer.as_ref().map_or_else(|failure| blame(failure, pause), |_| Outcome::Answered));
                // One answer shows that the endpoint works; but a limit is heeded wherever it stands.
                each.reduce(Outcome::telling)
            }
            Err(Whole::TooMany { .. }) => Some(Outcome::Answered),
            Err(Whole::Failed(failure)) => {
                if matches!(failure, Failure::Timeout | Failure::Reset | Failure::NotSent(_)) {
                    self.health.doubt_identity();
                }
                Some(blame(failure, pause))
            }
        };
        let word = match read {
            Ok(_) => "answered",
            Err(Whole::TooMany { .. }) => "batch_refused",
            Err(Whole::Failed(failure)) => failure.class().as_str(),
        };
        metrics::RPC_REQUESTS.add(1, &[&self.chain, &self.name, method, word]);
        metrics::RPC_SECONDS.record(took.as_secs_f64(), &[&self.chain, &self.name]);
        self.record(outcome.unwrap_or(Outcome::Answered), took, calls, word);
    }

    fn count_unknown<T>(&self, answers: &[Result<T, Failure>]) {
        for failure in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            if let Failure::Rpc(error) = failure
                && error.class == Class::Unknown
            {
                let text = self.words.name_unknown(&error.message);
                metrics::RPC_UNKNOWN_ERRORS.add(1, &[&self.chain, &self.name, &text]);
                let (code, message) = (error.code, &error.message);
                tracing::warn!(event = "rpc_unknown_error", endpoint = self.name, text, code, message, "unknown words of an endpoint");
            }
        }
    }
}

impl Outcome {
    /// The more telling of two outcomes in one batch: a limit before an answer before a fault.
    fn telling(self, other: Self) -> Self {
        let rank = |outcome: &Self| match outcome {
            Self::Limited(_) => 3,
            Self::Barred => 2,
            Self::Answered => 1,
            Self::Fault => 0,
        };
        if rank(&self) >= rank(&other) { self } else { other }
    }
}

/// What a failure says about the endpoint. A verdict on the call says nothing against it, and lag is measured by heads.
fn blame(failure: &Failure, retry_after: Option<Duration>) -> Outcome {
    match failure.class() {
        Class::RateLimited => Outcome::Limited(retry_after),
        Class::QuotaOrAuth => Outcome::Barred,
        Class::ServiceUnavailable if retry_after.is_some() => Outcome::Limited(retry_after),
        Class::ServiceUnavailable | Class::NoAnswer | Class::Malformed => Outcome::Fault,
        Class::NotSent if *failure == Failure::NotSent(Unsent::NoConnection) => Outcome::Fault,
        _ => Outcome::Answered,
    }
}
