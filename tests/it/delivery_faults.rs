//! The delivery plane when something breaks: handlers, processes, locks, connections, Redis.

use crate::{delivery_common::*, support};
use holdfast::delivery::{Card, Error, Options, Published, Settle, Standing, delivery_id};
use redis::AsyncCommands;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::copy,
    net::{TcpListener, TcpStream},
    sync::watch,
};

const SOON: Duration = Duration::from_secs(5);
/// A call ends within its deadline; the rest is a busy machine.
const CALL: Duration = Duration::from_millis(3500);

#[tokio::test]
async fn a_panic_of_a_handler_costs_that_try_only() {
    let delivery = fresh();
    let card = card(job());
    let consumer = delivery.consume(
        options(1),
        handler(|delivered| {
            assert!(delivered.attempts_started != 1, "before its future exists");
            async move {
                assert!(delivered.attempts_started != 2, "inside its future");
                Settle::Done
            }
        }),
    );
    published(&delivery, &[card]).await;
    until_standing(&delivery, card, Standing::Delayed).await;
    assert_eq!(consumer.active(), 0);
    until_standing(&delivery, card, Standing::Finished).await;
    assert_eq!(delivery.counts().await.expect("counts").failed, 0);
    closed(consumer).await;
}

#[tokio::test]
async fn a_lost_lock_ends_the_handler_and_leaves_the_delivery_to_the_next() {
    let (url, prefix) = support::redis_url_and_prefix();
    let delivery = delivery(&url, &prefix);
    let dropped = Arc::new(AtomicBool::new(false));
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let flag = dropped.clone();
    let consumer = delivery.consume(
        Options { lock: Duration::from_secs(1), ..options(1) },
        handler(move |delivered| {
            let (tell, guard) = (tell.clone(), OnDrop(flag.clone()));
            async move {
                let first = delivered.attempts_started == 1;
                let _ = tell.send(delivered);
                if first {
                    std::future::pending::<()>().await;
                }
                drop(guard);
                Settle::Done
            }
        }),
    );
    let card = card(job());
    published(&delivery, &[card]).await;
    let first = next(&mut seen, SOON).await;
    assert!(!dropped.load(Ordering::SeqCst));
    let () = raw(&url).await.set(format!("{prefix}:jobs:{}:lock", delivery_id(card.job_id, 1)), "another").await.expect("stolen");
    tokio::time::timeout(SOON, first.lost.cancelled()).await.expect("the loss is told");
    until("the handler is dropped", SOON, async || dropped.load(Ordering::SeqCst)).await;
    // The thief never finishes; when its lock is gone the delivery moves on.
    assert_eq!(standing(&delivery, card).await, Standing::Active);
    let () = raw(&url).await.del(format!("{prefix}:jobs:{}:lock", delivery_id(card.job_id, 1))).await.expect("released");
    let second = next(&mut seen, SOON).await;
    assert_eq!(second.attempts_started, 2);
    until_standing(&delivery, card, Standing::Finished).await;
    closed(consumer).await;
}

#[tokio::test]
async fn a_handler_that_outlives_its_lock_many_times_keeps_it() {
    let delivery = fresh();
    let started = Arc::new(AtomicUsize::new(0));
    let counter = started.clone();
    let lock = Duration::from_millis(600);
    let consumer = delivery.consume(
        Options { lock, ..options(2) },
        handler(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(lock * 5).await;
                Settle::Done
            }
        }),
    );
    let card = card(job());
    published(&delivery, &[card]).await;
    until_standing(&delivery, card, Standing::Finished).await;
    assert_eq!(started.load(Ordering::SeqCst), 1);
    closed(consumer).await;
}

/// A consumer in a runtime of its own; dropping the runtime is to Redis what SIGKILL is: no farewell, no renewal.
fn doomed(delivery: &(String, String), options: Options, handler: holdfast::delivery::Handler) -> (tokio::runtime::Runtime, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
    let (url, prefix) = delivery.clone();
    let name = runtime.block_on(async move {
        let consumer = self::delivery(&url, &prefix).consume(options, handler);
        let name = consumer.name().to_owned();
        std::mem::forget(consumer);
        name
    });
    (runtime, name)
}

