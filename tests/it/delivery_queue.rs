//! The delivery plane against a real Redis: what is published is taken once, in order, when due.

use crate::{delivery_common::*, support};
use holdfast::delivery::{Card, Counts, Error, Published, Settle, Standing, delivery_id};
use redis::AsyncCommands;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn publishing_a_delivery_again_makes_no_second_record() {
    let delivery = fresh();
    let (one, other) = (card(job()), card(job()));
    assert_eq!(published(&delivery, &[one, one, other]).await, [Published::New, Published::Duplicate(Standing::Waiting), Published::New]);
    assert_eq!(published(&delivery, &[one]).await, [Published::Duplicate(Standing::Waiting)]);
    assert_eq!(delivery.counts().await.expect("counts"), Counts { prioritized: 2, ..Counts::default() });

    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(4), handler);
    let taken: HashSet<_> = [next(&mut seen, SOON).await.job_id, next(&mut seen, SOON).await.job_id].into();
    assert_eq!(taken, [one.job_id, other.job_id].into());
    until_standing(&delivery, one, Standing::Finished).await;
    until_standing(&delivery, other, Standing::Finished).await;
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn urgent_work_goes_first_and_equals_keep_their_order() {
    let delivery = fresh();
    let priorities = [50, 100, 50, 1, 100, 1, 50];
    let cards: Vec<Card> = priorities.iter().map(|&priority| Card { priority, ..card(job()) }).collect();
    published(&delivery, &cards).await;
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    for expected in [3, 5, 0, 2, 6, 1, 4] {
        assert_eq!(next(&mut seen, SOON).await.job_id, cards[expected].job_id);
    }
    closed(consumer).await;
}

#[tokio::test]
async fn delayed_work_is_taken_when_due_by_an_idle_consumer() {
    let delivery = fresh();
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    let late = Card { delay: Duration::from_millis(1500), ..card(job()) };
    let started = Instant::now();
    published(&delivery, &[late]).await;
    assert_eq!(standing(&delivery, late).await, Standing::Delayed);
    assert_eq!(next(&mut seen, SOON).await.job_id, late.job_id);
    let waited = started.elapsed();
    assert!(waited >= late.delay && waited < late.delay + Duration::from_secs(1), "{waited:?}");
    closed(consumer).await;
}

#[tokio::test]
async fn a_terminal_record_swallows_its_id_and_says_so_and_the_next_generation_runs() {
    let delivery = fresh();
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    let first = card(job());
    published(&delivery, &[first]).await;
    next(&mut seen, SOON).await;
    until_standing(&delivery, first, Standing::Finished).await;
    assert_eq!(published(&delivery, &[first]).await, [Published::Duplicate(Standing::Finished)]);

    let second = Card { generation: 2, ..first };
    assert_eq!(published(&delivery, &[second]).await, [Published::New]);
    let again = next(&mut seen, SOON).await;
    assert_eq!((again.job_id, again.generation), (second.job_id, 2));
    until_standing(&delivery, second, Standing::Finished).await;
    assert_eq!(standing(&delivery, first).await, Standing::Finished);
    closed(consumer).await;
}

#[tokio::test]
async fn a_delivery_settled_for_later_comes_again_and_one_settled_as_failed_does_not() {
    let delivery = fresh();
    let handler = handler(|delivered| async move {
        if delivered.attempts_started == 1 { Settle::Later(Duration::from_millis(700)) } else { Settle::Failed("no use".into()) }
    });
    let consumer = delivery.consume(options(1), handler);
    let started = Instant::now();
    let card = card(job());
    published(&delivery, &[card]).await;
    until_standing(&delivery, card, Standing::Delayed).await;
    until_standing(&delivery, card, Standing::Finished).await;
    assert!(started.elapsed() >= Duration::from_millis(700));
    assert_eq!(delivery.counts().await.expect("counts"), Counts { failed: 1, ..Counts::default() });
    closed(consumer).await;
}

