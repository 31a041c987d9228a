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
    /// Never half and half: a key or a job of one world must not be looked for in the other.
    #[error("DATABASE_URL or REDIS_URL is set, and `holdfast {0}` works with its own Postgres and Redis alone")]
    NotLocal(&'static str),
    /// Before anything is started, so that nothing has to be stopped.
    #[error("{}", .0.join("\n"))]
    Listen(Vec<String>),
    /// The file with the secrets of a data folder.
    #[error("{path} cannot be read: {detail}", path = path.display())]
    Secrets { path: std::path::PathBuf, detail: String },
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
            Self::Configuration(_) | Self::Incomplete | Self::NotBuilt(_) | Self::Signer(_) | Self::Listen(_) | Self::Secrets { .. } => 2,
            Self::Local(local::Error::Folder { .. } | local::Error::Unreachable { .. }) => 2,
            Self::NotLocal(_) | Self::Login(_) | Self::Local(local::Error::InUse { .. }) => 4,
            Self::Delivery(_) | Self::Store(_) | Self::Local(_) | Self::DevNode(_) => 7,
            Self::Migration(_) | Self::Runtime(_) | Self::Files { .. } | Self::GaveUp(_) => 1,
        }
    }

    /// The safety gate that refused, by its name.
    #[must_use]
    pub fn gate(&self) -> Option<&'static str> {
        match self {
            Self::NotLocal(_) => Some("embedded-default"),
            Self::Login(_) => Some("runtime-login"),
            Self::Local(local::Error::InUse { .. }) => Some("data-folder-in-use"),
            _ => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        let next = match self {
            Self::Incomplete => "set DATABASE_URL, REDIS_URL and RPC_URL, or run: holdfast dev",
            Self::NotLocal(command) => {
                return Some(format!(
                    "unset DATABASE_URL and REDIS_URL for `holdfast {command}`, or run the service on them: holdfast serve"
                ));
            }
            Self::Listen(_) => "choose other addresses: HTTP_LISTEN and ADMIN_LISTEN (--http and --admin of holdfast dev)",
            Self::Secrets { path, .. } => {
                let dir = path.parent().unwrap_or(path).display();
                return Some(format!(
                    "bring the file back from a copy, or begin afresh without the jobs and keys of this folder: rm -r {dir}"
                ));
            }
            Self::Local(local::Error::InUse { .. }) => "stop that process, or choose another folder: --data DIR",
            Self::Local(local::Error::Folder { .. } | local::Error::Unreachable { .. }) => "choose another folder: --data DIR",
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

/// What a long start is doing, for whoever waits at the terminal; for a program a line of JSON as everything else on stderr.
#[derive(Clone, Copy, Debug)]
struct Progress {
    json: bool,
}

impl Progress {
    #[expect(clippy::print_stderr, reason = "people wait for this; logs are another matter")]
    fn tell(self, line: &str) {
        eprintln!("{}", self.shown(line));
    }

    fn shown(self, line: &str) -> String {
        if self.json { serde_json::json!({ "event": "progress", "message": line }).to_string() } else { format!("holdfast: {line}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_its_exit_code_and_names_its_gate_or_the_setting_to_change() {
        let seen = |error: Error| (error.exit_code(), error.gate(), error.next().unwrap_or_default());
        let in_use = local::Error::InUse { dir: "/d".into(), pid: 7 };
        assert_eq!((seen(in_use.into()).0, seen(Error::NotLocal("demo")).0), (4, 4));
        assert_eq!(seen(local::Error::InUse { dir: "/d".into(), pid: 7 }.into()).1, Some("data-folder-in-use"));
        let (code, gate, next) = seen(Error::NotLocal("demo"));
        assert_eq!((code, gate), (4, Some("embedded-default")));
        assert!(next.contains("unset DATABASE_URL and REDIS_URL") && next.contains("holdfast serve"), "{next}");
        let folder = local::Error::Folder { at: "/f".into(), detail: "it is a file".into() };
        assert_eq!(seen(folder.into()), (2, None, "choose another folder: --data DIR".into()));
        let (code, _, next) = seen(Error::Secrets { path: "/f/secrets.json".into(), detail: "x".into() });
        assert!(code == 2 && next.ends_with("rm -r /f"), "{code} {next}");
    }

    #[test]
    fn progress_is_plain_for_people_and_json_for_programs() {
        assert_eq!(Progress { json: false }.shown("paying the signers"), "holdfast: paying the signers");
        let line: serde_json::Value = serde_json::from_str(&Progress { json: true }.shown("x \"y\"")).unwrap();
        assert_eq!((line["event"].as_str(), line["message"].as_str()), (Some("progress"), Some("x \"y\"")));
    }
}
