//! Rows and the words they share. Nothing here decides or does anything.

pub mod ids;
pub mod states;
pub mod values;

pub mod api_key;
pub mod delivery_epoch;
pub mod head;
pub mod idempotency_key;
pub mod job;
pub mod job_attempt;
pub mod job_resolution;
pub mod lane;
pub mod lineage;
pub mod operator_action;
pub mod outbox;
pub mod pool;
pub mod signer;
pub mod signer_history;
pub mod stream_event;
pub mod tx_attempt;
pub mod worker;
