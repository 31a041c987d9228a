//! Owns the metrics of the program, each declared once, and the recorder behind `/metrics`.
//! Never takes a label value from outside closed or configured sets: no job id, no hash, no URL, no error text.
//! Every room counts with the statics; `app` installs; `http` renders.

use super::instrument::catalogue;
pub use super::instrument::{Counter, Description, Gauge, Histogram, Label, Metric};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const KINDS: [&str; 2] = ["contract_call", "transfer"];
const OUTCOMES: [&str; 7] = ["submitted", "not_actionable", "retry", "snoozed", "dead", "fenced", "cancelled"];
const FINAL_STATES: [&str; 6] = ["completed", "not_actionable", "reverted", "dead", "quarantined", "cancelled"];
const JOB_STATES: [&str; 12] = [
    "pending_batch",
    "batched",
    "queued",
    "processing",
    "retry",
    "submitted",
    "completed",
    "not_actionable",
    "reverted",
    "dead",
    "quarantined",
    "cancelled",
];
const LINEAGE_STATES: [&str; 8] = ["allocated", "signed", "broadcast", "replaced", "mined", "reverted", "superseded", "abandoned"];
const LANE_STATES: [&str; 6] = ["active", "paused", "draining", "drained", "retired", "frozen"];
const WORKER_STATES: [&str; 6] = ["starting", "active", "draining", "drained", "stopped", "stale"];

