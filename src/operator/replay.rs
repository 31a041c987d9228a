//! Taking dead jobs up again. Never while a nonce of theirs may still take effect: nothing is sent twice.

use super::cancel::check;
use super::{Desk, Error};
use crate::store::jobs;
use entity::ids::JobId;

pub use crate::store::jobs::Replayed;

/// Takes a dead job up again, from its revalidation on, with `attempts` (JOB_MAX_ATTEMPTS) more executions.
///
/// # Errors
/// `NoOperator` and `BadReason` before anything is asked of Postgres; otherwise see [`Error`].
pub async fn replay(desk: &Desk, job: JobId, operator: (&str, &str), attempts: u32) -> Result<Replayed, Error> {
    check(operator.0, operator.1)?;
    Ok(jobs::replay(&desk.db, job, operator, attempts).await?)
}
