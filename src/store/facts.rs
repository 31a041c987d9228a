//! What the service asks Postgres about itself: the schema, the login, and the bounded figures that gauges and `status` show.

use super::{Db, Error, Reader};
use crate::domain::fees::{Quote, TxType};
use entity::states::JobState;
use entity::values::Hash;
use std::time::Duration;

/// Whether this login, on this server, may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub version_num: i32,
    pub in_recovery: bool,
    pub schema: Option<i32>,
    /// The login owns the schema, can become who owns it, or may create in it: it is no runtime login.
    pub may_create: bool,
    pub max_connections: i32,
    pub tls: bool,
    pub database: String,
}

/// # Errors
/// See [`Error`].
pub async fn server(db: &Reader) -> Result<Server, Error> {
    let sql = "SELECT current_setting('server_version_num')::integer AS version_num, pg_is_in_recovery() AS in_recovery,
               coalesce((SELECT has_schema_privilege(n.oid, 'CREATE') OR pg_has_role(n.nspowner, 'MEMBER') FROM pg_namespace n
                         WHERE n.nspname = 'holdfast'), false) AS may_create,
               current_setting('max_connections')::integer AS max_connections, current_database()::text AS database,
               coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls,
               (to_regclass('holdfast.schema_migrations') IS NOT NULL) AS migrated";
    let rows = db.rows("server_facts", sql, vec![]).await?;
    let row = rows.first().ok_or_else(|| Error::Answer("no row".into()))?;
    let schema = if row.try_get::<bool>("", "migrated")? {
        let rows = db.rows("schema_version", "SELECT max(version) AS version FROM holdfast.schema_migrations", vec![]).await?;
        rows.first().map(|row| row.try_get::<Option<i32>>("", "version")).transpose()?.flatten()
    } else {
        None
    };
    Ok(Server {
        version_num: row.try_get("", "version_num")?,
        in_recovery: row.try_get("", "in_recovery")?,
        schema,
        may_create: row.try_get("", "may_create")?,
        max_connections: row.try_get("", "max_connections")?,
        tls: row.try_get("", "tls")?,
        database: row.try_get("", "database")?,
    })
}

/// The checksum that a migration was applied with.
///
/// # Errors
/// See [`Error`].
pub async fn checksums(db: &Reader) -> Result<Vec<(i32, String)>, Error> {
    let rows = db.rows("checksums", "SELECT version, checksum FROM holdfast.schema_migrations ORDER BY version", vec![]).await?;
    rows.iter().map(|row| Ok((row.try_get("", "version")?, row.try_get("", "checksum")?))).collect()
}

/// Figures of open work; every one is bounded by a partial index.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Open jobs by state, and the dead and quarantined ones that nobody has dealt with.
    pub jobs: Vec<(JobState, i64)>,
    pub oldest_ready: Option<Duration>,
    pub oldest_processing: Option<Duration>,
    pub outbox_pending: i64,
    pub oldest_outbox: Option<Duration>,
    pub oldest_submitted: Option<Duration>,
    /// Open lineages by chain and state.
    pub lineages: Vec<(i64, String, i64)>,
}

fn seconds(value: Option<f64>) -> Option<Duration> {
    value.and_then(|s| Duration::try_from_secs_f64(s).ok())
}