catalogue! {
    gauge BUILD_INFO = "holdfast_build_info" { version, role } "1, under the version and the role of the process.";
    gauge READINESS = "holdfast_readiness" { check } "1 while a readiness check passes, else 0.";
    counter PANICS = "holdfast_panics_total" {} "Panics of any thread or task.";

    counter HTTP_REQUESTS = "holdfast_http_requests_total" { route, method, status_class: ["1xx", "2xx", "3xx", "4xx", "5xx"] } "HTTP requests answered, by route template.";
    histogram HTTP_REQUEST_SECONDS = "holdfast_http_request_duration_seconds" { route, method } "Time from a request to its answer.";
    counter AUTH_FAILURES = "holdfast_auth_failures_total" { reason: ["missing", "malformed", "unknown", "revoked", "expired", "forbidden"] } "Requests refused for their credentials.";
    counter IDEMPOTENCY = "holdfast_idempotency_total" { result: ["new", "replayed", "mismatch", "in_progress"] } "What an idempotency key was found to be.";

    counter JOBS_ACCEPTED = "holdfast_jobs_accepted_total" { kind: KINDS } "Jobs accepted and committed.";
    gauge JOBS = "holdfast_jobs" { state: JOB_STATES } "Jobs that are open, dead or quarantined, by state.";
    gauge JOBS_OLDEST_READY_AGE = "holdfast_jobs_oldest_ready_age_seconds" {} "Age of the oldest job that is due and not taken.";
    gauge JOBS_OLDEST_PROCESSING_AGE = "holdfast_jobs_oldest_processing_age_seconds" {} "Age of the oldest execution that is under way.";
    counter JOB_ATTEMPTS = "holdfast_job_attempts_total" { kind: KINDS, outcome: OUTCOMES } "Executions that ended.";
    histogram JOB_ATTEMPT_SECONDS = "holdfast_job_attempt_duration_seconds" { kind } "Length of one execution.";
    histogram JOB_QUEUE_WAIT_SECONDS = "holdfast_job_queue_wait_seconds" { kind } "Time from due to taken.";
    counter JOBS_FINISHED = "holdfast_jobs_finished_total" { kind: KINDS, state: FINAL_STATES } "Jobs that reached a final state.";
    counter EXECUTION_FENCED = "holdfast_execution_fenced_total" { step } "Writes refused because another execution had taken over.";

    gauge OUTBOX_PENDING = "holdfast_outbox_pending" {} "Outbox rows that are not yet delivered.";
    gauge OUTBOX_OLDEST_DUE_AGE = "holdfast_outbox_oldest_due_age_seconds" {} "Age of the oldest due outbox row.";
    counter QUEUE_PUBLISHED = "holdfast_outbox_published_total" { result: ["new", "duplicate", "error"] } "Deliveries pushed to Redis.";
    counter OUTBOX_GENERATIONS_ADVANCED = "holdfast_outbox_generations_advanced_total" { reason: ["terminal_record", "attempts_exhausted", "reorg", "replay"] } "Deliveries given a new generation.";
    counter OUTBOX_RECREATED = "holdfast_outbox_recreated_total" {} "Deliveries that Redis had lost and that were pushed again.";
    counter DELIVERY_EPOCHS = "holdfast_delivery_epochs_total" {} "Times Redis was found to have lost its memory.";

    gauge QUEUE_DEPTH = "holdfast_queue_depth" { state: ["ready", "delayed", "active"] } "Queue records in Redis.";
    counter QUEUE_STALLED = "holdfast_queue_stalled_total" {} "Deliveries taken back from a worker that went silent.";
    counter QUEUE_LOCKS_LOST = "holdfast_queue_locks_lost_total" { why } "Delivery locks lost by their worker.";
    histogram QUEUE_RENEWAL_LAG = "holdfast_queue_lock_renewal_lag_seconds" {} "How late locks are renewed.";
    counter QUEUE_CLAIMS = "holdfast_queue_claims_total" {} "Deliveries taken.";
    counter QUEUE_SETTLED = "holdfast_queue_settled_total" { how } "Deliveries settled or given back.";
    counter QUEUE_MALFORMED = "holdfast_queue_malformed_total" {} "Queue records that are none of ours.";
    counter QUEUE_HANDLER_PANICS = "holdfast_queue_handler_panics_total" {} "Panics while a delivery was handled.";
    counter QUEUE_WORKERS_REPLACED = "holdfast_queue_workers_replaced_total" {} "Consumers that ended by themselves and were replaced.";
    gauge QUEUE_PAUSED = "holdfast_queue_paused" {} "1 while the queue is paused.";

    gauge WORKERS = "holdfast_workers" { state: WORKER_STATES } "Processes in a state.";
    gauge WORKER_PROCESSING = "holdfast_worker_processing" {} "Deliveries this process works on.";
    gauge WORKER_HEARTBEAT_AGE = "holdfast_worker_heartbeat_age_seconds" {} "Age of the oldest heartbeat of a worker that counts as alive.";
    gauge TASK_LIVENESS = "holdfast_task_liveness_timestamp_seconds" { task, of } "When a periodic task last came round; of which chain or lane, where it has one.";
    counter ACTOR_RESTARTS = "holdfast_actor_restarts_total" { actor } "Actors restarted after a panic.";
    histogram FOLD_BATCH_ROWS = "holdfast_fold_batch_rows" { actor } "Rows folded into one statement.";
    gauge FOLD_WAITING = "holdfast_fold_waiting" { actor } "Rows waiting to be folded.";
    counter FOLD_REFUSED = "holdfast_fold_refused_total" { actor } "Requests refused because too many waited.";

    gauge TX_OPEN = "holdfast_tx_open" { chain, state: LINEAGE_STATES } "Lineages that have not ended.";
    counter TX_TRANSITIONS = "holdfast_tx_transitions_total" { chain, to: LINEAGE_STATES } "Lineages that changed their state.";
    counter TX_BROADCAST = "holdfast_tx_broadcast_total" { chain, class } "Answers to a broadcast, by class.";
    histogram TX_SIGN_SECONDS = "holdfast_tx_sign_duration_seconds" { chain } "Time to sign and encrypt.";
    histogram TX_ACCEPT_TO_BROADCAST_SECONDS = "holdfast_tx_accept_to_broadcast_seconds" { chain } "Time from acceptance to the first broadcast.";
    histogram TX_BROADCAST_TO_FINAL_SECONDS = "holdfast_tx_broadcast_to_final_seconds" { chain } "Time from the first broadcast to a final outcome.";
    counter TX_REBROADCASTS = "holdfast_tx_rebroadcasts_total" { chain, reason } "Identical bytes sent again.";

    counter TX_REPLACEMENTS = "holdfast_tx_replacements_total" { chain, purpose: ["replacement", "noop"] } "Dearer attempts signed at a nonce that has one.";
    counter REPLACEMENT_CAPPED = "holdfast_tx_replacement_capped_total" { chain, signer } "Times nonces came to stand at the limit of price or count.";
    counter REORG_REVIVED = "holdfast_tx_reorg_revived_total" { chain } "Ends that a reorganisation undid and whose bytes are sent again.";
    counter FOREIGN_NONCE_USE = "holdfast_foreign_nonce_use_total" { chain, signer } "Nonces of a signer that were used up by a transaction that is not ours.";
    counter GAP_FILLS = "holdfast_gap_fills_total" { chain, signer } "Nonces that nobody owned and that a transfer of nothing used up.";
    counter LANE_LEASES_LOST = "holdfast_lane_leases_lost_total" { chain, signer } "Times this process was silent for longer than the lease of a lane it settled, and another took over.";
    counter FINALITY_VIOLATIONS = "holdfast_finality_violations_total" { chain, signer } "Ends that were undone after TX_REORG_LOOKBACK_BLOCKS.";

    gauge SIGNER_NONCE_PENDING = "holdfast_signer_nonce_pending" { chain, signer } "Nonce of the account with what one pool has; a hint.";
    gauge SIGNER_NONCE_DRIFT = "holdfast_signer_nonce_drift" { chain, signer } "Above zero: nonces used on the chain that the fence has not reached. Below: nonces given out that are neither mined nor open.";
    gauge SIGNER_CAPPED = "holdfast_signer_capped_nonces" { chain, signer } "Open nonces that stand at the limit of price or count.";
    gauge SIGNER_NONCE_FENCE = "holdfast_signer_nonce_fence" { chain, signer } "Next nonce a lane gives out.";
    gauge SIGNER_NONCE_LATEST = "holdfast_signer_nonce_latest" { chain, signer } "Nonce of the account in the newest block.";
    gauge SIGNER_IN_FLIGHT = "holdfast_signer_in_flight" { chain, signer } "Open nonces of a lane.";
    gauge SIGNER_LANE_STATE = "holdfast_signer_lane_state" { chain, signer, state: LANE_STATES } "1 for the state a lane is in, 0 for the others.";
    gauge SIGNER_BALANCE = "holdfast_signer_balance_native" { chain, signer } "Balance in native currency, rounded to what a gauge can hold; for alerts, never for arithmetic.";
    gauge SIGNER_BALANCE_FLOOR = "holdfast_signer_balance_floor_native" { chain, signer } "Below this balance the lane takes no work: the floor that was set, what is open with the next dearer attempt, one cheapest transaction.";
    gauge SIGNER_WINDOW = "holdfast_signer_window" { chain, signer } "Most open nonces of a lane.";
    gauge SIGNER_OLDEST_PENDING_AGE = "holdfast_signer_oldest_pending_age_seconds" { chain, signer } "Age of the oldest open nonce.";
    counter SIGNER_POOL_EXHAUSTED = "holdfast_signer_pool_exhausted_total" { pool } "Times no lane of a pool had room.";
    gauge JOURNAL_KEY_SEALS = "holdfast_journal_key_seals" { key_id } "Rows that a journal key has sealed, counted ahead; 2^32 are the most that one key may.";
    counter JOURNAL_DECRYPT_FAILURES = "holdfast_journal_decrypt_failures_total" {} "Journal rows that could not be decrypted.";

    counter RPC_REQUESTS = "holdfast_rpc_requests_total" { chain, endpoint, method, result } "Calls to an endpoint, by class of answer.";
    histogram RPC_SECONDS = "holdfast_rpc_request_duration_seconds" { chain, endpoint } "Time an endpoint takes to answer.";
    counter RPC_HEDGED = "holdfast_rpc_hedged_total" { chain } "Reads asked of a second endpoint because the first was slow.";
    gauge RPC_ENDPOINT_SCORE = "holdfast_rpc_endpoint_score" { chain, endpoint } "Health of an endpoint, 0 to 1.";
    gauge RPC_CIRCUIT_STATE = "holdfast_rpc_circuit_state" { chain, endpoint } "0 closed, 1 half open, 2 open.";
    counter RPC_QUORUM = "holdfast_rpc_quorum_total" { chain, question, result: ["agree", "disagree", "insufficient"] } "Questions put to the quorum.";
    gauge RPC_DESTRUCTIVE_FROZEN = "holdfast_rpc_destructive_frozen" { chain } "1 while so many calls fail that nothing is superseded, abandoned or failed.";
    counter RPC_CONTRADICTIONS = "holdfast_rpc_contradictions_total" { chain, endpoint, class } "Transactions that an endpoint refused for good and another accepted.";
    gauge RPC_HEAD_BLOCK = "holdfast_rpc_head_block" { chain } "Newest block seen.";
    counter RPC_WRONG_CHAIN = "holdfast_rpc_chain_id_mismatch_total" { chain, endpoint } "Endpoints that answered for another chain.";
    counter RPC_UNKNOWN_ERRORS = "holdfast_rpc_unknown_errors_total" { chain, endpoint, text } "Errors that the classification table does not know, by a hash of their words; more than 16 texts are `other`.";

    gauge DB_POOL_ACTIVE = "db_pool_active_connections" {} "Connections in use.";
    gauge DB_POOL_IDLE = "db_pool_idle_connections" {} "Connections not in use.";
    gauge DB_POOL_WAITING = "db_pool_waiting_requests" {} "Callers waiting for a connection.";
    counter DB_POOL_EXHAUSTED = "db_pool_exhausted_total" {} "Callers refused because too many waited.";
    counter DB_QUERY_TIMEOUTS = "db_query_timeouts_total" {} "Statements ended by their timeout.";
    counter DB_STATEMENTS = "holdfast_db_statements_total" {} "Statements sent to Postgres.";
    histogram DB_STATEMENT_SECONDS = "holdfast_db_statement_duration_seconds" { op } "Time of one operation on Postgres.";

    gauge LOG_LINES_DROPPED = "holdfast_log_lines_dropped" {} "Lines of the log that nobody read in time, since the start.";
    gauge REDIS_UP = "holdfast_redis_up" {} "1 while Redis answers.";
    gauge REDIS_EVICTION_POLICY_OK = "holdfast_redis_eviction_policy_ok" {} "1 while Redis is set to evict nothing.";
    counter REDIS_CALLS = "holdfast_redis_calls_total" { call } "Calls to Redis.";
    histogram REDIS_CALL_SECONDS = "holdfast_redis_call_duration_seconds" { call } "Time of one call to Redis.";
    counter REDIS_ERRORS = "holdfast_redis_errors_total" { call, kind } "Calls to Redis that failed.";
}

