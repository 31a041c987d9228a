//! What happens next to an open nonce, and from when on. Has no rule of its own: it asks the rules of a lane's rounds what they would
//! decide at later times, so that what is told and what is done cannot differ. Pure; called by whoever explains a lane.
//!
//! With time alone a nonce goes one way: it waits, its bytes are due again, a price is due, the bytes are given up. Each border is found by
//! halving. What the chain does meanwhile is not foreseen.

use super::lane_round::{self, Look, OpenNonce};
use super::replacement::{self, Rules, Step};
use super::rpc_verdict::Class;
use entity::states::{AttemptPurpose, LaneState};
use std::time::Duration;

/// Nothing is foretold beyond it; every patience that an operator can sensibly set is shorter.
pub const HORIZON: Duration = Duration::from_secs(30 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The chain has taken it: it ends by its receipt.
    Settle,
    /// Nothing was signed: the execution of its job does that.
    FirstSignature,
    /// The newest bytes again.
    Send,
    /// New bytes at the same nonce.
    Sign { purpose: AttemptPurpose, price: super::fees::Price },
    /// At the limit of price or count: the best bytes again.
    SendCapped,
    /// Every endpoint refuses its bytes: a no-op has to use the nonce up, or for their gas a new estimate gives other bytes.
    GiveUp(Class),
    /// Nothing, before the chain has taken earlier nonces.
    HeldBack,
    /// Nothing, before an operator has decided about the lane.
    Frozen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub act: Act,
    /// From now.
    pub after: Duration,
    /// And not before the next block.
    pub needs_block: bool,
}

/// Why no price is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Price,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    pub next: Planned,
    /// The change of price, or the end of it, that comes after.
    pub then: Option<Planned>,
    /// A price is due now, and there is none.
    pub capped: Option<Limit>,
}

const fn at_once(act: Act) -> Outlook {
    Outlook { next: Planned { act, after: Duration::ZERO, needs_block: false }, then: None, capped: None }
}

/// The nonce and the lane as they are a while later, if nothing happens.
fn later<'a>(one: &OpenNonce<'a>, look: &Look, by: Duration) -> (OpenNonce<'a>, Look) {
    let add = |time: Duration| time.saturating_add(by);
    let mut one = *one;
    one.unmined.age = add(one.unmined.age);
    one.unmined.since_sent = one.unmined.since_sent.map(add);
    one.unmined.since_priced = one.unmined.since_priced.map(add);
    (one, Look { head_for: look.head_for.map(add), ..*look })
}

/// The first millisecond from `from` on at which something is so that stays so.
fn first(from: Duration, is: impl Fn(Duration) -> bool) -> Option<Duration> {
    if is(from) {
        return Some(from);
    }
    if !is(HORIZON) {
        return None;
    }
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (mut no, mut yes) = (milliseconds(from), milliseconds(HORIZON));
    while yes > no + 1 {
        let middle = no + (yes - no) / 2;
        if is(Duration::from_millis(middle)) { yes = middle } else { no = middle }
    }
    Some(Duration::from_millis(yes))
}

/// Looks ahead for one nonce, by the rules that `of` gives for it as they decide in [`lane_round::wanted_by`].
#[must_use]
pub fn outlook(one: &OpenNonce<'_>, look: &Look, of: &impl Fn(&OpenNonce<'_>) -> Result<Rules, Step>) -> Outlook {
    if look.latest.is_some_and(|latest| one.nonce < latest) {
        return at_once(Act::Settle);
    }
    if one.unmined.tried.is_none() {
        return at_once(Act::FirstSignature);
    }
    let frozen = look.state == LaneState::Frozen;
    // What a lane would do if it were not frozen, and with the block that a price may have to wait for.
    let running = Look { state: LaneState::Active, ..*look };
    let after_block = one.unmined.priced_block.map_or(look.block, |priced| look.block.max(priced.saturating_add(1)));
    let coming = Look { block: after_block, ..running };
    let at = |look: &Look, by: Duration| {
        let (one, look) = later(one, look, by);
        lane_round::decided(&one, &look, of).unwrap_or(Step::Wait)
    };
    let is_price = |step: Step| matches!(step, Step::Sign { .. } | Step::Capped { .. } | Step::GiveUp(_));
    let price = first(Duration::ZERO, |by| is_price(at(&coming, by)));
    let needs_block = price.is_some_and(|by| !is_price(at(&running, by)));
    // What stands at its limit is sent at its slow rhythm, unless it is given up before that.
    let change = price.and_then(|due| first(due, |by| at(&coming, by) != Step::Capped { send: false })).map(|after| {
        let act = match at(&coming, after) {
            Step::Sign { .. } | Step::GiveUp(_) if frozen => Act::Frozen,
            Step::Sign { purpose, price } => Act::Sign { purpose, price },
            Step::GiveUp(class) => Act::GiveUp(class),
            Step::Capped { .. } | Step::Send | Step::Wait => Act::SendCapped,
        };
        Planned { act, after, needs_block }
    });
    // Until a price is due, and while it waits for its block, only the same bytes can be due.
    let send = first(Duration::ZERO, |by| at(if needs_block { &running } else { &coming }, by) != Step::Wait)
        .filter(|by| at(&running, *by) == Step::Send)
        .filter(|by| change.is_none_or(|change| *by < change.after || needs_block && *by == change.after));
    let capped = price.filter(|after| after.is_zero() && !needs_block && matches!(at(&running, *after), Step::Capped { .. }));
    let capped = capped.and_then(|_| of(one).ok()).map(|rules| limit(one, look, rules));
    match (send, change) {
        (Some(after), then) => Outlook { next: Planned { act: Act::Send, after, needs_block: false }, then, capped },
        (None, Some(next)) => Outlook { next, then: None, capped },
        (None, None) => at_once(Act::HeldBack),
    }
}

/// Which limit it is: with more replacements allowed there would be a price, or not.
fn limit(one: &OpenNonce<'_>, look: &Look, rules: Rules) -> Limit {
    let more = Rules { max_replacements: u32::MAX, ..rules };
    if replacement::next_price(&one.unmined, look.market, &more).is_some() { Limit::Count } else { Limit::Price }
}

/// Most further attempts that are counted one by one.
const COUNTED: u32 = 1_000;

/// How many more attempts the limits of price and count allow, each the least dearer one; at most 1000 are counted.
#[must_use]
pub fn attempts_left(one: &OpenNonce<'_>, look: &Look, rules: &Rules) -> u32 {
    let mut unmined = one.unmined;
    for made in 0..COUNTED {
        let Some((purpose, price)) = replacement::next_price(&unmined, look.market, rules) else { return made };
        unmined.tried = Some(price);
        match purpose {
            AttemptPurpose::Noop => unmined.noops = unmined.noops.saturating_add(1),
            AttemptPurpose::Call | AttemptPurpose::Replacement => unmined.replacements = unmined.replacements.saturating_add(1),
        }
    }
    COUNTED
}

#[cfg(test)]
#[path = "outlook_tests.rs"]
mod tests;