/// # Errors
/// See [`Error`].
pub async fn figures(db: &Reader) -> Result<Figures, Error> {
    let states = "SELECT state, count(*) AS n FROM holdfast.jobs WHERE state IN ('pending_batch', 'batched', 'queued', 'processing', 'retry', 'submitted') GROUP BY state
                  UNION ALL SELECT j.state, count(*) FROM holdfast.jobs j WHERE j.state IN ('dead', 'quarantined')
                      AND NOT EXISTS (SELECT 1 FROM holdfast.job_resolutions r WHERE r.job_id = j.id AND r.finished_at = j.finished_at) GROUP BY j.state";
    // One row each from the head of an index, however much is open.
    let ages = "SELECT extract(epoch FROM now() - (SELECT greatest(created_at, run_at) FROM holdfast.jobs
                       WHERE state = 'queued' AND run_at <= now() ORDER BY created_at LIMIT 1))::double precision AS ready,
                extract(epoch FROM now() - (SELECT min(processing_since) FROM holdfast.jobs WHERE state = 'processing'))::double precision AS processing,
                (SELECT count(*) FROM holdfast.outbox WHERE next_at IS NOT NULL AND published_at IS NULL) AS pending,
                extract(epoch FROM now() - (SELECT min(deliver_at) FROM holdfast.outbox WHERE next_at IS NOT NULL AND published_at IS NULL AND next_at <= now()))::double precision AS outbox,
                extract(epoch FROM now() - (SELECT min(created_at) FROM holdfast.lineages WHERE state IN ('allocated', 'signed', 'broadcast', 'replaced')))::double precision AS submitted";
    let open = "SELECT chain_id, state, count(*) AS n FROM holdfast.lineages WHERE state IN ('allocated', 'signed', 'broadcast', 'replaced') GROUP BY chain_id, state";
    let (states, ages, open) =
        tokio::try_join!(db.rows("job_states", states, vec![]), db.rows("ages", ages, vec![]), db.rows("open_states", open, vec![]))?;
    let age = ages.first().ok_or_else(|| Error::Answer("no row".into()))?;
    Ok(Figures {
        jobs: states.iter().map(|row| Ok((row.try_get("", "state")?, row.try_get("", "n")?))).collect::<Result<_, Error>>()?,
        oldest_ready: seconds(age.try_get("", "ready")?),
        oldest_processing: seconds(age.try_get("", "processing")?),
        outbox_pending: age.try_get("", "pending")?,
        oldest_outbox: seconds(age.try_get("", "outbox")?),
        oldest_submitted: seconds(age.try_get("", "submitted")?),
        lineages: open
            .iter()
            .map(|row| Ok((row.try_get("", "chain_id")?, row.try_get("", "state")?, row.try_get("", "n")?)))
            .collect::<Result<_, Error>>()?,
    })
}

/// Whether any job has not ended.
///
/// # Errors
/// See [`Error`].
pub async fn is_anything_open(db: &Reader) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM holdfast.jobs WHERE state IN ('pending_batch', 'batched', 'queued', 'processing', 'retry', 'submitted')) AS open";
    let rows = db.rows("anything_open", sql, vec![]).await?;
    Ok(rows.first().ok_or_else(|| Error::Answer("no row".into()))?.try_get("", "open")?)
}

/// Journal keys that open lineages need.
///
/// # Errors
/// See [`Error`].
pub async fn needed_journal_keys(db: &Reader) -> Result<Vec<String>, Error> {
    let sql = "SELECT DISTINCT a.key_id FROM holdfast.lineages l JOIN holdfast.tx_attempts a ON a.lineage_id = l.id
               WHERE l.state IN ('allocated', 'signed', 'broadcast', 'replaced')";
    let rows = db.rows("needed_keys", sql, vec![]).await?;
    rows.iter().map(|row| Ok(row.try_get("", "key_id")?)).collect()
}

/// Notes the newest block of a chain that a majority has reached, and what the market asks for there.
///
/// # Errors
/// See [`Error`].
pub async fn note_head(db: &Db, chain_id: i64, number: i64, hash: Hash, market: Quote, tx_type: TxType) -> Result<(), Error> {
    let sql = "INSERT INTO holdfast.heads AS h (chain_id, number, hash, base_fee, priority_fee, tx_type) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (chain_id) DO UPDATE SET number = $2, hash = $3, seen_at = now(), base_fee = $4, priority_fee = $5, tx_type = $6
               WHERE h.number < $2 OR h.hash <> $3 OR h.base_fee IS NULL";
    let values =
        vec![chain_id.into(), number.into(), hash.into(), market.base_fee.into(), market.priority_fee.into(), tx_type.code().into()];
    db.execute("note_head", sql, values).await?;
    Ok(())
}
