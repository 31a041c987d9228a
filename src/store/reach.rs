//! Why Postgres is not reached. The pool tries again until its time is up and then says only that; one connection of its own says what is
//! wrong. Never shows the user, the password or the name of the database. Called where a pool is opened.

use super::Error;
use super::error::from_sqlx;
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use std::io::ErrorKind;
use std::time::Duration;

/// Longer than any server that answers at all takes to refuse, and short beside what was waited already.
const PATIENCE: Duration = Duration::from_secs(3);

/// `told` is what the pool said; better words for it when there are.
pub(super) async fn cause(url: &SecretString, patience: Duration, told: Error) -> Error {
    if !matches!(told, Error::Unavailable(_)) {
        return told;
    }
    let Ok(options) = url.expose_secret().parse::<PgConnectOptions>() else { return told };
    let place = format!("{}:{}", options.get_host(), options.get_port());
    let options = options.disable_statement_logging();
    match tokio::time::timeout(patience.min(PATIENCE), PgConnection::connect_with(&options)).await {
        Ok(Ok(connection)) => {
            let _ = connection.close().await;
            told
        }
        Ok(Err(error)) => named(&place, &error),
        Err(_) => Error::Unavailable(format!("{place} does not answer: a firewall, or a wrong host")),
    }
}

fn named(place: &str, error: &sqlx::Error) -> Error {
    let sqlx::Error::Io(io) = error else {
        return match from_sqlx(error) {
            Error::Unavailable(why) => Error::Unavailable(format!("{place}: {why}")),
            other => other,
        };
    };
    Error::Unavailable(match io.kind() {
        ErrorKind::ConnectionRefused => format!("{place} refuses connections: no server listens there"),
        // The resolver has no kind of its own.
        _ if io.to_string().contains("lookup address") => format!("the host of {place} is not known: {io}"),
        _ => format!("{place}: {io}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(url: &str) -> String {
        let pool = Error::Unavailable("pool timed out".into());
        cause(&SecretString::from(url.to_owned()), Duration::from_secs(10), pool).await.to_string()
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_and_a_host_that_is_not_known_are_told_apart_and_no_secret_is_shown() {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let refused = told(&format!("postgres://c0ffee:c0ffee@127.0.0.1:{port}/c0ffee")).await;
        assert_eq!(refused, format!("Postgres is not reachable: 127.0.0.1:{port} refuses connections: no server listens there"));
        let unknown = told("postgres://c0ffee:c0ffee@nowhere.invalid:5432/c0ffee").await;
        assert!(unknown.starts_with("Postgres is not reachable: the host of nowhere.invalid:5432 is not known"), "{unknown}");
        assert!(!unknown.contains("c0ffee"), "{unknown}");
    }

    #[tokio::test]
    async fn what_the_pool_knows_better_stays() {
        let url = SecretString::from("postgres://u@127.0.0.1:1/d".to_owned());
        let denied = cause(&url, PATIENCE, Error::Answer("password authentication failed (28P01)".into())).await;
        assert!(matches!(denied, Error::Answer(_)), "{denied}");
    }
}
