use super::super::jobs::{Delivery, Nonce, Problem};
use super::super::ladder::Coming;
use super::*;
use chrono::TimeDelta;
use entity::ids::{ExecutionToken, LaneId, LineageId, WorkerId};
use entity::states::{AttemptOutcome, JobKind};
use entity::values::{Address, Hash, Wei};
use uuid::Uuid;

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

fn job(state: JobState) -> Job {
    let ago = NOW - TimeDelta::seconds(90);
    Job {
        id: JobId(Uuid::nil()),
        project: "dev".into(),
        kind: JobKind::ContractCall,
        state,
        chain_id: 31_337,
        pool: "local:relayer".into(),
        to: Address([1; 20]),
        value: Wei::ZERO,
        priority: 50,
        attempts: 0,
        run_at: ago,
        cancel_asked_at: None,
        error: None,
        created_at: ago,
        updated_at: ago,
        finished_at: None,
        age_seconds: 90,
        delivery: Delivery { generation: 1, deliver_at: ago, next_at: Some(NOW + TimeDelta::seconds(30)), published_at: Some(ago) },
        transaction: None,
        metadata: None,
    }
}

fn lane(state: LaneState, free: i64) -> Lane {
    Lane {
        id: LaneId(1),
        chain_id: 31_337,
        pool: "local:relayer".into(),
        signer: Address([7; 20]),
        state,
        reason: None,
        next_nonce: 16,
        latest_nonce: 0,
        settled_nonce: 0,
        width: 16,
        delegated: false,
        free,
        open: 16 - free,
        unsigned: 0,
        oldest_open_seconds: Some(5),
    }
}

fn around() -> Around {
    let executor = Executor { budget: 8, worker: None, failures: 0, now: NOW };
    Around { now: NOW, executor, live_workers: 1, lanes: vec![lane(LaneState::Active, 3)], given_back: None, newest: None }
}

fn transaction(state: LineageState) -> Transaction {
    Transaction {
        id: LineageId(Uuid::nil()),
        job: JobId(Uuid::nil()),
        chain_id: 31_337,
        signer: Address([7; 20]),
        nonce: 12,
        state,
        hash: None,
        to: Address([1; 20]),
        value: Wei::ZERO,
        gas_limit: 21_000,
        max_fee_per_gas: None,
        max_priority_fee_per_gas: None,
        attempts: 1,
        sends: 2,
        last_sent_at: None,
        last_answer: Some("accepted".into()),
        block: None,
        gas_used: None,
        effective_gas_price: None,
        created_at: NOW - TimeDelta::seconds(75),
        ended_at: None,
        replacements: 0,
        noops: 0,
        noop_reason: None,
        noop_detail: None,
        capped_at: None,
        finalized_at: None,
        age_seconds: 75,
    }
}

fn explained(transaction: Transaction, place: Option<Place>, next: &str) -> explain_tx::Explanation {
    let why = explain_tx::proven(&transaction);
    explain_tx::Explanation { transaction, place, hashes: vec![], why, next: Coming::of("send", next), then: None, fees: None }
}

#[test]
fn a_published_job_waits_for_a_worker_and_says_when_it_is_looked_at_again() {
    let (why, next) = verdict(&job(JobState::Queued), None, &around());
    assert_eq!(why, "it was accepted and no worker has taken it yet; its delivery 1 is in Redis since 1m30s");
    assert_eq!((next.at, next.command), (Some(NOW + TimeDelta::seconds(30)), None));
}

#[test]
fn a_job_that_nobody_can_take_names_the_reason_and_the_next_command() {
    let mut alone = around();
    alone.live_workers = 0;
    let (why, next) = verdict(&job(JobState::Queued), None, &alone);
    assert!(why.ends_with("and no worker is alive"), "{why}");
    assert_eq!(next.command.as_deref(), Some("holdfast workers list"));

    let mut full = around();
    let paused = Lane { reason: Some("insufficient_funds".into()), ..lane(LaneState::Paused, 0) };
    full.lanes = vec![lane(LaneState::Active, 0), paused];
    let (why, next) = verdict(&job(JobState::Queued), None, &full);
    let told = format!(
        "no lane of pool local:relayer has room; lane {signer} is full, 16 of 16 open, the oldest for 5s; lane {signer} is paused: insufficient_funds",
        signer = checksummed(&Address([7; 20]))
    );
    assert!(why.ends_with(&told), "{why}");
    // The same once an execution was given back for it, before the next is due.
    let mut given_back = job(JobState::Retry);
    given_back.attempts = 9;
    given_back.delivery.deliver_at = NOW + TimeDelta::seconds(2);
    let (why, later) = verdict(&given_back, None, &full);
    assert_eq!(why, format!("it was given back unharmed; {told}"));
    assert_eq!((later.at, &later.command), (Some(NOW + TimeDelta::seconds(2)), &next.command));
    assert_eq!(next.command, Some(format!("holdfast lanes explain {}", checksummed(&Address([7; 20])))));
}

