//! What a caller may ask for, after every check that needs no chain and no database. Pure.
//! `http` builds it through [`parse`], `store` writes it.

pub mod parse;

use chrono::{DateTime, Utc};
use entity::states::JobKind;
use entity::values::{Address, Hash, Wei};
use sha2::{Digest, Sha256};

/// Accepted work, without its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    pub kind: JobKind,
    pub chain_id: i64,
    pub pool: String,
    pub to: Address,
    /// In wei.
    pub value: Wei,
    pub data: Vec<u8>,
    pub gas_limit: Option<i64>,
    /// 1 (first) to 100 (last).
    pub priority: i16,
    pub run_at: Option<DateTime<Utc>>,
    /// A JSON object, as text.
    pub metadata: Option<String>,
}

impl NewJob {
    /// SHA-256 over every field, each length-prefixed: two bodies that mean the same job have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Hash {
        let mut digest = Sha256::new();
        let gas = self.gas_limit.map(|gas| gas.to_string()).unwrap_or_default();
        let run_at = self.run_at.map(|at| at.timestamp_micros().to_string()).unwrap_or_default();
        let (chain, value, priority) = (self.chain_id.to_string(), self.value.to_string(), self.priority.to_string());
        let fields: [&[u8]; 10] = [
            self.kind.as_str().as_bytes(),
            chain.as_bytes(),
            self.pool.as_bytes(),
            &self.to.0,
            value.as_bytes(),
            &self.data,
            gas.as_bytes(),
            priority.as_bytes(),
            run_at.as_bytes(),
            self.metadata.as_deref().unwrap_or_default().as_bytes(),
        ];
        for field in fields {
            digest.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(field);
        }
        Hash(digest.finalize().into())
    }
}
