//! Owns the life of an actor: polls it behind a panic guard, brings it back behind the same address with a fresh value from
//! its factory, waits longer after each failure, and gives the whole process up when the restart budget is spent.
//! Never knows what an actor does. Called by `app` and by the `start` function of each actor.
//!
//! `actix::Supervisor` is not used: a panic below it closes the mailbox for ever while the process lives on.

use crate::telemetry::metrics::ACTOR_RESTARTS;
use actix::WeakRecipient;
use actix::dev::{ContextFut, channel};
use actix::prelude::*;
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How often an actor may fail, and how long it rests after a failure.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Failures inside `window` that are forgiven; one more gives the process up.
    pub max_restarts: usize,
    pub window: Duration,
    /// The rest after the first failure of a window; it doubles with each further one.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// Slots of the mailbox. No admission control: that is the door's duty.
    pub mailbox: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_restarts: 5,
            window: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(10),
            mailbox: 256,
        }
    }
}

/// The process-wide stop: ordinary shutdown cancels the token, an actor that cannot be kept alive cancels it with a reason.
#[derive(Clone, Debug, Default)]
pub struct Root {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Root {
    #[must_use]
    pub fn new(token: CancellationToken) -> Self {
        Self { token, reason: Arc::default() }
    }

    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Stops the process because something cannot be kept alive; the first reason stays.
    pub fn give_up(&self, reason: String) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// Why the process gave up; none after an ordinary shutdown. With a reason the exit code is not zero.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

/// Why an actor is no longer supervised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It stopped itself after the root was cancelled.
    Stopped,
    /// Nobody holds its address any more.
    Unreferenced,
    /// It failed more often than its policy forgives; the root is cancelled.
    GivenUp(String),
}

/// What can be seen of an actor from any thread without asking it.
#[derive(Debug, Default)]
pub struct Vitals {
    restarts: AtomicU64,
    /// Milliseconds of the process clock at which the present poll began; 0 between polls.
    polling_since: AtomicU64,
}

impl Vitals {
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// How long the actor has kept its arbiter busy in the present poll; more than seconds means a blocked thread.
    #[must_use]
    pub fn busy_for(&self) -> Duration {
        match self.polling_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(process_millis().saturating_sub(since)),
        }
    }
}

/// Asks an actor for a sign of life.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Report")]
pub struct Status;

/// The answer to `Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Work taken in and not begun.
    pub waiting: usize,
    /// Work begun and not ended.
    pub in_flight: usize,
}

/// Why an actor gave no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may be restarting, overloaded or blocked.
    #[error("the actor did not answer within the deadline")]
    Silent,
    /// It will never answer again.
    #[error("the actor is gone")]
    Gone,
}

/// Readiness holds one per actor. It keeps no actor alive.
pub struct Probe {
    pub actor: &'static str,
    pub vitals: Arc<Vitals>,
    recipient: WeakRecipient<Status>,
}

impl Probe {
    pub async fn status(&self, deadline: Duration) -> Result<Report, Error> {
        let recipient = self.recipient.upgrade().ok_or(Error::Gone)?;
        match tokio::time::timeout(deadline, recipient.send(Status)).await {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(MailboxError::Closed)) if !recipient.connected() => Err(Error::Gone),
            // The incarnation that held the question died, or time ran out.
            Ok(Err(_)) | Err(_) => Err(Error::Silent),
        }
    }
}

/// A supervised actor as its starter sees it.
pub struct Child<A: Actor<Context = Context<A>>> {
    pub actor: &'static str,
    pub addr: Addr<A>,
    pub vitals: Arc<Vitals>,
    /// Resolves when supervision ends.
    pub done: oneshot::Receiver<Exit>,
}

impl<A: Actor<Context = Context<A>> + Handler<Status>> Child<A> {
    #[must_use]
    pub fn probe(&self) -> Probe {
        Probe { actor: self.actor, vitals: Arc::clone(&self.vitals), recipient: self.addr.downgrade().recipient() }
    }
}

thread_local! {
    /// The value that the actor being restarted on this thread is to become.
    static NEXT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// The whole body of `Supervised::restarting` of each supervised actor: it becomes what its factory made.
/// actix offers no other place where a value can be exchanged behind its address; an actor that forgets the call is given up.
pub fn renew<A: 'static>(actor: &mut A) {
    if let Some(Ok(next)) = NEXT.take().map(|next: Box<dyn Any>| next.downcast::<A>()) {
        *actor = *next;
    }
}

