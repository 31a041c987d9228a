//! Owns group commit: whatever waits at one moment becomes one flush, so a lone item goes straight through and the cost per
//! item falls as load rises. Never decides what a flush does and never waits for a timer.
//! Called by the actors that write for many callers at once: intake, claims, journal.

use super::supervisor::{self, Policy, Probe, Report, Root, Status};
use crate::telemetry::metrics::{FOLD_BATCH_ROWS, FOLD_REFUSED, FOLD_WAITING};
use actix::prelude::*;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

/// Turns a batch into exactly one answer an item, in the order of the items.
pub type Flush<I, O> = Arc<dyn Fn(Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync>;

/// Why a door gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was taken in; ask again later.
    #[error("the door has no room")]
    Full,
    /// Taken in and perhaps done: the caller must find out before it asks again.
    #[error("the answer was lost")]
    Lost,
    /// Nothing was taken in and nothing ever will be.
    #[error("the door is closed")]
    Closed,
}

/// The plan of a folding actor.
pub struct Fold<I, O> {
    name: &'static str,
    max_batch: usize,
    lanes: usize,
    flush: Flush<I, O>,
}

impl<I: Send + 'static, O: Send + 'static> Fold<I, O> {
    /// `lanes_in_flight` flushes may run at once; with 1 the order of the items is the order of their effects.
    #[must_use]
    pub fn new(name: &'static str, max_batch: usize, lanes_in_flight: usize, flush: Flush<I, O>) -> Self {
        Self { name, max_batch: max_batch.max(1), lanes: lanes_in_flight.max(1), flush }
    }

    /// Starts the actor on an arbiter. Flushes run on `runtime`, where neither a restart nor a caller that leaves can end them.
    /// `capacity` counts the items that are taken in and not yet answered.
    #[must_use]
    pub fn start(
        self,
        arbiter: &ArbiterHandle,
        runtime: tokio::runtime::Handle,
        mut policy: Policy,
        root: Root,
        capacity: usize,
    ) -> Door<I, O> {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX >> 3).clamp(1, u32::MAX >> 3);
        // Room for every item the door can let in, so that a message is never refused for want of a slot.
        policy.mailbox = capacity as usize + self.lanes;
        let keep = Arc::new(Keep {
            name: self.name,
            max_batch: self.max_batch,
            lanes: Arc::new(Semaphore::new(self.lanes)),
            lanes_total: self.lanes,
            flush: self.flush,
            runtime,
        });
        let child = supervisor::supervise(arbiter, self.name, policy, root, move || Folder::new(Arc::clone(&keep)));
        let probe = child.probe();
        Door {
            inner: Arc::new(Entrance {
                name: self.name,
                addr: child.addr,
                room: Arc::new(Semaphore::new(capacity as usize)),
                capacity,
                probe,
            }),
        }
    }
}

/// The only way to a folding actor: cheap to clone, usable from any thread and runtime.
pub struct Door<I: Send + 'static, O: Send + 'static> {
    inner: Arc<Entrance<I, O>>,
}

struct Entrance<I: Send + 'static, O: Send + 'static> {
    name: &'static str,
    addr: Addr<Folder<I, O>>,
    room: Arc<Semaphore>,
    capacity: u32,
    probe: Probe,
}

impl<I: Send + 'static, O: Send + 'static> Clone for Door<I, O> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<I: Send + 'static, O: Send + 'static> Door<I, O> {
    /// Refuses at once when the room is used up. Room is held until the answer exists, also when the caller leaves.
    pub async fn ask(&self, item: I) -> Result<O, Error> {
        self.ask_many(vec![item]).await?.pop().ok_or(Error::Lost)
    }

    /// Waits for room instead of refusing.
    pub async fn ask_waiting(&self, item: I) -> Result<O, Error> {
        self.ask_many_waiting(vec![item]).await?.pop().ok_or(Error::Lost)
    }

