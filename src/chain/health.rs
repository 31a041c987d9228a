//! How far an endpoint can be trusted to answer soon. Owns its score, its circuit and its pauses; sends nothing and reads no clock. Called by
//! `endpoint` before and after each exchange and by `pool` to choose.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Consecutive faults that open the circuit.
const FAULTS_MAX: u32 = 3;
/// Blocks behind the majority after which an endpoint is asked last.
pub const LAG_MAX: u64 = 3;
/// Weight of the newest sample in the moving averages.
const NEWEST: f64 = 0.2;
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest pause we take by ourselves …
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// … and longest that an endpoint can ask for.
const PAUSE_ASKED_MAX: Duration = Duration::from_secs(600);
/// A chain identity older than this is asked for again.
const IDENTITY_FRESH: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    Closed,
    /// Not asked until the cool-down is over.
    Open,
    /// One request finds out whether it is back.
    HalfOpen,
}

impl Circuit {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Whether a request may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Yes,
    /// The one request of a half-open circuit: check the chain first.
    Probe,
    CircuitOpen,
    Pausing,
}

/// How an exchange ended, as far as health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer, be it a result or a verdict on the call.
    Answered,
    Fault,
    /// The endpoint asks for less.
    Limited(Option<Duration>),
    /// It will not serve us until somebody changes something.
    Barred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    Unknown,
    Right,
    Wrong,
}

/// What the end of an exchange has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The circuit has opened or closed by it.
    pub turned: bool,
    /// The circuit was closed before it.
    pub in_rotation: bool,
}

#[derive(Debug)]
struct State {
    errors_average: f64,
    seconds_average: f64,
    consecutive: u32,
    open_until: Option<Instant>,
    probing: bool,
    pause_until: Option<Instant>,
    pause: Duration,
    head: Option<u64>,
    lag: u64,
    identity: Identity,
    identified: Option<Instant>,
    requests: u64,
    errors: u64,
}

#[derive(Debug)]
pub struct Health {
    cooldown: Duration,
    /// A latency that is still good; the configured hedge delay.
    brisk: Duration,
    state: Mutex<State>,
}

/// A copy of the state for operators.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    pub score: f64,
    pub circuit: Circuit,
    pub head: Option<u64>,
    pub lag: u64,
    pub identity: Identity,
    pub requests: u64,
    pub errors: u64,
}

impl State {
    fn circuit(&self, now: Instant) -> Circuit {
        match self.open_until {
            None => Circuit::Closed,
            Some(until) if now < until => Circuit::Open,
            Some(_) => Circuit::HalfOpen,
        }
    }
}

