//! Rungs: an open nonce with its fees, its limits, and what happens to it next and when. What happens is asked of `domain::outlook`,
//! and so of the rules of the lane's own rounds; here it gets its words. Shared by whoever explains a lane, a transaction or a job.

use super::lanes::Lane;
use super::transactions::{Transaction, since};
use super::{Error, age};
use crate::actors::lane_reconciler::rules;
use crate::config;
use crate::domain::encoding::checksummed;
use crate::domain::fees::Quote;
use crate::domain::funds::gwei;
use crate::domain::lane_round::{Look, OpenNonce};
use crate::domain::outlook::{self, Act, Limit, Outlook, Planned};
use crate::domain::rpc_verdict::Class;
use crate::domain::{replacement, settlement};
use crate::store::Reader;
use crate::store::settling::Open;
use crate::store::standing::{self, Head, Sight};
use chrono::{DateTime, TimeDelta, Utc};
use entity::ids::LineageId;
use entity::states::{AttemptPurpose, LaneState, NoopReason};
use entity::values::{Address, Hash, Wei};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Where it stands against the chain.
    pub place: Place,
    #[serde(flatten)]
    pub transaction: Transaction,
    /// Of everything that was signed for it, oldest first: any of them may be mined.
    pub hashes: Vec<Hash>,
    /// Null while nothing is signed, and where the settings of the chain are not known to this process.
    pub fees: Option<Fees>,
    pub next: Coming,
    /// The change of price that comes after `next`.
    pub then: Option<Coming>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The chain has taken the nonce at its newest block; TX_CONFIRMATIONS are to come.
    Mined,
    /// The one that the chain takes next.
    Head,
    /// Behind the head.
    Behind,
}

/// What an open nonce offers and what it may still offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fees {
    /// The highest of each that was signed.
    pub max_fee_per_gas_wei: Wei,
    pub max_priority_fee_per_gas_wei: Wei,
    /// Of the next attempt, whenever it is due; null where the limits allow none.
    pub next_max_fee_per_gas_wei: Option<Wei>,
    pub next_max_priority_fee_per_gas_wei: Option<Wei>,
    /// TX_MAX_FEE_PER_GAS_WEI (of a no-op TX_NOOP_MAX_FEE_PER_GAS_WEI), or less where TX_MAX_TOTAL_FEE_WEI says so.
    pub limit_max_fee_per_gas_wei: Wei,
    pub limit_distance_wei: Wei,
    /// Of the limit, in whole percent.
    pub limit_distance_percent: u64,
    /// Attempts that the limits of price and count still allow, each the least dearer one.
    pub attempts_left: u32,
    /// Of TX_MAX_REPLACEMENTS.
    pub replacements_left: u32,
    /// The limit that it stands at.
    pub capped_by: Option<&'static str>,
}

/// Something that is to happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coming {
    /// A stable word.
    pub act: &'static str,
    pub text: String,
    /// Null where it waits for something else than a time.
    pub at: Option<DateTime<Utc>>,
    pub in_seconds: Option<u64>,
    /// Blocks that have to come first, at most.
    pub in_blocks: Option<u64>,
    /// For the operator, where there is something to do or to look at.
    pub command: Option<String>,
}

impl Coming {
    pub(super) fn of(act: &'static str, text: impl Into<String>) -> Self {
        Self { act, text: text.into(), at: None, in_seconds: None, in_blocks: None, command: None }
    }
}

/// What is known where a lane stands. All of it is stored: no endpoint is asked.
pub(super) struct Ground<'a> {
    pub lane: &'a Lane,
    pub sight: Option<Sight>,
    pub head: Option<Head>,
    /// None: this process does not know the chain.
    pub settings: Option<&'a config::Chain>,
    pub now: DateTime<Utc>,
}

/// What was seen of the lanes of a signer and of their chains.
pub(super) struct Seen {
    pub sights: Vec<Sight>,
    pub heads: Vec<Head>,
}

