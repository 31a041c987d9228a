//! Holdfast: a durable transaction coordinator for EVM chains. The rooms in dependency order; who may import whom is checked by a test.

pub mod clock;
pub mod config;
pub mod telemetry;
pub mod fail;
pub mod domain;
pub mod store;
pub mod chain;
pub mod signer;
pub mod delivery;
pub mod actors;
pub mod jobs;
pub mod operator;
pub mod http;
pub mod local;
pub mod app;
pub mod cli;