impl Health {
    #[must_use]
    pub fn new(cooldown: Duration, brisk: Duration) -> Self {
        let state = State {
            errors_average: 0.0,
            seconds_average: 0.0,
            consecutive: 0,
            open_until: None,
            probing: false,
            pause_until: None,
            pause: PAUSE_MIN,
            head: None,
            lag: 0,
            identity: Identity::Unknown,
            identified: None,
            requests: 0,
            errors: 0,
        };
        Self { cooldown, brisk: brisk.max(Duration::from_millis(1)), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for leave. A `Probe` must be ended by `record` or `withdraw`.
    pub fn admit(&self, now: Instant) -> Admission {
        let mut state = self.state();
        match state.circuit(now) {
            Circuit::Closed if state.pause_until.is_some_and(|until| now < until) => Admission::Pausing,
            Circuit::Closed => Admission::Yes,
            Circuit::HalfOpen if !state.probing => {
                state.probing = true;
                Admission::Probe
            }
            Circuit::Open | Circuit::HalfOpen => Admission::CircuitOpen,
        }
    }

    /// Whether `admit` would let a request through, without taking the probe.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        let state = self.state();
        state.circuit(now) != Circuit::Closed || state.pause_until.is_some_and(|until| now < until)
    }

    /// A probe that was given up before its answer.
    pub fn withdraw(&self) {
        self.state().probing = false;
    }

    /// The end of an exchange of `calls` calls.
    pub fn record(&self, now: Instant, outcome: Outcome, took: Duration, calls: usize) -> Recorded {
        let mut state = self.state();
        let before = state.open_until.is_some();
        state.requests += 1;
        state.probing = false;
        let failed = outcome != Outcome::Answered;
        state.errors_average += NEWEST * (f64::from(u8::from(failed)) - state.errors_average);
        if failed {
            state.errors += 1;
        }
        match outcome {
            Outcome::Answered => {
                let each = took.as_secs_f64() / f64::from(u32::try_from(calls.max(1)).unwrap_or(u32::MAX));
                state.seconds_average += NEWEST * (each - state.seconds_average);
                state.consecutive = 0;
                state.open_until = None;
                state.pause = PAUSE_MIN;
            }
            Outcome::Fault => {
                state.consecutive += 1;
                // A failed probe has an open_until in the past and opens at once.
                if state.consecutive >= FAULTS_MAX || before {
                    state.open_until = Some(now + self.cooldown);
                }
            }
            Outcome::Limited(asked) => {
                state.pause_until = Some(now + asked.map_or(state.pause, |asked| asked.min(PAUSE_ASKED_MAX)));
                state.pause = (state.pause * 2).min(PAUSE_MAX);
            }
            Outcome::Barred => state.open_until = Some(now + self.cooldown),
        }
        Recorded { turned: before != state.open_until.is_some(), in_rotation: !before }
    }

    /// A slow answer nobody waited for counts against the speed, not as a fault.
    pub fn abandoned(&self, after: Duration) {
        if after >= self.brisk {
            let mut state = self.state();
            let seconds = state.seconds_average.max(after.as_secs_f64());
            state.seconds_average += NEWEST * (seconds - state.seconds_average);
        }
    }

    pub fn set_identity(&self, now: Instant, identity: Identity) {
        let mut state = self.state();
        state.identity = identity;
        state.identified = Some(now);
    }

    /// After a broken connection another node may be behind the same name.
    pub fn doubt_identity(&self) {
        let mut state = self.state();
        if state.identity == Identity::Right {
            state.identity = Identity::Unknown;
        }
    }

    #[must_use]
    pub fn identity(&self) -> Identity {
        self.state().identity
    }

    #[must_use]
    pub fn identity_is_stale(&self, now: Instant) -> bool {
        let state = self.state();
        state.identity == Identity::Unknown || state.identified.is_none_or(|at| now.saturating_duration_since(at) >= IDENTITY_FRESH)
    }

    pub fn set_head(&self, number: u64) {
        self.state().head = Some(number);
    }

    #[must_use]
    pub fn head(&self) -> Option<u64> {
        self.state().head
    }

    /// Measures the lag against the head that a majority has reached.
    pub fn set_reached(&self, reached: u64) {
        let mut state = self.state();
        state.lag = state.head.map_or(0, |head| reached.saturating_sub(head));
    }

    #[must_use]
    pub fn lags(&self) -> bool {
        self.state().lag > LAG_MAX
    }

    /// Higher is better; 0 is asked only when nobody else can be.
    #[must_use]
    pub fn score(&self, now: Instant) -> f64 {
        let state = self.state();
        if state.lag > LAG_MAX || state.identity == Identity::Wrong || state.circuit(now) != Circuit::Closed {
            return 0.0;
        }
        let sound = 1.0 - state.errors_average;
        let brisk = self.brisk.as_secs_f64();
        let fresh = if state.lag == 0 { 1.0 } else { 0.9 };
        sound * sound * fresh * brisk / (brisk + state.seconds_average)
    }

    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let score = self.score(now);
        let state = self.state();
        Snapshot {
            score,
            circuit: state.circuit(now),
            head: state.head,
            lag: state.lag,
            identity: state.identity,
            requests: state.requests,
            errors: state.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn health() -> Health {
        Health::new(Duration::from_secs(5), Duration::from_millis(150))
    }

    #[test]
    fn three_faults_in_a_row_open_the_circuit_and_one_answered_probe_closes_it() {
        let mut now = Instant::now();
        let health = health();
        for _ in 0..2 {
            assert!(!health.record(now, Outcome::Fault, MS, 1).turned);
        }
        assert_eq!(health.admit(now), Admission::Yes);
        assert_eq!(health.record(now, Outcome::Fault, MS, 1), Recorded { turned: true, in_rotation: true });
        assert_eq!(health.admit(now), Admission::CircuitOpen);
        now += Duration::from_secs(5);
        assert_eq!(health.admit(now), Admission::Probe);
        assert_eq!(health.admit(now), Admission::CircuitOpen, "only one probe at a time");
        assert_eq!(health.record(now, Outcome::Answered, MS, 1), Recorded { turned: true, in_rotation: false });
        assert_eq!(health.admit(now), Admission::Yes);
    }

    #[test]
    fn a_failed_probe_opens_the_circuit_for_another_cooldown() {
        let mut now = Instant::now();
        let health = health();
        for _ in 0..3 {
            health.record(now, Outcome::Fault, MS, 1);
        }
        now += Duration::from_secs(5);
        assert_eq!(health.admit(now), Admission::Probe);
        health.record(now, Outcome::Fault, MS, 1);
        assert_eq!(health.admit(now), Admission::CircuitOpen);
        now += Duration::from_secs(5);
        assert_eq!(health.admit(now), Admission::Probe);
        health.withdraw();
        assert_eq!(health.admit(now), Admission::Probe, "a probe that was given up is given out again");
    }

    #[test]
    fn a_rate_limit_pauses_as_long_as_asked_or_longer_each_time() {
        let mut now = Instant::now();
        let health = health();
        health.record(now, Outcome::Limited(Some(Duration::from_secs(3))), MS, 1);
        assert_eq!(health.admit(now), Admission::Pausing);
        now += Duration::from_secs(3);
        assert_eq!(health.admit(now), Admission::Yes);
        health.record(now, Outcome::Limited(None), MS, 1);
        now += PAUSE_MIN;
        assert_eq!(health.admit(now), Admission::Pausing, "the second pause is longer than the first");
        now += PAUSE_MIN;
        assert_eq!(health.admit(now), Admission::Yes);
        assert_eq!(health.snapshot(now).circuit, Circuit::Closed);
    }

    #[test]
    fn errors_slowness_and_lag_lower_the_score_and_catching_up_restores_it() {
        let now = Instant::now();
        let (good, failing, slow, behind) = (health(), health(), health(), health());
        for _ in 0..10 {
            good.record(now, Outcome::Answered, MS, 1);
            slow.record(now, Outcome::Answered, 400 * MS, 1);
            failing.record(now, Outcome::Answered, MS, 1);
            behind.record(now, Outcome::Answered, MS, 1);
        }
        failing.record(now, Outcome::Fault, MS, 1);
        assert!(good.score(now) > failing.score(now) && failing.score(now) > 0.0);
        assert!(good.score(now) > slow.score(now) && slow.score(now) > 0.0);
        behind.set_head(96);
        behind.set_reached(100);
        assert!(behind.lags() && behind.score(now) == 0.0);
        behind.set_head(100);
        behind.set_reached(100);
        assert!(!behind.lags() && behind.score(now) > 0.9);
    }

    #[test]
    fn a_wrong_chain_is_out_and_a_broken_connection_raises_doubt() {
        let mut now = Instant::now();
        let health = health();
        health.set_identity(now, Identity::Right);
        assert!(!health.identity_is_stale(now));
        health.doubt_identity();
        assert_eq!(health.identity(), Identity::Unknown);
        health.set_identity(now, Identity::Wrong);
        health.doubt_identity();
        assert_eq!(health.identity(), Identity::Wrong);
        assert!(health.score(now) == 0.0 && !health.identity_is_stale(now));
        now += IDENTITY_FRESH;
        assert!(health.identity_is_stale(now), "it may come back");
    }
}
