//! What one round of the settling of a lane decides: which nonces a receipt or a stranger ended, which ends a reorganisation undid, and
//! what every open nonce needs. Owns the decisions and their limits; asks nobody and writes nothing. Called by the LaneReconciler with
//! what it loaded and what a majority showed, and by whoever plays a lane.

use super::ballot::Facts;
use super::quorum::Decision;
use super::replacement::{self, Around, Rules, Step, Unmined};
use super::rpc_verdict::Class;
use super::settlement::{self, Evidence, Shown, Standing};
use super::{fees, job, lineage, window};
use entity::ids::LineageId;
use entity::states::{AttemptPurpose, LaneState};
use entity::values::Hash;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

/// Most bytes sent again, and most attempts signed, in one round: the head of the lane first, the rest follows when it moves.
const RESEND: usize = 64;
const SIGN: usize = 32;

/// An open nonce of the lane.
#[derive(Clone, Copy, Debug)]
pub struct OpenNonce<'a> {
    pub lineage: LineageId,
    pub nonce: i64,
    /// Every attempt, oldest first; empty while unsigned.
    pub attempts: &'a [(Hash, AttemptPurpose)],
    /// Noted as standing at its price limit.
    pub capped: bool,
    pub unmined: Unmined,
}

/// How many no-ops were signed, of which `later` over other bytes: a nonce that was unsigned when one was wanted has it as its first.
#[must_use]
pub fn noops(later: u32, attempts: &[(Hash, AttemptPurpose)]) -> u32 {
    later.max(u32::from(attempts.iter().any(|(_, purpose)| *purpose == AttemptPurpose::Noop)))
}

/// Where the chain stands when ends are decided.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The block that a majority has reached.
    pub head: u64,
    /// TX_CONFIRMATIONS, or TX_REORG_LOOKBACK_BLOCKS where an end is rechecked.
    pub depth: u64,
    /// False while so many calls fail that nothing irreversible is decided.
    pub calm: bool,
}

/// How many nonces the account has used up, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// At the newest block.
    pub latest: Option<i64>,
    /// At TX_CONFIRMATIONS below the head.
    pub settled: Option<i64>,
}

impl Consumed {
    /// Both counts where both are known; a count never goes back with the depth.
    #[must_use]
    pub fn observed(self) -> Option<(i64, i64)> {
        let (latest, settled) = self.latest.zip(self.settled)?;
        Some((latest.max(settled), settled))
    }
}

/// The block that is, itself counted, `depth` blocks deep; None while the chain is shorter than that.
#[must_use]
pub const fn settled_at(head: u64, depth: u64) -> Option<u64> {
    head.checked_sub(depth.saturating_sub(1))
}

/// What the end of a nonce is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Used up at TX_CONFIRMATIONS.
    pub settled: i64,
    /// Used up at TX_REORG_LOOKBACK_BLOCKS, where [`needs_beyond`] wants it.
    pub beyond: Option<i64>,
}

/// Whether a signed nonce has no receipt at all. That a stranger used it is concluded only from a count that no reorganisation undoes:
/// one between the count and the receipts would hide a receipt of ours, one afterwards could still mine our bytes, and nothing revives
/// what was given up to a stranger.
#[must_use]
pub fn needs_beyond<S: BuildHasher>(one: &OpenNonce<'_>, told: &HashMap<Hash, Decision<Option<Facts>>, S>) -> bool {
    !one.attempts.is_empty() && one.attempts.iter().all(|(hash, _)| shown(told, hash) == Shown::Absent)
}

fn shown<S: BuildHasher>(told: &HashMap<Hash, Decision<Option<Facts>>, S>, hash: &Hash) -> Shown {
    match told.get(hash) {
        Some(Decision::Agreed(None, _)) => Shown::Absent,
        Some(Decision::Agreed(Some(_), _)) => Shown::Receipt,
        Some(Decision::Split | Decision::Insufficient) | None => Shown::Unknown,
    }
}

/// How a nonce below the settled count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One of its attempts mined, deep enough and in the canonical block.
    Receipt { hash: Hash, purpose: AttemptPurpose, facts: Facts, lineage: lineage::Event, job: job::Event },
    /// One of them has a receipt, or none has, and it is not time yet.
    NotYet,
    /// Used up by a transaction that is none of ours.
    Stranger,
    /// Used up, and nothing may be concluded.
    Unproven,
}

/// The nonces that the account has used up at TX_CONFIRMATIONS: their receipts have to be asked for, after the count.
pub fn used_up<'a>(open: &'a [OpenNonce<'a>], settled: i64) -> impl Iterator<Item = &'a OpenNonce<'a>> {
    open.iter().filter(move |one| one.nonce < settled)
}