#[tokio::test]
async fn an_orphan_is_told_and_healed_and_nothing_else_is_ever_removed() {
    let (url, prefix) = support::redis_url_and_prefix();
    let delivery = delivery(&url, &prefix);
    let (orphan, waiting) = (card(job()), card(job()));
    published(&delivery, &[orphan, waiting]).await;
    let id = delivery_id(orphan.job_id, 1);
    let () = raw(&url).await.zrem(format!("{prefix}:jobs:prioritized"), &id).await.expect("zrem");

    assert_eq!(published(&delivery, &[orphan]).await, [Published::Duplicate(Standing::Orphan)]);
    let ids = [(orphan.job_id, 1), (waiting.job_id, 1), (job(), 1)];
    assert_eq!(delivery.standing(&ids).await.expect("standing"), [Standing::Orphan, Standing::Waiting, Standing::Absent]);
    for (job, healed) in [(waiting.job_id, false), (job(), false), (orphan.job_id, true), (orphan.job_id, false)] {
        assert_eq!(delivery.heal_orphan(job, 1).await.expect("healed"), healed);
    }
    assert_eq!(standing(&delivery, waiting).await, Standing::Waiting);
    assert_eq!(published(&delivery, &[orphan]).await, [Published::New]);
}

#[tokio::test]
async fn two_prefixes_on_one_redis_never_meet() {
    let (mine, theirs) = (fresh(), fresh());
    let (handler, mut seen) = recorder();
    let consumer = theirs.consume(options(1), handler);
    let card = card(job());
    published(&mine, &[card]).await;
    published(&theirs, &cards(1)).await;
    assert_ne!(next(&mut seen, SOON).await.job_id, card.job_id);
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
    assert_eq!(standing(&mine, card).await, Standing::Waiting);
    assert_eq!(standing(&theirs, card).await, Standing::Absent);
}

#[tokio::test]
async fn a_paused_consumer_takes_nothing_and_its_active_handler_goes_on() {
    let delivery = fresh();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let (at_gate, counter) = (gate.clone(), started.clone());
    let consumer = delivery.consume(
        options(1),
        handler(move |_| {
            let (gate, started) = (at_gate.clone(), counter.clone());
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.expect("gate").forget();
                Settle::Done
            }
        }),
    );
    let cards = cards(2);
    published(&delivery, &cards[..1]).await;
    until("the first is taken", SOON, async || started.load(Ordering::SeqCst) == 1).await;
    consumer.pause();
    published(&delivery, &cards[1..]).await;
    gate.add_permits(2);
    until_standing(&delivery, cards[0], Standing::Finished).await;
    until("nothing is active", SOON, async || consumer.active() == 0).await;
    // Another consumer would have been woken; ours is the only one, so the delivery stays.
    assert_ne!(standing(&delivery, cards[1]).await, Standing::Finished);
    assert_eq!(started.load(Ordering::SeqCst), 1);
    consumer.resume();
    until_standing(&delivery, cards[1], Standing::Finished).await;
    closed(consumer).await;
}

#[tokio::test]
async fn a_paused_queue_is_taken_by_nobody_until_it_is_resumed() {
    let delivery = fresh();
    delivery.pause_queue().await.expect("paused");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(2), handler);
    let card = card(job());
    published(&delivery, &[card]).await;
    let counts = delivery.counts().await.expect("counts");
    assert!(counts.paused && counts.ready() == 1);
    // Longer than an idle consumer waits before it looks by itself.
    assert!(tokio::time::timeout(Duration::from_millis(2500), seen.recv()).await.is_err());
    delivery.resume_queue().await.expect("resumed");
    assert_eq!(next(&mut seen, SOON).await.job_id, card.job_id);
    closed(consumer).await;
}

