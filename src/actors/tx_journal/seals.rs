//! Counts what the active journal key seals, ahead and in blocks, so that a crash never counts too few; and seals no more than a key may.

use crate::config::JOURNAL_SEALS_MAX;
use crate::store::{self, Db, journal_keys};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Seals that are counted at once.
pub const BLOCK: u32 = 4_096;

/// Why nothing is sealed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("journal key {0} has sealed as many rows as a key may: make another the active one")]
    Spent(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}

#[derive(Clone)]
pub struct Seals(Arc<Inner>);

struct Inner {
    db: Db,
    key: String,
    /// Counted and not used yet.
    left: Mutex<u32>,
}

impl Seals {
    pub fn new(db: Db, key: String) -> Self {
        Self(Arc::new(Inner { db, key, left: Mutex::new(0) }))
    }

    /// Before `count` rows are sealed.
    pub async fn take(&self, count: usize) -> Result<(), Error> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut left = self.0.left.lock().await;
        if *left < count {
            let block = BLOCK.max(count);
            let sealed = journal_keys::count_seals(&self.0.db, &self.0.key, block).await?;
            if sealed > JOURNAL_SEALS_MAX {
                return Err(Error::Spent(self.0.key.clone()));
            }
            // What an answer that was lost has counted is given up: too many, never too few.
            *left += block;
        }
        *left -= count;
        Ok(())
    }
}
