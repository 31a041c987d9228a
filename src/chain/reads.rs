//! Questions to the chain. Owns which of them one endpoint may answer (hedged) and which need a majority (ballot). Never writes.
//! Called through the trait `Chain`.

use super::endpoint::Endpoint;
use super::error::{Error, Failure};
use super::pool::{Ask, Pool};
use super::types::{BlockTag, EndpointHead, Head, Heads, Receipt, ReceiptVotes, Votes};
use super::wire::{Amount, Block, BlockIdentity, Quantity, Request, WireReceipt, address_params};
use crate::domain::ballot::{self, Seen, Shown, Standing};
use crate::domain::quorum::{Decision, Vote, decide, reached};
use crate::telemetry::metrics;
use entity::values::{Address, Hash, Wei};
use futures::future::join_all;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

impl From<Block> for Head {
    fn from(block: Block) -> Self {
        Self {
            number: block.number.0,
            hash: block.hash,
            base_fee: block.base_fee_per_gas.map(|fee| fee.0),
            gas_limit: block.gas_limit.0,
            timestamp: block.timestamp.0,
        }
    }
}

fn latest_block() -> Request {
    Request::new("eth_getBlockByNumber", "[\"latest\",false]".to_owned())
}

fn block_number() -> Request {
    Request::new("eth_blockNumber", "[]".to_owned())
}

fn transaction_count(address: Address, tag: &str) -> Request {
    Request::new("eth_getTransactionCount", address_params(address, tag))
}

/// The newest block of one endpoint, or None. Not to answer in time is a fault of the endpoint, for everybody waits for the heads.
async fn poll_head(endpoint: Arc<Endpoint>, wait: Duration) -> EndpointHead {
    let asked = timeout(wait, async {
        endpoint.refresh_identity().await;
        endpoint.ask_one::<Block>(latest_block()).await
    });
    let head = match asked.await {
        Ok(answer) => answer.ok().map(Head::from),
        Err(_) => {
            endpoint.overdue(wait);
            None
        }
    };
    if let Some(head) = head {
        endpoint.health.set_head(head.number);
    }
    EndpointHead { endpoint: endpoint.name().to_owned(), head }
}

impl Pool {
    pub(super) async fn ask_head(&self) -> Result<Head, Error> {
        let head = self.hedged(self.hedge(), |endpoint| async move {
            let block = endpoint.ask_one::<Block>(latest_block()).await?;
            endpoint.health.set_head(block.number.0);
            Ok(Head::from(block))
        });
        Ok(head.await?)
    }

    /// Asks every reader for its newest block, checks chain identities that are due, and measures the lags.
    pub(super) async fn ask_heads(&self) -> Heads {
        let wait = self.head_wait();
        let mut polls = Vec::with_capacity(self.configured());
        for endpoint in self.readers() {
            polls.push(poll_head(Arc::clone(endpoint), wait));
        }
        let readers = join_all(polls);
        let senders = self.everyone().filter(|endpoint| !endpoint.role.votes()).map(|endpoint| async move {
            if timeout(wait, endpoint.refresh_identity()).await.is_err() {
                endpoint.overdue(wait);
            }
        });
        let (endpoints, _) = tokio::join!(readers, join_all(senders));
        let votes: Vec<_> = endpoints.iter().map(|shown| shown.head.map_or(Vote::Abstains, |head| Vote::Says(head.number))).collect();
        let reached = reached(self.configured(), &votes).agreed();
        if let Some(reached) = reached {
            metrics::RPC_HEAD_BLOCK.set(reached as f64, &[self.label()]);
            self.readers().iter().for_each(|endpoint| endpoint.health.set_reached(reached));
        }
        let _ = self.views();
        Heads { reached, endpoints }
    }

    pub(super) async fn ask_consumed_nonces(&self, addresses: &[Address], at: BlockTag) -> Vec<Decision<u64>> {
        let configured = self.configured();
        let (tag, wanted, grace) = match at {
            // Honest endpoints differ by their lag: a little patience gives the fresher ones a voice.
            BlockTag::Latest => ("latest".to_owned(), 0, self.hedge()),
            BlockTag::Number(number) => (format!("{number:#x}"), number, Duration::ZERO),
        };
        // The head comes first in the same batch: some clients answer for a block they do not have.
        let mut calls = vec![block_number()];
        calls.extend(addresses.iter().map(|address| transaction_count(*address, &tag)));
        let ballots = self.ballot(
            Ask { what: "consumed_nonce", questions: addresses.len(), calls: &calls, since: None, grace },
            |endpoint, _, answers: Vec<Result<Quantity, Failure>>| {
                let mut answers = answers.into_iter();
                let head = answers.next().and_then(Result::ok).map(|head| head.0);
                if let Some(head) = head {
                    endpoint.health.set_head(head);
                }
                answers.map(|answer| ballot::consumed_nonce(answer.ok().map(|nonce| nonce.0), head, wanted)).collect()
            },
            |votes| match at {
                BlockTag::Latest => reached(configured, votes),
                BlockTag::Number(_) => decide(configured, votes),
            },
        );
        ballots.await.into_iter().map(|(decision, _)| decision).collect()
    }