#[tokio::test]
async fn never_more_handlers_than_allowed() {
    let delivery = fresh();
    let (now, most, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (n, m, e) = (now.clone(), most.clone(), ended.clone());
    let consumer = delivery.consume(
        options(7),
        handler(move |_| {
            let (now, most, ended) = (n.clone(), m.clone(), e.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                ended.fetch_add(1, Ordering::SeqCst);
                Settle::Done
            }
        }),
    );
    published(&delivery, &cards(300)).await;
    until("all end", Duration::from_secs(20), async || ended.load(Ordering::SeqCst) == 300).await;
    assert_eq!(most.load(Ordering::SeqCst), 7);
    closed(consumer).await;
}

#[tokio::test]
async fn foreign_and_damaged_records_end_as_failed_and_stop_nobody() {
    let (url, prefix) = support::redis_url_and_prefix();
    let delivery = delivery(&url, &prefix);
    let mut redis = raw(&url).await;
    let mine = card(job());
    let ghost = card(job());
    published(&delivery, &[mine, ghost]).await;
    // A record without data, one of another program, one with broken JSON, one whose data name another job.
    let base = format!("{prefix}:jobs:");
    let () = redis.del(format!("{base}{}", delivery_id(ghost.job_id, 1))).await.expect("del");
    for (id, data) in [("17", r#"{"x":1}"#), ("report", "{"), (&delivery_id(job(), 1), r#"{"job":"x","generation":1}"#)] {
        let () = redis.hset_multiple(format!("{base}{id}"), &[("name", "x"), ("data", data)]).await.expect("hset");
        let () = redis.lpush(format!("{base}wait"), id).await.expect("lpush");
    }
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(1), handler);
    assert_eq!(next(&mut seen, SOON).await.job_id, mine.job_id);
    until("four failed, one completed", SOON, async || {
        delivery.counts().await.is_ok_and(|counts| counts == Counts { failed: 4, completed: 1, ..Counts::default() })
    })
    .await;
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn the_epoch_belongs_to_whoever_plants_it_first() {
    let delivery = fresh();
    assert_eq!(delivery.epoch().await.expect("epoch"), None);
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    assert_eq!(delivery.plant_epoch(first).await.expect("planted"), first);
    assert_eq!(delivery.plant_epoch(second).await.expect("planted"), first);
    assert_eq!(delivery.epoch().await.expect("epoch"), Some(first));
}

#[tokio::test]
async fn twenty_thousand_due_at_once_are_all_taken_once() {
    let delivery = fresh();
    let cards: Vec<Card> = cards(20_000).into_iter().map(|card| Card { delay: Duration::from_millis(1), ..card }).collect();
    for batch in cards.chunks(2000) {
        published(&delivery, batch).await;
    }
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(64), handler);
    let mut taken = HashSet::new();
    for _ in 0..cards.len() {
        assert!(taken.insert(next(&mut seen, Duration::from_secs(30)).await.job_id));
    }
    until("terminal records stay bounded", SOON, async || {
        delivery.counts().await.is_ok_and(|counts| counts == Counts { completed: 10_000, ..Counts::default() })
    })
    .await;
    closed(consumer).await;
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn the_oldest_waiting_delivery_is_found_behind_more_urgent_ones() {
    let delivery = fresh();
    assert_eq!(delivery.oldest_waiting_age().await.expect("age"), None);
    published(&delivery, &[Card { priority: 90, ..card(job()) }]).await;
    let oldest = Instant::now();
    until("it grows older", SOON, async || delivery.oldest_waiting_age().await.is_ok_and(|age| age > Some(Duration::from_millis(300))))
        .await;
    published(&delivery, &[Card { priority: 1, ..card(job()) }, Card { priority: 95, ..card(job()) }]).await;
    let age = delivery.oldest_waiting_age().await.expect("age").expect("some");
    assert!(age >= Duration::from_millis(300) && age <= oldest.elapsed() + Duration::from_millis(50), "{age:?}");
}

#[tokio::test]
async fn the_checks_tell_what_redis_is() {
    let delivery = fresh();
    delivery.ping().await.expect("ping");
    let facts = delivery.check().await.expect("facts");
    assert!(facts.is_supported() && facts.never_evicts(), "{facts:?}");
    assert_eq!((facts.append_only, facts.snapshots, facts.is_primary), (Some(false), Some(false), Some(true)));
}

#[tokio::test]
async fn a_flushed_redis_delivers_again_what_is_published_again() {
    let redis = support::OwnRedis::start().await;
    let delivery = delivery(&redis.url(), "flushed");
    let (handler, mut seen) = recorder();
    let consumer = delivery.consume(options(2), handler);
    let cards = cards(3);
    published(&delivery, &cards[..1]).await;
    next(&mut seen, SOON).await;
    delivery.plant_epoch(Uuid::now_v7()).await.expect("planted");
    published(&delivery, &[Card { delay: Duration::from_secs(3600), ..cards[1] }]).await;

    let mut raw = raw(&redis.url()).await;
    let () = redis::cmd("FLUSHALL").query_async(&mut raw).await.expect("flushed");
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut raw).await.expect("flushed");

    assert_eq!(delivery.epoch().await.expect("epoch"), None);
    assert_eq!(standing(&delivery, cards[1]).await, Standing::Absent);
    assert_eq!(published(&delivery, &cards[1..]).await, [Published::New, Published::New]);
    let again: HashSet<_> = [next(&mut seen, SOON).await.job_id, next(&mut seen, SOON).await.job_id].into();
    assert_eq!(again, [cards[1].job_id, cards[2].job_id].into());
    closed(consumer).await;
}

#[tokio::test]
async fn a_prefix_that_would_blur_the_keys_is_refused() {
    let mut settings = holdfast::config::Queue::at("redis://127.0.0.1:1");
    settings.prefix = "a:b".to_owned();
    assert!(matches!(holdfast::delivery::Delivery::connect(&settings, "test"), Err(Error::Configuration(_))));
}