    /// Takes all items in or none; they stay together in one flush and in their order.
    pub async fn ask_many(&self, items: Vec<I>) -> Result<Vec<O>, Error> {
        let count = self.fits(items.len())?;
        let room = Arc::clone(&self.inner.room).try_acquire_many_owned(count).map_err(|why| match why {
            TryAcquireError::Closed => Error::Closed,
            TryAcquireError::NoPermits => self.refuse(),
        })?;
        self.send(items, room).await
    }

    /// `ask_many` that waits for room.
    pub async fn ask_many_waiting(&self, items: Vec<I>) -> Result<Vec<O>, Error> {
        let count = self.fits(items.len())?;
        let room = Arc::clone(&self.inner.room).acquire_many_owned(count).await.map_err(|_| Error::Closed)?;
        self.send(items, room).await
    }

    /// Items that are taken in and not yet answered.
    #[must_use]
    pub fn depth(&self) -> usize {
        (self.inner.capacity as usize).saturating_sub(self.inner.room.available_permits())
    }

    /// Shuts the door: who asks from now on is refused, and this returns when every item that was let in has its answer.
    pub async fn drain(&self) {
        if let Ok(all) = self.inner.room.acquire_many(self.inner.capacity).await {
            self.inner.room.close();
            drop(all);
        }
    }

    /// Asks the actor behind the door for a sign of life.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.inner.probe
    }

    /// More items than the door could ever let in are refused, also by those who would wait.
    fn fits(&self, items: usize) -> Result<u32, Error> {
        u32::try_from(items).ok().filter(|count| *count <= self.inner.capacity).ok_or_else(|| self.refuse())
    }

    fn refuse(&self) -> Error {
        FOLD_REFUSED.add(1, &[self.inner.name]);
        Error::Full
    }

    async fn send(&self, items: Vec<I>, room: OwnedSemaphorePermit) -> Result<Vec<O>, Error> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        match self.inner.addr.try_send(Unit { items, room, answer }) {
            Ok(()) => {}
            Err(SendError::Closed(_)) => return Err(Error::Closed),
            Err(SendError::Full(unit)) => self.inner.addr.send(unit).await.map_err(|_| Error::Lost)?,
        }
        answered.await.map_err(|_| Error::Lost)
    }
}

/// Items that came together, and who waits for them.
#[derive(Message)]
#[rtype(result = "()")]
struct Unit<I: Send + 'static, O: Send + 'static> {
    items: Vec<I>,
    // Dropped before the answer: who learns that its answer is lost may ask again at once.
    room: OwnedSemaphorePermit,
    answer: oneshot::Sender<Vec<O>>,
}

/// A flush has ended: its lane is free.
#[derive(Message)]
#[rtype(result = "()")]
struct Landed;

/// What outlives an incarnation: the lanes too, or a successor would start flushes beside those of its predecessor.
struct Keep<I, O> {
    name: &'static str,
    max_batch: usize,
    lanes: Arc<Semaphore>,
    lanes_total: usize,
    flush: Flush<I, O>,
    runtime: tokio::runtime::Handle,
}

struct Folder<I: Send + 'static, O: Send + 'static> {
    keep: Arc<Keep<I, O>>,
    /// Boxed because actix wants actors that may be moved, whatever the items are.
    #[expect(clippy::box_collection, reason = "an actor must be Unpin whatever its items are")]
    waiting: Box<VecDeque<Unit<I, O>>>,
    rows: usize,
    /// A take-off is due as soon as the mailbox is empty.
    due: bool,
}

impl<I: Send + 'static, O: Send + 'static> Folder<I, O> {
    fn new(keep: Arc<Keep<I, O>>) -> Self {
        Self { keep, waiting: Box::default(), rows: 0, due: false }
    }

