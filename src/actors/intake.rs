//! Intake: group commit of accepted work. The only caller of `store::intake`; called by the public API.

use super::{Door, DoorError, Fold, Stage, Wake};
use crate::fail;
use crate::store::intake::{Accepted, Submission};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use futures::FutureExt;
use std::sync::Arc;

/// Most submissions in one statement.
const BATCH: usize = 256;
/// Most submissions that wait for their commit; more are refused at once.
const CAPACITY: usize = 4_096;
/// Two statements at a time keep Postgres busy while one commits; more only split the batches.
const IN_FLIGHT: usize = 2;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("too many submissions wait for their commit")]
    Busy,
    #[error("the first request with this idempotency key is still in progress")]
    InProgress,
    #[error("the outcome was lost: ask again with the same idempotency key")]
    Lost,
    #[error(transparent)]
    Store(#[from] store::Error),
}

type Answer = Result<Accepted, Error>;

#[derive(Clone)]
pub struct Handle {
    door: Door<Submission, Answer>,
}

/// Starts the actor. `publisher` is woken after each commit.
#[must_use]
pub fn start(stage: &Stage, db: Db, attempts_budget: u32, publisher: Wake) -> Handle {
    let flush = move |batch: Vec<Submission>| {
        let (db, publisher) = (db.clone(), publisher.clone());
        async move {
            let answers = commit(&db, batch, attempts_budget).await;
            publisher.wake();
            answers
        }
        .boxed()
    };
    Handle { door: stage.fold(Fold::new("intake", BATCH, IN_FLIGHT, Arc::new(flush)), CAPACITY) }
}

async fn commit(db: &Db, batch: Vec<Submission>, budget: u32) -> Vec<Answer> {
    fail::point("intake.before_commit");
    let accepted = store::intake::accept(db, &batch, budget).await;
    fail::point("intake.committed");
    match accepted {
        Ok(accepted) => {
            for (one, submission) in accepted.iter().zip(&batch) {
                count(*one, submission);
            }
            accepted.into_iter().map(Ok).collect()
        }
        // One row that the schema refuses, or one key that another replica holds, must not refuse its neighbours.
        Err(store::Error::Refused(_) | store::Error::Conflict(_)) if batch.len() > 1 => {
            let mut answers = Vec::with_capacity(batch.len());
            for one in batch {
                answers.extend(Box::pin(commit(db, vec![one], budget)).await);
            }
            answers
        }
        Err(error) => {
            let error = match error {
                store::Error::Conflict(_) => Error::InProgress,
                other => Error::Store(other),
            };
            batch.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

fn count(accepted: Accepted, submission: &Submission) {
    let result = match accepted {
        Accepted::New(_) => {
            metrics::JOBS_ACCEPTED.add(1, &[submission.job.kind.as_str()]);
            "new"
        }
        Accepted::Replayed(_) => "replayed",
        Accepted::Mismatch => "mismatch",
    };
    metrics::IDEMPOTENCY.add(1, &[result]);
}

impl Handle {
    /// Commits all of them in one statement, together with whatever else waits; answers in order.
    ///
    /// # Errors
    /// `Busy` before anything was taken in, `Lost` when the answer is unknown.
    pub async fn submit(&self, submissions: Vec<Submission>) -> Result<Vec<Answer>, Error> {
        self.door.ask_many(submissions).await.map_err(|error| match error {
            DoorError::Full | DoorError::Closed => Error::Busy,
            DoorError::Lost => Error::Lost,
        })
    }

    /// Refuses new work and waits for what was taken in.
    pub async fn drain(&self) {
        self.door.drain().await;
    }

    #[must_use]
    pub fn probe(&self) -> &super::supervisor::Probe {
        self.door.probe()
    }
}