impl Seen {
    pub(super) async fn load(db: &Reader, signer: Address) -> Result<Self, Error> {
        let (sights, heads) = futures::try_join!(standing::sights(db, signer), standing::heads(db))?;
        Ok(Self { sights, heads })
    }

    pub(super) fn ground<'a>(&self, lane: &'a Lane, chains: &'a [config::Chain], now: DateTime<Utc>) -> Ground<'a> {
        Ground {
            lane,
            sight: self.sights.iter().find(|sight| sight.lane == lane.id).copied(),
            head: self.heads.iter().find(|head| head.chain_id == lane.chain_id).copied(),
            settings: chains.iter().find(|chain| i64::try_from(chain.id) == Ok(lane.chain_id)),
            now,
        }
    }
}

/// Open nonces by their id, as the rounds of a lane see them.
pub(super) async fn opened(db: &Reader, ids: &[LineageId]) -> Result<HashMap<LineageId, Open>, Error> {
    Ok(standing::open_of(db, ids).await?.into_iter().map(|open| (open.lineage, open)).collect())
}

pub(super) fn place(lane: &Lane, nonce: i64) -> Place {
    match nonce.cmp(&lane.latest_nonce) {
        std::cmp::Ordering::Less => Place::Mined,
        std::cmp::Ordering::Equal => Place::Head,
        std::cmp::Ordering::Greater => Place::Behind,
    }
}

/// An open nonce on its ground.
pub(super) fn rung(ground: &Ground<'_>, transaction: Transaction, open: Option<&Open>) -> Rung {
    let hashes = open.map(|open| open.attempts.iter().map(|(hash, _)| *hash).collect()).unwrap_or_default();
    let place = place(ground.lane, transaction.nonce);
    let Some((open, settings)) = open.zip(ground.settings) else {
        let next = match open {
            None => Coming::of("ended", "it has just ended"),
            Some(_) => Coming::of(
                "unknown",
                format!(
                    "the settings of chain {} are not known to this process, so what comes next is not: ask where the service runs",
                    ground.lane.chain_id
                ),
            ),
        };
        return Rung { place, transaction, hashes, fees: None, next, then: None };
    };
    let one = rules::nonce(open);
    let look = ground.look();
    let of = |one: &OpenNonce<'_>| rules::of(one, open.gas_limit, ground.lane.latest_nonce, ground.lane.width, settings);
    let ahead = outlook::outlook(&one, &look, &of);
    let limits = rules::at_gas(open.gas_limit, settings);
    let words = Words { ground, settings, open, one: &one, transaction: &transaction, ahead: &ahead };
    Rung {
        place,
        hashes,
        fees: fees(&one, &look, &limits, &ahead),
        next: words.coming(ahead.next),
        then: ahead.then.map(|then| words.coming(then)),
        transaction,
    }
}

fn fees(one: &OpenNonce<'_>, look: &Look, rules: &replacement::Rules, ahead: &Outlook) -> Option<Fees> {
    let tried = one.unmined.tried?;
    let limits = replacement::limits(&one.unmined, rules);
    let next = replacement::next_price(&one.unmined, look.market, rules).map(|(_, price)| price);
    let distance = limits.limit.0.saturating_sub(tried.max_fee_per_gas.0);
    let percent = distance.saturating_mul(100.into()).checked_div(limits.limit.0).unwrap_or_default();
    Some(Fees {
        max_fee_per_gas_wei: tried.max_fee_per_gas,
        max_priority_fee_per_gas_wei: tried.max_priority_fee_per_gas,
        next_max_fee_per_gas_wei: next.map(|price| price.max_fee_per_gas),
        next_max_priority_fee_per_gas_wei: next.map(|price| price.max_priority_fee_per_gas),
        limit_max_fee_per_gas_wei: limits.limit,
        limit_distance_wei: Wei(distance),
        limit_distance_percent: percent.min(100.into()).low_u64(),
        attempts_left: outlook::attempts_left(one, look, rules),
        replacements_left: limits.left,
        capped_by: ahead.capped.map(|limit| match limit {
            Limit::Price => "price",
            Limit::Count => "count",
        }),
    })
}

