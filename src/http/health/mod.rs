//! Answers whether the process lives, has started and may get work, and what it counts. On the admin listener only; no credentials.

pub mod livez;
pub mod metrics;
pub mod readyz;
pub mod startupz;
