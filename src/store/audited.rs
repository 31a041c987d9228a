//! Acts of operators that no actor owns: the change and the row that tells who did it and why are one statement. Called by `operator`.

use super::{Db, Error};
use entity::values::Hash;

/// Who acts, and why.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a> {
    pub id: &'a str,
    pub reason: &'a str,
}

/// Stores a new API key.
///
/// # Errors
/// `Conflict` when the id is taken.
pub async fn create_key(db: &Db, id: &str, project: &str, secret_hash: Hash, operator: Operator<'_>) -> Result<(), Error> {
    let sql = "WITH made AS (INSERT INTO holdfast.api_keys (id, project, secret_hash) VALUES ($1, $2, $3) RETURNING id, project)
               INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, after) SELECT $4, 'keys.create', id, $5, 'project ' || project FROM made";
    db.execute("create_key_audited", sql, vec![id.into(), project.into(), secret_hash.into(), operator.id.into(), operator.reason.into()])
        .await?;
    Ok(())
}