/// Starts an actor on an arbiter. `make` builds its first value and every later one, so nothing volatile survives a failure.
/// May be called from any thread and does not block; messages sent before the arbiter has run wait in the mailbox.
pub fn supervise<A>(
    arbiter: &ArbiterHandle,
    actor: &'static str,
    policy: Policy,
    root: Root,
    make: impl FnMut() -> A + Send + 'static,
) -> Child<A>
where
    A: Supervised + Actor<Context = Context<A>>,
{
    let (sender, receiver) = channel::channel::<A>(policy.mailbox);
    let (tell, done) = oneshot::channel();
    let vitals = Arc::new(Vitals::default());
    let seen = Arc::clone(&vitals);
    let gone = root.clone();
    let spawned = arbiter.spawn_fn(move || {
        let mut make = make;
        let first = catch_unwind(AssertUnwindSafe(&mut make));
        let Ok(first) = first else {
            root.give_up(format!("actor {actor}: its factory panicked at the start"));
            return;
        };
        let life = Context::with_receiver(receiver).into_future(first);
        let make: Box<dyn FnMut() -> A> = Box::new(make);
        let guard = Guard { actor, life, make, policy, vitals: seen, root, failures: VecDeque::new(), rest: None, dead: false };
        actix::spawn(async move {
            let _ = tell.send(guard.await);
        });
    });
    if !spawned {
        gone.give_up(format!("actor {actor}: its arbiter is gone"));
    }
    Child { actor, addr: Addr::new(sender), vitals, done }
}

/// One supervised life: polls the actor and decides what follows a failure.
struct Guard<A: Supervised + Actor<Context = Context<A>>> {
    actor: &'static str,
    life: ContextFut<A, Context<A>>,
    make: Box<dyn FnMut() -> A>,
    policy: Policy,
    vitals: Arc<Vitals>,
    root: Root,
    failures: VecDeque<Instant>,
    rest: Option<Pin<Box<tokio::time::Sleep>>>,
    /// The last rebirth failed, so the old value must not be polled.
    dead: bool,
}

impl<A: Supervised + Actor<Context = Context<A>>> Guard<A> {
    /// Ends the failed incarnation: its futures are dropped, its successor takes the mailbox over after a rest.
    fn fail(&mut self, why: &str) -> Option<Exit> {
        let now = Instant::now();
        self.failures.push_back(now);
        while self.failures.front().is_some_and(|at| now.duration_since(*at) > self.policy.window) {
            self.failures.pop_front();
        }
        self.vitals.restarts.fetch_add(1, Ordering::Relaxed);
        ACTOR_RESTARTS.add(1, &[self.actor]);
        if self.failures.len() > self.policy.max_restarts {
            return Some(self.give_up(why));
        }
        let times = u32::try_from(self.failures.len() - 1).unwrap_or(u32::MAX).min(16);
        let rest = self.policy.backoff_min.saturating_mul(1 << times).min(self.policy.backoff_max);
        tracing::warn!(actor = self.actor, why, failures = self.failures.len(), ?rest, "actor restarts");
        self.rest = Some(Box::pin(tokio::time::sleep(rest)));
        match self.rebirth() {
            Ok(true) => None,
            Ok(false) => Some(self.give_up("it does not renew itself in `restarting`")),
            // Counted when the rest is over, so that a failing factory backs off too.
            Err(_) => {
                self.dead = true;
                None
            }
        }
    }

    /// Puts a fresh value behind the address. `Ok(false)`: the actor kept its old value.
    fn rebirth(&mut self) -> Result<bool, String> {
        let born = catch_unwind(AssertUnwindSafe(|| {
            NEXT.set(Some(Box::new((self.make)())));
            self.life.restart();
        }));
        let left = NEXT.take().is_some();
        born.map(|()| !left).map_err(|panic| panic_text(&*panic))
    }

    fn give_up(&self, why: &str) -> Exit {
        let reason = format!("actor {}: {why}", self.actor);
        tracing::error!(actor = self.actor, why, "actor given up, the process stops");
        self.root.give_up(reason.clone());
        Exit::GivenUp(reason)
    }

    fn ended(&mut self) -> Option<Exit> {
        if !self.life.ctx().connected() {
            Some(Exit::Unreferenced)
        } else if self.root.token.is_cancelled() {
            Some(Exit::Stopped)
        } else {
            self.fail("stopped itself")
        }
    }
}

impl<A: Supervised + Actor<Context = Context<A>>> Future for Guard<A> {
    type Output = Exit;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Exit> {
        let this = self.get_mut();
        loop {
            if let Some(rest) = this.rest.as_mut() {
                ready!(rest.as_mut().poll(cx));
                this.rest = None;
            }
            let exit = if std::mem::take(&mut this.dead) {
                this.fail("its factory panicked")
            } else {
                this.vitals.polling_since.store(process_millis(), Ordering::Relaxed);
                let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.life).poll(cx)));
                this.vitals.polling_since.store(0, Ordering::Relaxed);
                match polled {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(())) => this.ended(),
                    Err(panic) => this.fail(&panic_text(&*panic)),
                }
            };
            if let Some(exit) = exit {
                return Poll::Ready(exit);
            }
        }
    }
}

/// Periodic work of one incarnation: one sequential loop, so a slow round never overlaps itself. Called from `started`;
/// a restart drops the loop and the next `started` makes a new one.
pub fn tick<A, W>(ctx: &mut Context<A>, every: Duration, stop: CancellationToken, mut work: impl FnMut() -> W + 'static)
where
    A: Actor<Context = Context<A>>,
    W: Future<Output = ()> + 'static,
{
    ctx.spawn(actix::fut::wrap_future(async move {
        let mut beat = tokio::time::interval(every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = beat.tick() => {}
            }
            work().await;
        }
    }));
}

fn process_millis() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic without a text".to_owned())
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
