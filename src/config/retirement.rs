//! Owns how long a signer or a journal key is kept after its last use. Never decides whether it may go. Read by `operator`.

use super::layers::Section;
use std::time::Duration;

/// No setting makes the window shorter: an incident is mostly noticed within a day.
const WINDOW_MIN_SECONDS: u64 = 86_400;
const WINDOW_MAX_SECONDS: u64 = 10 * 365 * 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retirement {
    pub window: Duration,
}

impl Retirement {
    pub(super) fn read(from: &Section<'_>) -> Self {
        let seconds = from.integer("incident_retention_seconds", "INCIDENT_RETENTION_SECONDS", WINDOW_MIN_SECONDS, WINDOW_MAX_SECONDS);
        Self { window: Duration::from_secs(seconds) }
    }
}