const SECONDS: [f64; 17] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const ROWS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
/// Samples of histograms are held one by one until upkeep puts them into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the metrics recorder cannot be installed: {0}")]
    Install(#[from] metrics_exporter_prometheus::BuildError),
}

fn builder() -> Result<PrometheusBuilder, Error> {
    // Without buckets the exporter renders summaries, which cannot be added up over processes.
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_rows".into()), &ROWS)?)
}

/// Installs the recorder of this process, describes every metric and creates the counters of closed label sets. A second call
/// answers with the same handle.
///
/// # Errors
/// When something else of the process has installed a recorder.
pub fn install() -> Result<PrometheusHandle, Error> {
    static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = installed.as_ref() {
        return Ok(handle.clone());
    }
    let handle = builder()?.install_recorder()?;
    ALL.iter().for_each(|metric| metric.describe());
    precreate(&[]);
    *installed = Some(handle.clone());
    Ok(handle)
}

/// Creates at 0 the counters whose labels are closed or among the configured ones, such as `("chain", &["1"])`. Called once per
/// group of values that belong together: the endpoints of one chain with that chain.
pub fn precreate(configured: &[(&str, &[&str])]) {
    ALL.iter().for_each(|metric| metric.precreate(configured));
}

type Look = Box<dyn Fn() + Send>;

