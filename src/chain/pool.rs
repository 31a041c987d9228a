//! The endpoints of one chain together. Owns who is asked: the best first and another after a while (hedged), all at once (by ballot), or
//! the write endpoint alone. Never concludes from a single endpoint what a majority has to say. Called by `reads`, `simulate` and `send`.

use super::calm::Calm;
use super::classify::{self, Words};
use super::endpoint::{Common, Endpoint};
use super::error::{Error, Failure, Unsent};
use super::health::{Circuit, Identity};
use super::types::{EndpointView, Role};
use super::web3_transport::Web3Transport;
use super::wire::Request;
use crate::config;
use crate::domain::quorum::{Decision, Vote, majority};
use crate::telemetry::metrics;
use entity::values::Wei;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Longest wait for the chain identities at start. An endpoint that hangs does not hold up the others.
const IDENTITY_WAIT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    chain_id: u64,
    /// The chain id as a label.
    label: String,
    hedge: Duration,
    head_wait: Duration,
    min_priority_fee: Wei,
    readers: Vec<Arc<Endpoint>>,
    writer: Arc<Endpoint>,
    /// Endpoints that get what the writer gets.
    broadcasters: Vec<Arc<Endpoint>>,
    calm: Arc<Calm>,
}

/// One question of a ballot: what was decided and how each reader voted, in the order of the readers.
pub(super) type Ballot<T> = (Decision<T>, Vec<Vote<T>>);

/// What all readers are asked at once.
pub(super) struct Ask<'a> {
    /// The word for metrics and logs.
    pub what: &'static str,
    /// How many votes each reader has.
    pub questions: usize,
    pub calls: &'a [Request],
    /// Who has not shown this block is asked for its newest before the calls go out.
    pub since: Option<u64>,
    /// How long a decided ballot still listens.
    pub grace: Duration,
}

impl Pool {
    /// Sets the endpoints up and checks that a majority of them, and the write endpoint, are on the configured chain.
    pub async fn connect(chain: &config::Chain) -> Result<Self, Error> {
        classify::prepare();
        let pool = Self::set_up(chain)?;
        pool.check_identities(chain.timeout.min(IDENTITY_WAIT)).await?;
        Ok(pool)
    }

    fn set_up(chain: &config::Chain) -> Result<Self, Error> {
        let mut readers = Vec::with_capacity(chain.read_urls.len());
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut writer = None;
        let (calm, words) = (Arc::new(Calm::new(chain.id)), Arc::new(Words::new(&chain.error_overrides)));
        let common = Common { chain, calm: &calm, words: &words };
        for (index, url) in chain.read_urls.iter().enumerate() {
            let writes = url.expose_secret() == chain.rpc_url.expose_secret();
            let mut endpoint = Endpoint::new(url, index, if writes { Role::Both } else { Role::Read }, &common)?;
            let seen = names.entry(endpoint.name().to_owned()).and_modify(|count| *count += 1).or_insert(1);
            if *seen > 1 {
                endpoint.rename(format!("{}#{seen}", endpoint.name()));
            }
            let endpoint = Arc::new(endpoint);
            if writes {
                writer = Some(Arc::clone(&endpoint));
            }
            readers.push(endpoint);
        }
        let writer = match writer {
            Some(writer) => writer,
            None if readers.is_empty() && chain.single_endpoint => {
                let only = Arc::new(Endpoint::new(&chain.rpc_url, 0, Role::Both, &common)?);
                readers.push(Arc::clone(&only));
                only
            }
            None => Arc::new(Endpoint::new(&chain.rpc_url, readers.len(), Role::Write, &common)?),
        };
        if readers.is_empty() {
            return Err(Error::NoReaders);
        }
        let mut broadcasters = Vec::with_capacity(chain.broadcast_urls.len());
        for (index, url) in chain.broadcast_urls.iter().enumerate() {
            let mut endpoint = Endpoint::new(url, chain.read_urls.len() + 1 + index, Role::Broadcast, &common)?;
            // A host may also vote; the two have a health of their own.
            endpoint.rename(format!("{}+send", endpoint.name()));
            broadcasters.push(Arc::new(endpoint));
        }
        let head_wait = chain.timeout.min((chain.head_poll * 2).max(Duration::from_secs(1)));
        let min_priority_fee = chain.min_priority_fee;
        Ok(Self(Arc::new(Inner {
            chain_id: chain.id,
            label: chain.id.to_string(),
            hedge: chain.hedge,
            head_wait,
            min_priority_fee,
            readers,
            writer,
            broadcasters,
            calm,
        })))
    }

