//! Whether the providers answer well enough for a decision that cannot be taken back. Owns the window of recent calls and the two limits;
//! reads no clock and asks nobody. Called by `chain` after each call of a voter, and by whoever plays a chain.

use std::collections::VecDeque;

/// Calls that are looked at.
const WINDOW: usize = 50;
/// Fewer say nothing.
const ENOUGH: usize = 10;
/// Of a hundred calls, so many failures freeze …
const FREEZES_AT: usize = 30;
/// … and fewer than so many thaw.
const THAWS_UNDER: usize = 10;

/// The recent calls of all voters of one chain.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// True: failed.
    calls: VecDeque<bool>,
    failed: usize,
    frozen: bool,
}

impl Window {
    /// Counts one more call. True if the state has turned by it.
    pub fn record(&mut self, failed: bool) -> bool {
        if self.calls.len() == WINDOW && self.calls.pop_front() == Some(true) {
            self.failed -= 1;
        }
        self.calls.push_back(failed);
        self.failed += usize::from(failed);
        let share = self.failed * 100;
        let before = self.frozen;
        if self.calls.len() >= ENOUGH {
            let limit = if before { THAWS_UNDER } else { FREEZES_AT };
            self.frozen = share >= limit * self.calls.len();
        }
        before != self.frozen
    }

    #[must_use]
    pub const fn is_calm(&self) -> bool {
        !self.frozen
    }

    /// How many of how many calls failed.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        (self.failed, self.calls.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(calls: &[(usize, bool)]) -> Window {
        let mut window = Window::default();
        for (times, failed) in calls {
            (0..*times).for_each(|_| {
                window.record(*failed);
            });
        }
        window
    }

    #[test]
    fn three_failures_of_ten_freeze_and_two_do_not() {
        assert!(!after(&[(7, false), (3, true)]).is_calm());
        assert!(after(&[(8, false), (2, true)]).is_calm());
        assert!(after(&[(9, true)]).is_calm(), "nine calls say nothing");
        assert!(!after(&[(35, false), (15, true)]).is_calm());
        assert!(after(&[(36, false), (14, true)]).is_calm());
    }

    #[test]
    fn it_thaws_only_under_a_tenth() {
        let frozen = after(&[(30, false), (20, true)]);
        assert!(!frozen.is_calm());
        let mut thawing = frozen;
        let mut turns = 0;
        while !thawing.is_calm() {
            turns += usize::from(thawing.record(false));
        }
        assert_eq!((thawing.failures(), turns), ((4, 50), 1), "four of fifty is under a tenth, five is not");
        for _ in 0..10 {
            thawing.record(true);
            assert!(thawing.is_calm(), "between the limits it stays as it was: {:?}", thawing.failures());
        }
    }

    proptest! {
        #[test]
        fn the_count_is_of_the_last_fifty_calls(calls in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut window = Window::default();
            calls.iter().for_each(|failed| { window.record(*failed); });
            let recent = &calls[calls.len().saturating_sub(WINDOW)..];
            prop_assert_eq!(window.failures(), (recent.iter().filter(|failed| **failed).count(), recent.len()));
        }
    }
}
