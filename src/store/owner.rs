//! The owner of the schema, for as long as one migration takes: a pool of one connection that the service never has.
//! Never reads or writes a row of the service. Called by `operator::schema` for `db migrate`, and by `app` for `dev`.

use super::{Error, reach};
use migration::{Login, Report};
use sea_orm::{ConnectOptions, Database, DatabaseConnection};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// The owner may be on the other side of a slow first connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// Why a migration was not done. Nothing is half done then.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The server was not reached.
    #[error(transparent)]
    Store(#[from] Error),
    /// The server, or the history in it, refused.
    #[error(transparent)]
    Migration(#[from] migration::Error),
}

/// Brings the schema and the logins to what this program needs, as the owner.
///
/// # Errors
/// See [`Failed`].
pub async fn migrate(url: &SecretString, logins: &[Login<'_>]) -> Result<Report, Failed> {
    let owner = connect(url).await?;
    let done = migration::migrate(&owner, logins).await;
    let _ = owner.close().await;
    Ok(done?)
}

/// One connection. That a migration may take as long as it needs is said inside its transaction, which a pooler lets through.
async fn connect(url: &SecretString) -> Result<DatabaseConnection, Error> {
    let mut options = ConnectOptions::new(url.expose_secret());
    options
        .min_connections(1)
        .max_connections(1)
        .acquire_timeout(CONNECT_WITHIN)
        .connect_timeout(CONNECT_WITHIN)
        .sqlx_logging(false)
        .set_application_name("holdfast migrate");
    match Database::connect(options).await {
        Ok(owner) => Ok(owner),
        Err(error) => Err(reach::cause(url, CONNECT_WITHIN, error.into()).await),
    }
}
