//! Sending signed bytes, to the write endpoint and nowhere else. Owns the labelling of its answers; never signs, prices or retries.
//! Called through the trait `Chain` by the journal, with bytes of committed attempts only.

use super::error::Failure;
use super::pool::Pool;
use super::types::{RawTx, SendOutcome};
use super::wire::{Request, SEND_RAW, raw_params};
use crate::domain::rpc_verdict::{Class, verdict};
use crate::telemetry::metrics;
use entity::values::Hash;

impl Pool {
    pub(super) async fn send(&self, transactions: &[RawTx]) -> Vec<SendOutcome> {
        if transactions.is_empty() {
            return Vec::new();
        }
        let writer = self.writer();
        let calls: Vec<_> = transactions.iter().map(|raw| Request::new(SEND_RAW, raw_params(&raw.bytes))).collect();
        let answers = writer.ask_in_order::<Hash>(&calls).await;
        transactions.iter().zip(answers).map(|(raw, answer)| label(raw.hash, answer, writer.name(), self.label())).collect()
    }
}

fn label(hash: Hash, answer: Result<Hash, Failure>, endpoint: &str, chain: &str) -> SendOutcome {
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
    metrics::TX_BROADCAST.add(1, &[chain, class.as_str()]);
    SendOutcome { class, verdict: verdict(class), message }
}
