use super::*;
use crate::actors::testing::in_system;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// What outlives an incarnation.
#[derive(Clone, Default)]
struct Seen {
    made: Arc<AtomicUsize>,
    started: Arc<AtomicUsize>,
    released: Arc<AtomicUsize>,
    start_panics: Arc<AtomicBool>,
    make_panics: Arc<AtomicBool>,
}

struct Fragile {
    count: usize,
    seen: Seen,
    renews: bool,
}

impl Actor for Fragile {
    type Context = Context<Self>;
    fn started(&mut self, _: &mut Self::Context) {
        self.seen.started.fetch_add(1, Ordering::SeqCst);
        assert!(!self.seen.start_panics.swap(false, Ordering::SeqCst), "in started");
    }
}

impl Supervised for Fragile {
    fn restarting(&mut self, _: &mut Self::Context) {
        if self.renews {
            renew(self);
        }
    }
}

#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "usize")]
enum Do {
    Count,
    PanicInHandler,
    PanicInSpawned,
    PanicInAnswer,
    Hold,
    Stop,
}

struct Held(Arc<AtomicUsize>);
impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Handler<Do> for Fragile {
    type Result = ResponseActFuture<Self, usize>;
    fn handle(&mut self, order: Do, ctx: &mut Self::Context) -> Self::Result {
        match order {
            Do::Count => {
                self.count += 1;
                Box::pin(actix::fut::ready(self.count))
            }
            Do::PanicInHandler => panic!("in handler"),
            Do::PanicInSpawned => {
                ctx.spawn(actix::fut::wrap_future(async { panic!("in spawned") }));
                Box::pin(actix::fut::wrap_future(std::future::pending()))
            }
            Do::PanicInAnswer => Box::pin(actix::fut::wrap_future(async { panic!("in answer") })),
            Do::Hold => {
                let held = Held(Arc::clone(&self.seen.released));
                Box::pin(actix::fut::wrap_future(async move {
                    let _held = held;
                    std::future::pending().await
                }))
            }
            Do::Stop => {
                ctx.stop();
                Box::pin(actix::fut::ready(0))
            }
        }
    }
}

impl Handler<Status> for Fragile {
    type Result = MessageResult<Status>;
    fn handle(&mut self, _: Status, _: &mut Self::Context) -> Self::Result {
        MessageResult(Report { waiting: self.count, in_flight: 0 })
    }
}

fn fast() -> Policy {
    Policy { backoff_min: Duration::from_millis(2), ..Policy::default() }
}

fn start(arbiter: &Arbiter, policy: Policy, root: &Root, seen: &Seen, renews: bool) -> Child<Fragile> {
    let seen = seen.clone();
    supervise(&arbiter.handle(), "fragile", policy, root.clone(), move || {
        assert!(!seen.make_panics.swap(false, Ordering::SeqCst), "in the factory");
        seen.made.fetch_add(1, Ordering::SeqCst);
        Fragile { count: 0, seen: seen.clone(), renews }
    })
}

#[test]
fn a_panic_anywhere_brings_a_fresh_value_behind_the_same_address() {
    in_system(async {
        for order in [Do::PanicInHandler, Do::PanicInSpawned, Do::PanicInAnswer, Do::Stop] {
            let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
            let child = start(&arbiter, fast(), &root, &seen, true);
            assert_eq!(child.addr.send(Do::Count).await, Ok(1));
            assert_eq!(child.addr.send(Do::Count).await, Ok(2));
            let (failed, queued) = tokio::join!(child.addr.send(order), child.addr.send(Do::Count));
            if !matches!(order, Do::Stop) {
                assert_eq!(failed, Err(MailboxError::Closed), "{order:?}");
            }
            // What was handled before the spawned future was polled belongs to the old incarnation.
            assert!(matches!(queued, Ok(1 | 3) | Err(MailboxError::Closed)), "{order:?}: {queued:?}");
            let before = queued.ok().filter(|n| *n == 1).unwrap_or(0);
            assert_eq!(child.addr.send(Do::Count).await, Ok(before + 1), "{order:?}: the count begins anew");
            assert_eq!(child.vitals.restarts(), 1);
            assert_eq!(seen.made.load(Ordering::SeqCst), 2);
            assert!(root.reason().is_none() && !root.token().is_cancelled());
            arbiter.stop();
        }
    });
}

