//! The test world: real parts, faults on demand, and what must hold when a test ends.

pub mod anvil;
pub mod command;
pub mod ethereumjs;
pub mod http_wire;
pub mod invariants;
pub mod parts;
pub mod process;
pub mod raw_transaction;
pub mod rpc_proxy;
pub mod rpc_view;
pub mod standby;
pub mod tcp_proxy;
pub mod wait;
pub mod world;

pub use parts::{OwnRedis, redis_url_and_prefix};