#[test]
fn the_delivery_of_a_killed_process_goes_to_a_namesake_within_lock_and_sweep() {
    let place = support::redis_url_and_prefix();
    let lock = Duration::from_secs(2);
    let options = Options { lock, ..options(1) };
    let (stuck, mut held) = stuck();
    let (killed, dead_name) = doomed(&place, options.clone(), stuck);
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async move {
        let delivery = delivery(&place.0, &place.1);
        let (urgent, plain) = (Card { priority: 1, ..card(job()) }, card(job()));
        published(&delivery, &[urgent]).await;
        next(&mut held, SOON).await;
        let died = Instant::now();
        killed.shutdown_background();

        let (handler, mut seen) = recorder();
        let survivor = delivery.consume(options, handler);
        assert_ne!(survivor.name(), dead_name);
        published(&delivery, &[plain]).await;
        assert_eq!(next(&mut seen, SOON).await.job_id, plain.job_id);
        let again = next(&mut seen, lock * 3).await;
        assert_eq!((again.job_id, again.attempts_started), (urgent.job_id, 2));
        // The lock, one sweep of half a lock, and a pick-up.
        assert!(died.elapsed() < lock * 3 / 2 + Duration::from_millis(1500), "{:?}", died.elapsed());
        closed(survivor).await;
    });
}

#[test]
fn what_a_killed_process_held_keeps_its_rank() {
    let place = support::redis_url_and_prefix();
    let options = Options { lock: Duration::from_secs(1), ..options(3) };
    let (stuck, mut held) = stuck();
    let (killed, _) = doomed(&place, options.clone(), stuck);
    tokio::runtime::Runtime::new().expect("runtime").block_on(async move {
        let delivery = delivery(&place.0, &place.1);
        let lost: Vec<Card> = [80, 1, 50].iter().map(|&priority| Card { priority, ..card(job()) }).collect();
        published(&delivery, &lost).await;
        for _ in &lost {
            next(&mut held, SOON).await;
        }
        killed.shutdown_background();
        let (handler, mut seen) = recorder();
        let survivor = delivery.consume(Options { concurrency: 1, ..options }, handler);
        survivor.pause();
        let newer = Card { priority: 50, ..card(job()) };
        published(&delivery, &[newer]).await;
        until("all are handed on", SOON, async || delivery.counts().await.is_ok_and(|counts| counts.prioritized == 4)).await;
        survivor.resume();
        for expected in [lost[1], lost[2], newer, lost[0]] {
            assert_eq!(next(&mut seen, SOON).await.job_id, expected.job_id);
        }
        closed(survivor).await;
    });
}

