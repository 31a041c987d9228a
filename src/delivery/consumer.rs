//! Takes deliveries and hands them to a handler, through the queue crate's worker. Watches that worker from outside, because it can
//! fall silent on a half-open connection, and replaces it when work is due that it does not take. Called by the worker actor.

use super::{
    Delivery,
    handling::{self, Handler},
    keys::QUEUE,
    locks::Locks,
    sweep,
};
use crate::telemetry::metrics::QUEUE_WORKERS_REPLACED;
use bullmq::{
    Job, Worker, WorkerOptions,
    types::{KeepJobs, RemoveOnFinish},
    worker::WorkerEvent,
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long an idle worker waits for a wake-up before it looks by itself.
const DRAIN_DELAY: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(500);
const CONNECT: Duration = Duration::from_secs(3);
const WATCH: Duration = Duration::from_secs(1);
/// Work that is due for this long while we have free hands and take nothing means that our worker is dead.
const SILENCE: Duration = Duration::from_secs(4);
/// In this many looks in a row: one look may just fall between another process' push and pop.
const SILENT_LOOKS: u32 = 3;
/// Terminal records are kept to make a late second publish of their id a duplicate.
const KEEP_SECONDS: u64 = 24 * 3600;
const KEEP_RECORDS: usize = 10_000;
/// What a closing consumer gets for handing back, beyond its deadline.
const HANDING_BACK: Duration = Duration::from_secs(4);

/// How to consume.
#[derive(Clone, Debug)]
pub struct Options {
    pub concurrency: usize,
    pub lock: Duration,
    /// The name the operator knows; each start adds its own suffix, so no process ever passes for its predecessor.
    pub name: String,
}

/// What the handling of each delivery, the watch and the handle share.
pub struct Shared {
    pub handler: Handler,
    pub delivery: Arc<Delivery>,
    pub locks: Arc<Locks>,
    pub active: AtomicUsize,
    /// `active` or the paused switch changed.
    pub changed: Notify,
    /// Handlers still running are dropped and their deliveries handed back.
    pub abandon: CancellationToken,
    paused: AtomicBool,
    closing: CancellationToken,
    picked_up: Mutex<Instant>,
}

impl Shared {
    pub fn saw_pick_up(&self) {
        *self.picked_up.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub fn is_refusing(&self) -> bool {
        self.paused.load(Ordering::SeqCst) || self.closing.is_cancelled()
    }

    fn silent_for(&self) -> Duration {
        self.picked_up.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// A running consumer. Dropping it without `close` abandons what is active.
pub struct Consumer {
    shared: Arc<Shared>,
    watch: Mutex<Option<JoinHandle<()>>>,
    background: Vec<JoinHandle<()>>,
    paused: watch::Sender<bool>,
    name: String,
}

impl Consumer {
    pub(super) fn start(delivery: Arc<Delivery>, options: &Options, handler: Handler) -> Self {
        let shared = Arc::new(Shared {
            handler,
            delivery: Arc::clone(&delivery),
            locks: Locks::new(options.lock),
            active: AtomicUsize::new(0),
            changed: Notify::new(),
            abandon: CancellationToken::new(),
            paused: AtomicBool::new(false),
            closing: CancellationToken::new(),
            picked_up: Mutex::new(Instant::now()),
        });
        let name = format!("{}-{}", options.name, &Uuid::new_v4().simple().to_string()[..12]);
        let (paused, is_paused) = watch::channel(false);
        let background = vec![
            tokio::spawn(Arc::clone(&shared.locks).keep(delivery.pool.clone(), delivery.keys.clone())),
            tokio::spawn(sweep::run(delivery.pool.clone(), delivery.keys.clone(), sweep_interval(options.lock))),
        ];
        let watch = Watch {
            delivery,
            shared: Arc::clone(&shared),
            concurrency: options.concurrency.max(1),
            lock: options.lock,
            name: name.clone(),
            is_paused,
        };
        let watch = Mutex::new(Some(tokio::spawn(watch.run())));
        Self { shared, watch, background, paused, name }
    }

    /// The identity of this start, as Redis and the queue's records show it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes nothing more; active handlers go on.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    pub fn resume(&self) {
        self.shared.saw_pick_up();
        self.set_paused(false);
    }

    /// Handlers at work.
    #[must_use]
    pub fn active(&self) -> usize {
        self.shared.active.load(Ordering::SeqCst)
    }

    /// Takes nothing more and waits for the handlers. True when all of them finished in time; those that did not are dropped and
    /// their deliveries handed back, so that another process takes them at once.
    pub async fn close(&self, deadline: Duration) -> bool {
        self.set_paused(true);
        self.shared.closing.cancel();
        let all_finished = timeout(deadline, self.idle()).await.is_ok();
        self.shared.abandon.cancel();
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut watch) = watch
            && timeout(HANDING_BACK, &mut watch).await.is_err()
        {
            watch.abort();
        }
        self.background.iter().for_each(JoinHandle::abort);
        all_finished
    }

    async fn idle(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.active() == 0 {
                return;
            }
            changed.await;
        }
    }

    fn set_paused(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::SeqCst);
        self.paused.send_replace(paused);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // The watch sees it and takes the worker down; the queue crate's own tasks would live on without it.
        self.shared.closing.cancel();
        self.shared.abandon.cancel();
        self.background.iter().for_each(JoinHandle::abort);
    }
}

