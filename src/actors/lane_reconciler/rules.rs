//! By which rules an open nonce is decided: what the operator set, at the gas of the nonce and for the window of its lane. Asks nobody;
//! called by the rounds of a lane, and by whoever explains what they will do.

use super::count;
use crate::actors::tx_journal::NOOP_GAS_MAX;
use crate::config;
use crate::domain::lane_round::{self, OpenNonce};
use crate::domain::replacement::{Rules, Step, Unmined};
use crate::domain::rpc_verdict::Class;
use crate::store::settling::Open;

/// The rules for a nonce, or what is done about one that the node has no room for. `latest` is the nonce that the chain takes next.
///
/// # Errors
/// The step, where no rule has to be asked.
pub fn of(one: &OpenNonce<'_>, gas_limit: i64, latest: i64, width: i32, settings: &config::Chain) -> Result<Rules, Step> {
    match lane_round::held_back(one, latest, width, settings.reconcile) {
        Some(step) => Err(step),
        None => Ok(at_gas(gas_limit, settings)),
    }
}

/// The rules for a nonce of this gas limit.
#[must_use]
pub fn at_gas(gas_limit: i64, settings: &config::Chain) -> Rules {
    let rules = Rules {
        stuck: settings.stuck,
        patience: settings.reconcile,
        bump_bps: settings.fee_bump_bps,
        floor: settings.min_priority_fee,
        limit: settings.max_fee_per_gas,
        noop_limit: settings.noop_max_fee_per_gas,
        max_replacements: settings.max_replacements,
    };
    rules.at_gas(gas_limit.unsigned_abs(), NOOP_GAS_MAX.unsigned_abs(), settings.max_total_fee)
}

/// An open nonce as the rules see it.
#[must_use]
pub fn nonce(one: &Open) -> OpenNonce<'_> {
    let unmined = Unmined {
        state: one.state,
        sends: count(one.sends),
        age: one.age,
        since_sent: one.since_sent,
        since_priced: one.since_priced,
        priced_block: one.priced_block.and_then(|block| u64::try_from(block).ok()),
        tried: one.tried,
        replacements: count(one.replacements),
        noops: lane_round::noops(count(one.noops), &one.attempts),
        noop: one.noop,
        answer: one.last_answer.as_deref().and_then(|word| word.parse::<Class>().ok()),
    };
    OpenNonce { lineage: one.lineage, nonce: one.nonce, attempts: &one.attempts, capped: one.capped, unmined }
}
