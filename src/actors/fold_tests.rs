use super::*;
use crate::actors::testing::in_system;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Message)]
#[rtype(result = "()")]
struct Crash;
impl<I: Send + 'static, O: Send + 'static> Handler<Crash> for Folder<I, O> {
    type Result = ();
    fn handle(&mut self, _: Crash, _: &mut Self::Context) {
        panic!("crashed by the test");
    }
}

/// A flush that writes what it saw and waits for a permit of the test before it answers with ten times each item.
#[derive(Clone)]
struct Stage {
    batches: Arc<Mutex<Vec<Vec<u64>>>>,
    go: Arc<Semaphore>,
    began: Arc<Semaphore>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Stage {
    fn new(go: usize) -> Self {
        Self {
            batches: Arc::default(),
            go: Arc::new(Semaphore::new(go)),
            began: Arc::new(Semaphore::new(0)),
            now: Arc::default(),
            most: Arc::default(),
        }
    }

    fn flush(&self) -> Flush<u64, u64> {
        let stage = self.clone();
        Arc::new(move |items| {
            let stage = stage.clone();
            async move {
                let now = stage.now.fetch_add(1, Ordering::SeqCst) + 1;
                stage.most.fetch_max(now, Ordering::SeqCst);
                stage.batches.lock().unwrap().push(items.clone());
                stage.began.add_permits(1);
                stage.go.acquire().await.unwrap().forget();
                stage.now.fetch_sub(1, Ordering::SeqCst);
                items.into_iter().map(|i| i * 10).collect()
            }
            .boxed()
        })
    }

    fn door(&self, arbiter: &Arbiter, max_batch: usize, lanes: usize, capacity: usize) -> Door<u64, u64> {
        door(arbiter, Fold::new("stage", max_batch, lanes, self.flush()), capacity)
    }

    async fn flush_began(&self) {
        self.began.acquire().await.unwrap().forget();
    }

    fn seen(&self) -> Vec<Vec<u64>> {
        self.batches.lock().unwrap().clone()
    }
}

const PLENTY: usize = 1 << 20;

fn door<I: Send + 'static, O: Send + 'static>(arbiter: &Arbiter, fold: Fold<I, O>, capacity: usize) -> Door<I, O> {
    let policy = Policy { backoff_min: Duration::from_millis(1), ..Policy::default() };
    fold.start(&arbiter.handle(), tokio::runtime::Handle::current(), policy, Root::default(), capacity)
}

/// Asks in a task of its own and returns once the item counts.
async fn asked(door: &Door<u64, u64>, item: u64) -> tokio::task::JoinHandle<Result<u64, Error>> {
    let before = door.depth();
    let handle = tokio::spawn({
        let door = door.clone();
        async move { door.ask(item).await }
    });
    while door.depth() == before {
        tokio::task::yield_now().await;
    }
    handle
}

/// Returns when the actor has handled all that was sent to it before.
async fn settled(door: &Door<u64, u64>) -> Report {
    door.probe().status(Duration::from_secs(10)).await.unwrap()
}

#[test]
fn what_gathers_during_a_flush_is_the_next_batch_in_order() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 4, 1, 100);
        let mut waiting = vec![asked(&door, 0).await];
        stage.flush_began().await;
        for item in 1..=6 {
            waiting.push(asked(&door, item).await);
            while settled(&door).await.waiting < item as usize {}
        }
        assert_eq!(settled(&door).await, Report { waiting: 6, in_flight: 1 });
        assert_eq!(door.depth(), 7);
        stage.go.add_permits(PLENTY);
        for (item, answer) in waiting.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), Ok(item as u64 * 10));
        }
        assert_eq!(stage.seen(), [vec![0], vec![1, 2, 3, 4], vec![5, 6]]);
        assert_eq!((door.depth(), stage.most.load(Ordering::SeqCst)), (0, 1));
        arbiter.stop();
    });
}

#[test]
fn items_asked_together_stay_together() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(PLENTY));
        let door = stage.door(&arbiter, 4, 1, 10);
        assert_eq!(door.ask_many((1..=6).collect()).await, Ok((1..=6).map(|i| i * 10).collect()));
        assert_eq!(stage.seen(), [(1..=6).collect::<Vec<_>>()]);
        assert_eq!(door.ask_many(Vec::new()).await, Ok(Vec::new()));
        assert_eq!(door.ask_many((0..11).collect()).await, Err(Error::Full), "more than the door can ever hold");
        assert_eq!(door.ask_many_waiting((0..11).collect()).await, Err(Error::Full));
        arbiter.stop();
    });
}

#[test]
fn a_full_door_refuses_at_once_and_a_patient_caller_waits() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 4, 1, 2);
        let first = asked(&door, 1).await;
        let second = asked(&door, 2).await;
        assert_eq!(door.ask(3).await, Err(Error::Full));
        let patient = tokio::spawn({
            let door = door.clone();
            async move { door.ask_waiting(4).await }
        });
        stage.go.add_permits(PLENTY);
        assert_eq!((first.await.unwrap(), second.await.unwrap(), patient.await.unwrap()), (Ok(10), Ok(20), Ok(40)));
        arbiter.stop();
    });
}

