//! Decides. Pure: no clock, no async, no input or output. Everything here can be shown by a table or a property.

pub mod abi;
pub mod api_key;
pub mod backoff;
pub mod ballot;
pub mod broadcast;
pub mod calm;
pub mod chained;
pub mod encoding;
pub mod fees;
pub mod funds;
pub mod gas;
pub mod job;
pub mod lane_round;
pub mod lineage;
pub mod outlook;
pub mod patience;
pub mod quorum;
pub mod replacement;
pub mod retirement;
pub mod rpc_verdict;
pub mod settlement;
pub mod submission;
pub mod transaction;
pub mod window;
