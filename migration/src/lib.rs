//! The ordered history of the schema, the logins and what they may do. Run by the owner identity only (`holdfast db migrate`);
//! the service itself never changes a schema, it compares versions.

pub mod privileges;
pub mod scram;

use sea_orm::{ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, Statement, TransactionTrait};
use sha2::{Digest, Sha256};

pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// In order; a version that was released is never edited, the checksum would refuse it.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "coordination",
        up: include_str!("sql/0001_coordination.up.sql"),
        down: include_str!("sql/0001_coordination.down.sql"),
    },
    Migration { version: 2, name: "lanes", up: include_str!("sql/0002_lanes.up.sql"), down: include_str!("sql/0002_lanes.down.sql") },
    Migration {
        version: 3,
        name: "operators",
        up: include_str!("sql/0003_operators.up.sql"),
        down: include_str!("sql/0003_operators.down.sql"),
    },
];

/// The version that this program works with.
pub const EXPECTED: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Two runs of the command wait for each other on this transaction-level lock (it also holds behind a transaction pooler).
const LOCK: i64 = 0x686f_6c64_6661_7374;

impl Migration {
    #[must_use]
    pub fn checksum(&self) -> String {
        hex(&Sha256::digest(self.up.as_bytes()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A login of the service and the role of the matrix that it gets.
pub struct Login<'a> {
    pub role: &'static str,
    pub name: &'a str,
    pub password: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database refused: {0}")]
    Database(#[from] DbErr),
    #[error("PostgreSQL {found} is too old: 16 or newer is needed")]
    TooOld { found: i32 },
    #[error("migration {version} was changed after it was applied: the database has checksum {applied}, this program {expected}")]
    Changed { version: i32, applied: String, expected: String },
    #[error("the database is at version {found}, newer than this program's {EXPECTED}: run the newer program")]
    Newer { found: i32 },
    #[error("login {login:?}: {0}", login = .1)]
    Password(scram::Error, String),
    #[error("login {login:?} is a member of {group:?}: a runtime login may not inherit anything; REVOKE {group} FROM {login}")]
    Member { login: String, group: String },
    #[error("login {login:?} owns {object}: a runtime login may own nothing; ALTER … OWNER TO the migration owner")]
    Owner { login: String, object: String },
    #[error("login {login:?} has {attribute} and this identity may not take it away: do it as a superuser")]
    Attribute { login: String, attribute: &'static str },
    #[error("login {login:?} may not create in this database: DATABASE_MIGRATION_URL has to name the owner of the schema")]
    NotOwner { login: String },
    #[error("DATABASE_URL and DATABASE_MIGRATION_URL name one login: the runtime must be another than the owner")]
    SameLogin,
}

/// What a run did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub applied: Vec<i32>,
    pub logins: Vec<String>,
}

/// Brings the schema to [`EXPECTED`] and the logins to the matrix, all in one transaction. Running it again changes nothing.
///
/// # Errors
/// Whatever is refused is named; nothing is half done.
pub async fn migrate(owner: &DatabaseConnection, logins: &[Login<'_>]) -> Result<Report, Error> {
    // The one-shot command owns this future to its end, so the BEGIN cannot be dropped half way.
    #[expect(clippy::disallowed_methods, reason = "nothing cancels the migration command")]
    let tx = owner.begin().await?;
    let found: i32 = scalar(&tx, "SELECT current_setting('server_version_num')::int").await?.unwrap_or_default();
    if found < 160_000 {
        return Err(Error::TooOld { found: found / 10_000 });
    }
    let stranger = "SELECT current_user::text WHERE NOT has_database_privilege(current_database(), 'CREATE')";
    if let Some(login) = scalar(&tx, stranger).await? {
        return Err(Error::NotOwner { login });
    }
    tx.execute_unprepared(&format!(
        "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'; SELECT pg_advisory_xact_lock({LOCK})"
    ))
    .await?;
    let mut report = Report::default();
    apply(&tx, &mut report).await?;
    for login in logins {
        provision(&tx, login).await?;
        report.logins.push(login.name.to_owned());
    }
    tx.commit().await?;
    Ok(report)
}

async fn apply(tx: &DatabaseTransaction, report: &mut Report) -> Result<(), Error> {
    tx.execute_unprepared(
        "CREATE SCHEMA IF NOT EXISTS holdfast;
         CREATE TABLE IF NOT EXISTS holdfast.schema_migrations (
             version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
    )
    .await?;
    let rows = tx.query_all_raw(statement("SELECT version, checksum FROM holdfast.schema_migrations ORDER BY version", [])).await?;
    let mut applied = Vec::new();
    for row in rows {
        applied.push((row.try_get::<i32>("", "version")?, row.try_get::<String>("", "checksum")?));
    }
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > EXPECTED) {
        return Err(Error::Newer { found: *found });
    }
    for migration in MIGRATIONS {
        if let Some((version, checksum)) = applied.iter().find(|(version, _)| *version == migration.version) {
            if *checksum != migration.checksum() {
                return Err(Error::Changed { version: *version, applied: checksum.clone(), expected: migration.checksum() });
            }
            continue;
        }
        tx.execute_unprepared(migration.up).await?;
        tx.execute_raw(statement(
            "INSERT INTO holdfast.schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
            [migration.version.into(), migration.name.into(), migration.checksum().into()],
        ))
        .await?;
        report.applied.push(migration.version);
    }
    Ok(())
}

/// Creates or updates a login: its attributes, its password, its grants; refuses memberships and ownership.
async fn provision(tx: &DatabaseTransaction, login: &Login<'_>) -> Result<(), Error> {
    let name = login.name.to_owned();
    if scalar::<String>(tx, "SELECT current_user::text").await?.as_deref() == Some(login.name) {
        return Err(Error::SameLogin);
    }
    let verifier = scram::fresh_verifier(login.password).map_err(|e| Error::Password(e, name.clone()))?;
    let quoted = privileges::quoted(login.name);
    let role = tx
        .query_one_raw(statement(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication, rolcanlogin FROM pg_roles WHERE rolname = $1",
            [name.clone().into()],
        ))
        .await?;
    match role {
        None => {
            let attributes = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT";
            tx.execute_unprepared(&format!("CREATE ROLE {quoted} {attributes} PASSWORD '{verifier}'")).await?;
        }
        Some(row) => {
            // Only what deviates is altered: a managed service's admin may not even write NOSUPERUSER.
            for (column, attribute, cure) in [
                ("rolsuper", "SUPERUSER", "NOSUPERUSER"),
                ("rolbypassrls", "BYPASSRLS", "NOBYPASSRLS"),
                ("rolcreaterole", "CREATEROLE", "NOCREATEROLE"),
                ("rolcreatedb", "CREATEDB", "NOCREATEDB"),
                ("rolreplication", "REPLICATION", "NOREPLICATION"),
            ] {
                if row.try_get::<bool>("", column)? {
                    let altered = tx.execute_unprepared(&format!("ALTER ROLE {quoted} {cure}")).await;
                    altered.map_err(|_| Error::Attribute { login: name.clone(), attribute })?;
                }
            }
            tx.execute_unprepared(&format!("ALTER ROLE {quoted} LOGIN PASSWORD '{verifier}'")).await?;
        }
    }
    refuse_inheritance(tx, &name).await?;
    for sql in privileges::statements(login.role, login.name) {
        tx.execute_unprepared(&sql).await?;
    }
    Ok(())
}

async fn refuse_inheritance(tx: &DatabaseTransaction, login: &str) -> Result<(), Error> {
    // NOINHERIT does not undo memberships on 16+, so any membership is refused.
    let member = "SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles l ON l.oid = m.member WHERE l.rolname = $1 LIMIT 1";
    if let Some(row) = tx.query_one_raw(statement(member, [login.into()])).await? {
        return Err(Error::Member { login: login.to_owned(), group: row.try_get_by_index(0)? });
    }
    // Whatever has an owner is noted there, of all databases of the server.
    let owned = "SELECT CASE WHEN d.dbid IN (0, b.oid) THEN pg_describe_object(d.classid, d.objid, d.objsubid)
                        ELSE 'something in database ' || (SELECT o.datname FROM pg_database o WHERE o.oid = d.dbid) END
                 FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid JOIN pg_database b ON b.datname = current_database()
                 WHERE d.refclassid = 'pg_authid'::regclass AND d.deptype = 'o' AND r.rolname = $1
                 ORDER BY d.dbid = b.oid DESC, d.classid = 'pg_namespace'::regclass DESC, d.objid LIMIT 1";
    if let Some(row) = tx.query_one_raw(statement(owned, [login.into()])).await? {
        return Err(Error::Owner { login: login.to_owned(), object: row.try_get_by_index(0)? });
    }
    Ok(())
}

fn statement<const N: usize>(sql: &str, values: [sea_orm::Value; N]) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

async fn scalar<T: sea_orm::TryGetable>(tx: &DatabaseTransaction, sql: &str) -> Result<Option<T>, DbErr> {
    tx.query_one_raw(statement(sql, [])).await?.map(|row| row.try_get_by_index(0)).transpose()
}