    async fn check_identities(&self, wait: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + wait;
        let needed = majority(self.configured());
        let mut readers: FuturesUnordered<_> = self.readers().iter().map(|endpoint| endpoint.identify()).collect();
        let ask_readers = async {
            let (mut right, mut until) = (0, deadline);
            while let Ok(Some(answer)) = timeout_at(until, readers.next()).await {
                right += usize::from(answer == Ok(self.chain_id()));
                if right >= needed {
                    until = until.min(Instant::now() + self.hedge());
                }
            }
        };
        let writer = self.writer();
        let ask_writer = async {
            if writer.role == Role::Write { timeout_at(deadline, writer.identify()).await.ok().and_then(Result::ok) } else { None }
        };
        let ((), written) = tokio::join!(ask_readers, ask_writer);
        if let Some(found) = written.filter(|found| *found != self.chain_id()) {
            return Err(Error::WriteChain { endpoint: writer.name().to_owned(), configured: self.chain_id(), found });
        }
        let shown = |wanted| self.readers().iter().filter(|endpoint| endpoint.health.identity() == wanted).count();
        let (right, wrong) = (shown(Identity::Right), shown(Identity::Wrong));
        if right < needed {
            let endpoints = self.configured();
            return Err(Error::ChainIdentity { configured: self.chain_id(), endpoints, right, wrong, silent: endpoints - right - wrong });
        }
        Ok(())
    }

