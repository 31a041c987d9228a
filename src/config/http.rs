//! Owns where the two listeners stand. Never binds. Read by `http` and `app`.

use super::fault::Problem;
use super::layers::Section;
use secrecy::{ExposeSecret, SecretString};
use std::net::{Ipv4Addr, SocketAddr};

#[derive(Clone, Debug)]
pub struct Http {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    /// None closes the operators' API; health and metrics need no token.
    pub admin_token: Option<SecretString>,
    pub workers: usize,
}

impl Http {
    pub(super) fn read(from: &Section<'_>) -> Self {
        Self {
            listen: address(from, "listen", "HTTP_LISTEN"),
            admin_listen: address(from, "admin_listen", "ADMIN_LISTEN"),
            admin_token: token(from),
            workers: from.size("workers", "HTTP_WORKERS", 1, 1_024),
        }
    }
}

/// A shorter token could be guessed.
const TOKEN_LEAST: usize = 16;

fn token(from: &Section<'_>) -> Option<SecretString> {
    let token = from.secret("admin_token", "ADMIN_TOKEN")?;
    if token.expose_secret().chars().count() < TOKEN_LEAST {
        from.layers().fault(from.name_of("admin_token", "ADMIN_TOKEN"), Problem::TooShort(TOKEN_LEAST));
    }
    Some(token)
}

fn address(from: &Section<'_>, key: &str, name: &str) -> SocketAddr {
    from.text(key, name).and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        from.layers().fault(from.name_of(key, name), Problem::NotASocketAddress);
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    })
}
