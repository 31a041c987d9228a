//! What is asked of a chain and what it answers, in our own words: no type of a client library crosses this border.

use super::health::Circuit;
use crate::domain::fees::{Quote, TxType};
use crate::domain::quorum::Decision;
use crate::domain::rpc_verdict::{Class, Verdict};
use entity::values::{Address, Hash, Wei};

/// The newest block of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub number: u64,
    pub hash: Hash,
    /// None on a chain without EIP-1559.
    pub base_fee: Option<Wei>,
    pub gas_limit: u64,
    pub timestamp: u64,
}

/// What the next block is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeQuote {
    /// Zero on a chain without one.
    pub base_fee: Wei,
    /// Never under the configured floor; the whole gas price on a chain without a base fee.
    pub priority_fee: Wei,
    /// What the chain takes.
    pub tx_type: TxType,
}

impl FeeQuote {
    #[must_use]
    pub const fn market(&self) -> Quote {
        Quote { base_fee: self.base_fee, priority_fee: self.priority_fee }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub from: Address,
    /// None creates a contract.
    pub to: Option<Address>,
    pub value: Wei,
    pub data: Vec<u8>,
    /// Given by the caller: then the call is only tried with it, not estimated.
    pub gas: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulated {
    pub gas_estimate: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// The contract refuses; a second endpoint said so too, where there is one.
    #[error("reverted: {reason}")]
    Reverted { reason: String, data: Vec<u8> },
    #[error("the sender cannot pay for it")]
    InsufficientFunds,
    /// No answer to build on: none came, or two endpoints disagree.
    #[error("no reliable answer")]
    Unavailable,
}

/// Signed bytes and the hash that was computed from them before sending.
#[derive(Clone, Debug)]
pub struct RawTx {
    pub bytes: Vec<u8>,
    pub hash: Hash,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOutcome {
    pub class: Class,
    pub verdict: Verdict,
    /// Who said so: a verdict belongs to one endpoint and one set of bytes.
    pub endpoint: String,
    /// The endpoint's words, tidied.
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTag {
    Latest,
    Number(u64),
}

/// How the endpoints voted on one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    pub agreeing: usize,
    pub differing: usize,
    pub abstaining: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub hash: Hash,
    pub block_number: u64,
    pub block_hash: Hash,
    pub succeeded: bool,
    pub gas_used: u64,
    /// None where no majority shows one.
    pub effective_gas_price: Option<Wei>,
    pub votes: Votes,
    /// As in `ReceiptVotes`.
    pub answers: Vec<(String, String)>,
}

/// What the endpoints together say about one hash, with what a proof of it needs: also of an absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptVotes {
    pub decision: Decision<Option<Receipt>>,
    pub votes: Votes,
    /// Each configured endpoint by name, and what it said: a digest of the facts, `absent` or `abstains`.
    pub answers: Vec<(String, String)>,
}

/// What an endpoint is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Read,
    Write,
    /// Gets the transactions that the write endpoint gets, too.
    Broadcast,
    /// One host for everything: development only.
    Both,
}

impl Role {
    #[must_use]
    pub const fn votes(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Broadcast => "broadcast",
            Self::Both => "both",
        }
    }
}

/// The newest block one endpoint shows.
#[derive(Clone, Debug)]
pub struct EndpointHead {
    pub endpoint: String,
    pub head: Option<Head>,
}

/// The heads of all readers and the one that a majority has reached.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The conservative head: a majority of the readers is there or past it. None without a majority.
    pub reached: Option<u64>,
    pub endpoints: Vec<EndpointHead>,
}

/// What an endpoint can do, as far as it has shown it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub finalized_tag: Option<bool>,
    pub block_receipts: Option<bool>,
    /// The largest batch it takes, up to the configured one.
    pub batch_requests: Option<usize>,
    /// The largest request it takes, of those that were tried.
    pub request_bytes: Option<usize>,
}

/// An endpoint as operators see it.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Host and port; never a path, a query or a credential.
    pub name: String,
    pub role: Role,
    /// 1 is perfect, 0 is out of rotation.
    pub score: f64,
    pub circuit: Circuit,
    pub head: Option<u64>,
    /// Blocks behind what a majority has reached.
    pub lag: u64,
    /// None until the endpoint has shown one.
    pub chain_id_ok: Option<bool>,
    pub requests: u64,
    pub errors: u64,
    pub capabilities: Capabilities,
}