/// Judges a nonce of [`used_up`] by what a majority showed of its hashes (one that is missing was not asked for), and of the canonical
/// hashes at the heights of the receipts.
#[must_use]
pub fn end<S: BuildHasher, T: BuildHasher>(
    one: &OpenNonce<'_>,
    counts: Counts,
    told: &HashMap<Hash, Decision<Option<Facts>>, S>,
    canonical: &HashMap<u64, Hash, T>,
    at: At,
) -> End {
    let found = one.attempts.iter().find_map(|(hash, purpose)| match told.get(hash)? {
        Decision::Agreed(Some(facts), _) => Some((*hash, *purpose, *facts)),
        _ => None,
    });
    if let Some((hash, purpose, facts)) = found {
        let canonical = canonical.get(&facts.block_number).copied();
        let evidence = Evidence { block: facts.block_number, block_hash: facts.block_hash, canonical };
        if !settlement::is_final(evidence, at.head, at.depth) {
            return End::NotYet;
        }
        let (lineage, job) = settlement::outcome(purpose, facts.succeeded, one.unmined.noop);
        return End::Receipt { hash, purpose, facts, lineage, job };
    }
    let shown: Vec<Shown> = one.attempts.iter().map(|(hash, _)| shown(told, hash)).collect();
    let by_stranger = |count: i64| match (u64::try_from(one.nonce), u64::try_from(count)) {
        (Ok(nonce), Ok(count)) => settlement::is_consumed_by_stranger(nonce, count, &shown, at.calm),
        _ => false,
    };
    if !by_stranger(counts.settled) {
        End::Unproven
    } else if one.attempts.is_empty() || counts.beyond.is_some_and(by_stranger) {
        End::Stranger
    } else {
        End::NotYet
    }
}

/// What a round wants done with the nonces that the chain has not taken, the head of the lane first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub send: Vec<LineageId>,
    pub sign: Vec<Priced>,
    /// Stands at its price limit, and that is not noted yet.
    pub capped: Vec<LineageId>,
    pub give_up: Vec<(LineageId, Class)>,
}

/// A price for a nonce that has signed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priced {
    pub lineage: LineageId,
    pub purpose: AttemptPurpose,
    pub price: fees::Price,
    /// In place of the gas limit that the nonce has.
    pub gas_limit: Option<i64>,
}

/// What the lane looks like to its open nonces.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub state: LaneState,
    /// The next nonce that the chain takes; None where no majority tells.
    pub latest: Option<i64>,
    /// Since when the chain waits for it, where that is known.
    pub head_for: Option<Duration>,
    pub block: u64,
    pub market: fees::Quote,
    pub calm: bool,
}

/// How long the chain has waited for the head of the lane: what Postgres knows, while a majority still tells the same nonce.
#[must_use]
pub fn head_for(latest: Option<i64>, known: i64, waited: Duration) -> Option<Duration> {
    (latest == Some(known)).then_some(waited)
}

/// Decides for every open nonce by the same rules.
#[must_use]
pub fn wanted(open: &[OpenNonce<'_>], look: &Look, rules: &Rules) -> Wanted {
    wanted_by(open, look, |_| Ok(*rules))
}

/// Decides for one open nonce by the rules that `of` gives for it, or as `of` says; None where the chain has taken it. What is frozen is
/// priced and given up nowhere; its bytes live on.
#[must_use]
pub fn decided(one: &OpenNonce<'_>, look: &Look, of: &impl Fn(&OpenNonce<'_>) -> Result<Rules, Step>) -> Option<Step> {
    if look.latest.is_some_and(|latest| one.nonce < latest) {
        return None;
    }
    let head_for = look.head_for.filter(|_| look.latest == Some(one.nonce));
    let around = Around { head_for, block: look.block, market: look.market, calm: look.calm };
    let rules = match of(one) {
        Ok(rules) => rules,
        Err(step) => return Some(step),
    };
    let step = replacement::step(&one.unmined, &around, &rules);
    if look.state != LaneState::Frozen || !matches!(step, Step::Sign { .. } | Step::GiveUp(_)) {
        return Some(step);
    }
    let Unmined { state, age, since_sent, sends, noop, noops, .. } = one.unmined;
    // What is to be cancelled is not sent again while its no-op may not be signed.
    let wanted = noop.is_none() || noops > 0;
    Some(if wanted && replacement::is_due_again(state, age, since_sent, sends, rules.patience) { Step::Send } else { Step::Wait })
}