#[test]
fn an_unpublished_delivery_and_a_later_run_are_told_apart() {
    let mut unpublished = job(JobState::Queued);
    unpublished.delivery.published_at = None;
    let mut tried = around();
    tried.executor.failures = 3;
    let (why, next) = verdict(&unpublished, None, &tried);
    assert!(why.ends_with("its delivery is due for 1m30s and not in Redis yet, 3 tries failed"), "{why}");
    assert_eq!(next.command.as_deref(), Some("holdfast doctor"));

    let mut later = job(JobState::Queued);
    later.delivery.deliver_at = NOW + TimeDelta::hours(1);
    let (_, next) = verdict(&later, None, &around());
    assert_eq!((next.action.as_str(), next.at), ("it is due at its run_at", Some(NOW + TimeDelta::hours(1))));
}

#[test]
fn a_retry_says_what_went_wrong_and_when_it_is_tried_again() {
    let mut retry = job(JobState::Retry);
    retry.attempts = 2;
    retry.error =
        Some(Problem { r#type: "rpc".into(), title: "The chain did not answer".into(), detail: Some("no answer in time".into()) });
    retry.delivery.deliver_at = NOW + TimeDelta::seconds(8);
    let (why, next) = verdict(&retry, None, &around());
    assert_eq!(why, "execution 2 ended without a transaction: no answer in time");
    assert_eq!((next.action.as_str(), next.at), ("the next execution is due", Some(NOW + TimeDelta::seconds(8))));
}

#[test]
fn an_execution_on_a_lost_worker_says_that_another_takes_over() {
    let mut lost = around();
    let mut running = job(JobState::Processing);
    running.attempts = 1;
    let worker = |state: &str| Some((WorkerId(Uuid::nil()), "relayer-1".into(), state.into(), NOW - TimeDelta::seconds(40)));
    lost.executor.worker = worker("active");
    let (why, next) = verdict(&running, None, &lost);
    assert_eq!((why.as_str(), next.command), ("execution 1 runs on worker relayer-1 (active) for 40s", None));
    lost.executor.worker = worker("stale");
    let (_, next) = verdict(&running, None, &lost);
    assert!(next.action.starts_with("that worker is gone"), "{}", next.action);
}

#[test]
fn a_submitted_job_names_its_nonce_and_leads_to_its_lane() {
    let mut sent = job(JobState::Submitted);
    sent.transaction =
        Some(Nonce { signer: Address([7; 20]), nonce: 12, state: LineageState::Broadcast, hash: None, block: Some(4), confirmations: 3 });
    let (why, next) = verdict(&sent, Some(&transaction(LineageState::Broadcast)), &around());
    let signer = checksummed(&Address([7; 20]));
    assert_eq!(
        why,
        format!("it was sent at nonce 12 of {signer} on chain 31337 for 1m15s now: sent 2 times, the last answer was accepted")
    );
    assert_eq!(
        (next.action.as_str(), next.command),
        ("it is mined and reaches TX_CONFIRMATIONS", Some(format!("holdfast lanes explain {signer}")))
    );
    let mut ahead = around();
    ahead.newest = Some(explained(transaction(LineageState::Broadcast), Some(Place::Behind), "the same bytes go again in 12s"));
    let (why, next) = verdict(&sent, Some(&transaction(LineageState::Broadcast)), &ahead);
    assert!(why.ends_with("; it waits for the nonces before it"), "{why}");
    assert_eq!(next.action, "the same bytes go again in 12s");
}

#[test]
fn a_job_whose_signer_cannot_pay_waits_for_money_and_says_how_much() {
    let mut poor =
        Transaction { last_answer: Some("insufficient_funds".into()), value: Wei::from(5), ..transaction(LineageState::Broadcast) };
    let signer = checksummed(&Address([7; 20]));
    let (why, _) = verdict(&job(JobState::Submitted), Some(&poor), &around());
    assert!(why.ends_with("the signer cannot pay, what it costs is not known"), "{why}");
    poor.max_fee_per_gas = Some(Wei::from(1_000));
    let (why, next) = verdict(&job(JobState::Submitted), Some(&poor), &around());
    assert_eq!(
        why,
        format!(
            "it waits for money at nonce 12 of {signer} on chain 31337 for 1m15s now: the signer cannot pay, it costs at most 21000005 wei"
        )
    );
    assert!(next.action.starts_with(&format!("send native currency to {signer}")), "{}", next.action);

    let mut before = job(JobState::Retry);
    before.attempts = 1;
    let detail = Some("signer 0x07 cannot pay for the call".into());
    before.error = Some(Problem { r#type: "insufficient_funds".into(), title: "Money".into(), detail });
    before.delivery.deliver_at = NOW + TimeDelta::seconds(30);
    assert_eq!(verdict(&before, None, &around()).0, "it waits for money: signer 0x07 cannot pay for the call");
}

#[test]
fn every_state_has_an_explanation_and_a_next_step() {
    for state in JobState::all() {
        for transaction in [None, Some(transaction(LineageState::Signed))] {
            let (why, next) = verdict(&job(state), transaction.as_ref(), &around());
            assert!(!why.is_empty() && !next.action.is_empty(), "{state}");
        }
    }
}

#[test]
fn errors_are_grouped_and_the_newest_speaks_for_its_group() {
    let execution = |number: i32, error: Option<&str>| Execution {
        number,
        token: ExecutionToken(Uuid::nil()),
        worker: WorkerId(Uuid::nil()),
        generation: 1,
        started_at: NOW,
        finished_at: Some(NOW + TimeDelta::seconds(number.into())),
        outcome: Some(AttemptOutcome::Retry),
        error: error.map(Into::into),
        detail: Some(format!("detail {number}")),
    };
    let groups = grouped(&[execution(4, Some("rpc")), execution(3, None), execution(2, Some("funds")), execution(1, Some("rpc"))]);
    let told: Vec<_> = groups.iter().map(|group| (group.r#type.as_str(), group.count, group.detail.as_deref())).collect();
    assert_eq!(told, [("rpc", 2, Some("detail 4")), ("funds", 1, Some("detail 2"))]);
}

#[test]
fn a_job_that_was_given_back_says_what_it_waits_for() {
    let mut retry = job(JobState::Retry);
    retry.attempts = 3;
    for (error, told) in [
        ("no_lane", "it waits for a lane; its delivery"),
        ("fee_over_limit", "it waits for a lower price: said so"),
        ("simulation_unavailable", "it waits for the endpoints, the call could not be simulated: said so"),
        ("insufficient_funds", "it waits for money: said so"),
        ("unfinished", "it was given back unharmed (unfinished): said so"),
    ] {
        let told_by = Around { given_back: Some((error.into(), "said so".into())), ..around() };
        let (why, _) = verdict(&retry, None, &told_by);
        assert!(why.starts_with(told), "{why}");
    }
}

#[test]
fn an_ended_job_names_its_proof_and_whether_it_can_still_be_undone() {
    let mined = Transaction {
        hash: Some(Hash([0xab; 32])),
        block: Some(super::super::transactions::Block { number: 77, hash: Hash([0xcd; 32]) }),
        ..transaction(LineageState::Mined)
    };
    let told_by = Around { newest: Some(explained(mined, None, "final in 3 blocks")), ..around() };
    let (why, next) = verdict(&job(JobState::Completed), None, &told_by);
    let proof = format!("{} was mined in block 77 ({}) and succeeded", Hash([0xab; 32]), Hash([0xcd; 32]));
    assert_eq!(why, format!("a majority showed its receipt at TX_CONFIRMATIONS: {proof}"));
    assert_eq!(next.action, "final in 3 blocks");
}
