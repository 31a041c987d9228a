//! Holdfast: a durable transaction coordinator for EVM chains. The rooms in dependency order; who may import whom is checked by a test.

pub mod actors;
pub mod app;
pub mod chain;
pub mod cli;
pub mod clock;
pub mod config;
pub mod delivery;
pub mod domain;
pub mod fail;
pub mod http;
pub mod jobs;
pub mod local;
pub mod operator;
pub mod signer;
pub mod store;
pub mod telemetry;
