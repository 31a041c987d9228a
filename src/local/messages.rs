//! What the caller and its guard say to each other: orders down the guard's standard input, events up its standard output,
//! one JSON value a line. Both ends are the same binary, so there is no version. Used by `local` and `guard` only.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{child::Identity, evm_node::Evm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Postgres,
    Redis,
    EvmNode,
}

impl Part {
    /// The name of its log file and of its folder.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::EvmNode => "evm",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "Postgres",
            Self::Redis => "Redis",
            Self::EvmNode => "the EVM node",
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Whose folder it is to be, for the message to another that wants it too.
    pub owner: Identity,
    pub dir: PathBuf,
    /// The folder of `postgres` and `initdb`.
    pub postgres: PathBuf,
    pub postgres_version: String,
    pub redis: PathBuf,
    /// `None`: the operator has a node.
    pub anvil: Option<PathBuf>,
    pub evm: Evm,
    pub fsync: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    Progress { text: String },
    Ready(Ready),
    Failed(Fault),
    Restarted { part: Part },
}

/// Carries passwords: written to the pipe and nowhere else, hence no Debug.
#[derive(Serialize, Deserialize)]
pub(super) struct Ready {
    pub database_url: String,
    pub runtime_password: String,
    pub owner_url: String,
    pub redis_url: String,
    pub rpc_url: Option<String>,
    pub chain_id: Option<u64>,
    pub pids: Vec<(Part, u32)>,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("pids", &self.pids).finish_non_exhaustive()
    }
}

/// Why the guard gave up.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub(super) enum Fault {
    InUse {
        pid: u32,
    },
    Unreachable {
        user: String,
        at: PathBuf,
    },
    /// What the operator has to set right: no folder, or none that we may write in.
    Folder {
        at: PathBuf,
        detail: String,
    },
    Part {
        part: Part,
        log: PathBuf,
        detail: String,
    },
    Io {
        what: String,
        detail: String,
    },
}

impl Fault {
    pub fn folder(at: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Folder { at: at.to_owned(), detail: error.to_string() }
    }

    pub fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Io { what: what.into(), detail: error.to_string() }
    }
}
