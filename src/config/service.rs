//! Owns what a process is: its role, its name and how long it may take to stop.
//! Never knows what a role runs. Read by `app`, which does.

use super::layers::{Layers, Section};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    All,
    Engine,
    Relayer,
    Auditor,
}

impl Role {
    pub const WORDS: [(&'static str, Self); 4] =
        [("all", Self::All), ("engine", Self::Engine), ("relayer", Self::Relayer), ("auditor", Self::Auditor)];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Engine => "engine",
            Self::Relayer => "relayer",
            Self::Auditor => "auditor",
        }
    }

    /// Whether a process of this role may be given keys at all.
    #[must_use]
    pub const fn may_hold_keys(self) -> bool {
        matches!(self, Self::All | Self::Relayer)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct Service {
    pub role: Role,
    pub instance_id: String,
    pub infrastructure_required: bool,
    pub shutdown_deadline: Duration,
}

impl Service {
    pub(super) fn read(from: &Section<'_>) -> Self {
        Self {
            role: from.word("role", "HOLDFAST_ROLE", &Role::WORDS, Role::All),
            instance_id: from.plain_name("instance_id", "INSTANCE_ID", 128, "_.:-").unwrap_or_else(|| default_instance(from.layers())),
            infrastructure_required: from.flag("infrastructure_required", "INFRASTRUCTURE_REQUIRED"),
            shutdown_deadline: from.seconds("shutdown_deadline_seconds", "SHUTDOWN_DEADLINE_SECONDS", 0),
        }
    }
}

fn default_instance(layers: &Layers<'_>) -> String {
    let host =
        layers.outside("HOSTNAME").map(|name| name.to_string()).or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let mut host = host.unwrap_or_default();
    host.retain(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    host.truncate(100);
    let host = if host.is_empty() { "host" } else { &host };
    format!("{host}-{}", nix::unistd::getpid())
}
