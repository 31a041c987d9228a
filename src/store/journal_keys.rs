//! How many rows each journal key has sealed, and which keys open rows still need. Written by the TxJournal.

use super::arrays::array;
use super::{Db, Error, Reader};

/// Counts `count` seals of a key before they are made; gives how many it then has.
///
/// # Errors
/// See [`Error`].
pub async fn count_seals(db: &Db, key: &str, count: u32) -> Result<i64, Error> {
    let sql = "INSERT INTO holdfast.journal_keys AS k (id, sealed) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET sealed = k.sealed + $2 RETURNING sealed";
    let rows = db.rows("count_seals", sql, vec![key.into(), i64::from(count).into()]).await?;
    rows.first().map_or_else(|| Err(Error::Answer("no count of seals".into())), |row| Ok(row.try_get("", "sealed")?))
}

/// Every key that was ever used and how many rows it has sealed, counted ahead.
///
/// # Errors
/// See [`Error`].
pub async fn seals(db: &Reader) -> Result<Vec<(String, i64)>, Error> {
    let rows = db.rows("seals", "SELECT id, sealed FROM holdfast.journal_keys ORDER BY id LIMIT 1000", vec![]).await?;
    rows.iter().map(|row| Ok((row.try_get("", "id")?, row.try_get("", "sealed")?))).collect()
}

/// Keys that are not among `held` and without which bytes cannot be sent again: of open nonces, and of ends that a reorganisation may undo.
///
/// # Errors
/// See [`Error`].
pub async fn missing(db: &Reader, held: &[String]) -> Result<Vec<String>, Error> {
    // The planner goes by the two partial indexes: lineages_open and lineages_provisional.
    let sql = "SELECT DISTINCT a.key_id FROM (
                   SELECT id FROM holdfast.lineages WHERE state IN ('allocated', 'signed', 'broadcast', 'replaced')
                   UNION ALL SELECT id FROM holdfast.lineages WHERE state IN ('mined', 'reverted') AND finalized_at IS NULL
               ) l JOIN holdfast.tx_attempts a ON a.lineage_id = l.id WHERE a.key_id <> ALL ($1::text[]) ORDER BY a.key_id LIMIT 100";
    let rows = db.rows("missing_keys", sql, vec![array(held.iter().cloned())]).await?;
    rows.iter().map(|row| Ok(row.try_get("", "key_id")?)).collect()
}
