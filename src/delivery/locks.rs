//! Keeps the locks of the deliveries that this process works on, and tells the handler when one is lost. Renews all of them in one
//! call every third of the lock. Called by `handling.rs` (holds) and `consumer.rs` (runs the loop).

use super::{
    error::Error,
    keys::Keys,
    pool::Pool,
    scripts::{self, Invocation},
};
use crate::telemetry::metrics::{QUEUE_LOCKS_LOST, QUEUE_RENEWAL_LAG};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const LOCKS_PER_CALL: usize = 500;

struct Held {
    id: String,
    token: String,
    /// After this the lock may be another's, whatever we could or could not ask.
    until: Instant,
    lost: CancellationToken,
}

/// The locks of one consumer.
pub struct Locks {
    lock: Duration,
    held: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// One id may be here twice for a moment: lost, and taken again by this very process.
    by_ticket: HashMap<u64, Held>,
    next_ticket: u64,
}

/// Dropping it stops the renewal.
pub struct Hold {
    locks: Arc<Locks>,
    ticket: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.locks.book().by_ticket.remove(&self.ticket);
    }
}

impl Locks {
    pub fn new(lock: Duration) -> Arc<Self> {
        Arc::new(Self { lock, held: Mutex::default() })
    }

    /// Begins to renew the lock of a delivery that was just taken; `lost` is cancelled when it is gone.
    pub fn hold(self: &Arc<Self>, id: &str, token: &str, lost: CancellationToken) -> Hold {
        let mut book = self.book();
        let ticket = book.next_ticket;
        book.next_ticket += 1;
        // The lock began some time before its reply reached us, so the first term is counted short.
        let until = Instant::now() + self.lock * 2 / 3;
        book.by_ticket.insert(ticket, Held { id: id.to_owned(), token: token.to_owned(), until, lost });
        Hold { locks: Arc::clone(self), ticket }
    }

    /// Renews until dropped.
    pub async fn keep(self: Arc<Self>, pool: Pool, keys: Keys) {
        let term = self.lock / 3;
        let hurry = (self.lock / 12).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let mut last = Instant::now();
        loop {
            let renewed = self.renew(&pool, &keys).await;
            // While renewing fails this grows, up to the moment when locks are given up.
            QUEUE_RENEWAL_LAG.record(last.elapsed().saturating_sub(term).as_secs_f64(), &[]);
            if renewed.is_ok() {
                last = Instant::now();
            }
            self.drop_overdue();
            sleep(if renewed.is_ok() { term } else { hurry }).await;
            // A process that was stopped for a while learns it here before it asks anybody.
            self.drop_overdue();
        }
    }

    async fn renew(&self, pool: &Pool, keys: &Keys) -> Result<(), Error> {
        let held: Vec<(u64, String, String)> = self
            .book()
            .by_ticket
            .iter()
            .filter(|(_, held)| !held.lost.is_cancelled())
            .map(|(ticket, held)| (*ticket, held.id.clone(), held.token.clone()))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        let calls: Vec<Invocation> = held
            .chunks(LOCKS_PER_CALL)
            .map(|chunk| {
                let mut call = Invocation::default().key(keys.of("stalled")).arg(keys.base.clone()).arg(self.lock.as_millis().to_string());
                for (_, id, token) in chunk {
                    call.push(id.clone());
                    call.push(token.clone());
                }
                call
            })
            .collect();
        let asked = Instant::now();
        let replies = scripts::run(pool, "extend_locks", &scripts::EXTEND, &calls).await?;
        for (chunk, reply) in held.chunks(LOCKS_PER_CALL).zip(replies) {
            let answers: Vec<i64> = scripts::read("extend_locks", reply?)?;
            let mut book = self.book();
            for ((ticket, ..), answer) in chunk.iter().zip(answers) {
                // Settled meanwhile: then its lock is rightly gone.
                let Some(held) = book.by_ticket.get_mut(ticket) else { continue };
                if answer == 1 {
                    held.until = asked + self.lock;
                } else {
                    lose(held, "taken");
                }
            }
        }
        Ok(())
    }

    fn drop_overdue(&self) {
        let now = Instant::now();
        for held in self.book().by_ticket.values_mut() {
            if held.until <= now && !held.lost.is_cancelled() {
                lose(held, "expired");
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lose(held: &Held, why: &'static str) {
    QUEUE_LOCKS_LOST.add(1, &[why]);
    tracing::warn!(event = "lock_lost", delivery = %held.id, why, "delivery lock lost");
    held.lost.cancel();
}
