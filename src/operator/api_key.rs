//! Making an API key: its text exists once, in the answer; Postgres keeps a hash of the secret part. Called by `cli keys create`.

use super::cancel::check;
use super::{Desk, Error};
use crate::domain::api_key::{self, Minted};
use crate::store::audited::{self, Operator};
use crate::store::settling::OWN_PROJECT;

/// Makes a key of a project and writes down who did; the only time that its text is seen.
///
/// # Errors
/// `Invalid` for a malformed project, `NoOperator`, and see [`Error`].
pub async fn create(desk: &Desk, project: &str, operator: (&str, &str)) -> Result<Minted, Error> {
    check(operator.0, operator.1)?;
    let first = project.bytes().next().is_some_and(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if !first || project.len() > 63 || !project.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b"_-".contains(&b)) {
        return Err(Error::Invalid("project", "must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit".into()));
    }
    if project == OWN_PROJECT {
        return Err(Error::Invalid("project", format!("{OWN_PROJECT} is the service's own, for jobs that it makes for itself")));
    }
    let minted = api_key::mint("live").map_err(|_| Error::NoRandomness)?;
    audited::create_key(&desk.db, &minted.id, project, minted.hash, Operator { id: operator.0, reason: operator.1 }).await?;
    Ok(minted)
}