    pub(super) async fn ask_receipts(&self, hashes: &[Hash], since: u64) -> Vec<ReceiptVotes> {
        // The head goes with the question: another node may answer behind the same name.
        let mut calls = vec![block_number()];
        calls.extend(hashes.iter().map(|hash| Request::new("eth_getTransactionReceipt", format!("[\"{hash}\"]"))));
        let configured = self.configured();
        let ballots = self.ballot(
            Ask { what: "receipt", questions: hashes.len(), calls: &calls, since: Some(since), grace: Duration::ZERO },
            |endpoint, before, answers: Vec<Result<Answer, Failure>>| {
                let mut answers = answers.into_iter();
                let with_answer = match answers.next() {
                    Some(Ok(Answer::Head(Quantity(head)))) => Some(head),
                    _ => None,
                };
                let standing = Standing { before, with_answer, lags: endpoint.health.lags() };
                let vote = |(hash, answer): (&Hash, Result<Answer, Failure>)| ballot::receipt(*hash, shown(answer), standing, since);
                hashes.iter().zip(answers).map(vote).collect()
            },
            |votes| ballot::decide_receipt(configured, votes),
        );
        let names: Vec<_> = self.readers().iter().map(|endpoint| endpoint.name()).collect();
        hashes.iter().zip(ballots.await).map(|(hash, (decision, votes))| receipt(*hash, decision, &votes, &names)).collect()
    }

    pub(super) async fn ask_block_hashes(&self, numbers: &[u64]) -> Vec<Decision<Option<Hash>>> {
        let calls: Vec<_> = numbers.iter().map(|number| Request::new("eth_getBlockByNumber", format!("[\"{number:#x}\",false]"))).collect();
        let configured = self.configured();
        let ballots = self.ballot(
            Ask { what: "block_hash", questions: numbers.len(), calls: &calls, since: None, grace: Duration::ZERO },
            |_, before, answers: Vec<Result<Option<BlockIdentity>, Failure>>| {
                let vote = |(number, answer): (&u64, Result<Option<BlockIdentity>, Failure>)| {
                    let shown = answer.ok().map(|block| block.map(|block| (block.number.0, block.hash)));
                    ballot::block_hash(*number, shown, before)
                };
                numbers.iter().zip(answers).map(vote).collect()
            },
            |votes| decide(configured, votes),
        );
        ballots.await.into_iter().map(|(decision, _)| decision).collect()
    }

    pub(super) async fn ask_balances(&self, addresses: &[Address]) -> Vec<Result<Wei, Error>> {
        let calls: Vec<_> = addresses.iter().map(|at| Request::new("eth_getBalance", address_params(*at, "latest"))).collect();
        let answers = self.hedged_batch::<Amount>(&calls).await;
        answers.into_iter().map(|answer| answer.map(|amount| amount.0).map_err(Error::from)).collect()
    }

    pub(super) async fn ask_pending_nonce(&self, address: Address) -> Result<u64, Error> {
        let asked =
            self.hedged(self.hedge(), |endpoint| async move { endpoint.ask_one::<Quantity>(transaction_count(address, "pending")).await });
        Ok(asked.await?.0)
    }
}

/// An answer to one call of a question about receipts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Head(Quantity),
    Receipt(Option<WireReceipt>),
}

/// What an answer shows of a receipt; None for an error.
fn shown(answer: Result<Answer, Failure>) -> Option<Option<Shown>> {
    let Ok(Answer::Receipt(receipt)) = answer else { return None };
    Some(receipt.map(|receipt| Shown {
        hash: receipt.transaction_hash,
        block_number: receipt.block_number.map(|number| number.0),
        block_hash: receipt.block_hash,
        status: receipt.status.map(|status| status.0),
        gas_used: receipt.gas_used.0,
        price: receipt.effective_gas_price.map(|price| price.0),
    }))
}

fn receipt(hash: Hash, decision: Decision<Option<Seen>>, votes: &[Vote<Option<Seen>>], names: &[&str]) -> ReceiptVotes {
    let answers: Vec<_> = names.iter().zip(votes).map(|(name, vote)| ((*name).to_owned(), ballot::digest(hash, vote))).collect();
    let said = votes.iter().filter(|vote| matches!(vote, Vote::Says(_))).count();
    let agreeing = if let Decision::Agreed(_, count) = &decision { *count } else { 0 };
    let votes = Votes { agreeing, differing: said - agreeing, abstaining: names.len().saturating_sub(said) };
    if agreeing > 0 && votes.differing > 0 {
        tracing::warn!(%hash, agreeing, differing = votes.differing, "endpoints differ on a receipt");
    }
    let decision = decision.map(|seen| {
        seen.map(|Seen { facts, price }| Receipt {
            hash,
            block_number: facts.block_number,
            block_hash: facts.block_hash,
            succeeded: facts.succeeded,
            gas_used: facts.gas_used,
            effective_gas_price: price,
            votes,
            answers: answers.clone(),
        })
    });
    ReceiptVotes { decision, votes, answers }
}