#[tokio::test]
async fn twenty_thousand_deliveries_of_dead_processes_are_all_handed_on() {
    let (url, prefix) = support::redis_url_and_prefix();
    let delivery = delivery(&url, &prefix);
    let cards = cards(20_000);
    for batch in cards.chunks(2000) {
        published(&delivery, batch).await;
    }
    // What a thousand killed processes leave: active, without a lock.
    let script = redis::Script::new(
        "local ids = redis.call('ZRANGE', KEYS[1], 0, -1) for _, id in ipairs(ids) do redis.call('LPUSH', KEYS[2], id) end redis.call('DEL', KEYS[1])",
    );
    let (from, to) = (format!("{prefix}:jobs:prioritized"), format!("{prefix}:jobs:active"));
    let () = script.key(from).key(to).invoke_async(&mut raw(&url).await).await.expect("moved");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(Options { lock: Duration::from_secs(1), ..options(64) }, handler);
    let mut taken = HashSet::new();
    for _ in 0..cards.len() {
        assert!(taken.insert(next(&mut seen, Duration::from_secs(20)).await.job_id));
    }
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn closing_waits_for_handlers_and_hands_back_what_does_not_end() {
    let delivery = fresh();
    let (stuck, mut held) = stuck();
    let consumer = delivery.consume(Options { lock: Duration::from_secs(60), ..options(2) }, stuck);
    let card = card(job());
    published(&delivery, &[card]).await;
    next(&mut held, SOON).await;
    let started = Instant::now();
    assert!(!consumer.close(Duration::from_millis(300)).await);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(consumer.active(), 0);
    let (handler, mut seen) = recorder();
    let successor = delivery.consume(options(2), handler);
    // Long before the lock of 60 s would have run out.
    assert_eq!(next(&mut seen, SOON).await.job_id, card.job_id);
    closed(successor).await;
}

#[tokio::test]
async fn an_idle_consumer_closes_at_once() {
    let delivery = fresh();
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(2), handler);
    published(&delivery, &cards(1)).await;
    next(&mut seen, SOON).await;
    let started = Instant::now();
    closed(consumer).await;
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_redis_that_is_gone_and_comes_back_needs_no_restart_of_ours() {
    let mut redis = support::OwnRedis::start().await;
    let delivery = delivery(&redis.url(), "restarted");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(4), handler);
    published(&delivery, &cards(1)).await;
    next(&mut seen, SOON).await;

    redis.stop().await;
    let cards = cards(20);
    let started = Instant::now();
    let answers = delivery.publish(&cards).await;
    assert!(started.elapsed() < CALL, "{:?}", started.elapsed());
    assert_eq!(answers.len(), 20);
    for answer in answers {
        assert!(matches!(answer, Err(Error::Unreachable { .. })));
    }
    assert!(delivery.ping().await.is_err_and(|error| error.is_transient()));

    redis.start_again().await;
    until("publishing works again", Duration::from_secs(10), async || delivery.publish(&cards).await.iter().all(Result::is_ok)).await;
    let mut taken = HashSet::new();
    while taken.len() < cards.len() {
        taken.insert(next(&mut seen, Duration::from_secs(15)).await.job_id);
    }
    closed(consumer).await;
}

#[tokio::test]
async fn a_consumer_may_start_before_redis_does() {
    let mut redis = support::OwnRedis::start().await;
    redis.stop().await;
    let delivery = delivery(&redis.url(), "early");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    assert!(delivery.ping().await.is_err());
    redis.start_again().await;
    let card = card(job());
    until("publishing works", Duration::from_secs(10), async || delivery.publish(&[card]).await[0].is_ok()).await;
    assert_eq!(next(&mut seen, Duration::from_secs(10)).await.job_id, card.job_id);
    closed(consumer).await;
}

#[tokio::test]
async fn a_redis_that_hangs_costs_every_caller_its_deadline_and_no_more() {
    let redis = support::OwnRedis::start().await;
    let delivery = delivery(&redis.url(), "hanging");
    let card = card(job());
    published(&delivery, &[card]).await;
    redis.freeze();
    let started = Instant::now();
    // More callers than connections: the queue for a connection counts too.
    let calls = (0..40).map(|_| async { delivery.standing(&[(card.job_id, 1)]).await });
    for answer in futures::future::join_all(calls).await {
        assert!(matches!(answer, Err(Error::Unreachable { .. })));
    }
    assert!(started.elapsed() < CALL + Duration::from_millis(500), "{:?}", started.elapsed());
    redis.thaw();
    until("calls work again", SOON, async || delivery.ping().await.is_ok()).await;
    // Ambiguous or not: the same batch again is safe.
    assert_eq!(published(&delivery, &[card]).await, [Published::Duplicate(Standing::Waiting)]);
}

/// Passes bytes on until told to swallow them: what a dropped NAT entry does to connections that exist.
async fn half_open_proxy(to: u16) -> (u16, watch::Sender<u32>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("listen");
    let port = listener.local_addr().expect("address").port();
    let (cut, is_cut) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let mut is_cut = is_cut.clone();
            tokio::spawn(async move {
                let born = *is_cut.borrow_and_update();
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
                tokio::select! {
                    _ = copy(&mut from_client, &mut to_server) => return,
                    _ = copy(&mut from_server, &mut to_client) => return,
                    _ = is_cut.wait_for(|cut| *cut != born) => {}
                }
                // Both ends stay open and hear nothing.
                std::future::pending::<()>().await;
                drop((from_client, to_client, from_server, to_server));
            });
        }
    });
    (port, cut)
}

