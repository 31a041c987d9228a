//! What is done about a nonce that the chain has not taken yet: wait, give the same bytes again, offer more, or use the nonce up by a
//! transfer of nothing. Pure; called by the LaneReconciler for every open nonce of a lane, the head of the lane first.
//!
//! Nodes take a replacement only when both fees rise by a tenth (geth `pricebump`, reth the same and strictly more), so both rise from
//! the highest price that was ever tried for the nonce, be it accepted or refused. At the limit the best bytes are given again for ever.

use super::fees::{self, Price, Quote, Raised};
use super::rpc_verdict::{Class, Verdict, verdict};
use entity::states::{AttemptPurpose, LineageState, NoopReason};
use entity::values::Wei;
use std::time::Duration;

/// What the operator set.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// TX_STUCK_SECONDS.
    pub stuck: Duration,
    /// TX_RECONCILE_SECONDS: the shortest time before bytes are given again.
    pub patience: Duration,
    /// TX_FEE_BUMP_BASIS_POINTS.
    pub bump_bps: u32,
    /// The least tip, in wei per gas.
    pub floor: Wei,
    /// TX_MAX_FEE_PER_GAS_WEI, and what a no-op may offer.
    pub limit: Wei,
    pub noop_limit: Wei,
    /// TX_MAX_REPLACEMENTS, for the call and again for its no-op.
    pub max_replacements: u32,
}

impl Rules {
    /// How long bytes at their limit rest before they are given again.
    #[must_use]
    pub fn rhythm_at_limit(&self) -> Duration {
        self.patience.saturating_mul(SLOW)
    }

    /// With the limit on a whole fee (TX_MAX_TOTAL_FEE_WEI), at the gas of one nonce and the gas that a no-op of it may take.
    #[must_use]
    pub fn at_gas(self, gas_limit: u64, noop_gas: u64, max_total_fee: Wei) -> Self {
        Self {
            limit: fees::limit_at(gas_limit, self.limit, max_total_fee),
            noop_limit: fees::limit_at(gas_limit.min(noop_gas), self.noop_limit, max_total_fee),
            ..self
        }
    }
}

/// An open nonce that the chain has not taken.
#[derive(Clone, Copy, Debug)]
pub struct Unmined {
    pub state: LineageState,
    pub sends: u32,
    pub age: Duration,
    pub since_sent: Option<Duration>,
    /// Since the newest attempt was signed.
    pub since_priced: Option<Duration>,
    /// The head at that time.
    pub priced_block: Option<u64>,
    /// The highest of each field over all attempts; None while unsigned.
    pub tried: Option<Price>,
    /// How often the call, and its no-op, was signed again.
    pub replacements: u32,
    pub noops: u32,
    pub noop: Option<NoopReason>,
    /// What the newest bytes were answered.
    pub answer: Option<Class>,
}

/// The chain as this nonce sees it.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// The chain waits for exactly this nonce, and since when.
    pub head_for: Option<Duration>,
    pub block: u64,
    pub market: Quote,
    /// False while so many calls fail that nothing irreversible is decided.
    pub calm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    /// The newest bytes again.
    Send,
    /// New bytes at the same nonce.
    Sign {
        purpose: AttemptPurpose,
        price: Price,
    },
    /// A price is due and the limit does not allow one: the best bytes live on, given again at a slow rhythm.
    Capped {
        send: bool,
    },
    /// Every endpoint refuses the bytes for good: a no-op has to use the nonce up.
    GiveUp(Class),
}

/// Times that bytes have to be refused for good before they are believed to be.
const REFUSALS: u32 = 3;
/// Bytes over a node's limit on the whole fee are given up after so many times TX_STUCK_SECONDS.
const FEE_CAP_PATIENCE: u32 = 10;
/// At the limit bytes are given again this many times TX_RECONCILE_SECONDS apart.
const SLOW: u32 = 16;

