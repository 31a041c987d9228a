//! Cancelling a job before it owns a nonce, for its client and for operators. Never touches a nonce: what has one is decided by the chain.

use super::{Desk, Error};
use crate::store::jobs;
use entity::ids::JobId;

pub use crate::store::jobs::Cancelled;

/// Most characters of an operator's name; the table allows as many bytes.
const NAME_MAX: usize = 128;
const REASON_MAX: usize = 1_000;

/// Cancels a job of `project` (None: of any). An `operator` (name and reason) is written down in the same statement.
///
/// # Errors
/// `NoOperator` and `BadReason` before anything is asked of Postgres; otherwise see [`Error`].
pub async fn cancel(desk: &Desk, job: JobId, project: Option<&str>, operator: Option<(&str, &str)>) -> Result<Cancelled, Error> {
    if let Some((name, reason)) = operator {
        check(name, reason)?;
    }
    Ok(jobs::cancel(&desk.db, job, project, operator).await?)
}

/// Whether somebody and something can be written into the log of operators.
pub(super) fn check(name: &str, reason: &str) -> Result<(), Error> {
    if name.trim().is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return Err(Error::NoOperator);
    }
    if reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control) {
        return Err(Error::BadReason);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_has_a_name_and_a_reason_is_one_line() {
        assert!(check("anna@example.org", "").is_ok());
        for (name, reason) in [("", ""), ("  ", ""), ("a\nb", ""), (&*"x".repeat(129), "")] {
            assert!(matches!(check(name, reason), Err(Error::NoOperator)), "{name:?}");
        }
        assert!(matches!(check("anna", "a\u{1b}[2J"), Err(Error::BadReason)));
        assert!(matches!(check("anna", &"x".repeat(1_001)), Err(Error::BadReason)));
    }
}