/// Decides for every open nonce, each by the rules that `of` gives for it, or as `of` says.
#[must_use]
pub fn wanted_by(open: &[OpenNonce<'_>], look: &Look, of: impl Fn(&OpenNonce<'_>) -> Result<Rules, Step>) -> Wanted {
    let mut wanted = Wanted::default();
    for one in open {
        let Some(step) = decided(one, look, &of) else { continue };
        match step {
            Step::Send | Step::Capped { send: true } if wanted.send.len() < RESEND => wanted.send.push(one.lineage),
            Step::Sign { purpose, price } if wanted.sign.len() < SIGN => {
                wanted.sign.push(Priced { lineage: one.lineage, purpose, price, gas_limit: None });
            }
            Step::GiveUp(class) => wanted.give_up.push((one.lineage, class)),
            Step::Wait | Step::Send | Step::Capped { .. } | Step::Sign { .. } => {}
        }
        if matches!(step, Step::Capped { .. }) && !one.capped {
            wanted.capped.push(one.lineage);
        }
    }
    wanted
}

/// A nonce behind the head that the node had no room for: it goes again once it is inside the window, and not before. `latest` is the next
/// nonce that the chain takes. None: the rules decide.
#[must_use]
pub fn held_back(one: &OpenNonce<'_>, latest: i64, width: i32, patience: Duration) -> Option<Step> {
    let ahead = one.nonce - latest;
    if ahead <= 0 || !window::is_too_many(one.unmined.answer?) {
        return None;
    }
    let has_room = ahead < i64::from(width) && one.unmined.since_sent.is_none_or(|since| since >= patience);
    Some(if has_room { Step::Send } else { Step::Wait })
}

/// Most nonces that are taken for gaps. No reorganisation undoes more strangers than this: what looks like it is another chain under the same id.
const GAPS: i64 = 64;

/// The nonces from the one that the chain waits for up to the fence that nobody owns, once it has waited for `patience`. Strangers used them up, the fence
/// followed, and a reorganisation undid that: what stands behind them is never mined unless they are used up again. `open` are the nonces with an owner.
#[must_use]
pub fn gaps(open: &[i64], latest: i64, fence: i64, head_for: Option<Duration>, patience: Duration) -> Vec<i64> {
    if fence - latest > GAPS + i64::try_from(open.len()).unwrap_or(i64::MAX) || head_for.is_none_or(|waited| waited < patience) {
        return Vec::new();
    }
    // Behind a head with an owner nothing is decided: it will be mined, and the next round sees the gap at the head.
    if open.contains(&latest) {
        return Vec::new();
    }
    let owned: HashSet<i64> = open.iter().copied().collect();
    (latest..fence).filter(|nonce| !owned.contains(nonce)).collect()
}

/// A block with ends of the lane in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndBlock {
    pub number: u64,
    pub hash: Hash,
    /// TX_REORG_LOOKBACK_BLOCKS deep when it was looked at.
    pub finalized: bool,
}

/// What became of the ends in some blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recheck {
    /// An end that nothing should undo was undone: the lane freezes, and nothing else is decided.
    pub broken: Option<EndBlock>,
    /// Their ends are undone.
    pub orphaned: Vec<EndBlock>,
    /// Their ends are final.
    pub deep: Vec<EndBlock>,
    /// Something was orphaned, whether or not that may be acted on now: every block that may be undone has to be looked at.
    pub reorganised: bool,
}

/// Judges blocks with ends by the canonical hashes at their heights. Nothing is undone while many calls fail.
#[must_use]
pub fn recheck<S: BuildHasher>(blocks: &[EndBlock], canonical: &HashMap<u64, Hash, S>, at: At) -> Recheck {
    let mut found = Recheck::default();
    for block in blocks {
        let evidence = Evidence { block: block.number, block_hash: block.hash, canonical: canonical.get(&block.number).copied() };
        match (settlement::standing(evidence, at.head, at.depth), block.finalized) {
            (Standing::Orphaned, true) => found.broken = found.broken.or(Some(*block).filter(|_| at.calm)),
            (Standing::Orphaned, false) => {
                found.reorganised = true;
                found.orphaned.extend(Some(*block).filter(|_| at.calm));
            }
            (Standing::Final, false) => found.deep.push(*block),
            (Standing::Final, true) | (Standing::Provisional | Standing::Unknown, _) => {}
        }
    }
    if found.broken.is_some() {
        found.orphaned.clear();
        found.deep.clear();
    }
    found
}

#[cfg(test)]
#[path = "lane_round_tests.rs"]
mod tests;
