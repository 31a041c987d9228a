//! The log of operators as it is stored: append-only, each row with the hash of the one before it. Called by `operator`.

use super::{Error, Reader};
use chrono::{DateTime, Utc};
use entity::values::Hash;

/// One act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub id: i64,
    pub position: i64,
    pub operator: String,
    pub login: String,
    pub client: String,
    pub action: String,
    pub target: String,
    pub reason: String,
    pub before: Option<String>,
    pub after: Option<String>,
    pub at: DateTime<Utc>,
    pub prev_hash: Hash,
    pub hash: Hash,
}

/// Which acts are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    pub operator: Option<&'a str>,
    pub action: Option<&'a str>,
    pub target: Option<&'a str>,
    /// Below this position, newest first.
    pub before: Option<i64>,
    pub limit: u32,
}

fn action(row: &sea_orm::QueryResult) -> Result<Action, Error> {
    Ok(Action {
        id: row.try_get("", "id")?,
        position: row.try_get("", "position")?,
        operator: row.try_get("", "operator_id")?,
        login: row.try_get("", "login")?,
        client: row.try_get("", "client")?,
        action: row.try_get("", "action")?,
        target: row.try_get("", "target")?,
        reason: row.try_get("", "reason")?,
        before: row.try_get("", "before")?,
        after: row.try_get("", "after")?,
        at: row.try_get("", "at")?,
        prev_hash: row.try_get("", "prev_hash")?,
        hash: row.try_get("", "hash")?,
    })
}

/// The newest acts first. Served by operator_actions_one_chain, operator_actions_by_target.
///
/// # Errors
/// See [`Error`].
pub async fn list(db: &Reader, page: &Page<'_>) -> Result<Vec<Action>, Error> {
    let sql = "SELECT id, position, operator_id, login, client, action, target, reason, before, after, at, prev_hash, hash
         FROM holdfast.operator_actions WHERE ($1::text IS NULL OR operator_id = $1) AND ($2::text IS NULL OR action = $2)
         AND ($3::text IS NULL OR target = $3) AND ($4::bigint IS NULL OR position < $4) ORDER BY position DESC LIMIT $5";
    let values = vec![
        page.operator.map(ToOwned::to_owned).into(),
        page.action.map(ToOwned::to_owned).into(),
        page.target.map(ToOwned::to_owned).into(),
        page.before.into(),
        i64::from(page.limit).into(),
    ];
    db.rows("operator_log", sql, values).await?.iter().map(action).collect()
}

/// The acts after a position, in their order.
///
/// # Errors
/// See [`Error`].
pub async fn chain(db: &Reader, after: i64, limit: u32) -> Result<Vec<Action>, Error> {
    let sql = "SELECT id, position, operator_id, login, client, action, target, reason, before, after, at, prev_hash, hash
         FROM holdfast.operator_actions WHERE position > $1 ORDER BY position LIMIT $2";
    db.rows("operator_chain", sql, vec![after.into(), i64::from(limit).into()]).await?.iter().map(action).collect()
}
