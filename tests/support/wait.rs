//! Waiting for a condition, never for a time.

use std::future::Future;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(25);

/// Asks until there is an answer; panics with `what` when there is none in time.
pub async fn found<T, F, Fut>(what: &str, within: Duration, mut ask: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let since = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(since.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Looks until it holds.
pub async fn eventually<F, Fut>(what: &str, within: Duration, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    found(what, within, || {
        let holds = holds();
        async move { holds.await.then_some(()) }
    })
    .await;
}
