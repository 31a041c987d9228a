//! Remembers. Postgres through SeaORM: free functions, one file a table family; `sql/` holds what locks or moves many rows.
//! Never asks a chain, never touches Redis, never decides: the machines in `domain` say which states a statement may move.

mod arrays;
pub mod audited;
pub mod ceiling;
mod db;
pub mod dead;
pub mod drains;
mod error;
pub mod execution;
pub mod facts;
pub mod intake;
pub mod jobs;
pub mod journal;
pub mod journal_keys;
pub mod keys;
pub mod lanes;
pub mod login;
pub mod operator_log;
pub mod outbox;
pub mod owner;
mod places;
pub mod queues;
mod reach;
pub mod retirement;
pub mod settling;
pub mod standing;
pub mod thaw;
pub mod transactions;
pub mod workers;

pub use db::{Db, Reader, Tx};
pub use error::{Error, Fault};
