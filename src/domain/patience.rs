//! How long a job stays away whose pool has no room, no price or no money for it. Pure.
//!
//! What comes back is tried in vain as long as nothing changed, and each try costs a claim, a simulation and a row. So the more of a pool
//! are away, the longer each stays: they come back at a steady rate, which is far above what a lane takes in, whatever their number.

use super::backoff;
use std::time::Duration;

/// How many of one pool come back to one process in a second, on average.
pub const RETURNS_A_SECOND: u64 = 50;

/// How long one stays away when `others` of its pool are away already: at least `least`, at most the cap of every back-off.
#[must_use]
pub fn away(others: u64, least: Duration) -> Duration {
    let longest = Duration::from_millis(backoff::CAP_MS.unsigned_abs()).max(least);
    Duration::from_millis(others.saturating_mul(1_000) / RETURNS_A_SECOND).clamp(least, longest)
}

/// How many executions of one pool may wait inside one process for a block that gives room: a quarter of its hands, and one at least, so that
/// the other pools and chains go on.
#[must_use]
pub fn waiting_at_a_lane(hands: usize) -> usize {
    (hands / 4).max(1)
}

/// How many may wait so for all pools together: half of the hands, and one at least, so that many pools without room do not take them all either.
#[must_use]
pub fn waiting_at_all_lanes(hands: usize) -> usize {
    (hands / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_come_back_soon_and_many_at_a_steady_rate() {
        let least = Duration::from_secs(10);
        assert_eq!([0, 1, 500].map(|others| away(others, least)), [least; 3]);
        assert_eq!(away(1_000, least), Duration::from_secs(20));
        assert_eq!(away(10_000, least), Duration::from_secs(200));
        assert_eq!([15_000, 1_000_000, u64::MAX].map(|others| away(others, least)), [Duration::from_secs(300); 3]);
        assert_eq!(away(0, Duration::from_secs(400)), Duration::from_secs(400), "a longer wish is kept");
    }

    #[test]
    fn no_pool_takes_all_hands_and_each_has_one() {
        assert_eq!([1, 3, 4, 64].map(waiting_at_a_lane), [1, 1, 1, 16]);
        assert_eq!([1, 3, 4, 64].map(waiting_at_all_lanes), [1, 1, 2, 32]);
    }
}
