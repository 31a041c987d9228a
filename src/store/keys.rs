//! API keys: the hash of the secret is stored, the secret never.

use super::{Db, Error, Reader};
use entity::values::Hash;

/// A key that is neither revoked nor expired.
#[derive(Clone, Debug)]
pub struct LiveKey {
    pub project: String,
    pub secret_hash: Hash,
}

/// The live key of an id.
///
/// # Errors
/// See [`Error`].
pub async fn live(db: &Reader, id: &str) -> Result<Option<LiveKey>, Error> {
    let sql = "SELECT project, secret_hash FROM holdfast.api_keys WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())";
    let rows = db.rows("live_key", sql, vec![id.into()]).await?;
    rows.first().map(|row| Ok(LiveKey { project: row.try_get("", "project")?, secret_hash: row.try_get("", "secret_hash")? })).transpose()
}

/// Stores a new key.
///
/// # Errors
/// `Conflict` when the id is taken.
pub async fn create(db: &Db, id: &str, project: &str, secret_hash: Hash) -> Result<(), Error> {
    let sql = "INSERT INTO holdfast.api_keys (id, project, secret_hash) VALUES ($1, $2, $3)";
    db.execute("create_key", sql, vec![id.into(), project.into(), secret_hash.into()]).await?;
    Ok(())
}
