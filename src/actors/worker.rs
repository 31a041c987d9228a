//! Worker: takes deliveries and settles them. Writes the execution token before anything else happens and ends every execution
//! in Postgres before its delivery. The only writer of attempts and of the execution columns of jobs; gives a job that owns a nonce a
//! fresh delivery when the attempts of one are spent.

use super::supervisor::Probe;
use super::{Beat, Door, DoorError, Fold, Stage, Wake};
use crate::config;
use crate::delivery::{Consumer, Delivered, Delivery, Options, Settle};
use crate::domain::backoff;
use crate::domain::job::Event;
use crate::fail;
use crate::store::execution::{Claim, Claimed, Execution, Finish, Finished};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::{ExecutionToken, WorkerId};
use entity::states::{AttemptOutcome, WorkerState};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

const BATCH: usize = 256;
const CAPACITY: usize = 16_384;
/// How often the worker tells that it lives, and after how long it counts as dead.
pub const HEARTBEAT: Duration = Duration::from_secs(3);
pub const STALE: Duration = Duration::from_secs(15);
/// Heartbeats between two looks for rows of processes that are gone, and how long such a row is kept.
const REAP: u32 = 100;
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// A delivery that Postgres could not be asked about comes again after this.
const POSTGRES_AWAY: Duration = Duration::from_secs(1);
/// And one whose job this version cannot read after this, so that a process of the version that can has time to take it.
const UNREADABLE: Duration = Duration::from_secs(5);

