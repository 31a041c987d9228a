//! Owns long polling: one task of the process asks for the versions of all jobs that anybody waits for, in one statement.
//! Never holds a connection for a waiter and never promises more than a hint: who is woken, or not, reads the job itself.
//! Called by `jobs::get`; `app` runs the task.

use super::door::Door;
use crate::store;
use entity::ids::JobId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The versions of these jobs.
pub type Versions = Door<Vec<JobId>, Result<Vec<(JobId, i32)>, store::Error>>;

const PERIOD: Duration = Duration::from_millis(100);
/// After an error; who waits learns of it when it reads.
const REST: Duration = Duration::from_secs(1);

/// Cheap to clone.
#[derive(Clone)]
pub struct Waiters(Arc<Inner>);

struct Inner {
    versions: Versions,
    limit: usize,
    waiting: Mutex<Waiting>,
    somebody: Notify,
}

#[derive(Default)]
struct Waiting {
    jobs: HashMap<JobId, Vec<Waiter>>,
    count: usize,
    closed: bool,
}

struct Waiter {
    seen: i32,
    wake: oneshot::Sender<()>,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("limit", &self.0.limit).finish_non_exhaustive()
    }
}

impl Waiters {
    /// At most `limit` wait at once; more are not made to wait.
    #[must_use]
    pub fn new(versions: Versions, limit: usize) -> Self {
        Self(Arc::new(Inner { versions, limit, waiting: Mutex::default(), somebody: Notify::new() }))
    }

    /// Waits until the job has another version than the one seen, for `longest`, or not at all when too many wait or the task has ended.
    pub async fn changed(&self, job: JobId, seen: i32, longest: Duration) {
        if let Some(woken) = self.enter(job, seen) {
            let _ = tokio::time::timeout(longest, woken).await;
        }
    }

    fn enter(&self, job: JobId, seen: i32) -> Option<oneshot::Receiver<()>> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.closed || waiting.count >= self.0.limit {
            return None;
        }
        let (wake, woken) = oneshot::channel();
        waiting.jobs.entry(job).or_default().push(Waiter { seen, wake });
        waiting.count += 1;
        drop(waiting);
        self.0.somebody.notify_one();
        Some(woken)
    }

    /// The task. Ends when `stop` does, and then lets everybody go.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.poll() => {}
        }
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = Waiting { closed: true, ..Waiting::default() };
    }

    async fn poll(&self) {
        loop {
            let jobs = self.waited_for();
            if jobs.is_empty() {
                self.0.somebody.notified().await;
                continue;
            }
            match self.0.versions.ask(jobs).await {
                Ok(versions) => {
                    self.wake(&versions);
                    tokio::time::sleep(PERIOD).await;
                }
                Err(error) => {
                    tracing::warn!(event = "http_wait_failed", cause = %error, "Long polls could not be served");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Forgets who has left, and lists what the others wait for.
    fn waited_for(&self) -> Vec<JobId> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.wake.is_closed());
            !waiters.is_empty()
        });
        waiting.count = waiting.jobs.values().map(Vec::len).sum();
        waiting.jobs.keys().copied().collect()
    }

    fn wake(&self, versions: &[(JobId, i32)]) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (job, version) in versions {
            let Some(waiters) = waiting.jobs.get_mut(job) else { continue };
            for waiter in waiters.extract_if(.., |waiter| waiter.seen != *version) {
                let _ = waiter.wake.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    fn job(number: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(number))
    }

    #[derive(Default)]
    struct Table {
        version: AtomicI32,
        broken: AtomicBool,
        asked: Mutex<Vec<Vec<JobId>>>,
    }

    /// Job 1 has the version of the table, every other stays at 0; the task runs until the sender is dropped.
    fn waiters(limit: usize) -> (Waiters, Arc<Table>, oneshot::Sender<()>) {
        let table = Arc::new(Table::default());
        let behind = Arc::clone(&table);
        let versions = Door::new(move |jobs: Vec<JobId>| {
            let answer = jobs.iter().map(|id| (*id, if *id == job(1) { behind.version.load(SeqCst) } else { 0 })).collect();
            behind.asked.lock().unwrap().push(jobs);
            std::future::ready(if behind.broken.swap(false, SeqCst) { Err(store::Error::Timeout) } else { Ok(answer) })
        });
        let waiters = Waiters::new(versions, limit);
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(waiters.clone().run(async move {
            let _ = stopped.await;
        }));
        (waiters, table, stop)
    }

    async fn elapsed(wait: impl Future<Output = ()>) -> Duration {
        let started = Instant::now();
        wait.await;
        started.elapsed()
    }

    #[tokio::test]
    async fn a_change_wakes_who_waits_for_that_job_and_nobody_else() {
        let (waiters, table, _stop) = waiters(10);
        let mut first = std::pin::pin!(waiters.changed(job(1), 0, LONG));
        let mut second = std::pin::pin!(waiters.changed(job(1), 0, LONG));
        let mut other = std::pin::pin!(waiters.changed(job(2), 0, LONG));
        assert!(futures::poll!(first.as_mut()).is_pending() && futures::poll!(second.as_mut()).is_pending());
        assert!(futures::poll!(other.as_mut()).is_pending());
        table.version.store(1, SeqCst);
        assert!(
            elapsed(async {
                tokio::join!(first, second);
            })
            .await
                < LONG / 2
        );
        assert!(futures::poll!(other.as_mut()).is_pending());
        assert_eq!(table.asked.lock().unwrap()[0].len(), 2, "one statement for all, each job once");
    }

    #[tokio::test]
    async fn a_version_that_was_missed_wakes_at_once() {
        let (waiters, table, _stop) = waiters(10);
        table.version.store(7, SeqCst);
        assert!(elapsed(waiters.changed(job(1), 3, LONG)).await < LONG / 2);
    }

    #[tokio::test]
    async fn without_a_change_a_wait_ends_in_time() {
        let (waiters, _table, _stop) = waiters(10);
        assert!(elapsed(waiters.changed(job(2), 0, SHORT)).await >= SHORT);
    }

    #[tokio::test]
    async fn too_many_are_not_made_to_wait_and_those_who_left_make_room() {
        let (waiters, _table, _stop) = waiters(1);
        {
            let mut held = std::pin::pin!(waiters.changed(job(2), 0, LONG));
            assert!(futures::poll!(held.as_mut()).is_pending());
            assert!(elapsed(waiters.changed(job(2), 0, LONG)).await < LONG / 2);
        }
        assert!(waiters.enter(job(2), 0).is_none(), "nobody has looked yet");
        waiters.waited_for();
        assert!(waiters.enter(job(2), 0).is_some());
    }

    #[tokio::test]
    async fn nobody_waits_any_longer_when_the_task_ends() {
        let (waiters, _table, stop) = waiters(10);
        let mut held = std::pin::pin!(waiters.changed(job(2), 0, LONG));
        assert!(futures::poll!(held.as_mut()).is_pending());
        drop(stop);
        assert!(elapsed(held).await < LONG / 2);
        assert!(elapsed(waiters.changed(job(2), 0, LONG)).await < LONG / 2);
    }

    #[tokio::test]
    async fn an_error_of_the_database_ends_no_wait() {
        let (waiters, table, _stop) = waiters(10);
        table.broken.store(true, SeqCst);
        table.version.store(1, SeqCst);
        assert!(elapsed(waiters.changed(job(1), 0, LONG)).await >= REST, "the first statement failed, the second told");
    }
}
