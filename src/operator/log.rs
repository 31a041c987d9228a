//! The log of operators: who did what and why, and whether anybody has tampered with it. Changes nothing.

use super::{Desk, Error, List};
use crate::domain::chained;
use crate::store::operator_log as rows;
use chrono::{DateTime, Utc};
use entity::values::Hash;
use serde::Serialize;

/// Most acts of a page, and acts that are read at once when the chain is checked.
pub const PAGE_MAX: u32 = 200;
const READ: u32 = 1_000;

/// One act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Act {
    pub position: i64,
    pub at: DateTime<Utc>,
    pub operator: String,
    /// By which login of Postgres, and what its connection says of itself.
    pub login: String,
    pub client: String,
    pub action: String,
    pub target: String,
    pub reason: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// Chains this row and all before it.
    pub hash: Hash,
}

/// Which acts are wanted, newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter<'a> {
    pub operator: Option<&'a str>,
    pub action: Option<&'a str>,
    pub target: Option<&'a str>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<i64>,
    pub limit: u32,
}

/// What the chain shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    pub rows: i64,
    /// Of the newest row: kept elsewhere, it shows later whether anything up to it was changed or cut off.
    pub head: Option<Hash>,
    /// The first row that is not as it was written, and why; null when all are.
    pub broken: Option<Broken>,
    /// Whether the hash that was given is of one of the rows; null when none was given.
    pub known: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub position: i64,
    pub why: String,
}

/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk, filter: &Filter<'_>) -> Result<List<Act>, Error> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let page =
        rows::Page { operator: filter.operator, action: filter.action, target: filter.target, before: filter.cursor, limit: limit + 1 };
    let mut acts = rows::list(&desk.reader(), &page).await?;
    let more = acts.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    acts.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next_cursor = acts.last().filter(|_| more).map(|act| act.position.to_string());
    Ok(List { items: acts.into_iter().map(act).collect(), next_cursor })
}

/// Reads the whole log and computes every hash anew. `kept` is a hash that was told of it earlier.
///
/// # Errors
/// See [`Error`].
pub async fn verify(desk: &Desk, kept: Option<Hash>) -> Result<Checked, Error> {
    let (mut last, mut head, mut known) = (0, chained::NONE, kept.map(|_| false));
    loop {
        let page = rows::chain(&desk.reader(), last, READ).await?;
        for row in &page {
            if let Some(why) = fault(row, last, head) {
                let broken = Some(Broken { position: row.position, why });
                return Ok(Checked { rows: last, head: Some(head).filter(|_| last > 0), broken, known });
            }
            (last, head) = (row.position, row.hash);
            known = known.map(|found| found || kept == Some(row.hash));
        }
        if page.len() < usize::try_from(READ).unwrap_or(usize::MAX) {
            return Ok(Checked { rows: last, head: Some(head).filter(|_| last > 0), broken: None, known });
        }
    }
}

/// What is wrong with a row that should follow the one at `last` with the hash `before`.
fn fault(row: &rows::Action, last: i64, before: Hash) -> Option<String> {
    if row.position != last + 1 {
        return Some(format!("the rows from {} to {} are gone", last + 1, row.position - 1));
    }
    if row.prev_hash != before {
        return Some("it follows another row than the one that stands before it".into());
    }
    let (position, id, at) = (row.position.to_string(), row.id.to_string(), row.at.timestamp_micros().to_string());
    let prev = row.prev_hash.to_string();
    let parts = [
        Some(position.as_str()),
        Some(prev.trim_start_matches("0x")),
        Some(&id),
        Some(&row.operator),
        Some(&row.login),
        Some(&row.client),
        Some(&row.action),
        Some(&row.target),
        Some(&row.reason),
        row.before.as_deref(),
        row.after.as_deref(),
        Some(&at),
    ];
    (chained::hash(&parts) != row.hash).then(|| "it is not as it was written".to_owned())
}

fn act(row: rows::Action) -> Act {
    let rows::Action { position, operator, login, client, action, target, reason, before, after, at, hash, .. } = row;
    Act { position, at, operator, login, client, action, target, reason, before, after, hash }
}
