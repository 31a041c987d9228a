//! Puts the parts of a role together and stops them in order; the only room that knows them all. No decision about a job is made here.

mod bench;
mod demo;
mod dev;
mod engine;
mod gauges;
mod serve;
mod servers;

pub use crate::http::ReadinessBoard as Board;
pub use bench::{BenchOptions, bench};
pub use demo::{DemoOptions, demo};
pub use dev::{DevOptions, dev};
pub use serve::serve;

use crate::{chain, delivery, local, signer, store};

/// Why a process could not do its work. `cli` turns it into an exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Configuration(#[from] crate::config::Faults),
    #[error("DATABASE_URL, REDIS_URL and RPC_URL are needed to serve; `holdfast dev` brings its own")]
    Incomplete,
    #[error("DATABASE_URL and REDIS_URL are set: `holdfast dev` starts its own Postgres and Redis; unset both, or run `holdfast serve`")]
    NotLocal,
    #[error("role {0} is not part of this version: use all, engine or relayer")]
    NotBuilt(&'static str),
    #[error("{0}")]
    Delivery(#[from] delivery::Error),
    #[error("{0}")]
    Signer(#[from] signer::Error),
    #[error("{0}")]
    Store(#[from] store::Error),
    /// The database is used by a login that may change its schema.
    #[error("{0}")]
    Login(String),
    #[error("{0}")]
    Migration(String),
    #[error("{0}")]
    Local(#[from] local::Error),
    #[error("{0}")]
    DevNode(#[from] chain::dev_node::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(String),
    #[error("{what}: {detail}")]
    Files { what: String, detail: String },
    #[error("the process gave itself up: {0}")]
    GaveUp(String),
}

impl Error {
    /// As CONTRACT says: 2 for what was set wrongly, 4 for what is refused, 7 for what is not there, 1 for the rest.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Configuration(_) | Self::Incomplete | Self::NotBuilt(_) | Self::Signer(_) => 2,
            Self::NotLocal | Self::Login(_) | Self::Local(local::Error::InUse { .. } | local::Error::Unreachable { .. }) => 4,
            Self::Delivery(_) | Self::Store(_) | Self::Local(_) | Self::DevNode(_) => 7,
            Self::Migration(_) | Self::Runtime(_) | Self::Files { .. } | Self::GaveUp(_) => 1,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        let next = match self {
            Self::Incomplete => "set DATABASE_URL, REDIS_URL and RPC_URL, or run: holdfast dev",
            Self::NotLocal => "holdfast serve",
            Self::Local(local::Error::Missing(_)) => "make tools",
            Self::Login(_) => "holdfast db migrate, with the owner in DATABASE_MIGRATION_URL and another login in DATABASE_URL",
            Self::Store(store::Error::Schema { .. }) => "holdfast db migrate",
            Self::Delivery(_) | Self::Store(_) => "holdfast doctor",
            _ => return None,
        };
        Some(next.into())
    }
}

/// Runs a process to its end: actors on their arbiters, everything else on one multi-threaded runtime.
///
/// # Errors
/// What the work says, or that no runtime can be made.
pub fn run<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    // Fails only when another part of the process installed one, which then is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("holdfast").build();
    let runtime = runtime.map_err(|error| Error::Runtime(error.to_string()))?;
    let system = actix_rt::System::with_tokio_rt(move || runtime);
    system.block_on(work)
}

/// What a long start is doing, for whoever waits at the terminal.
#[expect(clippy::print_stderr, reason = "people wait for this; logs are another matter")]
fn progress(line: &str) {
    eprintln!("holdfast: {line}");
}