impl Ground<'_> {
    fn look(&self) -> Look {
        let observed = self.sight.and_then(|sight| sight.block).and_then(|block| u64::try_from(block).ok()).unwrap_or_default();
        let head = self.head.and_then(|head| u64::try_from(head.number).ok()).unwrap_or_default();
        // A market that is not known makes nothing due.
        let unknown = Quote { base_fee: Wei::ZERO, priority_fee: Wei::ZERO };
        Look {
            state: self.lane.state,
            latest: Some(self.lane.latest_nonce),
            head_for: self.sight.map(|sight| sight.head_for),
            block: observed.max(head),
            market: self.head.and_then(|head| head.market).map_or(unknown, |(market, _)| market),
            // How many calls fail is known to the service alone; it gives nothing up meanwhile.
            calm: true,
        }
    }

    pub(super) fn base_fee(&self) -> Option<Wei> {
        self.head.and_then(|head| head.market).map(|(market, _)| market.base_fee)
    }
}

/// What the words are made of.
struct Words<'a> {
    ground: &'a Ground<'a>,
    settings: &'a config::Chain,
    open: &'a Open,
    one: &'a OpenNonce<'a>,
    transaction: &'a Transaction,
    ahead: &'a Outlook,
}

impl Words<'_> {
    fn coming(&self, planned: Planned) -> Coming {
        let timed = |act, text: String| Coming {
            at: TimeDelta::from_std(planned.after).ok().and_then(|after| self.ground.now.checked_add_signed(after)),
            in_seconds: Some(whole(planned.after)),
            in_blocks: planned.needs_block.then_some(1),
            ..Coming::of(act, text)
        };
        let when = when(planned);
        match planned.act {
            Act::Settle => self.settling(),
            Act::FirstSignature => Coming {
                command: Some(format!("holdfast jobs explain {}", self.transaction.job)),
                ..Coming::of(
                    "first_signature",
                    "nothing is signed for it yet: the execution of its job signs it, or gives it back from the tail",
                )
            },
            Act::Send if self.one.unmined.answer == Some(Class::InsufficientFunds) => {
                timed("send", format!("the signer cannot pay, no price helps: the same bytes go again {when}, and at once after a top-up"))
            }
            Act::Send if self.transaction.nonce > self.ground.lane.latest_nonce => {
                timed("send", format!("it waits for nonce {}; the same bytes go again {when}", self.ground.lane.latest_nonce))
            }
            Act::Send => timed("send", format!("the same bytes go again {when}")),
            Act::Sign { purpose: AttemptPurpose::Noop, price } => timed(
                "noop",
                format!("a no-op of the same nonce is signed {when}, at {} gwei: {}", gwei(price.max_fee_per_gas), self.noop_because()),
            ),
            Act::Sign { price, .. } => timed(
                "replace",
                format!(
                    "a dearer attempt is signed {when}: at most {} gwei, tip {} gwei",
                    gwei(price.max_fee_per_gas),
                    gwei(price.max_priority_fee_per_gas)
                ),
            ),
            Act::SendCapped => timed("send_at_limit", self.at_limit(&when)),
            Act::GiveUp(class) if class.is_about_gas() => timed(
                "resize",
                format!(
                    "every endpoint answers {class}: the call is estimated anew {when}; another gas limit is another attempt at the same \
                     nonce, otherwise a no-op uses the nonce up"
                ),
            ),
            Act::GiveUp(class) => {
                timed("give_up", format!("every endpoint answers {class}: the bytes are given up {when}, and a no-op uses the nonce up"))
            }
            Act::HeldBack => Coming::of(
                "held_back",
                format!(
                    "the node keeps no more of this account ({}): it goes again once nonce {} is taken",
                    self.open.last_answer.as_deref().unwrap_or("no answer"),
                    (self.transaction.nonce - i64::from(self.ground.lane.width)).max(self.ground.lane.latest_nonce)
                ),
            ),
            Act::Frozen => Coming {
                command: Some(format!("holdfast lanes thaw {}", checksummed(&self.transaction.signer))),
                ..Coming::of(
                    "frozen",
                    "the lane is frozen: the same bytes are sent, and nothing is priced or ended before an operator has decided (runbook HoldfastFinalityViolated)",
                )
            },
        }
    }

    fn settling(&self) -> Coming {
        if self.ground.lane.state == LaneState::Frozen {
            return Coming::of("frozen", "the chain has taken it; the lane is frozen and ends nothing before an operator has decided");
        }
        let look = self.ground.look();
        let seen = self.ground.sight.and_then(|sight| sight.block).and_then(|block| u64::try_from(block).ok()).unwrap_or(look.block);
        let left = settlement::blocks_left(seen, look.block, self.settings.confirmations);
        let text = match left {
            0 => "the chain has taken it and it is deep enough: it ends at the next look at the lane, when a majority shows its receipt"
                .to_owned(),
            left => format!(
                "mined at or before block {seen}: it ends in at most {} (TX_CONFIRMATIONS {})",
                blocks(left),
                self.settings.confirmations
            ),
        };
        Coming { in_blocks: Some(left), ..Coming::of("settle", text) }
    }

    fn noop_because(&self) -> String {
        let why = match self.open.noop {
            Some(NoopReason::Cancelled) => "its job was cancelled",
            Some(NoopReason::Refused) => "the nodes refuse its bytes for good",
            None => "the nonce has to be used up",
        };
        self.open.noop_detail.as_ref().map_or_else(|| why.to_owned(), |detail| format!("{why} ({detail})"))
    }

    fn at_limit(&self, when: &str) -> String {
        let rules = rules::at_gas(self.open.gas_limit, self.settings);
        let limits = replacement::limits(&self.one.unmined, &rules);
        let reached = match (self.ahead.capped, limits.left) {
            (Some(Limit::Count), _) | (None, 0) => format!("all {} replacements are made", self.settings.max_replacements),
            _ => format!("the next price is above the limit of {} gwei", gwei(limits.limit)),
        };
        let offered = self.one.unmined.tried.map_or(Wei::ZERO, |tried| tried.max_fee_per_gas);
        let now = self.ground.base_fee().map_or_else(String::new, |fee| format!(", now {} gwei", gwei(fee)));
        let every = age(whole(rules.rhythm_at_limit()));
        format!(
            "{reached}: the best bytes go again {when} and every {every}; they land when the base fee is below {} gwei{now}",
            gwei(offered)
        )
    }
}

