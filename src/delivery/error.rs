//! What can go wrong between us and Redis, sorted by what the caller does next. Holds no address and no credential.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a call of the delivery plane gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No reply in time, no connection, or Redis is loading or failing over. The call may still have taken effect: repeat it
    /// later, every call of this room may be repeated.
    #[error("redis did not answer {call}: {detail}")]
    Unreachable { call: &'static str, detail: String },
    /// Redis is full and refuses writes (`noeviction`). Nothing was written; wait for memory.
    #[error("redis refuses {call}: out of memory")]
    Full { call: &'static str },
    /// Redis will not do this for us at all: wrong password, missing permission, unknown command. An operator has to act.
    #[error("redis refuses {call}: {detail}")]
    Refused { call: &'static str, detail: String },
    /// Redis answered something that this room does not understand: another program writes under our prefix, or a defect.
    #[error("redis answered {call} with something unexpected: {detail}")]
    Unexpected { call: &'static str, detail: &'static str },
    /// The settings can never work.
    #[error("queue configuration: {0}")]
    Configuration(&'static str),
}

impl Error {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Full { .. })
    }

    /// A bounded word for metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Full { .. } => "full",
            Self::Refused { .. } => "refused",
            Self::Unexpected { .. } => "unexpected",
            Self::Configuration(_) => "configuration",
        }
    }

    pub(super) fn timed_out(call: &'static str) -> Self {
        Self::Unreachable { call, detail: "deadline passed".to_owned() }
    }

    pub(super) fn from_redis(call: &'static str, error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => {
                Self::Unreachable { call, detail: error.to_string() }
            }
            ErrorKind::Server(kind) => Self::from_server(call, kind, error.code().unwrap_or_default(), error.detail().unwrap_or_default()),
            ErrorKind::UnexpectedReturnType | ErrorKind::Parse => Self::Unexpected { call, detail: "unreadable reply" },
            _ => Self::Refused { call, detail: error.to_string() },
        }
    }

    pub(super) fn from_server(call: &'static str, kind: ServerErrorKind, code: &str, detail: &str) -> Self {
        let text = || if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") };
        match kind {
            ServerErrorKind::BusyLoading | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown => {
                Self::Unreachable { call, detail: text() }
            }
            // A replica that is being promoted answers READONLY for a while; a script in progress answers BUSY.
            ServerErrorKind::ReadOnly => Self::Unreachable { call, detail: text() },
            _ if matches!(code, "BUSY" | "NOREPLICAS" | "MISCONF") => Self::Unreachable { call, detail: text() },
            // Inside a script the code of the failed command is part of the text.
            _ if code == "OOM" || detail.contains("OOM ") || detail.contains("maxmemory") => Self::Full { call },
            _ => Self::Refused { call, detail: text() },
        }
    }
}
