//! How many calls an endpoint gets a second. Owns the budget; reads no clock and waits for nothing. Asked by `endpoint` before an exchange.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What may be saved up for a burst.
const BURST: Duration = Duration::from_secs(1);

/// A token bucket that holds the calls of one second.
#[derive(Debug)]
pub struct Bucket {
    per_second: u32,
    each: Duration,
    /// When all that was taken is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Bucket {
    /// None where there is no limit.
    #[must_use]
    pub fn new(per_second: u32) -> Option<Self> {
        let each = Duration::from_secs(1).checked_div(per_second)?;
        Some(Self { per_second, each, paid: Mutex::new(None) })
    }

    /// When so many calls may leave. None, and nothing is taken, where that is after `latest`.
    pub fn take(&self, now: Instant, calls: usize, latest: Instant) -> Option<Instant> {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let from = paid.unwrap_or(now).max(now);
        // More calls than the bucket holds leave when it is full, and the next pay for them.
        let start = (from + self.each * calls.min(self.per_second)).checked_sub(BURST).map_or(now, |start| start.max(now));
        if start > latest {
            return None;
        }
        *paid = Some(from + self.each * calls);
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_one_second_goes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(10).unwrap();
        let now = Instant::now();
        let far = now + Duration::from_secs(60);
        assert_eq!(bucket.take(now, 10, far), Some(now));
        assert_eq!(bucket.take(now, 1, far), Some(now + Duration::from_millis(100)));
        assert_eq!(bucket.take(now, 4, far), Some(now + Duration::from_millis(500)));
        let later = now + Duration::from_secs(30);
        assert_eq!(bucket.take(later, 10, far), Some(later), "full again, and no fuller");
        assert_eq!(bucket.take(later, 1, far), Some(later + Duration::from_millis(100)));
    }

    #[test]
    fn what_cannot_leave_in_time_takes_nothing() {
        let bucket = Bucket::new(1).unwrap();
        let now = Instant::now();
        assert_eq!(bucket.take(now, 1, now), Some(now));
        assert_eq!(bucket.take(now, 1, now + Duration::from_millis(999)), None);
        assert_eq!(bucket.take(now, 1, now + Duration::from_secs(1)), Some(now + Duration::from_secs(1)));
        assert!(Bucket::new(0).is_none(), "no limit");
    }

    #[test]
    fn a_batch_larger_than_the_bucket_leaves_when_it_is_full_and_the_next_pays() {
        let bucket = Bucket::new(10).unwrap();
        let now = Instant::now();
        let far = now + Duration::from_secs(60);
        assert_eq!(bucket.take(now, 30, far), Some(now));
        assert_eq!(bucket.take(now, 1, far), Some(now + Duration::from_millis(2100)));
    }
}