/// Decides for one nonce.
#[must_use]
pub fn step(one: &Unmined, around: &Around, rules: &Rules) -> Step {
    let Some(tried) = one.tried else { return Step::Wait };
    if one.noop.is_none() && around.calm && is_refused(one, rules) {
        return Step::GiveUp(one.answer.unwrap_or(Class::Unknown));
    }
    let unsent = one.since_priced.zip(one.since_sent).is_some_and(|(priced, sent)| priced < sent);
    let again = unsent || is_due_again(one.state, one.age, one.since_sent, one.sends, rules.patience);
    let resend = if again { Step::Send } else { Step::Wait };
    if !price_is_due(one, around, rules, tried) {
        return resend;
    }
    if one.priced_block.is_some_and(|at| at >= around.block) {
        return resend;
    }
    match next_price(one, around.market, rules) {
        Some((purpose, price)) => Step::Sign { purpose, price },
        None => Step::Capped { send: one.since_sent.is_none_or(|since| since >= rules.rhythm_at_limit()) || one.sends == 0 },
    }
}

/// What the next attempt may offer, and how many more there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub purpose: AttemptPurpose,
    /// In wei per gas.
    pub limit: Wei,
    pub left: u32,
}

/// The limits of the next attempt at a nonce: a no-op has its own.
#[must_use]
pub fn limits(one: &Unmined, rules: &Rules) -> Limits {
    match one.noop {
        Some(_) => Limits {
            purpose: AttemptPurpose::Noop,
            limit: rules.noop_limit,
            left: rules.max_replacements.saturating_add(1).saturating_sub(one.noops),
        },
        None => Limits {
            purpose: AttemptPurpose::Replacement,
            limit: rules.limit,
            left: rules.max_replacements.saturating_sub(one.replacements),
        },
    }
}

/// What the next attempt offers, whenever it is due; None: the limit of price or count allows none.
#[must_use]
pub fn next_price(one: &Unmined, market: Quote, rules: &Rules) -> Option<(AttemptPurpose, Price)> {
    let limits = limits(one, rules);
    match fees::raised(one.tried?, market, rules.bump_bps, rules.floor, limits.limit) {
        Raised::To(price) if limits.left > 0 => Some((limits.purpose, price)),
        _ => None,
    }
}

/// Whether a new price is wanted, the limits aside.
fn price_is_due(one: &Unmined, around: &Around, rules: &Rules, tried: Price) -> bool {
    if one.noop.is_some() && one.noops == 0 {
        return true;
    }
    match one.answer {
        // More money per gas does not help who has none, takes a node's limit on the whole fee further away, makes no other gas
        // limit, and reaches nobody while the bytes do not leave or are not looked at.
        Some(Class::InsufficientFunds | Class::FeeCapExceeded | Class::ServiceUnavailable) => return false,
        Some(class) if class.is_about_gas() || matches!(verdict(class), Verdict::HoldSameBytes) => return false,
        Some(class) if refuses_price(class) && one.since_sent.is_some() => return true,
        _ => {}
    }
    let rested = one.since_priced.is_some_and(|since| since >= rules.stuck);
    let waited_for = around.head_for.is_some_and(|head_for| head_for >= rules.stuck);
    let below_the_market = tried.max_fee_per_gas < around.market.base_fee;
    one.sends > 0 && rested && (waited_for || below_the_market)
}

const fn refuses_price(class: Class) -> bool {
    matches!(class, Class::Underpriced | Class::ReplacementUnderpriced)
}

/// Refused again and again, for what the bytes are. A no-op loses nothing where that is wrong: if the bytes mine first, they count.
fn is_refused(one: &Unmined, rules: &Rules) -> bool {
    let Some(class) = one.answer else { return false };
    let patience = match verdict(class) {
        // The limit of a node on the whole fee: nothing is wrong with the bytes, and the market may make another price possible.
        Verdict::Rebuild if class == Class::FeeCapExceeded => rules.stuck.saturating_mul(FEE_CAP_PATIENCE),
        Verdict::Refused { .. } | Verdict::Rebuild => rules.stuck,
        _ => return false,
    };
    one.sends >= REFUSALS && one.age >= patience
}

/// Bytes that never left are due after `patience`; bytes that left are due after twice as long as the last time, at most sixteen times.
#[must_use]
pub fn is_due_again(state: LineageState, age: Duration, since_sent: Option<Duration>, sends: u32, patience: Duration) -> bool {
    match (state, since_sent) {
        (LineageState::Signed, None) => age >= patience,
        (LineageState::Replaced, None) => true,
        (LineageState::Signed | LineageState::Broadcast | LineageState::Replaced, Some(since)) => {
            since >= patience.saturating_mul(1 << sends.clamp(1, 4))
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "replacement_tests.rs"]
mod tests;
