//! Owns the wall clock: the only place that asks the system for the time of day.
//! Never measures deadlines (tokio's monotonic time does). Every room but `domain` may call it; `domain` is handed a time.

use chrono::{DateTime, TimeDelta, Utc};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// What time it is.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> DateTime<Utc>;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> DateTime<Utc> {
        (**self).now()
    }
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A clock that stands still until it is told to move. Its clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<DateTime<Utc>>>);

impl ManualClock {
    #[must_use]
    pub fn new(start: DateTime<Utc>) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    /// Moves the time on (or back, by a negative delta) and returns the new time.
    pub fn advance(&self, by: TimeDelta) -> DateTime<Utc> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
        *now
    }

    pub fn set(&self, to: DateTime<Utc>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(DateTime::UNIX_EPOCH)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told_and_all_its_clones_agree() {
        let clock = ManualClock::default();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        assert_eq!(shared.now(), DateTime::UNIX_EPOCH);
        assert_eq!(shared.now(), clock.now());
        let later = clock.advance(TimeDelta::seconds(90));
        assert_eq!(shared.now(), later);
        assert_eq!(later - DateTime::UNIX_EPOCH, TimeDelta::seconds(90));
        clock.set(DateTime::UNIX_EPOCH);
        assert_eq!(Arc::clone(&shared).now(), DateTime::UNIX_EPOCH);
    }

    #[test]
    fn the_system_clock_does_not_stand_at_the_epoch() {
        assert!(SystemClock.now() > DateTime::UNIX_EPOCH);
    }
}
