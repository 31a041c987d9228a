//! Fail points: places where a test lets the process die as by SIGKILL. `HOLDFAST_FAIL_POINT=name` dies at the first pass,
//! `name:3` at the third, `name:panic` panics at every pass. Compiled into debug builds only; a release build has none.

/// Every point, in the order of a job's life; `recovery` tests kill a process at each in turn.
pub const POINTS: &[&str] = &[
    "intake.before_commit",
    "intake.committed",
    "publisher.claimed",
    "publisher.published",
    "worker.delivered",
    "worker.claimed",
    "worker.planned",
    "lane.reserved",
    "journal.signed",
    "journal.committed",
    "lane.sent",
    "lane.noted",
    "settle.decided",
    "settle.committed",
];

/// Points that only a stuck nonce and a reorganisation pass; their tests bring these about.
pub const LANE_POINTS: &[&str] = &["replacement.signed", "replacement.committed", "revival.decided", "revival.committed"];

#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSES: AtomicU32 = AtomicU32::new(0);
    static ARMED: LazyLock<Option<(String, Option<u32>)>> = LazyLock::new(|| {
        let text = std::env::var("HOLDFAST_FAIL_POINT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), count.parse().ok()))
    });
    debug_assert!(POINTS.contains(&name) || LANE_POINTS.contains(&name), "{name} is not listed");
    if let Some((armed, count)) = ARMED.as_ref()
        && armed == name
    {
        let Some(count) = count else { panic!("fail point {name}") };
        if PASSES.fetch_add(1, Ordering::SeqCst) + 1 != *count {
            return;
        }
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    }
}

#[cfg(not(debug_assertions))]
pub fn point(_: &str) {}
