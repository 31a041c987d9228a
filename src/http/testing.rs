//! A public listener over doors that tests open and close, without Postgres.

use super::*;
use crate::clock::ManualClock;
use crate::domain::api_key;
use crate::store::jobs::DeliveryView;
use crate::store::keys::LiveKey;
use chrono::{DateTime, Utc};
use entity::states::JobKind;
use entity::values::{Address, Wei};
use std::collections::HashMap;
use std::sync::Mutex;

const START: &str = "2030-01-02T03:04:05.678901Z";

/// What the doors remember, and how they fail.
#[derive(Default)]
pub struct Behind {
    pub jobs: Vec<JobView>,
    keys: HashMap<(String, String), (JobId, entity::values::Hash)>,
    pub commits: usize,
    pub refuse: Option<intake::Error>,
    pub away: Option<store::Error>,
    pub cancelled: Option<Cancelled>,
}

pub struct Stage {
    pub public: Public,
    pub behind: Arc<Mutex<Behind>>,
    /// Of project alpha.
    pub key: String,
    /// Of project beta.
    pub other: String,
}

pub fn view(id: JobId, project: &str, state: JobState) -> JobView {
    let at: DateTime<Utc> = START.parse().unwrap();
    JobView {
        id,
        project: project.into(),
        kind: JobKind::ContractCall,
        state,
        version: 1,
        chain_id: 31337,
        pool: "local:relayer".into(),
        to: Address([0x35; 20]),
        value: Wei::ZERO,
        priority: 50,
        attempts: 0,
        run_at: at,
        metadata: None,
        cancel_asked_at: None,
        error: None,
        created_at: at,
        updated_at: at,
        finished_at: None,
        delivery: DeliveryView { generation: 1, deliver_at: at, next_at: None, published_at: None },
        transaction: None,
    }
}

impl Behind {
    fn accept(&mut self, one: &Submission) -> Accepted {
        let slot = (one.project.clone(), one.key.clone());
        match self.keys.get(&slot) {
            Some((id, fingerprint)) if *fingerprint == one.fingerprint => Accepted::Replayed(*id),
            Some(_) => Accepted::Mismatch,
            None => {
                self.keys.insert(slot, (one.id, one.fingerprint));
                let metadata = one.job.metadata.as_deref().map(|text| serde_json::from_str(text).unwrap());
                let priority = one.job.priority;
                self.jobs.push(JobView { metadata, priority, ..view(one.id, &one.project, JobState::Queued) });
                Accepted::New(one.id)
            }
        }
    }
}

/// A door whose answers come from what is behind it.
fn door<I: Send + 'static, O: Send + 'static>(
    behind: &Arc<Mutex<Behind>>,
    answer: impl Fn(&mut Behind, I) -> O + Send + Sync + 'static,
) -> Door<I, O> {
    let behind = Arc::clone(behind);
    Door::new(move |question| std::future::ready(answer(&mut behind.lock().unwrap(), question)))
}

pub fn stage() -> Stage {
    let behind = Arc::new(Mutex::new(Behind::default()));
    let (alpha, beta) = (api_key::mint("live").unwrap(), api_key::mint("live").unwrap());
    let (key, other) = (alpha.plaintext.to_string(), beta.plaintext.to_string());
    let live =
        [("alpha", alpha), ("beta", beta)].map(|(project, key)| (key.id, LiveKey { project: project.into(), secret_hash: key.hash }));
    let away = |behind: &Behind| behind.away.clone().map_or(Ok(()), Err);
    let public = Public {
        keys: Keys::new(Door::new(move |asked: String| {
            let key = live.iter().find(|(id, _)| *id == asked).map(|(_, key)| key.clone());
            async move { Ok(key) }
        })),
        intake: door(&behind, |behind, submissions: Vec<Submission>| {
            if let Some(error) = behind.refuse.clone() {
                return Err(error);
            }
            behind.commits += 1;
            Ok(submissions.iter().map(|one| Ok(behind.accept(one))).collect())
        }),
        find: door(&behind, move |behind, (id, project): (JobId, String)| {
            away(behind)?;
            Ok(behind.jobs.iter().find(|job| job.id == id && job.project == project).cloned())
        }),
        list: door(&behind, move |behind, page: ListPage| {
            away(behind)?;
            let mut jobs: Vec<_> = behind.jobs.iter().filter(|job| job.project == page.project).cloned().collect();
            jobs.retain(|job| page.state.is_none_or(|state| job.state == state) && page.before.is_none_or(|before| job.id < before));
            jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
            jobs.truncate(page.limit as usize);
            Ok(jobs)
        }),
        cancel: door(&behind, |behind, (id, project): (JobId, String)| {
            let known = behind.jobs.iter().any(|job| job.id == id && job.project == project);
            Ok(behind.cancelled.filter(|_| known).unwrap_or(Cancelled::Unknown))
        }),
        waiters: Waiters::new(
            door(&behind, |behind, ids: Vec<JobId>| {
                Ok(behind.jobs.iter().filter(|job| ids.contains(&job.id)).map(|job| (job.id, job.version)).collect())
            }),
            10,
        ),
        offer: {
            let offers = Offers::default();
            offers.set(Offer { chains: vec![31337], pools: vec![(31337, "local:relayer".into())] });
            offers
        },
        clock: Arc::new(ManualClock::new(START.parse().unwrap())),
    };
    Stage { public, behind, key, other }
}
