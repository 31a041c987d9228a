//! Owns the job as clients see it. Amounts are decimal strings, addresses carry their checksum, hashes are lower-case hex, times are
//! RFC 3339 in UTC with milliseconds. Never shows bytes of a transaction.

use crate::domain::encoding::checksummed;
use crate::domain::submission::NewJob;
use crate::http::problem::Problem;
use crate::store::jobs::{JobView, TransactionView};
use chrono::{DateTime, SecondsFormat, Utc};
use entity::ids::JobId;
use entity::states::JobState;
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobBody {
    #[schema(format = Uuid)]
    pub id: String,
    /// `contract_call` or `transfer`.
    pub kind: String,
    /// `pending_batch`, `batched`, `queued`, `processing`, `retry` and `submitted` go on; `completed`, `not_actionable`, `reverted`,
    /// `dead`, `quarantined` and `cancelled` are final.
    pub state: String,
    pub chain_id: i64,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
    /// What became of the wish to cancel it; null where nobody had one. `asked`: what is mined decides. `too_late`: it had its effect.
    #[schema(required)]
    pub cancellation: Option<Cancellation>,
    pub attempts: i32,
    pub priority: i16,
    /// Null until the job owns a nonce.
    #[schema(required)]
    pub transaction: Option<TransactionBody>,
    #[schema(required)]
    pub error: Option<ErrorBody>,
    #[schema(required, value_type = Option<Object>)]
    pub metadata: Option<serde_json::Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cancellation {
    Asked,
    Done,
    TooLate,
}

impl Cancellation {
    fn of(job: &JobView) -> Option<Self> {
        job.cancel_asked_at.map(|_| match job.state {
            JobState::Cancelled => Self::Done,
            state if state.is_final() => Self::TooLate,
            _ => Self::Asked,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Transaction)]
pub struct TransactionBody {
    pub signer: String,
    pub nonce: i64,
    /// `allocated`, `signed`, `broadcast` and `replaced` go on; `mined`, `reverted`, `superseded` and `abandoned` are final.
    pub state: String,
    /// The mined one, otherwise the newest.
    #[schema(required)]
    pub hash: Option<String>,
    /// Of every signed attempt, oldest first.
    pub hashes: Vec<String>,
    #[schema(required)]
    pub block: Option<BlockBody>,
    pub confirmations: i64,
    #[schema(required, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub max_fee_per_gas: Option<String>,
    #[schema(required, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub max_priority_fee_per_gas: Option<String>,
    #[schema(required, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub gas_used: Option<String>,
    #[schema(required, pattern = "^(0|[1-9][0-9]{0,77})$")]
    pub effective_gas_price: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Block)]
pub struct BlockBody {
    pub number: i64,
    pub hash: String,
}

/// Why a job failed, or failed last.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = JobError)]
pub struct ErrorBody {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    #[schema(required)]
    pub detail: Option<String>,
}

/// A body as bytes, under its entity tag.
#[derive(Debug)]
pub struct Shown {
    pub bytes: Vec<u8>,
    /// Version and hash: confirmations grow without a new version.
    pub tag: String,
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// When a job was accepted, by its id: the same before and after Postgres has told its own clock.
fn accepted_at(id: JobId) -> Option<DateTime<Utc>> {
    let (seconds, nanos) = id.0.get_timestamp()?.to_unix();
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)
}

impl JobBody {
    /// What a job looks like in the moment of its acceptance.
    #[must_use]
    pub fn accepted(id: JobId, job: &NewJob) -> Self {
        let created_at = time(accepted_at(id).unwrap_or_default());
        Self {
            id: id.to_string(),
            kind: job.kind.as_str().into(),
            state: JobState::Queued.as_str().into(),
            chain_id: job.chain_id,
            updated_at: created_at.clone(),
            created_at,
            cancellation: None,
            attempts: 0,
            priority: job.priority,
            transaction: None,
            error: None,
            metadata: job.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        }
    }

    /// # Errors
    /// Internal, which cannot happen: every part can be written as JSON.
    pub fn shown(&self, version: i32) -> Result<Shown, Problem> {
        let bytes = serde_json::to_vec(self).map_err(|error| Problem::internal(&error))?;
        let digest = Sha256::digest(&bytes);
        let tag = format!("\"{version}-{}\"", hex::encode(&digest[..8]));
        Ok(Shown { bytes, tag })
    }
}

impl From<&JobView> for JobBody {
    fn from(job: &JobView) -> Self {
        let created_at = accepted_at(job.id).unwrap_or(job.created_at);
        Self {
            id: job.id.to_string(),
            kind: job.kind.as_str().into(),
            state: job.state.as_str().into(),
            chain_id: job.chain_id,
            created_at: time(created_at),
            // The clock of Postgres may be behind the one that made the id.
            updated_at: time(job.updated_at.max(created_at)),
            cancellation: Cancellation::of(job),
            attempts: job.attempts,
            priority: job.priority,
            transaction: job.transaction.as_ref().map(TransactionBody::from),
            error: job.error.clone().map(|(kind, title, detail)| ErrorBody { kind, title, detail }),
            metadata: job.metadata.clone(),
        }
    }
}

impl From<&TransactionView> for TransactionBody {
    fn from(transaction: &TransactionView) -> Self {
        Self {
            signer: checksummed(&transaction.signer),
            nonce: transaction.nonce,
            state: transaction.state.as_str().into(),
            hash: transaction.hash().map(|hash| hash.to_string()),
            hashes: transaction.hashes.iter().map(ToString::to_string).collect(),
            block: transaction.block.map(|(number, hash)| BlockBody { number, hash: hash.to_string() }),
            confirmations: transaction.confirmations(),
            max_fee_per_gas: transaction.price.map(|(fee, _)| fee.to_string()),
            max_priority_fee_per_gas: transaction.price.map(|(_, tip)| tip.to_string()),
            gas_used: transaction.gas_used.map(|gas| gas.to_string()),
            effective_gas_price: transaction.effective_gas_price.map(|price| price.to_string()),
        }
    }
}
