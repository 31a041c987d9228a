//! Who of each pool waits: at the lane, holding a hand of this process, or away, to come back later. In memory only: a restart forgets how many
//! are away, and they come back once too early.

use crate::domain::patience;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// More pools than any deployment has; beyond them nobody's wait grows.
const POOLS: usize = 1_024;

type Pool = (i64, String);

#[derive(Default)]
struct Line {
    at_lane: usize,
    /// How many come back in which second since the start.
    away: BTreeMap<u64, u64>,
}

/// The lines of all pools.
pub(super) struct Waiting {
    began: Instant,
    places: usize,
    lines: Mutex<HashMap<Pool, Line>>,
}

/// A place at the lane; given back when dropped.
pub(super) struct Seat {
    waiting: Arc<Waiting>,
    pool: Pool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiting.with(&self.pool, |line| line.at_lane = line.at_lane.saturating_sub(1));
    }
}

impl Waiting {
    /// `hands` is how many executions the process has at a time.
    pub(super) fn new(hands: usize) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), places: patience::waiting_at_a_lane(hands), lines: Mutex::default() })
    }

    fn with<T>(&self, pool: &Pool, act: impl FnOnce(&mut Line) -> T) -> Option<T> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= POOLS && !lines.contains_key(pool) {
            return None;
        }
        Some(act(lines.entry(pool.clone()).or_default()))
    }

    /// A place to wait at the lanes of a pool; None when as many as may wait there already.
    pub(super) fn sit(self: &Arc<Self>, chain_id: i64, pool: &str) -> Option<Seat> {
        let pool = (chain_id, pool.to_owned());
        let seated = self.with(&pool, |line| {
            let free = line.at_lane < self.places;
            line.at_lane += usize::from(free);
            free
        });
        (seated == Some(true)).then(|| Seat { waiting: Arc::clone(self), pool })
    }

    /// One more goes away; for how long at most.
    pub(super) fn leave(&self, chain_id: i64, pool: &str, least: Duration) -> Duration {
        self.leave_at(chain_id, pool, least, self.began.elapsed().as_secs())
    }

    fn leave_at(&self, chain_id: i64, pool: &str, least: Duration, now: u64) -> Duration {
        let wait = self.with(&(chain_id, pool.to_owned()), |line| {
            line.away = line.away.split_off(&now);
            let wait = patience::away(line.away.values().sum(), least);
            *line.away.entry(now + wait.as_secs()).or_default() += 1;
            wait
        });
        wait.unwrap_or(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_of_a_pool_grow_with_its_line_and_shrink_again() {
        let (waiting, least) = (Waiting::new(64), Duration::from_secs(10));
        let mut last = Duration::ZERO;
        for _ in 0..5_000 {
            last = waiting.leave_at(1, "a", least, 0);
        }
        assert!((Duration::from_secs(90)..=Duration::from_secs(100)).contains(&last), "{last:?}");
        assert_eq!(waiting.leave_at(1, "b", least, 0), least, "another pool has its own line");
        assert_eq!(waiting.leave_at(1, "a", least, 101), least);
    }

    #[test]
    fn only_so_many_wait_at_the_lanes_of_a_pool_and_a_place_is_given_back() {
        let waiting = Waiting::new(8);
        let seats = [waiting.sit(1, "a"), waiting.sit(1, "a")];
        assert!(seats.iter().all(Option::is_some));
        assert!(waiting.sit(1, "a").is_none() && waiting.sit(1, "b").is_some() && waiting.sit(2, "a").is_some());
        drop(seats);
        assert!(waiting.sit(1, "a").is_some());
    }
}
