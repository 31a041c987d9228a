use super::*;
use entity::ids::{LaneId, WorkerId};
use entity::states::WorkerState;
use entity::values::Address;
use uuid::Uuid;

fn quiet() -> Seen {
    Seen {
        figures: Figures::default(),
        lanes: vec![lane(LaneState::Active, None)],
        workers: vec![worker(true, 0)],
        heads: vec![],
        schema: Comparison { expected: 1, found: Some(1), differences: vec![] },
    }
}

fn lane(state: LaneState, oldest: Option<u64>) -> Lane {
    Lane {
        id: LaneId(1),
        chain_id: 31_337,
        pool: "local:relayer".into(),
        signer: Address([7; 20]),
        state,
        reason: (state == LaneState::Paused).then(|| "a stranger used nonce 5".into()),
        next_nonce: 9,
        latest_nonce: 5,
        settled_nonce: 5,
        width: 16,
        delegated: false,
        free: 12,
        open: 4,
        unsigned: 0,
        oldest_open_seconds: oldest,
    }
}

fn worker(live: bool, processing: i32) -> Worker {
    Worker {
        id: WorkerId(Uuid::nil()),
        instance: "relayer-1".into(),
        role: "relayer".into(),
        version: "0.1.0".into(),
        state: if live { WorkerState::Active } else { WorkerState::Stale },
        live,
        silent: false,
        processing,
        pool_size: 10,
        started_at: chrono::DateTime::UNIX_EPOCH,
        heartbeat_at: chrono::DateTime::UNIX_EPOCH,
        heartbeat_age_seconds: 90,
    }
}

#[test]
fn nothing_is_found_where_all_is_well() {
    let overview = summary(quiet(), &Limits::default());
    assert_eq!(overview.findings, []);
    assert_eq!((overview.lanes.active, overview.workers.live), (1, 1));
}

#[test]
fn what_stops_work_comes_before_what_only_needs_a_look() {
    let mut seen = quiet();
    seen.figures.jobs = vec![(JobState::Dead, 2), (JobState::Queued, 3)];
    seen.lanes = vec![lane(LaneState::Active, Some(600)), lane(LaneState::Paused, Some(10))];
    seen.workers = vec![worker(false, 4)];
    let findings = summary(seen, &Limits::default()).findings;
    let told: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.what.as_str())).collect();
    let signer = crate::domain::encoding::checksummed(&Address([7; 20]));
    assert_eq!(
        told,
        [
            (Severity::Critical, "3 open jobs and no live worker"),
            (Severity::Critical, &*format!("lane {signer} on chain 31337 is paused with 4 open nonces: a stranger used nonce 5")),
            (Severity::Warning, &*format!("lane {signer} on chain 31337: its oldest open nonce is 10m old, 4 wait in all")),
            (Severity::Warning, "2 jobs are dead and wait for somebody's decision"),
            (Severity::Warning, "worker relayer-1 is silent for 1m30s and held 4 jobs"),
        ]
    );
    assert_eq!(findings[1].next, format!("holdfast lanes explain {signer}"));
    assert_eq!(findings[3].next, "holdfast jobs list --state dead");
}

#[test]
fn work_that_nobody_fetches_is_found_by_its_age() {
    let mut seen = quiet();
    seen.figures.outbox_pending = 12;
    seen.figures.oldest_outbox = Some(Duration::from_secs(100));
    seen.figures.oldest_ready = Some(Duration::from_secs(59));
    let findings = summary(seen, &Limits::default()).findings;
    assert_eq!(findings.len(), 1);
    assert!(findings[0].what.starts_with("12 deliveries are not published, the oldest for 1m40s"), "{}", findings[0].what);
}

#[test]
fn without_a_schema_there_is_one_finding_and_one_command() {
    let mut seen = quiet();
    seen.figures.jobs = vec![(JobState::Queued, 1)];
    seen.schema = Comparison { expected: 1, found: None, differences: vec!["migration 1 (coordination) is not applied".into()] };
    let findings = summary(seen, &Limits::default()).findings;
    assert_eq!(findings.iter().map(|finding| finding.next.as_str()).collect::<Vec<_>>(), ["holdfast db migrate"]);
}