/// How the work on a job ended, in the words of the one that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The bytes were given to the chain; the journal has ended the execution.
    Submitted,
    /// Another execution has the job: nothing more is written.
    Fenced,
    /// There is nothing to do on the chain.
    NotActionable { title: &'static str, detail: String },
    /// Its unsigned nonce was given back, and the job has ended as not actionable with it.
    Released,
    /// Somebody cancelled the job before it got a nonce.
    Cancelled,
    /// It went wrong; a job without a nonce has only so many tries.
    Failed { error: &'static str, title: &'static str, detail: String },
    /// Not now, through no fault of the job: costs no attempt.
    Later { why: &'static str, detail: String, at_most: Duration },
}

/// The work itself, given by `app`: it knows the job kinds.
pub type Run = Arc<dyn Fn(Arc<Execution>) -> BoxFuture<'static, Ended> + Send + Sync>;

struct Hands {
    claims: Door<Claim, Result<Claimed, store::Error>>,
    finishes: Door<Finish, Result<Finished, store::Error>>,
    /// JOB_MAX_ATTEMPTS.
    attempts: i32,
    run: Run,
}

/// A worker that takes deliveries.
pub struct Handle {
    consumer: Arc<Consumer>,
    pub probes: Vec<Probe>,
}

/// Starts to take deliveries.
#[must_use]
pub fn start(stage: &Stage, db: &Db, delivery: &Arc<Delivery>, settings: &config::Queue, instance: &str, id: WorkerId, run: Run) -> Handle {
    let attempts = i32::try_from(settings.max_attempts).unwrap_or(i32::MAX);
    let hands = Arc::new(Hands { claims: claims(stage, db, id), finishes: finishes(stage, db, id, settings.reconcile), attempts, run });
    let options = Options { concurrency: settings.concurrency, lock: settings.lock, name: instance.to_owned() };
    let handler = move |delivered: Delivered| {
        let hands = hands.clone();
        async move { hands.handle(delivered).await }.boxed()
    };
    let consumer = Arc::new(delivery.consume(options, Arc::new(handler)));
    let (db, held, paused) = (db.clone(), consumer.clone(), Arc::new(AtomicBool::new(false)));
    let rounds = Arc::new(AtomicU32::new(0));
    let round = move || {
        let (db, held, paused) = (db.clone(), held.clone(), paused.clone());
        let reap = rounds.fetch_add(1, Ordering::Relaxed).is_multiple_of(REAP);
        async move {
            tell(&db, id, &held, &paused).await;
            if reap {
                forget(&db).await;
            }
        }
        .boxed()
    };
    let beat =
        Beat { name: "worker_heartbeat", of: String::new(), every: HEARTBEAT, wake: Wake::default(), round: Arc::new(round) }.start(stage);
    Handle { consumer, probes: vec![beat] }
}

/// Forgets processes that are long gone.
async fn forget(db: &Db) {
    match store::workers::reap(db, KEPT).await {
        Ok(0) => {}
        Ok(rows) => tracing::info!(event = "workers_forgotten", rows, "rows of processes that are long gone were taken out"),
        Err(error) => tracing::warn!(event = "workers_not_forgotten", %error, "the next round takes them out"),
    }
}

/// Tells that the worker lives, and does what its row says: one that operators drain takes no more deliveries.
async fn tell(db: &Db, id: WorkerId, held: &Consumer, paused: &AtomicBool) {
    let processing = held.active();
    metrics::WORKER_PROCESSING.set(processing as f64, &[]);
    let state = match store::workers::heartbeat(db, id, processing, paused.load(Ordering::Relaxed), STALE).await {
        Ok(state) => state,
        Err(error) => return tracing::warn!(event = "heartbeat_failed", %error, "the worker could not tell that it lives"),
    };
    let drain = matches!(state, Some(WorkerState::Draining | WorkerState::Drained));
    // Without a row the process is stopping, and whoever stops it decides.
    if state.is_none() || paused.swap(drain, Ordering::Relaxed) == drain {
        return;
    }
    if drain {
        held.pause()
    } else {
        held.resume()
    }
    tracing::info!(
        event = "worker_drain",
        draining = drain,
        processing,
        "an operator has this process take no deliveries, or take them again"
    );
}

impl Handle {
    /// Takes no new deliveries; the ones at work go on.
    pub fn pause(&self) {
        self.consumer.pause();
    }

    #[must_use]
    pub fn active(&self) -> usize {
        self.consumer.active()
    }

    /// Stops taking, waits for what is at work, and gives back what is not done by the deadline. True when everything ended by itself.
    pub async fn close(&self, deadline: Duration) -> bool {
        self.consumer.close(deadline).await
    }
}

fn claims(stage: &Stage, db: &Db, id: WorkerId) -> Door<Claim, Result<Claimed, store::Error>> {
    let db = db.clone();
    let flush = move |batch: Vec<Claim>| {
        let db = db.clone();
        async move {
            match store::execution::claim(&db, &batch, id).await {
                Ok(claimed) => claimed,
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    };
    stage.fold(Fold::new("worker_claims", BATCH, 2, Arc::new(flush)), CAPACITY)
}

fn finishes(stage: &Stage, db: &Db, id: WorkerId, recheck: Duration) -> Door<Finish, Result<Finished, store::Error>> {
    let db = db.clone();
    let flush = move |batch: Vec<Finish>| {
        let db = db.clone();
        async move {
            match store::execution::finish(&db, &batch, id, recheck).await {
                Ok(finished) => finished.into_iter().map(Ok).collect(),
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    };
    stage.fold(Fold::new("worker_finishes", BATCH, 2, Arc::new(flush)), CAPACITY)
}

impl Hands {
    async fn handle(&self, delivered: Delivered) -> Settle {
        fail::point("worker.delivered");
        // Minted here and not by the queue: two attempts of one delivery may have the same lock token.
        let claim = Claim { job: delivered.job_id, generation: delivered.generation, token: ExecutionToken(Uuid::new_v4()) };
        let claimed = self.claims.ask_waiting(claim).await;
        fail::point("worker.claimed");
        let execution = match claimed {
            Ok(Ok(Claimed::Go(execution))) => Arc::<Execution>::from(execution),
            Ok(Ok(Claimed::Spent)) => return Settle::Done,
            Ok(Ok(Claimed::Early(left))) => return Settle::Later(left),
            Ok(Err(error @ store::Error::Answer(_))) => {
                tracing::warn!(
                    event = "execution_unreadable", job = %delivered.job_id, %error,
                    "this version cannot read the job, as a newer one may have written it: the delivery is left to others"
                );
                return Settle::Later(UNREADABLE);
            }
            Ok(Err(_)) | Err(DoorError::Full | DoorError::Lost | DoorError::Closed) => return Settle::Later(POSTGRES_AWAY),
        };
        let began = Instant::now();
        let kind = execution.kind.as_str();
        if execution.number == 1 {
            metrics::JOB_QUEUE_WAIT_SECONDS.record(execution.age.as_secs_f64(), &[kind]);
        }
        let work = AssertUnwindSafe((self.run)(execution.clone())).catch_unwind();
        // When the lock is lost the delivery drops this future: what was written stays, and nothing more is.
        let ended = work.await.unwrap_or_else(|panic| Ended::Failed {
            error: "panic",
            title: "The processor panicked",
            detail: panic_text(&*panic),
        });
        metrics::JOB_ATTEMPT_SECONDS.record(began.elapsed().as_secs_f64(), &[kind]);
        self.finish(&execution, ended).await
    }

    async fn finish(&self, execution: &Execution, ended: Ended) -> Settle {
        let kind = execution.kind.as_str();
        let Some(finish) = finish_of(execution, ended.clone(), self.attempts) else {
            let outcome = match ended {
                Ended::Submitted => AttemptOutcome::Submitted,
                Ended::Released => AttemptOutcome::NotActionable,
                _ => AttemptOutcome::Fenced,
            };
            metrics::JOB_ATTEMPTS.add(1, &[kind, outcome.as_str()]);
            return Settle::Done;
        };
        let (outcome, event, fresh) = (finish.outcome, finish.event, finish.fresh > 0);
        match self.finishes.ask_waiting(finish).await {
            Ok(Ok(Finished::Written { delay })) => {
                metrics::JOB_ATTEMPTS.add(1, &[kind, outcome.as_str()]);
                if let Ok(transition) = crate::domain::job::next(entity::states::JobState::Processing, event)
                    && transition.to.is_final()
                {
                    metrics::JOBS_FINISHED.add(1, &[kind, transition.to.as_str()]);
                    tracing::info!(event = "job_ended", job = %execution.job, state = transition.to.as_str(), ?ended, "job ended");
                    return Settle::Done;
                }
                if fresh {
                    metrics::OUTBOX_GENERATIONS_ADVANCED.add(1, &["attempts_exhausted"]);
                    tracing::warn!(event = "attempts_exhausted", job = %execution.job, attempt = execution.number, "the attempts of a delivery are spent and the job owns a nonce: it goes on under a fresh delivery");
                    return Settle::Done;
                }
                Settle::Later(delay)
            }
            Ok(Ok(Finished::Fenced)) => {
                metrics::EXECUTION_FENCED.add(1, &["finish"]);
                tracing::warn!(event = "execution_fenced", job = %execution.job, attempt = execution.number, "another execution has the job: nothing was written");
                Settle::Done
            }
            // What was found out is lost; the delivery comes again and finds it out again.
            Ok(Err(_)) | Err(_) => Settle::Later(POSTGRES_AWAY),
        }
    }
}

/// What is written; None when the execution was ended elsewhere. `attempts` is what a delivery may cost.
fn finish_of(execution: &Execution, ended: Ended, attempts: i32) -> Option<Finish> {
    let with = |event, outcome, error, ceiling_ms| {
        Some(Finish { job: execution.job, token: execution.token, number: execution.number, event, outcome, error, ceiling_ms, fresh: 0 })
    };
    match ended {
        Ended::Submitted | Ended::Released | Ended::Fenced => None,
        Ended::NotActionable { title, detail } => {
            with(Event::NothingToDo, AttemptOutcome::NotActionable, Some(("not_actionable", title, detail)), 0)
        }
        Ended::Cancelled => with(Event::CancelAsked, AttemptOutcome::Cancelled, None, 0),
        Ended::Failed { error, title, detail } => {
            // A job that owns a nonce is never given up by its budget: its delivery is, and the next generation goes on with it.
            let spent = execution.number >= execution.budget;
            let (event, outcome) = if spent && execution.lineage.is_none() {
                (Event::BudgetSpent, AttemptOutcome::Dead)
            } else {
                (Event::AttemptFailed, AttemptOutcome::Retry)
            };
            let fresh = if spent && outcome == AttemptOutcome::Retry { attempts } else { 0 };
            with(event, outcome, Some((error, title, detail)), backoff::ceiling_ms(execution.number))
                .map(|finish| Finish { fresh, ..finish })
        }
        Ended::Later { why, detail, at_most } => {
            let cap = i64::try_from(at_most.as_millis()).unwrap_or(backoff::CAP_MS);
            with(Event::GivenBack, AttemptOutcome::Snoozed, Some((why, why, detail)), backoff::ceiling_ms(execution.number).min(cap))
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::ids::{JobId, LineageId};
    use entity::states::{JobKind, LineageState};
    use entity::values::{Address, Wei};

    fn execution(number: i32, budget: i32, lineage: Option<(LineageId, LineageState)>) -> Execution {
        Execution {
            job: JobId(Uuid::nil()),
            token: ExecutionToken(Uuid::nil()),
            number,
            budget,
            kind: JobKind::Transfer,
            chain_id: 1,
            pool: "local:relayer".into(),
            to: Address([1; 20]),
            value: Wei::ZERO,
            data: Vec::new(),
            gas_limit: None,
            age: Duration::ZERO,
            lineage,
        }
    }

    fn failed() -> Ended {
        Ended::Failed { error: "x", title: "x", detail: String::new() }
    }

    #[test]
    fn enq_15_the_last_attempt_of_a_job_without_a_nonce_is_its_death_and_no_earlier_one() {
        assert_eq!(finish_of(&execution(7, 8, None), failed(), 8).unwrap().event, Event::AttemptFailed);
        assert_eq!(finish_of(&execution(8, 8, None), failed(), 8).unwrap().event, Event::BudgetSpent);
    }

    #[test]
    fn jrn_12_the_budget_never_discards_a_job_that_owns_a_nonce() {
        let owner = execution(800, 8, Some((LineageId(Uuid::nil()), LineageState::Signed)));
        assert_eq!(finish_of(&owner, failed(), 8).unwrap().event, Event::AttemptFailed);
    }

    #[test]
    fn jrn_13_only_the_last_attempt_of_a_delivery_with_a_nonce_asks_for_a_fresh_one() {
        let owner = |number| execution(number, 8, Some((LineageId(Uuid::nil()), LineageState::Signed)));
        let fresh = |execution| finish_of(&execution, failed(), 5).unwrap().fresh;
        assert_eq!([7, 8, 9].map(|number| fresh(owner(number))), [0, 5, 5]);
        assert_eq!(fresh(execution(8, 8, None)), 0, "a job without a nonce dies instead");
    }

    #[test]
    fn what_is_not_the_fault_of_the_job_costs_no_attempt_and_never_kills_it() {
        let later = Ended::Later { why: "no_lane", detail: String::new(), at_most: Duration::from_secs(2) };
        let finish = finish_of(&execution(99, 8, None), later, 8).unwrap();
        assert_eq!((finish.event, finish.outcome, finish.ceiling_ms), (Event::GivenBack, AttemptOutcome::Snoozed, 2_000));
    }
}