/// What sets gauges at the moment when they are read.
static LOOKS: Mutex<Vec<Look>> = Mutex::new(Vec::new());

/// Has `look` set its gauges before every answer: for what also changes where nobody of ours is told.
pub fn before_reading(look: impl Fn() + Send + 'static) {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(look));
}

/// All metrics as they are now, in the text format of Prometheus.
#[must_use]
pub fn read(handle: &PrometheusHandle) -> String {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|look| look());
    handle.render()
}

/// Puts samples into their buckets, for as long as it is polled.
pub async fn upkeep(handle: PrometheusHandle) {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        handle.run_upkeep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::states::{AttemptOutcome, JobKind, JobState, LaneState, LineageState, WorkerState};
    use std::collections::HashSet;

    /// What a process that did this would expose.
    fn exposed(act: impl FnOnce()) -> String {
        let recorder = builder().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            ALL.iter().for_each(|metric| metric.describe());
            precreate(&[]);
            act();
        });
        recorder.handle().render()
    }

    #[test]
    fn label_values_are_the_words_of_the_rows() {
        let words = |all: Vec<&'static str>, known: &[&str]| assert_eq!(all, known);
        words(JobKind::all().into_iter().map(JobKind::as_str).collect(), &KINDS);
        words(JobState::all().into_iter().map(JobState::as_str).collect(), &JOB_STATES);
        words(JobState::all().into_iter().filter(|state| state.is_final()).map(JobState::as_str).collect(), &FINAL_STATES);
        words(AttemptOutcome::all().into_iter().map(AttemptOutcome::as_str).collect(), &OUTCOMES);
        words(LineageState::all().into_iter().map(LineageState::as_str).collect(), &LINEAGE_STATES);
        words(LaneState::all().into_iter().map(LaneState::as_str).collect(), &LANE_STATES);
        words(WorkerState::all().into_iter().map(WorkerState::as_str).collect(), &WORKER_STATES);
    }

    #[test]
    fn names_follow_the_rules_of_the_exposition_format() {
        let mut names = HashSet::new();
        for metric in ALL {
            let Description { name, help, labels } = *metric.description();
            assert!(names.insert(name), "{name} is declared twice");
            assert!(name.starts_with("holdfast_") || name.starts_with("db_pool_") || name == "db_query_timeouts_total", "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(metric.kind() == "counter", name.ends_with("_total"), "{name}");
            assert!(metric.kind() != "histogram" || name.ends_with("_seconds") || name.ends_with("_rows"), "{name} has no buckets");
            assert!(help.ends_with('.'), "{name}");
            for label in labels {
                assert!(!["hash", "tx_hash", "job", "job_id", "url", "error", "le", "quantile"].contains(&label.name), "{name}");
            }
        }
    }

    #[test]
    fn counters_of_closed_sets_exist_before_anything_happened() {
        let text = exposed(|| {});
        for line in [
            "holdfast_panics_total 0",
            "holdfast_idempotency_total{result=\"mismatch\"} 0",
            "holdfast_job_attempts_total{kind=\"transfer\",outcome=\"dead\"} 0",
            "db_pool_exhausted_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("holdfast_tx_transitions_total{"), "no chain is known yet");
    }

    #[test]
    fn counters_of_configured_sets_exist_once_the_sets_are_known() {
        let text = exposed(|| precreate(&[("chain", &["10"]), ("endpoint", &["a.example", "b.example"])]));
        for line in [
            "holdfast_tx_transitions_total{chain=\"10\",to=\"superseded\"} 0",
            "holdfast_rpc_chain_id_mismatch_total{chain=\"10\",endpoint=\"b.example\"} 0",
            "holdfast_rpc_hedged_total{chain=\"10\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("holdfast_rpc_requests_total{"), "its methods are not known");
    }

    #[test]
    fn histograms_have_buckets_and_every_metric_has_its_help_and_type() {
        let text = exposed(|| {
            for metric in ALL {
                let values = vec!["x"; metric.description().labels.len()];
                match metric {
                    Metric::Counter(counter) => counter.add(2, &values),
                    Metric::Gauge(gauge) => gauge.set(1.5, &values),
                    Metric::Histogram(histogram) => histogram.record(3.0, &values),
                }
            }
        });
        for metric in ALL {
            let name = metric.description().name;
            assert!(text.contains(&format!("# TYPE {name} {}\n", metric.kind())), "{name}\n{text}");
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        }
        assert!(text.contains("holdfast_fold_batch_rows_bucket{actor=\"x\",le=\"5\"} 1"), "{text}");
        assert!(text.contains("holdfast_tx_sign_duration_seconds_bucket{chain=\"x\",le=\"2.5\"} 0"), "{text}");
        assert!(text.contains("holdfast_jobs_finished_total{kind=\"x\",state=\"x\"} 2"), "{text}");
    }

    #[test]
    fn the_recorder_is_installed_once_however_often_it_is_asked_for() {
        let (first, second) = (install().unwrap(), install().unwrap());
        DELIVERY_EPOCHS.add(3, &[]);
        assert!(first.render().contains("holdfast_delivery_epochs_total 3"));
        assert!(second.render().contains("holdfast_delivery_epochs_total 3"));
    }
}
