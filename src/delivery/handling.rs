//! Runs the handler for one taken delivery, so that nothing the handler does can leave the delivery locked for ever, lost, or settled
//! under a lock that is another's. Called by the queue crate's worker for each delivery.

use super::{consumer::Shared, keys::parse_delivery_id};
use crate::telemetry::metrics::{EXECUTION_FENCED, QUEUE_CLAIMS, QUEUE_HANDLER_PANICS, QUEUE_MALFORMED, QUEUE_SETTLED};
use bullmq::Job;
use entity::ids::JobId;
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Handing back is tried for this long; after it the lock runs out and the sweep hands it over.
const HAND_BACK: Duration = Duration::from_secs(3);
const LONGEST_REASON: usize = 500;
/// After a panic the next try waits 1 s, 2 s, 4 s … at most a minute. How often it may fail is decided in Postgres.
const PANIC_DELAY: Duration = Duration::from_secs(1);
const PANIC_DELAY_CAP: Duration = Duration::from_secs(60);

/// A delivery that was taken. It says only which job to look at; what to do stands in Postgres.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub job_id: JobId,
    pub generation: i32,
    /// The queue's lock token. The queue may give two attempts of one delivery the same token; with `attempts_started` the pair is unique.
    pub token: String,
    /// How often this delivery was taken, this time included.
    pub attempts_started: u32,
    /// Cancelled when the lock is lost. The handler's future is dropped at that moment; what it spawned has to watch this.
    pub lost: CancellationToken,
}

/// How a delivery ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// A terminal record: the same id is never delivered again.
    Done,
    /// Delivered again after this time. No failure, costs no attempt.
    Later(Duration),
    /// A terminal record that carries the reason for whoever looks at the queue.
    Failed(String),
}

pub type Handler = Arc<dyn Fn(Delivered) -> BoxFuture<'static, Settle> + Send + Sync>;

/// What the queue crate's worker is to do: complete it, fail it, or (`Delayed`) write nothing.
pub type Verdict = Result<Value, bullmq::Error>;

/// Counts one delivery as active until dropped.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.active.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

pub async fn handle(shared: Arc<Shared>, job: Job) -> Verdict {
    shared.saw_pick_up();
    QUEUE_CLAIMS.add(1, &[]);
    let _counted = Counted::new(&shared);
    // The worker may have asked for one more just before it was told to pause.
    if shared.is_refusing() {
        return hand_back(&shared, &job, Duration::ZERO, "refused").await;
    }
    let delivered = match delivered_of(&job) {
        Ok(delivered) => delivered,
        Err(reason) => {
            QUEUE_MALFORMED.add(1, &[]);
            tracing::warn!(delivery = %job.id(), reason, "foreign record in the queue");
            return failed(reason);
        }
    };
    let (lost, job_id, attempt) = (delivered.lost.clone(), delivered.job_id, delivered.attempts_started);
    let _hold = shared.locks.hold(job.id(), &delivered.token, lost.clone());
    let handler = Arc::clone(&shared.handler);
    let work = AssertUnwindSafe(async move { handler(delivered).await }).catch_unwind();
    let settle = tokio::select! {
        biased;
        // Nothing is written: the delivery is another's now.
        () = lost.cancelled() => {
            EXECUTION_FENCED.add(1, &["lock_lost"]);
            tracing::warn!(event = "execution_fenced", job = %job_id, attempt, "another execution has the job: nothing was written");
            return silent("lost");
        }
        () = shared.abandon.cancelled() => return hand_back(&shared, &job, Duration::ZERO, "abandoned").await,
        settle = work => settle,
    };
    match settle {
        Ok(Settle::Done) => {
            QUEUE_SETTLED.add(1, &["done"]);
            Ok(Value::Null)
        }
        Ok(Settle::Later(delay)) => hand_back(&shared, &job, delay, "later").await,
        Ok(Settle::Failed(reason)) => failed(&reason),
        Err(_) => {
            QUEUE_HANDLER_PANICS.add(1, &[]);
            tracing::error!(delivery = %job.id(), "handler panicked");
            hand_back(&shared, &job, panic_delay(job.attempts_started()), "panic").await
        }
    }
}

