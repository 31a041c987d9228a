//! What can go wrong with Postgres, by what the caller does about it.

use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr};

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// As many callers wait for a connection as POOL_QUEUE_LIMIT allows.
    #[error("the connection pool is exhausted: {waiting} callers wait")]
    PoolExhausted { waiting: usize },
    /// All connections were at work for as long as DB_CONNECTION_TIMEOUT.
    #[error("no connection became free within DB_CONNECTION_TIMEOUT")]
    NoConnection,
    /// The server is away, or lets nobody in.
    #[error("Postgres is not reachable: {0}")]
    Unavailable(String),
    /// STATEMENT_TIMEOUT_MS ran out (SQLSTATE 57014).
    #[error("the statement took longer than STATEMENT_TIMEOUT_MS")]
    Timeout,
    /// Another transaction holds the row (55P03), was chosen over this one (40001, 40P01), or took the unique value (23505).
    #[error("changed concurrently: {0}")]
    Conflict(String),
    /// A CHECK or foreign key refused the row: the machines and the schema disagree.
    #[error("the database refused the row: {0}")]
    Refused(String),
    /// The login may not do this (42501).
    #[error("permission denied: {0}")]
    Denied(String),
    /// The answer was not what the statement promises.
    #[error("unexpected answer of Postgres: {0}")]
    Answer(String),
    /// The schema is not the one that this program works with.
    #[error("the schema is at version {found}, this program needs {expected}: run `holdfast db migrate`")]
    Schema { found: i32, expected: i32 },
}

/// What a pool knows when its time is up; one connection of its own would say more (`reach`).
const NO_CONNECTION: &str =
    "no connection within DB_CONNECTION_TIMEOUT: the server is away, or all of DB_POOL_MAX are at work; `holdfast doctor` says which";

/// What a worker does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Retry,
    Wait,
    Refuse,
    Stop,
}

impl Error {
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::PoolExhausted { .. } | Self::NoConnection | Self::Unavailable(_) => Fault::Wait,
            Self::Timeout | Self::Conflict(_) => Fault::Retry,
            Self::Refused(_) => Fault::Refuse,
            Self::Denied(_) | Self::Answer(_) | Self::Schema { .. } => Fault::Stop,
        }
    }
}

impl From<DbErr> for Error {
    fn from(error: DbErr) -> Self {
        match &error {
            DbErr::Exec(RuntimeErr::SqlxError(sql))
            | DbErr::Query(RuntimeErr::SqlxError(sql))
            | DbErr::Conn(RuntimeErr::SqlxError(sql)) => from_sqlx(sql),
            DbErr::ConnectionAcquire(ConnAcquireErr::Timeout) => Self::Unavailable(NO_CONNECTION.into()),
            DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) => Self::Unavailable("the pool is closed".into()),
            DbErr::Exec(_) | DbErr::Query(_) | DbErr::Conn(_) => Self::Unavailable(error.to_string()),
            _ => Self::Answer(error.to_string()),
        }
    }
}

pub(super) fn from_sqlx(error: &sqlx::Error) -> Error {
    let Some(database) = error.as_database_error() else {
        return match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => {
                Error::Answer(error.to_string())
            }
            sqlx::Error::PoolTimedOut => Error::Unavailable(NO_CONNECTION.into()),
            _ => Error::Unavailable(error.to_string()),
        };
    };
    let code = database.code().unwrap_or_default();
    let told = || format!("{} ({code})", database.message());
    match code.as_ref() {
        "57014" => Error::Timeout,
        "55P03" | "40001" | "40P01" | "23505" => Error::Conflict(told()),
        "42501" => Error::Denied(told()),
        // Shutting down, starting up, too many connections, read-only after a failover, idle-in-transaction cut.
        "57P01" | "57P02" | "57P03" | "53300" | "25006" | "25P03" | "08006" | "08003" => Error::Unavailable(told()),
        code if code.starts_with("23") || code.starts_with("22") => Error::Refused(told()),
        _ => Error::Answer(told()),
    }
}
