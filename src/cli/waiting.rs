//! Waiting for what a command has asked for: mark first, wait second, and say what has changed meanwhile.

use super::output::{Format, note};
use crate::operator::drains::LOOK;
use std::time::{Duration, Instant};

/// How far a wait came.
pub enum Waited<T> {
    Done(T),
    Out(T),
}

/// Looks until `done` or until the time is over; `tell` says on stderr what has changed.
pub async fn wait<T, E>(
    format: Format,
    within: Duration,
    first: T,
    mut look: impl AsyncFnMut() -> Result<T, E>,
    done: impl Fn(&T) -> bool,
    tell: impl Fn(&T) -> String,
) -> Result<Waited<T>, E> {
    let until = Instant::now() + within;
    let (mut now, mut told) = (first, String::new());
    loop {
        if done(&now) {
            return Ok(Waited::Done(now));
        }
        let text = tell(&now);
        if text != told {
            note(format, &text);
            told = text;
        }
        if Instant::now() >= until {
            return Ok(Waited::Out(now));
        }
        tokio::time::sleep(LOOK).await;
        now = look().await?;
    }
}
