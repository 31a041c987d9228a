//! The one test binary: it links once, and its tests share one Postgres and one Redis.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// The proxies and the world have verbs for the cases that come next.
#![allow(dead_code)]

mod architecture;
mod chaos;
mod lifecycle;
mod observability;
mod properties;
mod recovery;
mod requirements_doc;
mod simulation;
mod soak;
mod support;

mod it {
    mod dead_cases;
    mod delivery_rows;
    mod embedded;
    mod explain_cases;
    mod fee_cases;
    mod field_cases;
    mod first_steps;
    mod funds_cases;
    mod gap_cases;
    mod invariants;
    mod keys_cases;
    mod lane_rows;
    mod lease_cases;
    mod local_parts;
    mod lost_redis;
    mod membership_cases;
    mod nonces;
    mod operator_log;
    mod outages;
    mod path;
    mod pool_rows;
    mod promotion;
    mod queue_cases;
    mod release_cases;
    mod reorg_cases;
    mod replacement_cases;
    mod rpc_cases;
    mod scenarios;
    mod schema_rows;
    mod secrecy;
    mod store;
    mod strict_node;
    mod waiting_cases;
}

// The tests of the delivery plane name these from the root.
#[path = "it/delivery_common.rs"]
mod delivery_common;
#[path = "it/delivery_faults.rs"]
mod delivery_faults;
#[path = "it/delivery_interop.rs"]
mod delivery_interop;
#[path = "it/delivery_queue.rs"]
mod delivery_queue;
