//! The bb8 pool of Redis connections: everything except the queue crate's own two connections per consumer goes through here.
//! Every call has one deadline that covers waiting, connecting and the reply. Never used for a blocking command.

use super::error::Error;
use crate::telemetry::metrics::{REDIS_CALL_SECONDS, REDIS_CALLS, REDIS_ERRORS};
use bb8_redis::bb8;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, TlsCertificates, Value, aio::MultiplexedConnection};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::Semaphore, time::timeout};

/// The whole of one call, queueing included.
const DEADLINE: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(2);
/// A connection idle for longer is pinged before it is used, so that one cut while idle costs no caller an error.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
const PING: Duration = Duration::from_millis(700);
const SIZE: u32 = 8;

/// One connection. `suspect` is set while a call is under way and cleared by a full reply, so a call that was cut off by its
/// deadline, or dropped, takes the connection with it instead of leaving a late reply for the next user.
pub struct Link {
    connection: MultiplexedConnection,
    suspect: bool,
    used: Instant,
}

struct Manager {
    client: Client,
}

impl bb8::ManageConnection for Manager {
    type Connection = Link;
    type Error = RedisError;

    async fn connect(&self) -> Result<Link, RedisError> {
        // The default response timeout of 500 ms turns a slow script into an error although the write happened.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(DEADLINE));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Link { connection, suspect: false, used: Instant::now() })
    }

    async fn is_valid(&self, link: &mut Link) -> Result<(), RedisError> {
        if link.used.elapsed() < TRUSTED_IDLE {
            return Ok(());
        }
        match timeout(PING, redis::cmd("PING").query_async::<String>(&mut link.connection)).await {
            Ok(answer) => answer.map(|_| ()),
            Err(_) => Err((redis::ErrorKind::Io, "no reply to a ping").into()),
        }
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        link.suspect
    }
}

/// Why connecting failed last, for a caller who otherwise only sees the pool's timeout.
#[derive(Clone, Debug, Default)]
struct LastFault(Arc<Mutex<Option<RedisError>>>);

impl bb8::ErrorSink<RedisError> for LastFault {
    fn sink(&self, error: RedisError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<RedisError>> {
        Box::new(self.clone())
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    inner: bb8::Pool<Manager>,
    /// bb8 hands connections to whoever polls first; this queue makes it first come, first served.
    turn: Arc<Semaphore>,
    last_fault: LastFault,
}

impl Pool {
    /// Opens nothing yet: a Redis that is down at start is an error of the first call, not of the start.
    pub fn new(url: &str, authority: Option<Vec<u8>>) -> Result<Self, Error> {
        let client = match authority {
            Some(pem) => Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert: Some(pem) }),
            None => Client::open(url),
        };
        let client = client.map_err(|_| Error::Configuration("REDIS_URL is not a Redis URL, or the certificate is no PEM"))?;
        let last_fault = LastFault::default();
        let inner = bb8::Pool::builder()
            .max_size(SIZE)
            .connection_timeout(CONNECT)
            .idle_timeout(Some(Duration::from_secs(60)))
            .error_sink(Box::new(last_fault.clone()))
            .build_unchecked(Manager { client });
        Ok(Self { inner, turn: Arc::new(Semaphore::new(SIZE as usize)), last_fault })
    }

    /// Sends the whole pipeline in one round trip; the replies keep their order, a refused command is a `Value::ServerError`.
    pub async fn send(&self, call: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
        let started = Instant::now();
        let outcome = match timeout(DEADLINE, self.exchange(call, pipeline)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::timed_out(call)),
        };
        REDIS_CALLS.add(1, &[call]);
        REDIS_CALL_SECONDS.record(started.elapsed().as_secs_f64(), &[call]);
        if let Err(error) = &outcome {
            REDIS_ERRORS.add(1, &[call, error.kind()]);
        }
        outcome
    }

    async fn exchange(&self, call: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
        let Ok(_turn) = self.turn.acquire().await else {
            return Err(Error::timed_out(call));
        };
        let mut link = match self.inner.get().await {
            Ok(link) => link,
            Err(bb8::RunError::User(error)) => return Err(Error::from_redis(call, &error)),
            Err(bb8::RunError::TimedOut) => return Err(self.why_no_connection(call)),
        };
        link.suspect = true;
        let outcome = pipeline.query_async::<Vec<Value>>(&mut link.connection).await;
        // An error reply is still a full reply; anything else leaves the stream in an unknown place.
        link.suspect = outcome.as_ref().is_err_and(|error| !matches!(error.kind(), redis::ErrorKind::Server(_)));
        link.used = Instant::now();
        outcome.map_err(|error| Error::from_redis(call, &error))
    }

    fn why_no_connection(&self, call: &'static str) -> Error {
        let fault = self.last_fault.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or_else(|| Error::timed_out(call), |error| Error::from_redis(call, &error))
    }
}