#[test]
fn a_caller_that_leaves_changes_neither_the_flush_nor_the_room_it_holds() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 4, 1, 2);
        let leaving = asked(&door, 1).await;
        stage.flush_began().await;
        let queued = asked(&door, 2).await;
        leaving.abort();
        queued.abort();
        assert!(leaving.await.is_err() && queued.await.is_err());
        assert_eq!(door.ask(3).await, Err(Error::Full), "the room is held until the answer exists");
        stage.go.add_permits(PLENTY);
        assert_eq!(door.ask_waiting(4).await, Ok(40));
        assert_eq!(stage.seen().concat(), [1, 2, 4]);
        arbiter.stop();
    });
}

#[test]
fn a_flush_that_panics_or_miscounts_loses_only_its_own_answers() {
    in_system(async {
        let arbiter = Arbiter::new();
        let flush: Flush<u64, u64> = Arc::new(|items: Vec<u64>| {
            assert!(items[0] != 1, "before the future");
            async move {
                assert!(items[0] != 2, "in the future");
                if items[0] == 3 { Vec::new() } else { items }
            }
            .boxed()
        });
        let door = door(&arbiter, Fold::new("faulty", 1, 1, flush), 1);
        for item in [1, 2, 3] {
            assert_eq!(door.ask(item).await, Err(Error::Lost));
        }
        assert_eq!(door.ask(4).await, Ok(4));
        assert_eq!(door.probe().vitals.restarts(), 0, "the actor lives on");
        arbiter.stop();
    });
}

#[test]
fn a_restart_lets_the_flush_in_flight_end_and_starts_none_beside_it() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 4, 1, 10);
        let flying = asked(&door, 1).await;
        stage.flush_began().await;
        let waiting = asked(&door, 2).await;
        settled(&door).await;
        assert!(door.inner.addr.send(Crash).await.is_err());
        assert_eq!(waiting.await.unwrap(), Err(Error::Lost), "it died with the incarnation that held it");
        let after = asked(&door, 3).await;
        while settled(&door).await != (Report { waiting: 1, in_flight: 1 }) {}
        stage.go.add_permits(PLENTY);
        assert_eq!((flying.await.unwrap(), after.await.unwrap()), (Ok(10), Ok(30)));
        assert_eq!(stage.seen(), [vec![1], vec![3]]);
        assert_eq!((stage.most.load(Ordering::SeqCst), door.probe().vitals.restarts(), door.depth()), (1, 1, 0));
        arbiter.stop();
    });
}

#[test]
fn several_lanes_fly_side_by_side_and_no_more() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 1, 3, 10);
        let mut waiting = Vec::new();
        for item in 0..5 {
            waiting.push(asked(&door, item).await);
        }
        for _ in 0..3 {
            stage.flush_began().await;
        }
        while settled(&door).await != (Report { waiting: 2, in_flight: 3 }) {}
        stage.go.add_permits(PLENTY);
        for answer in waiting {
            assert!(answer.await.unwrap().is_ok());
        }
        assert_eq!(stage.most.load(Ordering::SeqCst), 3);
        arbiter.stop();
    });
}

#[test]
fn a_drained_door_has_answered_everybody_and_is_closed() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(0));
        let door = stage.door(&arbiter, 4, 1, 10);
        let waiting = asked(&door, 1).await;
        let mut drained = std::pin::pin!(door.drain());
        assert!(futures::poll!(drained.as_mut()).is_pending());
        assert_eq!(door.ask(2).await, Err(Error::Full), "nobody comes in behind the drain");
        stage.go.add_permits(PLENTY);
        drained.await;
        assert_eq!(waiting.await.unwrap(), Ok(10));
        assert_eq!((door.ask(2).await, door.ask_waiting(2).await), (Err(Error::Closed), Err(Error::Closed)));
        arbiter.stop();
    });
}

#[test]
fn ten_thousand_items_of_many_tasks_are_answered_once_each() {
    in_system(async {
        let (arbiter, stage) = (Arbiter::new(), Stage::new(usize::MAX >> 4));
        let door = stage.door(&arbiter, 256, 2, 500);
        let began = Instant::now();
        let tasks: Vec<_> = (0..100u64)
            .map(|task| {
                let door = door.clone();
                tokio::spawn(async move {
                    for item in task * 100..(task + 1) * 100 {
                        assert_eq!(door.ask_waiting(item).await, Ok(item * 10));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        println!("{:?} an item", began.elapsed() / 10_000);
        let seen = stage.seen().concat();
        assert_eq!((seen.len(), seen.iter().collect::<HashSet<_>>().len(), door.depth()), (10_000, 10_000, 0));
        arbiter.stop();
    });
}
