//! Carries: the delivery plane on Redis, in the BullMQ v6 layout. Owns every record under `{prefix}:jobs:` and decides nothing:
//! Postgres says what exists and what is due, and losing all of Redis costs latency only. Called by the queue actors and operators.

mod consumer;
mod error;
mod facts;
mod handling;
mod heal;
mod keys;
mod locks;
mod pool;
mod publish;
mod scripts;
mod sweep;

pub use consumer::{Consumer, Options};
pub use error::Error;
pub use facts::{Counts, Facts};
pub use handling::{Delivered, Handler, Settle};
pub use keys::{delivery_id, parse_delivery_id};
pub use pool::Pool;
pub use publish::{Card, Published, Standing};

use crate::config;
use bullmq::options::{RedisConnectionOptions, TlsCerts};
use entity::ids::JobId;
use keys::Keys;
use redis::{Pipeline, Value};
use secrecy::{ExposeSecret, SecretString};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// The queue of one deployment. Every call ends within 3 s, whatever Redis does, and may be repeated after any error.
pub struct Delivery {
    pool: Pool,
    keys: Keys,
    url: SecretString,
    prefix: String,
    instance: String,
    /// PEM of the authority that signed Redis' certificate; the public ones when absent.
    authority: Option<Vec<u8>>,
}

impl Delivery {
    /// Connects to nothing yet, so it needs no Redis; it needs the runtime that will outlive it.
    pub fn connect(settings: &config::Queue, instance: &str) -> Result<Self, Error> {
        Self::connect_trusting(settings, instance, None)
    }

    /// The same for a `rediss://` whose certificate a private authority signed, named by its PEM. The queue crate makes the Redis
    /// client ignore the trust store of the system, so there is no other way to make it known.
    pub fn connect_trusting(settings: &config::Queue, instance: &str, authority: Option<Vec<u8>>) -> Result<Self, Error> {
        if settings.prefix.is_empty() || settings.prefix.contains(':') {
            return Err(Error::Configuration("QUEUE_PREFIX is empty or contains a colon"));
        }
        Ok(Self {
            pool: Pool::new(settings.url.expose_secret(), authority.clone())?,
            keys: Keys::new(&settings.prefix),
            url: settings.url.clone(),
            prefix: settings.prefix.clone(),
            instance: instance.to_owned(),
            authority,
        })
    }

    /// For the other uses of Redis (counters, stream). No blocking command may go through it.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// One answer per card, in order, in one round trip. Send the whole batch again after any error.
    pub async fn publish(&self, cards: &[Card]) -> Vec<Result<Published, Error>> {
        publish::publish(&self.pool, &self.keys, cards).await
    }

    /// One answer per id, in order, in one round trip.
    pub async fn standing(&self, ids: &[(JobId, i32)]) -> Result<Vec<Standing>, Error> {
        publish::standing(&self.pool, &self.keys, ids).await
    }

    /// For the queue reconciler: true when a leftover record was removed, so that its id can be published again.
    pub async fn heal_orphan(&self, job: JobId, generation: i32) -> Result<bool, Error> {
        heal::heal_orphan(&self.pool, &self.keys, job, generation).await
    }

    /// Which data set Redis holds; `None` when it lost it.
    pub async fn epoch(&self) -> Result<Option<Uuid>, Error> {
        facts::epoch(&self.pool, &self.keys).await
    }

    /// Marks an unmarked data set. The answer is the epoch that it has now.
    pub async fn plant_epoch(&self, epoch: Uuid) -> Result<Uuid, Error> {
        facts::plant_epoch(&self.pool, &self.keys, epoch).await
    }

    /// Begins to take deliveries. Works also while Redis is away: it begins when Redis comes.
    #[must_use]
    pub fn consume(self: &Arc<Self>, mut options: Options, handler: Handler) -> Consumer {
        if options.name.is_empty() {
            options.name.clone_from(&self.instance);
        }
        Consumer::start(Arc::clone(self), &options, handler)
    }

    /// Stops intake by every consumer; active handlers go on. Lost with Redis.
    pub async fn pause_queue(&self) -> Result<(), Error> {
        facts::set_paused(&self.pool, &self.keys, true).await
    }

    pub async fn resume_queue(&self) -> Result<(), Error> {
        facts::set_paused(&self.pool, &self.keys, false).await
    }

    pub async fn counts(&self) -> Result<Counts, Error> {
        facts::counts(&self.pool, &self.keys).await
    }

    /// For how long the longest waiting delivery has been due; `None` when none waits.
    pub async fn oldest_waiting_age(&self) -> Result<Option<Duration>, Error> {
        facts::oldest_waiting_age(&self.pool, &self.keys).await
    }

    pub async fn check(&self) -> Result<Facts, Error> {
        facts::check(&self.pool).await
    }

    pub async fn ping(&self) -> Result<(), Error> {
        facts::ping(&self.pool).await
    }

    async fn is_overdue(&self, patience: Duration) -> Result<bool, Error> {
        facts::is_overdue(&self.pool, &self.keys, patience).await
    }

    /// The clock of Redis, in milliseconds of the epoch.
    async fn now_millis(&self) -> Result<u64, Error> {
        facts::now_millis(&self.pool).await
    }

    /// Wakes one idle consumer of this queue.
    async fn wake(&self) -> Result<(), Error> {
        let mut pipeline = Pipeline::new();
        pipeline.ignore_errors().cmd("ZADD").arg(self.keys.of("marker")).arg(0).arg("0");
        let reply = self.pool.send("wake", &pipeline).await?.pop().unwrap_or(Value::Nil);
        scripts::accepted("wake", reply).map(|_| ())
    }

    /// How the queue crate's own connections reach Redis.
    fn worker_connection(&self) -> RedisConnectionOptions {
        let options = RedisConnectionOptions::new().url(self.url.expose_secret());
        match &self.authority {
            Some(pem) => options.tls_certs(TlsCerts { root_cert: Some(pem.clone()), ..TlsCerts::default() }),
            None => options,
        }
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// How many calls a Redis has answered that crossed the network; for `holdfast bench` alone.
///
/// # Errors
/// See [`Error`].
pub async fn round_trips(url: &SecretString) -> Result<f64, Error> {
    facts::round_trips(&Pool::new(url.expose_secret(), None)?).await
}
