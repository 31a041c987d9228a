//! What the server says of the login that this program uses, and of the room for connections. Reads only; called by `operator::doctor`.

use super::{Error, Reader};
use chrono::{DateTime, Utc};

/// A login that the service may run under has none of the powers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub name: String,
    /// Of SUPERUSER, CREATEROLE, CREATEDB, REPLICATION, BYPASSRLS those that it has, and what it may create in.
    pub powers: Vec<String>,
    /// Tables, views and sequences that it owns in this database.
    pub owned: i64,
    /// Roles that it is a member of.
    pub memberships: i64,
    /// Connections that ordinary logins can have together.
    pub connections: i32,
    /// The clock of the server.
    pub now: DateTime<Utc>,
}

/// # Errors
/// See [`Error`].
pub async fn facts(db: &Reader) -> Result<Login, Error> {
    let sql = "SELECT r.rolname::text AS name, now() AS now,
               array_remove(ARRAY[CASE WHEN r.rolsuper THEN 'SUPERUSER' END, CASE WHEN r.rolcreaterole THEN 'CREATEROLE' END,
                   CASE WHEN r.rolcreatedb THEN 'CREATEDB' END, CASE WHEN r.rolreplication THEN 'REPLICATION' END,
                   CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' END,
                   CASE WHEN has_database_privilege(current_database(), 'CREATE') THEN 'CREATE on the database' END,
                   CASE WHEN n.oid IS NOT NULL AND has_schema_privilege(n.oid, 'CREATE') THEN 'CREATE on schema holdfast' END], NULL) AS powers,
               (SELECT count(*) FROM pg_class c WHERE c.relowner = r.oid) AS owned,
               (SELECT count(*) FROM pg_auth_members m WHERE m.member = r.oid) AS memberships,
               current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
                   - coalesce(current_setting('reserved_connections', true), '0')::integer AS connections
               FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = 'holdfast' WHERE r.rolname = current_user";
    let rows = db.rows("login_facts", sql, vec![]).await?;
    let row = rows.first().ok_or_else(|| Error::Answer("no row".into()))?;
    Ok(Login {
        name: row.try_get("", "name")?,
        powers: row.try_get("", "powers")?,
        owned: row.try_get("", "owned")?,
        memberships: row.try_get("", "memberships")?,
        connections: row.try_get("", "connections")?,
        now: row.try_get("", "now")?,
    })
}