    /// Spawned futures run when the mailbox is empty, so what waits there joins the batch.
    fn take_off_soon(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.due, true) {
            let soon = ActorFutureExt::map(actix::fut::ready(()), |(), folder: &mut Self, ctx| {
                folder.due = false;
                folder.take_off(ctx);
            });
            ctx.spawn(soon);
        }
    }

    /// Starts flushes as long as there are items and free lanes.
    fn take_off(&mut self, ctx: &mut Context<Self>) {
        while self.rows > 0 {
            let Ok(lane) = Arc::clone(&self.keep.lanes).try_acquire_owned() else { break };
            let units = self.next_batch();
            let lane = Lane { permit: Some(lane), owner: ctx.address() };
            self.keep.runtime.spawn(fly(Arc::clone(&self.keep), units, lane));
        }
        FOLD_WAITING.set(self.rows as f64, &[self.keep.name]);
    }

    /// The oldest units that fit; a unit is never split, so one that is too large flies alone.
    fn next_batch(&mut self) -> Vec<Unit<I, O>> {
        let (mut units, mut rows) = (Vec::new(), 0);
        while let Some(unit) = self.waiting.pop_front() {
            if rows > 0 && rows + unit.items.len() > self.keep.max_batch {
                self.waiting.push_front(unit);
                break;
            }
            rows += unit.items.len();
            units.push(unit);
        }
        self.rows -= rows;
        units
    }
}

/// A place among the flushes in flight; leaving it wakes the actor, however the flush ended.
struct Lane<I: Send + 'static, O: Send + 'static> {
    permit: Option<OwnedSemaphorePermit>,
    owner: Addr<Folder<I, O>>,
}

impl<I: Send + 'static, O: Send + 'static> Drop for Lane<I, O> {
    fn drop(&mut self) {
        drop(self.permit.take());
        // A full mailbox holds units, and each of those wakes the actor as well.
        let _ = self.owner.try_send(Landed);
    }
}

/// One flush and the delivery of its answers. Callers whose answer does not exist see their channel close.
async fn fly<I: Send + 'static, O: Send + 'static>(keep: Arc<Keep<I, O>>, units: Vec<Unit<I, O>>, lane: Lane<I, O>) {
    let rows = units.iter().map(|unit| unit.items.len()).sum();
    let (mut items, mut askers) = (Vec::with_capacity(rows), Vec::with_capacity(units.len()));
    for unit in units {
        askers.push((unit.items.len(), unit.room, unit.answer));
        items.extend(unit.items);
    }
    FOLD_BATCH_ROWS.record(rows as f64, &[keep.name]);
    match AssertUnwindSafe(async { (keep.flush)(items).await }).catch_unwind().await {
        Ok(answers) if answers.len() == rows => {
            let mut answers = answers.into_iter();
            for (count, room, answer) in askers {
                // Room first: who has its answer may ask again at once.
                drop(room);
                let _ = answer.send(answers.by_ref().take(count).collect());
            }
        }
        Ok(answers) => tracing::error!(actor = keep.name, rows, answers = answers.len(), "a flush gave a wrong number of answers"),
        Err(_) => tracing::error!(actor = keep.name, rows, "a flush panicked"),
    }
    drop(lane);
}

impl<I: Send + 'static, O: Send + 'static> Actor for Folder<I, O> {
    type Context = Context<Self>;
}

impl<I: Send + 'static, O: Send + 'static> Supervised for Folder<I, O> {
    fn restarting(&mut self, _: &mut Self::Context) {
        supervisor::renew(self);
    }
}

impl<I: Send + 'static, O: Send + 'static> Handler<Unit<I, O>> for Folder<I, O> {
    type Result = ();
    fn handle(&mut self, unit: Unit<I, O>, ctx: &mut Self::Context) {
        self.rows += unit.items.len();
        self.waiting.push_back(unit);
        if self.rows >= self.keep.max_batch && self.keep.lanes.available_permits() > 0 {
            self.take_off(ctx);
        } else {
            self.take_off_soon(ctx);
        }
    }
}

impl<I: Send + 'static, O: Send + 'static> Handler<Landed> for Folder<I, O> {
    type Result = ();
    fn handle(&mut self, _: Landed, ctx: &mut Self::Context) {
        self.take_off_soon(ctx);
    }
}

impl<I: Send + 'static, O: Send + 'static> Handler<Status> for Folder<I, O> {
    type Result = MessageResult<Status>;
    fn handle(&mut self, _: Status, _: &mut Self::Context) -> Self::Result {
        let in_flight = self.keep.lanes_total.saturating_sub(self.keep.lanes.available_permits());
        MessageResult(Report { waiting: self.rows, in_flight })
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
