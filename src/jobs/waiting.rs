//! Who of each pool waits: at the lane, holding a hand of this process, or away, to come back later. In memory only: a restart forgets how many
//! are away, and they come back once too early.

use crate::domain::patience;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

#[derive(Default)]
struct Lines {
    of: HashMap<Pool, Line>,
    /// At the lanes of all pools.
    seated: usize,
}

impl Lines {
    fn line(&mut self, pool: &Pool) -> Option<&mut Line> {
        let room = self.of.len() < POOLS || self.of.contains_key(pool);
        room.then(|| self.of.entry(pool.clone()).or_default())
    }
}

/// The lines of all pools.
pub(super) struct Waiting {
    began: Instant,
    places: usize,
    all_places: usize,
    lines: Mutex<Lines>,
}

/// A place at the lane; given back when dropped.
pub(super) struct Seat {
    waiting: Arc<Waiting>,
    pool: Pool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut lines = self.waiting.lines();
        lines.seated = lines.seated.saturating_sub(1);
        if let Some(line) = lines.of.get_mut(&self.pool) {
            line.at_lane = line.at_lane.saturating_sub(1);
        }
    }
}

impl Waiting {
    /// `hands` is how many executions the process has at a time.
    pub(super) fn new(hands: usize) -> Arc<Self> {
        let (places, all_places) = (patience::waiting_at_a_lane(hands), patience::waiting_at_all_lanes(hands));
        Arc::new(Self { began: Instant::now(), places, all_places, lines: Mutex::default() })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place to wait at the lanes of a pool; None when as many as may wait there already.
    pub(super) fn sit(self: &Arc<Self>, chain_id: i64, pool: &str) -> Option<Seat> {
        let pool = (chain_id, pool.to_owned());
        let mut lines = self.lines();
        if lines.seated >= self.all_places {
            return None;
        }
        let line = lines.line(&pool).filter(|line| line.at_lane < self.places)?;
        line.at_lane += 1;
        lines.seated += 1;
        drop(lines);
        Some(Seat { waiting: Arc::clone(self), pool })
    }

    /// One more goes away; for how long at most.
    pub(super) fn leave(&self, chain_id: i64, pool: &str, least: Duration) -> Duration {
        self.leave_at(chain_id, pool, least, self.began.elapsed().as_secs())
    }

    fn leave_at(&self, chain_id: i64, pool: &str, least: Duration, now: u64) -> Duration {
        let mut lines = self.lines();
        let Some(line) = lines.line(&(chain_id, pool.to_owned())) else { return least };
        line.away = line.away.split_off(&now);
        let wait = patience::away(line.away.values().sum(), least);
        *line.away.entry(now + wait.as_secs()).or_default() += 1;
        wait
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
        let one = waiting.sit(1, "a");
        assert!(one.is_some());
        let others: Vec<_> = ["b", "c", "d", "e"].map(|pool| waiting.sit(1, pool)).into_iter().collect();
        assert_eq!(others.iter().filter(|seat| seat.is_some()).count(), 3, "half of the hands work, however many pools wait");
        drop(one);
        assert!(waiting.sit(1, "e").is_some());
    }
}