fn delivered_of(job: &Job) -> Result<Delivered, &'static str> {
    let (job_id, generation) = parse_delivery_id(job.id()).ok_or("the record's id is not one of ours")?;
    let data = job.data();
    let same_job = data.get("job").and_then(Value::as_str).is_some_and(|text| text == job_id.to_string());
    let same_generation = data.get("generation").and_then(Value::as_i64) == Some(i64::from(generation));
    if !(same_job && same_generation) {
        return Err("the record's data do not match its id");
    }
    let token = job.token().ok_or("the record has no lock")?.to_owned();
    Ok(Delivered { job_id, generation, token, attempts_started: job.attempts_started(), lost: CancellationToken::new() })
}

/// Gives the delivery back for later, by the clock of Redis: one process with a clock that is hours ahead would keep it from all others for
/// as long. When Redis does not take it, the lock runs out and the sweep does the same.
async fn hand_back(shared: &Shared, job: &Job, delay: Duration, how: &'static str) -> Verdict {
    let moved = async {
        let now = shared.delivery.now_millis().await.unwrap_or_else(|_| now_millis());
        job.move_to_delayed(now.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))).await
    };
    match timeout(HAND_BACK, moved).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(delivery = %job.id(), %error, "delivery not handed back"),
        Err(_) => tracing::warn!(delivery = %job.id(), "delivery not handed back in time"),
    }
    silent(how)
}

fn silent(how: &'static str) -> Verdict {
    QUEUE_SETTLED.add(1, &[how]);
    Err(bullmq::Error::Delayed)
}

fn failed(reason: &str) -> Verdict {
    QUEUE_SETTLED.add(1, &["failed"]);
    let end = (0..=LONGEST_REASON.min(reason.len())).rev().find(|&at| reason.is_char_boundary(at)).unwrap_or(0);
    Err(bullmq::Error::Unrecoverable(reason[..end].to_owned()))
}

fn panic_delay(attempts_started: u32) -> Duration {
    PANIC_DELAY.saturating_mul(1 << attempts_started.saturating_sub(1).min(6)).min(PANIC_DELAY_CAP)
}

/// The clock of this machine, which the queue crate takes due deliveries by; for when Redis does not tell its own.
fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;

    fn record(id: &str, data: &str) -> Job {
        let fields = HashMap::from([("name".to_owned(), "job".to_owned()), ("data".to_owned(), data.to_owned())]);
        Job::from_redis_hash(id, &fields).expect("readable record")
    }

    #[test]
    fn records_of_others_are_named_as_such() {
        let id = "018f0000-0000-7000-8000-000000000001.g3";
        let mine = json!({"job": "018f0000-0000-7000-8000-000000000001", "generation": 3}).to_string();
        assert_eq!(delivered_of(&record("42", &mine)).unwrap_err(), "the record's id is not one of ours");
        for data in
            ["", "null", "{", "[]", r#"{"job":7,"generation":3}"#, r#"{"job":"018f0000-0000-7000-8000-000000000001","generation":4}"#]
        {
            assert_eq!(delivered_of(&record(id, data)).unwrap_err(), "the record's data do not match its id", "{data}");
        }
        // What is ours but was not taken by a worker has no lock.
        assert_eq!(delivered_of(&record(id, &mine)).unwrap_err(), "the record has no lock");
    }

    #[test]
    fn a_reason_is_cut_at_a_character() {
        let Err(bullmq::Error::Unrecoverable(reason)) = failed(&"é".repeat(400)) else { panic!("not a failure") };
        assert_eq!(reason.len(), 500);
        let Err(bullmq::Error::Unrecoverable(reason)) = failed(&format!("a{}", "é".repeat(400))) else { panic!("not a failure") };
        assert_eq!(reason.len(), 499);
    }

    #[test]
    fn the_wait_after_a_panic_doubles_up_to_a_minute() {
        let seconds: Vec<u64> = (0..10).map(|started| panic_delay(started).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
