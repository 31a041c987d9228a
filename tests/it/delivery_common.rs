//! What the tests of the delivery plane share.

use entity::ids::JobId;
use futures::FutureExt;
use holdfast::{
    config,
    delivery::{Card, Consumer, Delivered, Delivery, Handler, Options, Published, Settle, Standing},
};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;
use uuid::Uuid;

pub fn delivery(url: &str, prefix: &str) -> Arc<Delivery> {
    let mut settings = config::Queue::at(url);
    settings.prefix = prefix.to_owned();
    Arc::new(Delivery::connect(&settings, "test").expect("usable settings"))
}

/// A queue of its own on the shared Redis.
pub fn fresh() -> Arc<Delivery> {
    let (url, prefix) = crate::support::redis_url_and_prefix();
    delivery(&url, &prefix)
}

pub fn job() -> JobId {
    JobId(Uuid::now_v7())
}

pub fn card(job_id: JobId) -> Card {
    Card { job_id, generation: 1, priority: 50, delay: Duration::ZERO }
}

pub fn cards(number: usize) -> Vec<Card> {
    (0..number).map(|_| card(job())).collect()
}

pub async fn published(delivery: &Delivery, cards: &[Card]) -> Vec<Published> {
    delivery.publish(cards).await.into_iter().map(|answer| answer.expect("published")).collect()
}

pub async fn standing(delivery: &Delivery, card: Card) -> Standing {
    delivery.standing(&[(card.job_id, card.generation)]).await.expect("standing")[0]
}

pub fn options(concurrency: usize) -> Options {
    Options { concurrency, lock: Duration::from_secs(5), name: "worker".to_owned() }
}

pub fn handler<F, Fut>(work: F) -> Handler
where
    F: Fn(Delivered) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Settle> + Send + 'static,
{
    Arc::new(move |delivered| work(delivered).boxed())
}

/// Settles everything at once and tells what it saw.
pub fn recorder() -> (Handler, mpsc::UnboundedReceiver<Delivered>) {
    let (seen, receiver) = mpsc::unbounded_channel();
    let handler = handler(move |delivered| {
        let _ = seen.send(delivered);
        async { Settle::Done }
    });
    (handler, receiver)
}

/// Tells what it saw and never ends.
pub fn stuck() -> (Handler, mpsc::UnboundedReceiver<Delivered>) {
    let (seen, receiver) = mpsc::unbounded_channel();
    let handler = handler(move |delivered| {
        let _ = seen.send(delivered);
        std::future::pending()
    });
    (handler, receiver)
}

pub async fn next(seen: &mut mpsc::UnboundedReceiver<Delivered>, within: Duration) -> Delivered {
    tokio::time::timeout(within, seen.recv()).await.expect("a delivery in time").expect("a running consumer")
}

pub async fn until<F, Fut>(what: &str, within: Duration, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn until_standing(delivery: &Delivery, card: Card, expected: Standing) {
    until(&format!("{expected:?}"), Duration::from_secs(10), async || {
        delivery.standing(&[(card.job_id, card.generation)]).await.is_ok_and(|standing| standing[0] == expected)
    })
    .await;
}

pub async fn closed(consumer: Consumer) {
    assert!(consumer.close(Duration::from_secs(10)).await, "handlers did not finish");
}

/// A raw connection, to do to Redis what others may do.
pub async fn raw(url: &str) -> redis::aio::MultiplexedConnection {
    redis::Client::open(url).expect("url").get_multiplexed_async_connection().await.expect("redis")
}
