//! Owns what `/readyz` and `/startupz` answer: the newest result of each check, whether the process has started, whether it drains.
//! Never checks anything itself: `app` does so in the background, so a probe costs nothing and cannot hang.

use crate::telemetry::metrics::READINESS;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// A result that is older was given by a checker that hangs.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// Shared by the checker and both listeners.
#[derive(Clone, Debug, Default)]
pub struct ReadinessBoard(Arc<RwLock<Board>>);

#[derive(Debug, Default)]
struct Board {
    checks: BTreeMap<&'static str, Posted>,
    started: bool,
    draining: bool,
}

#[derive(Debug)]
struct Posted {
    result: Result<(), String>,
    at: Instant,
}

/// What is told of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    pub checks: Vec<Check>,
}

impl ReadinessBoard {
    /// A board that waits for these checks: it is not ready before each has passed once.
    #[must_use]
    pub fn expecting(checks: &[&'static str]) -> Self {
        let board = Self::default();
        checks.iter().for_each(|check| board.set(check, Err("not checked yet".into())));
        board
    }

    /// Posts the newest result. The detail of a failure is shown to whoever may reach the admin listener: no secrets.
    pub fn set(&self, check: &'static str, result: Result<(), String>) {
        READINESS.set(if result.is_ok() { 1.0 } else { 0.0 }, &[check]);
        let posted = Posted { result, at: Instant::now() };
        self.0.write().unwrap_or_else(PoisonError::into_inner).checks.insert(check, posted);
    }

    /// The process has done what it does once, before its work.
    pub fn started(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).started = true;
    }

    /// The process stops: no new work should come to it.
    pub fn drain(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).draining = true;
    }

    #[must_use]
    pub fn has_started(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).started
    }

    #[must_use]
    pub fn read(&self) -> Readiness {
        self.read_at(Instant::now())
    }

    fn read_at(&self, now: Instant) -> Readiness {
        let board = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let draining = Check { name: "draining".into(), ok: false, detail: Some("the process is stopping".into()) };
        let mut checks: Vec<Check> = board.draining.then_some(draining).into_iter().collect();
        checks.extend(board.checks.iter().map(|(name, posted)| {
            let detail = match &posted.result {
                Err(detail) => Some(detail.clone()),
                Ok(()) if now.saturating_duration_since(posted.at) > STALE_AFTER => Some("not checked for too long".into()),
                Ok(()) => None,
            };
            Check { name: (*name).into(), ok: detail.is_none(), detail }
        }));
        // Without checks nothing is known, and that is not ready.
        Readiness { ready: !board.checks.is_empty() && checks.iter().all(|check| check.ok), checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_ready_when_every_check_passed_lately_and_nothing_drains() {
        assert!(!ReadinessBoard::default().read().ready);
        let board = ReadinessBoard::expecting(&["postgres", "redis"]);
        board.set("postgres", Ok(()));
        assert!(!board.read().ready);
        board.set("redis", Ok(()));
        assert!(board.read().ready);
        board.set("redis", Err("refused".into()));
        let seen = board.read();
        let failed: Vec<_> =
            seen.checks.iter().filter(|check| !check.ok).map(|check| (check.name.as_str(), check.detail.as_deref())).collect();
        assert_eq!((seen.ready, failed), (false, vec![("redis", Some("refused"))]));
        board.set("redis", Ok(()));
        assert!(!board.read_at(Instant::now() + STALE_AFTER + Duration::from_millis(1)).ready);
        board.set("postgres", Ok(()));
        board.set("redis", Ok(()));
        assert!(board.read().ready);
        board.drain();
        assert_eq!(board.read().checks[0].name, "draining");
        assert!(!board.read().ready);
    }
}