#[test]
fn a_message_queued_behind_a_panicking_one_is_answered_by_the_successor() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, true);
        let (failed, first, second) =
            tokio::join!(child.addr.send(Do::PanicInHandler), child.addr.send(Do::Count), child.addr.send(Do::Count));
        assert_eq!((failed, first, second), (Err(MailboxError::Closed), Ok(1), Ok(2)));
        arbiter.stop();
    });
}

#[test]
fn panics_in_started_and_in_the_factory_are_counted_and_survived() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, true);
        assert_eq!(child.addr.send(Do::Count).await, Ok(1));
        seen.start_panics.store(true, Ordering::SeqCst);
        seen.make_panics.store(true, Ordering::SeqCst);
        assert!(child.addr.send(Do::PanicInHandler).await.is_err());
        assert_eq!(child.addr.send(Do::Count).await, Ok(1));
        assert_eq!(child.vitals.restarts(), 3, "handler, factory, started");
        assert_eq!(seen.started.load(Ordering::SeqCst), 3);
        arbiter.stop();
    });
}

#[test]
fn the_futures_of_a_dead_incarnation_are_dropped() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, true);
        let (held, failed) = tokio::join!(child.addr.send(Do::Hold), child.addr.send(Do::PanicInHandler));
        assert_eq!((held, failed), (Err(MailboxError::Closed), Err(MailboxError::Closed)));
        assert_eq!(seen.released.load(Ordering::SeqCst), 1);
        arbiter.stop();
    });
}

#[test]
fn a_spent_budget_gives_the_process_up_with_a_reason() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, Policy { max_restarts: 2, ..fast() }, &root, &seen, true);
        for _ in 0..3 {
            assert!(child.addr.send(Do::PanicInHandler).await.is_err());
        }
        root.token().cancelled().await;
        assert_eq!(root.reason(), Some("actor fragile: in handler"));
        assert_eq!(child.done.await, Ok(Exit::GivenUp("actor fragile: in handler".into())));
        arbiter.stop();
    });
}

#[test]
fn an_actor_that_keeps_its_old_value_is_given_up() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, false);
        assert!(child.addr.send(Do::PanicInHandler).await.is_err());
        assert!(matches!(child.done.await, Ok(Exit::GivenUp(_))));
        assert!(root.reason().is_some_and(|r| r.contains("renew")));
        arbiter.stop();
    });
}

#[test]
fn an_actor_ends_when_nobody_knows_it_or_when_it_stops_after_the_root() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, true);
        let probe = child.probe();
        assert_eq!(probe.status(Duration::from_secs(5)).await, Ok(Report::default()));
        let Child { addr, done, .. } = child;
        drop(addr);
        assert_eq!(done.await, Ok(Exit::Unreferenced));
        assert_eq!(probe.status(Duration::from_secs(5)).await, Err(Error::Gone));

        let child = start(&arbiter, fast(), &root, &seen, true);
        root.token().cancel();
        assert!(child.addr.send(Do::Stop).await.is_err(), "actix drops the answer of an actor that stops");
        assert_eq!(child.done.await, Ok(Exit::Stopped));
        arbiter.stop();
    });
}

/// Blocks the actor's thread until the sender of the second channel is dropped; says over the first that it does.
#[derive(Message)]
#[rtype(result = "()")]
struct Block(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>);
impl Handler<Block> for Fragile {
    type Result = ();
    fn handle(&mut self, block: Block, _: &mut Self::Context) {
        let _ = block.0.send(());
        let _ = block.1.recv();
    }
}

#[test]
fn a_blocked_actor_is_silent_and_its_vitals_tell_since_when() {
    in_system(async {
        let (arbiter, root, seen) = (Arbiter::new(), Root::default(), Seen::default());
        let child = start(&arbiter, fast(), &root, &seen, true);
        let probe = child.probe();
        assert_eq!(child.addr.send(Do::Count).await, Ok(1));
        let (blocks, blocked) = oneshot::channel();
        let (free, held) = std::sync::mpsc::channel();
        child.addr.try_send(Block(blocks, held)).unwrap();
        blocked.await.unwrap();
        assert_eq!(probe.status(Duration::from_millis(20)).await, Err(Error::Silent));
        assert!(probe.vitals.busy_for() >= Duration::from_millis(15));
        drop(free);
        assert_eq!(probe.status(Duration::from_secs(5)).await, Ok(Report { waiting: 1, in_flight: 0 }));
        arbiter.stop();
    });
}
