//! Sending signed bytes: to the write endpoint, and to those that are configured to get them too; nowhere else. Owns the labelling of
//! answers; never signs, prices or retries. Called through the trait `Chain` by the journal, with bytes of committed attempts only.

use super::endpoint::Endpoint;
use super::error::Failure;
use super::pool::Pool;
use super::types::{RawTx, SendOutcome};
use super::wire::{Request, SEND_RAW, raw_params};
use crate::domain::broadcast::{contradictions, decisive};
use crate::domain::rpc_verdict::{Class, Verdict, verdict};
use crate::telemetry::metrics;
use entity::values::Hash;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The answers to some transactions so far: a row a transaction, a column an endpoint.
struct Answers {
    hashes: Vec<Hash>,
    endpoints: Vec<Arc<Endpoint>>,
    rows: Vec<Vec<Option<SendOutcome>>>,
}

impl Pool {
    pub(super) async fn send(&self, transactions: &[RawTx]) -> Vec<SendOutcome> {
        if transactions.is_empty() {
            return Vec::new();
        }
        let calls: Vec<_> = transactions.iter().map(|raw| Request::new(SEND_RAW, raw_params(&raw.bytes))).collect();
        let outcomes = if self.broadcasters().is_empty() {
            let answers = self.writer().ask_in_order::<Hash>(&calls).await;
            transactions.iter().zip(answers).map(|(raw, answer)| label(raw.hash, answer, self.writer().name())).collect()
        } else {
            self.send_to_all(transactions.iter().map(|raw| raw.hash).collect(), calls).await
        };
        for outcome in &outcomes {
            metrics::TX_BROADCAST.add(1, &[self.label(), outcome.class.as_str()]);
        }
        outcomes
    }

    /// Ends when somebody has accepted each, or all have answered. What is under way then goes on: it may be the endpoint that counts.
    async fn send_to_all(&self, hashes: Vec<Hash>, calls: Vec<Request>) -> Vec<SendOutcome> {
        let endpoints: Vec<_> = [self.writer()].into_iter().chain(self.broadcasters()).map(Arc::clone).collect();
        let (calls, (told, mut answered)) = (Arc::new(calls), mpsc::channel(endpoints.len()));
        for (place, endpoint) in endpoints.iter().enumerate() {
            let (endpoint, calls, told) = (Arc::clone(endpoint), Arc::clone(&calls), told.clone());
            tokio::spawn(async move {
                let answers = endpoint.ask_in_order::<Hash>(&calls).await;
                // Nobody listens when the process stops.
                let _ = told.send((place, answers)).await;
            });
        }
        drop(told);
        let rows = hashes.iter().map(|_| vec![None; endpoints.len()]).collect();
        let mut answers = Answers { hashes, endpoints, rows };
        while !answers.are_accepted() {
            let Some((place, found)) = answered.recv().await else { break };
            answers.note(place, found);
        }
        let outcomes = answers.outcomes();
        let chain = self.label().to_owned();
        tokio::spawn(async move {
            while let Some((place, found)) = answered.recv().await {
                answers.note(place, found);
            }
            answers.compare(&chain);
        });
        outcomes
    }
}

impl Answers {
    fn note(&mut self, place: usize, answers: Vec<Result<Hash, Failure>>) {
        let Some(endpoint) = self.endpoints.get(place) else { return };
        for ((row, hash), answer) in self.rows.iter_mut().zip(&self.hashes).zip(answers) {
            if let Some(cell) = row.get_mut(place) {
                *cell = Some(label(*hash, answer, endpoint.name()));
            }
        }
    }

    fn are_accepted(&self) -> bool {
        self.rows.iter().all(|row| row.iter().flatten().any(|outcome| outcome.verdict == Verdict::Accepted))
    }

    fn outcomes(&self) -> Vec<SendOutcome> {
        let decide = |row: &Vec<Option<SendOutcome>>| {
            let found = decisive(&classes(row)).and_then(|place| row.get(place)?.clone());
            // All have answered or one has accepted; were there neither, nothing would be known.
            found.unwrap_or_else(|| SendOutcome::new(Class::NoAnswer, String::new(), None))
        };
        self.rows.iter().map(decide).collect()
    }

    /// Tells where one took for good what another refused for good.
    fn compare(&self, chain: &str) {
        for (row, hash) in self.rows.iter().zip(&self.hashes) {
            for (place, class) in contradictions(&classes(row)) {
                let Some(endpoint) = self.endpoints.get(place) else { continue };
                metrics::RPC_CONTRADICTIONS.add(1, &[chain, endpoint.name(), class.as_str()]);
                tracing::warn!(event = "rpc_contradiction", endpoint = endpoint.name(), %hash, class = class.as_str(), "an endpoint refuses for good what another has accepted");
            }
        }
    }
}

fn classes(row: &[Option<SendOutcome>]) -> Vec<Option<Class>> {
    row.iter().map(|outcome| outcome.as_ref().map(|outcome| outcome.class)).collect()
}

fn label(hash: Hash, answer: Result<Hash, Failure>, endpoint: &str) -> SendOutcome {
    let (class, message) = match answer {
        Ok(shown) if shown == hash => (Class::Ok, None),
        Ok(shown) => {
            tracing::error!(endpoint, %hash, %shown, "the endpoint took a transaction under another hash");
            (Class::HashMismatch, Some(format!("taken as {shown}")))
        }
        Err(failure) => {
            let class = failure.class();
            (class, Some(if let Failure::Rpc(error) = failure { error.message } else { failure.to_string() }))
        }
    };
    SendOutcome::new(class, endpoint.to_owned(), message)
}

impl SendOutcome {
    fn new(class: Class, endpoint: String, message: Option<String>) -> Self {
        Self { class, verdict: verdict(class), endpoint, message }
    }
}