    pub(super) fn chain_id(&self) -> u64 {
        self.0.chain_id
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    pub(super) fn hedge(&self) -> Duration {
        self.0.hedge
    }

    pub(super) fn head_wait(&self) -> Duration {
        self.0.head_wait
    }

    pub(super) fn min_priority_fee(&self) -> Wei {
        self.0.min_priority_fee
    }

    pub(super) fn readers(&self) -> &[Arc<Endpoint>] {
        &self.0.readers
    }

    pub(super) fn writer(&self) -> &Arc<Endpoint> {
        &self.0.writer
    }

    pub(super) fn broadcasters(&self) -> &[Arc<Endpoint>] {
        &self.0.broadcasters
    }

    /// All endpoints, each once.
    pub(super) fn everyone(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let writer = Some(self.writer()).filter(|writer| writer.role == Role::Write);
        self.readers().iter().chain(writer).chain(self.broadcasters())
    }

    pub(super) async fn find_capabilities(&self) {
        join_all(self.everyone().map(|endpoint| endpoint.probe())).await;
    }

    pub(super) fn is_calm(&self) -> bool {
        self.0.calm.is_calm()
    }

    pub(super) fn configured(&self) -> usize {
        self.0.readers.len()
    }

    /// The readers, the best first.
    pub(super) fn ranked(&self) -> Vec<Arc<Endpoint>> {
        let now = Instant::now();
        let mut ranked: Vec<_> = self.readers().iter().map(|endpoint| (endpoint.health.score(now), endpoint)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().map(|(_, endpoint)| Arc::clone(endpoint)).collect()
    }

    /// The best reader as a transport of the web3 crate.
    #[must_use]
    pub fn web3(&self) -> Web3Transport {
        Web3Transport::new(self.ranked().swap_remove(0))
    }

    pub(super) fn views(&self) -> Vec<EndpointView> {
        let views: Vec<_> = self.everyone().map(|endpoint| endpoint.view()).collect();
        for view in &views {
            let labels = [self.label(), &view.name];
            metrics::RPC_ENDPOINT_SCORE.set(view.score, &labels);
            let circuit = match view.circuit {
                Circuit::Closed => 0.0,
                Circuit::HalfOpen => 1.0,
                Circuit::Open => 2.0,
            };
            metrics::RPC_CIRCUIT_STATE.set(circuit, &labels);
        }
        views
    }

    /// Asks the best reader, and the next one after `patience` or a failure. A verdict on the call is an answer. Losers are dropped.
    pub(super) async fn hedged<T, F, Fut>(&self, patience: Duration, ask: F) -> Result<T, Failure>
    where
        F: Fn(Arc<Endpoint>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let mut waiting = self.ranked().into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut why = Failure::NotSent(Unsent::CircuitOpen);
        loop {
            let more = match waiting.next() {
                Some(endpoint) => {
                    if !under_way.is_empty() {
                        metrics::RPC_HEDGED.add(1, &[self.label()]);
                    }
                    under_way.push(ask(endpoint));
                    true
                }
                None => false,
            };
            let answer = if more {
                match timeout(patience, under_way.next()).await {
                    Ok(answer) => answer,
                    Err(_) => continue,
                }
            } else {
                under_way.next().await
            };
            match answer {
                Some(Err(failure)) if failure.is_endpoint_fault() => {
                    // That one was not asked says less than what another answered.
                    if !matches!(failure, Failure::NotSent(_)) || matches!(why, Failure::NotSent(_)) {
                        why = failure;
                    }
                }
                Some(answer) => return answer,
                None => return Err(why),
            }
        }
    }

    /// A hedged batch: one outcome a call. It counts as failed, and goes to another endpoint, where no call got an answer.
    pub(super) async fn hedged_batch<T: DeserializeOwned>(&self, calls: &[Request]) -> Vec<Result<T, Failure>> {
        if calls.is_empty() {
            return Vec::new();
        }
        let patience = self.hedge() + Duration::from_millis(calls.len() as u64);
        let answers = self.hedged(patience, |endpoint| async move {
            let answers = endpoint.ask::<T>(calls).await;
            match answers.iter().find(|answer| !matches!(answer, Err(failure) if failure.is_endpoint_fault())) {
                Some(_) => Ok(answers),
                None => Err(answers.into_iter().find_map(Result::err).unwrap_or(Failure::Malformed("no answer"))),
            }
        });
        match answers.await {
            Ok(answers) => answers,
            Err(failure) => calls.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    /// Asks all readers at once. `read` turns the answers of one, and the head it had before, into its vote on each question, `rule` the
    /// votes into a decision. Ends when all questions are decided and the grace is over, or all have answered; who has not by then abstains.
    pub(super) async fn ballot<W: DeserializeOwned, T: Clone>(
        &self,
        ask: Ask<'_>,
        read: impl Fn(&Endpoint, Option<u64>, Vec<Result<W, Failure>>) -> Vec<Vote<T>>,
        rule: impl Fn(&[Vote<T>]) -> Decision<T>,
    ) -> Vec<Ballot<T>> {
        let nobody = || vec![Vote::Abstains; self.configured()];
        let mut ballots: Vec<Ballot<T>> = (0..ask.questions).map(|_| (Decision::Insufficient, nobody())).collect();
        if ask.questions == 0 {
            return ballots;
        }
        let question = |(place, endpoint): (usize, &Arc<Endpoint>)| {
            let (endpoint, calls, since) = (Arc::clone(endpoint), ask.calls, ask.since);
            async move {
                let before = match since {
                    Some(since) => endpoint.head_since(since).await,
                    None => endpoint.health.head(),
                };
                (place, before, endpoint.ask::<W>(calls).await, endpoint)
            }
        };
        let mut voters: FuturesUnordered<_> = self.readers().iter().enumerate().map(question).collect();
        let mut decided_at: Option<Instant> = None;
        loop {
            let answer = match decided_at {
                None => voters.next().await,
                Some(at) => tokio::select! { biased; answer = voters.next() => answer, () = sleep_until(at + ask.grace) => None },
            };
            let Some((place, before, answers, endpoint)) = answer else { break };
            let votes = read(&endpoint, before, answers);
            for ((decision, so_far), vote) in ballots.iter_mut().zip(votes) {
                if let Some(own) = so_far.get_mut(place) {
                    *own = vote;
                }
                *decision = rule(so_far);
            }
            if decided_at.is_none() && ballots.iter().all(|(decision, _)| decision.is_agreed()) {
                if ask.grace.is_zero() {
                    break;
                }
                decided_at = Some(Instant::now());
            }
        }
        self.count(ask.what, &ballots);
        ballots
    }

    fn count<T>(&self, what: &str, ballots: &[Ballot<T>]) {
        let of = |wanted: fn(&Decision<T>) -> bool| ballots.iter().filter(|(decision, _)| wanted(decision)).count();
        let agree = of(|decision| matches!(decision, Decision::Agreed(..)));
        let disagree = of(|decision| matches!(decision, Decision::Split));
        for (count, result) in [(agree, "agree"), (disagree, "disagree"), (ballots.len() - agree - disagree, "insufficient")] {
            if count > 0 {
                metrics::RPC_QUORUM.add(count as u64, &[self.label(), what, result]);
            }
        }
        if agree < ballots.len() {
            tracing::warn!(what, questions = ballots.len(), agree, disagree, "no majority of the endpoints");
        }
    }
}