#[tokio::test]
async fn connections_that_are_open_and_dead_are_replaced() {
    let redis = support::OwnRedis::start().await;
    let (port, cut) = half_open_proxy(redis.port()).await;
    let delivery = delivery(&format!("redis://127.0.0.1:{port}"), "halfopen");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(4), handler);
    published(&delivery, &cards(5)).await;
    for _ in 0..5 {
        next(&mut seen, SOON).await;
    }
    cut.send_modify(|cuts| *cuts += 1);
    let cards = cards(5);
    until("publishing works again", Duration::from_secs(8), async || delivery.publish(&cards).await.iter().all(Result::is_ok)).await;
    let mut taken = HashSet::new();
    while taken.len() < cards.len() {
        taken.insert(next(&mut seen, Duration::from_secs(25)).await.job_id);
    }
    closed(consumer).await;
}

#[tokio::test]
async fn a_full_redis_refuses_new_deliveries_and_takes_them_when_it_has_room() {
    let redis = support::OwnRedis::start().await;
    let delivery = delivery(&redis.url(), "full");
    let cards = cards(3);
    published(&delivery, &cards[..1]).await;
    let mut raw = raw(&redis.url()).await;
    let limit = async |raw: &mut redis::aio::MultiplexedConnection, bytes: &str| {
        let () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).query_async(raw).await.expect("config");
    };
    limit(&mut raw, "1000").await;
    for answer in delivery.publish(&cards).await {
        assert!(matches!(answer, Err(Error::Full { .. })), "{answer:?}");
    }
    limit(&mut raw, "0").await;
    assert_eq!(published(&delivery, &cards).await, [Published::Duplicate(Standing::Waiting), Published::New, Published::New]);
}

#[tokio::test]
async fn a_wrong_password_is_for_an_operator_and_is_never_shown() {
    let redis = support::OwnRedis::start().await;
    let mut raw = raw(&redis.url()).await;
    let () = redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right").query_async(&mut raw).await.expect("config");
    let delivery = delivery(&redis.url().replace("redis://", "redis://:wr0ng-secret@"), "denied");
    let error = delivery.ping().await.expect_err("refused");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wr0ng-secret"));
}

/// A certificate for localhost and the private authority that signed it.
fn certificates(folder: &std::path::Path) {
    let run = |arguments: &str| {
        let output = std::process::Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").expect("written");
    run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 1 -subj /CN=authority");
    run("req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost");
    run("x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 1 -extfile names");
}

#[tokio::test]
async fn a_redis_behind_tls_is_used_when_its_authority_is_named_and_refused_otherwise() {
    let folder = std::env::temp_dir().join(format!("delivery-tls-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&folder).expect("folder");
    certificates(&folder);
    let tls_port = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("port").local_addr().expect("address").port().to_string();
    let file = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let (cert, key, authority) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
    let arguments = [("--tls-port", &tls_port), ("--tls-cert-file", &cert), ("--tls-key-file", &key), ("--tls-ca-cert-file", &authority)];
    let arguments: Vec<&str> =
        arguments.into_iter().flat_map(|(name, value)| [name, value.as_str()]).chain(["--tls-auth-clients", "no"]).collect();
    let _redis = support::OwnRedis::start_with(&arguments).await;
    let pem = std::fs::read(&authority).expect("ca.pem");
    std::fs::remove_dir_all(&folder).expect("removed");

    let mut settings = holdfast::config::Queue::at(format!("rediss://localhost:{tls_port}"));
    settings.prefix = "tls".to_owned();
    let delivery = Arc::new(holdfast::delivery::Delivery::connect_trusting(&settings, "test", Some(pem)).expect("settings"));
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    let card = card(job());
    until("publishing works", SOON, async || delivery.publish(&[card]).await[0].is_ok()).await;
    assert_eq!(next(&mut seen, SOON).await.job_id, card.job_id);
    closed(consumer).await;

    let untrusting = holdfast::delivery::Delivery::connect(&settings, "test").expect("settings");
    assert!(untrusting.ping().await.is_err());
}