/// Rounded up: what is said to come in a second has not come before it.
fn whole(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn when(planned: Planned) -> String {
    match (whole(planned.after), planned.needs_block) {
        (0, false) => "at the next look at the lane".into(),
        (0, true) => "with the next block".into(),
        (seconds, false) => format!("in {}", age(seconds)),
        (seconds, true) => format!("in {}, with the next block", age(seconds)),
    }
}

pub(super) fn blocks(count: u64) -> String {
    if count == 1 { "1 block".into() } else { format!("{count} blocks") }
}

/// Where the end of a nonce stands: whether it can still be undone.
pub(super) fn finality(transaction: &Transaction, ground: &Ground<'_>) -> Option<String> {
    let block = transaction.block?;
    if let Some(at) = transaction.finalized_at {
        return Some(format!("final, noted {} ago", age(since(at, ground.now))));
    }
    let (head, depth) = (u64::try_from(ground.head?.number).ok()?, ground.settings?.reorg_lookback);
    let left = settlement::blocks_left(u64::try_from(block.number).ok()?, head, depth);
    Some(match left {
        0 => "deep enough to be final: the next look at the lane notes it".into(),
        left => format!("final in {} (TX_REORG_LOOKBACK_BLOCKS {depth})", blocks(left)),
    })
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
pub(super) mod tests;