/// Half the lock, at most 5 s: a lost delivery moves on within the lock plus this.
fn sweep_interval(lock: Duration) -> Duration {
    (lock / 2).min(Duration::from_secs(5)).max(Duration::from_millis(100))
}

struct Watch {
    delivery: Arc<Delivery>,
    shared: Arc<Shared>,
    concurrency: usize,
    lock: Duration,
    name: String,
    is_paused: watch::Receiver<bool>,
}

enum Ended {
    Closing,
    Silent,
}

impl Watch {
    async fn run(mut self) {
        let mut others: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let Some(worker) = self.connect().await else { break };
            let worker = Arc::new(worker);
            let ended = self.attend(&worker).await;
            let last = matches!(ended, Ended::Closing);
            others.retain(|task| !task.is_finished());
            others.push(tokio::spawn(retire(worker, self.delivery.clone(), last)));
            if last {
                break;
            }
            QUEUE_WORKERS_REPLACED.add(1, &[]);
            tracing::warn!(consumer = %self.name, "work is due but the queue worker takes none, replacing it");
        }
        for task in others {
            let _ = task.await;
        }
    }

    /// Tries until Redis is there; `None` when closing.
    async fn connect(&self) -> Option<Worker> {
        loop {
            let shared = Arc::clone(&self.shared);
            let processor = move |job: Job, _: bullmq::worker::CancellationToken| handling::handle(Arc::clone(&shared), job);
            let worker = Worker::with_options(QUEUE, processor, self.worker_options());
            tokio::select! {
                () = self.shared.closing.cancelled() => return None,
                built = timeout(CONNECT, worker) => match built {
                    Ok(Ok(worker)) => return Some(worker),
                    Ok(Err(error)) => tracing::warn!(consumer = %self.name, %error, "queue worker cannot start"),
                    Err(_) => tracing::warn!(consumer = %self.name, "queue worker cannot reach redis"),
                },
            }
            tokio::select! {
                () = self.shared.closing.cancelled() => return None,
                () = sleep(RETRY_DELAY) => {}
            }
        }
    }

    fn worker_options(&self) -> WorkerOptions {
        let keep = || RemoveOnFinish::Options(KeepJobs { age: Some(KEEP_SECONDS), count: Some(KEEP_RECORDS), limit: None });
        WorkerOptions::new()
            .connection(self.delivery.worker_connection())
            .prefix(self.delivery.prefix())
            .name(self.name.clone())
            .concurrency(self.free_hands().max(1))
            .lock_duration(self.lock)
            // Started by hand, so that one that begins paused takes nothing first.
            .manual_start()
            // Ours renews all locks in one call, tells the handler of a loss, and forgets a handler that panicked.
            .skip_lock_renewal()
            // Ours needs one look instead of two, keeps the priority and counts what it moves.
            .skip_stalled_check()
            .max_stalled_count(u32::MAX)
            .drain_delay(DRAIN_DELAY)
            .run_retry_delay(RETRY_DELAY)
            .remove_on_complete(keep())
            .remove_on_fail(keep())
    }

    /// Until closing, or until work is due that the worker does not take.
    async fn attend(&mut self, worker: &Arc<Worker>) -> Ended {
        self.shared.saw_pick_up();
        let pump = tokio::spawn(drain_events(Arc::clone(worker)));
        let mut ticks = interval(WATCH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent_looks = 0;
        self.apply_pause(worker);
        if let Err(error) = worker.run().await {
            tracing::error!(%error, "queue worker did not start");
        }
        let ended = loop {
            tokio::select! {
                () = self.shared.closing.cancelled() => break Ended::Closing,
                changed = self.is_paused.changed() => {
                    if changed.is_err() {
                        break Ended::Closing;
                    }
                    self.apply_pause(worker);
                }
                _ = ticks.tick() => {
                    silent_looks = if self.looks_dead().await { silent_looks + 1 } else { 0 };
                    if silent_looks >= SILENT_LOOKS {
                        break Ended::Silent;
                    }
                    // After a replacement, handlers of the old worker still count.
                    worker.set_concurrency(self.hands_for(worker).await);
                }
            }
        };
        pump.abort();
        ended
    }

    fn apply_pause(&mut self, worker: &Worker) {
        if *self.is_paused.borrow_and_update() { worker.pause() } else { worker.resume() }
    }

    async fn looks_dead(&self) -> bool {
        let quiet = self.shared.silent_for() >= SILENCE && !self.shared.is_refusing() && self.free_hands() > 0;
        quiet && self.delivery.is_overdue(SILENCE).await.unwrap_or(false)
    }

    fn free_hands(&self) -> usize {
        self.concurrency.saturating_sub(self.shared.active.load(Ordering::SeqCst))
    }

    /// All hands but those that work for a worker that was replaced.
    async fn hands_for(&self, worker: &Worker) -> usize {
        let elsewhere = self.shared.active.load(Ordering::SeqCst).saturating_sub(worker.active_count().await);
        self.concurrency.saturating_sub(elsewhere).max(1)
    }
}

/// The worker queues its events without a limit; somebody has to read them.
async fn drain_events(worker: Arc<Worker>) {
    while let Some(event) = worker.next_event().await {
        if let WorkerEvent::Error(error) = event {
            tracing::debug!(%error, "queue worker");
        }
    }
}

/// Ends a worker. The one that was replaced may still have handlers; the last one has none, or they were told to hand back.
async fn retire(worker: Arc<Worker>, delivery: Arc<Delivery>, last: bool) {
    worker.pause();
    let patience = if last { HANDING_BACK } else { Duration::from_secs(3600) };
    let pump = tokio::spawn(drain_events(Arc::clone(&worker)));
    let closing = worker.close(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    tokio::pin!(closing);
    // It blocks on the marker for up to its drain delay; a wake-up that finds nothing ends that.
    let give_up = Instant::now() + patience;
    loop {
        match timeout_at((Instant::now() + Duration::from_millis(150)).min(give_up), &mut closing).await {
            Ok(_) => break,
            Err(_) if Instant::now() >= give_up => break,
            Err(_) if last => {
                let _ = delivery.wake().await;
            }
            Err(_) => {}
        }
    }
    pump.abort();
}
