//! The hand-over of a place in a pool from one signer to another: within 15 minutes of the proof that the old one may go, and only to
//! one that a live process holds, unless the operator says that it will be. One statement; refused by the first gate that is shut.

use super::cancel::check;
use super::drains::SIGNER_RUNBOOK;
use super::retire::Chains;
use super::{Desk, Error};
use crate::domain::window;
use crate::store::audited::Operator;
use crate::store::retirement::{self, HandOver};
use entity::values::Address;
use serde::Serialize;
use std::time::Duration;

/// A proof that is older proves nothing about now.
pub const PROOF_AGE: Duration = Duration::from_secs(15 * 60);

/// Who takes whose place.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub chain_id: i64,
    pub pool: &'a str,
    pub old: Address,
    pub new: Address,
    /// The new signer is not held by any process yet.
    pub unloaded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rotated {
    pub chain_id: i64,
    pub pool: String,
    pub left: Address,
    pub joined: Address,
    /// The proof that it rests on.
    pub proof: Option<i64>,
    /// The fence of the new lane, where it was made now; null: it had its lane before.
    pub fence: Option<i64>,
    /// Live processes that hold the new signer.
    pub workers: i64,
}

/// Every gate, and what to do about it.
const GATES: [(&str, &str, &str); 9] = [
    ("unknown-signer", "the old signer has no lane on this chain", "holdfast lanes list"),
    ("other-pool", "the pool named is not that of the old signer, or the new one is in another", "holdfast lanes list"),
    ("signer-not-drained", "the old signer may still get nonces", "holdfast jobs signer-drain"),
    (
        "active-lineages",
        "nonces of the old signer are open: look at the journal before another takes its place",
        "holdfast jobs signer-drain",
    ),
    ("retirement-proof", "the newest check of the old signer did not pass, or there is none", "holdfast jobs signer-retire-check"),
    ("proof-age", "the proof is older than 15 minutes", "holdfast jobs signer-retire-check"),
    ("new-signer-closed", "the lane of the new signer is draining, drained, retired or frozen", "holdfast lanes list"),
    ("signer-not-loaded", "no live process holds the key of the new signer; --unloaded says that one will", "holdfast workers list"),
    ("unknown-gate", "the hand-over was refused", "holdfast lanes list"),
];

/// Hands the place over.
///
/// # Errors
/// `Gate` names the one that is shut, `Unavailable` when no majority shows the nonce of the new signer.
pub async fn rotate(desk: &Desk, ask: Ask<'_>, chains: &Chains<'_>, operator: (&str, &str)) -> Result<Rotated, Error> {
    check(operator.0, operator.1)?;
    if ask.old == ask.new {
        return Err(Error::Invalid("NEW", "is the signer that is to go".into()));
    }
    let (settings, consumed) = chains.consumed(ask.chain_id, ask.new).await?;
    let fence = i64::try_from(consumed).map_err(|_| Error::Invalid("NEW", "its nonce is out of range".into()))?;
    let Ask { chain_id, pool, old, new, unloaded } = ask;
    let width = window::configured(settings.profile, settings.lane_width, settings.lane_widths.get(&new).copied());
    let one = HandOver { chain_id, pool, old, new, fence, width, proof_age: PROOF_AGE, stale: desk.limits.stale, unloaded };
    let done = retirement::hand_over(&desk.db, &one, Operator { id: operator.0, reason: operator.1 }).await?;
    if let Some(gate) = &done.gate {
        let (gate, why, next) = GATES.iter().find(|(name, ..)| name == gate).unwrap_or(&GATES[GATES.len() - 1]);
        return Err(Error::Gate { gate, why: format!("{why}. Runbook: {SIGNER_RUNBOOK}"), next });
    }
    let fence = done.made.then_some(fence);
    Ok(Rotated { chain_id, pool: pool.to_owned(), left: old, joined: new, proof: done.proof, fence, workers: done.workers })
}
