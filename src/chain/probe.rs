//! What an endpoint can do: the tags and methods it knows, the largest batch and the largest request it takes. Owns the finding out, by
//! calls that change nothing and count neither for nor against its health. Called by `pool` at start and after a new connection.

use super::endpoint::Endpoint;
use super::error::Failure;
use super::types::Capabilities;
use super::wire::{self, Request, Whole};
use crate::domain::rpc_verdict::Class;
use serde_json::value::RawValue;

/// Sizes of a request that are tried, the largest first.
const REQUEST_BYTES: [usize; 4] = [512 * 1024, 256 * 1024, 128 * 1024, 64 * 1024];
const FIRST_ID: u64 = 1;

type Answers = Result<Vec<Result<Option<Box<RawValue>>, Failure>>, Whole>;

fn chain_id() -> Request {
    Request::new("eth_chainId", "[]".to_owned())
}

impl Endpoint {
    /// Finds out what it can do. What it does not answer stays unknown.
    pub(super) async fn find_capabilities(&self) -> Capabilities {
        let mut found = Capabilities::default();
        if self.role.votes() {
            found.finalized_tag = self.knows(Request::new("eth_getBlockByNumber", "[\"finalized\",false]".to_owned())).await;
            // The first block: it is small everywhere, and only whether the method is known is asked.
            let receipts = Request::new("eth_getBlockReceipts", "[\"0x0\"]".to_owned());
            found.block_receipts = self.knows_method(receipts).await;
        }
        found.batch_requests = self.find_batch().await;
        found.request_bytes = self.find_bytes().await;
        found
    }

    async fn one(&self, call: Request) -> Option<Result<Option<Box<RawValue>>, Failure>> {
        self.unheeded(wire::body(&[call], FIRST_ID), 1).await?.ok()?.pop()
    }

    /// Whether it has an answer that is more than null.
    async fn knows(&self, call: Request) -> Option<bool> {
        match self.one(call).await? {
            Ok(answer) => Some(answer.is_some_and(|answer| answer.get() != "null")),
            Err(failure) if failure.class().is_endpoint_fault() => None,
            Err(_) => Some(false),
        }
    }

    async fn knows_method(&self, call: Request) -> Option<bool> {
        match self.one(call).await? {
            Ok(_) => Some(true),
            Err(failure) if failure.class() == Class::NodeNotReady => Some(true),
            Err(failure) if failure.class().is_endpoint_fault() => None,
            Err(failure) => Some(failure.class() != Class::MethodUnsupported),
        }
    }

    /// The largest batch it takes, up to what is configured.
    async fn find_batch(&self) -> Option<usize> {
        let mut size = self.batch_max;
        while size > 1 {
            let calls: Vec<_> = (0..size).map(|_| chain_id()).collect();
            match self.unheeded(wire::body(&calls, FIRST_ID), size).await? {
                Ok(answers) if answers.iter().all(Result::is_ok) => return Some(size),
                Err(Whole::TooMany { sized: true }) => size /= 2,
                Err(Whole::TooMany { sized: false }) => return Some(1),
                _ => return None,
            }
        }
        Some(1)
    }

    /// The largest request it takes, of those that are tried.
    async fn find_bytes(&self) -> Option<usize> {
        for size in REQUEST_BYTES {
            let mut body = wire::body(&[chain_id()], FIRST_ID);
            // Blanks between the tokens of JSON mean nothing.
            body.resize(size, b' ');
            if matches!(self.unheeded(body, 1).await, Some(Ok(answers)) if answers.iter().all(Result::is_ok)) {
                return Some(size);
            }
        }
        None
    }

    /// One exchange that counts neither for nor against it. None: no answer.
    async fn unheeded(&self, body: Vec<u8>, calls: usize) -> Option<Answers> {
        let reply = self.exchange_unheeded(body, calls).await?;
        Some(wire::read(reply.status, &reply.bytes, (FIRST_ID, calls), self.words()))
    }
}
