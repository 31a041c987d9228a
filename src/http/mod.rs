//! Answers what is asked from outside: the public API on one listener; health, metrics and the operators' API on another.
//! Never writes: what changes something goes through an actor or an operator act. One folder a noun, one file a verb. Started by `app`.

mod access;
pub mod admin;
mod auth;
mod body;
mod door;
mod health;
mod jobs;
pub mod openapi;
mod problem;
mod readiness;
mod routes;
mod server;
mod waiters;

pub use access::RequestId;
pub use body::Json;
pub use door::Door;
pub use problem::{Kind, Problem, ProblemBody};
pub use readiness::{Check, Readiness, ReadinessBoard};
pub use server::{Admin, Configure, Listening, admin_server, public_server};
pub use waiters::Waiters;

use crate::actors::intake;
use crate::clock::Clock;
use crate::operator::{self, Desk};
use crate::store::intake::{Accepted, Submission};
use crate::store::jobs::{Cancelled, JobView};
use crate::store::{self, Reader};
use auth::Keys;
use entity::ids::JobId;
use entity::states::JobState;
use std::sync::{Arc, PoisonError, RwLock};

/// Most callers of this process that may wait in long polls.
const WAITERS: usize = 1_000;

/// What jobs may refer to.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub chains: Vec<i64>,
    /// Chain and name.
    pub pools: Vec<(i64, String)>,
}

/// The newest offer: pools come and go while the process runs.
#[derive(Clone, Debug, Default)]
pub struct Offers(Arc<RwLock<Arc<Offer>>>);

impl Offers {
    #[must_use]
    pub fn get(&self) -> Arc<Offer> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, offer: Offer) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(offer);
    }
}

/// One page of a project's jobs, newest first.
#[derive(Clone, Debug)]
pub struct ListPage {
    pub project: String,
    pub state: Option<JobState>,
    pub before: Option<JobId>,
    pub limit: u32,
}

type Submitted = Result<Vec<Result<Accepted, intake::Error>>, intake::Error>;

/// What the public listener serves from.
#[derive(Clone, Debug)]
pub struct Public {
    keys: Keys,
    intake: Door<Vec<Submission>, Submitted>,
    find: Door<(JobId, String), Result<Option<JobView>, store::Error>>,
    list: Door<ListPage, Result<Vec<JobView>, store::Error>>,
    cancel: Door<(JobId, String), Result<Cancelled, operator::Error>>,
    waiters: Waiters,
    offer: Offers,
    clock: Arc<dyn Clock>,
}

impl Public {
    /// `app` also has to run the task of [`Public::waiters`].
    #[must_use]
    pub fn new(reader: &Reader, intake: intake::Handle, desk: Desk, offer: Offers, clock: Arc<dyn Clock>) -> Self {
        let (keys, find, list, versions) = (reader.clone(), reader.clone(), reader.clone(), reader.clone());
        Self {
            keys: Keys::new(Door::new(move |id: String| {
                let reader = keys.clone();
                async move { store::keys::live(&reader, &id).await }
            })),
            intake: Door::new(move |submissions| {
                let intake = intake.clone();
                async move { intake.submit(submissions).await }
            }),
            find: Door::new(move |(job, project): (JobId, String)| {
                let reader = find.clone();
                async move { Ok(store::jobs::by_ids(&reader, &[job], Some(&project)).await?.pop()) }
            }),
            list: Door::new(move |page: ListPage| {
                let reader = list.clone();
                async move {
                    let ListPage { project, state, before, limit } = page;
                    store::jobs::list(&reader, &store::jobs::Page { project: Some(&project), state, before, limit }).await
                }
            }),
            cancel: Door::new(move |(job, project): (JobId, String)| {
                let desk = desk.clone();
                async move { operator::cancel::cancel(&desk, job, Some(&project), None).await }
            }),
            waiters: Waiters::new(
                Door::new(move |jobs: Vec<JobId>| {
                    let reader = versions.clone();
                    async move { store::jobs::versions(&reader, &jobs).await }
                }),
                WAITERS,
            ),
            offer,
            clock,
        }
    }

    /// The long polls, whose task `app` runs until the process stops: `tokio::spawn(public.waiters().run(token.cancelled_owned()))`.
    #[must_use]
    pub fn waiters(&self) -> Waiters {
        self.waiters.clone()
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
