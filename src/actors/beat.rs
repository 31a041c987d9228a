//! An actor that repeats one piece of work: at once, whenever it is woken, and after `every` at the latest. Rounds never overlap.
//! A wake-up shortens a wait and may be lost; the period is the guarantee. A panic in a round restarts the actor.

use super::Stage;
use super::supervisor::{self, Policy, Probe, Report, Status, renew, supervise};
use crate::clock::{Clock, SystemClock};
use crate::telemetry::metrics::TASK_LIVENESS;
use actix::prelude::*;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// Wakes a beat. Carries no data; any number of wake-ups before a round make one round.
#[derive(Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

type Round = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The plan of a beat.
pub struct Beat {
    pub name: &'static str,
    /// The chain or the lane that this one looks after; empty where there is one for all.
    pub of: String,
    pub every: Duration,
    pub wake: Wake,
    pub round: Round,
}

impl Beat {
    /// Starts the actor; it ends when the process stops.
    #[must_use]
    pub fn start(self, stage: &Stage) -> Probe {
        let plan = Arc::new(self);
        let (runtime, stop, name) = (stage.runtime.clone(), stage.root.token().clone(), plan.name);
        let make = move || Beater { plan: plan.clone(), runtime: runtime.clone(), stop: stop.clone(), busy: Arc::default() };
        supervise(&stage.arbiter, name, Policy::default(), stage.root.clone(), make).probe_and_keep()
    }
}

struct Beater {
    plan: Arc<Beat>,
    runtime: tokio::runtime::Handle,
    stop: tokio_util::sync::CancellationToken,
    busy: Arc<AtomicBool>,
}

impl Actor for Beater {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (plan, runtime, stop, busy) = (self.plan.clone(), self.runtime.clone(), self.stop.clone(), self.busy.clone());
        ctx.spawn(actix::fut::wrap_future(async move {
            while !stop.is_cancelled() {
                busy.store(true, Relaxed);
                // On the main runtime, so that a slow round never blocks the arbiter that other actors live on.
                let ended = runtime.spawn((plan.round)()).await;
                busy.store(false, Relaxed);
                if let Err(failed) = ended
                    && let Ok(panic) = failed.try_into_panic()
                {
                    std::panic::resume_unwind(panic);
                }
                TASK_LIVENESS.set(SystemClock.now().timestamp() as f64, &[plan.name, &plan.of]);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = plan.wake.0.notified() => {}
                    () = tokio::time::sleep(plan.every) => {}
                }
            }
        }));
    }
}

impl Supervised for Beater {
    fn restarting(&mut self, _: &mut Self::Context) {
        renew(self);
    }
}

impl Handler<Status> for Beater {
    type Result = MessageResult<Status>;

    fn handle(&mut self, _: Status, _: &mut Self::Context) -> Self::Result {
        MessageResult(Report { waiting: 0, in_flight: usize::from(self.busy.load(Relaxed)) })
    }
}

impl<A: Actor<Context = Context<A>> + Handler<supervisor::Status>> supervisor::Child<A> {
    /// A beat is addressed by nobody, so its own address is what keeps it alive.
    fn probe_and_keep(self) -> Probe {
        let probe = self.probe();
        std::mem::forget(self.addr);
        probe
    }
}
