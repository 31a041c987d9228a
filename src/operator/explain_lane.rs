//! One signer's lanes, explained: the fence, what the chain has taken and settled, the ladder of open nonces between them with what
//! happens to each, and the signer's money. Asks Postgres only, and says how old that is.

use super::ladder::{self, Coming, Ground, Place, Rung, Seen, blocks};
use super::lanes::{self, Lane};
use super::transactions::Transaction;
use super::{Desk, Error, List, age, seconds};
use crate::actors::lane_funds;
use crate::chain::FeeQuote;
use crate::domain::encoding::checksummed;
use crate::domain::funds::native;
use crate::store::lanes::committed;
use crate::store::{Reader, standing, transactions};
use chrono::{DateTime, Utc};
use entity::states::LaneState;
use entity::values::{Address, Wei};
use serde::Serialize;

/// Most rungs that are shown of a ladder.
const RUNGS_MAX: u32 = 200;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub lane: Lane,
    /// The newest block that a majority had reached.
    pub head: Option<i64>,
    pub head_age_seconds: Option<u64>,
    /// What the next block asks for at least.
    pub base_fee_per_gas_wei: Option<Wei>,
    pub observed: Observed,
    pub why: String,
    pub next: Coming,
    pub funds: Option<Funds>,
    /// The open nonces, lowest first: each waits for the ones before it.
    pub ladder: Vec<Rung>,
    /// Open nonces above those that are shown.
    pub ladder_left_off: i64,
    /// When the signer joined and left which pool of the chain, oldest first.
    pub memberships: Vec<Membership>,
}

/// The last look of a process at the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    pub block: Option<i64>,
    pub age_seconds: Option<u64>,
    /// What the account has used up with what waits in a node's pool: a hint.
    pub pending_nonce: Option<i64>,
    /// Since when the chain waits for the latest nonce.
    pub head_for_seconds: u64,
    /// A process settles the lane now.
    pub leased: bool,
}

/// The signer's money, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Funds {
    pub balance_wei: Wei,
    pub balance_age_seconds: Option<u64>,
    /// All that is open at its highest price, with the next dearer attempt.
    pub required_wei: Wei,
    /// Below this the lane takes no work.
    pub floor_wei: Wei,
    /// A lane that is paused for lack of money goes on at this balance.
    pub resumes_at_wei: Wei,
    /// What is missing: to the floor, or until it goes on.
    pub missing_wei: Wei,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Membership {
    pub pool: String,
    /// `joined` or `left`.
    pub change: String,
    pub by: String,
    pub at: DateTime<Utc>,
}

/// # Errors
/// `NotFound` when the signer has no lane, and see [`Error`].
pub async fn explain(desk: &Desk, signer: Address) -> Result<List<Explanation>, Error> {
    let db = desk.reader();
    let mut lanes = lanes::load(&db).await?;
    lanes.retain(|lane| lane.signer == signer);
    if lanes.is_empty() {
        return Err(Error::NotFound { what: "lane of", id: checksummed(&signer) });
    }
    let (rows, seen, history) = futures::try_join!(
        async { Ok::<_, Error>(transactions::ladder(&db, signer, RUNGS_MAX).await?) },
        Seen::load(&db, signer),
        async { Ok(standing::memberships(&db, signer).await?) }
    )?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let opened = ladder::opened(&db, &ids).await?;
    let now = desk.clock.now();
    let mut rows = rows;
    let mut items = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let ground = seen.ground(&lane, &desk.chains, now);
        let (mine, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.lane == lane.id);
        rows = others;
        let ladder: Vec<_> = mine
            .into_iter()
            .map(|row| (row.id, Transaction::at(now, row)))
            .map(|(id, t)| ladder::rung(&ground, t, opened.get(&id)))
            .collect();
        let funds = funds(&db, &ground).await?;
        let (why, next) = verdict(&ground, &ladder, funds.as_ref());
        items.push(Explanation {
            head: ground.head.map(|head| head.number),
            head_age_seconds: ground.head.map(|head| seconds(head.age)),
            base_fee_per_gas_wei: ground.base_fee(),
            observed: observed(&ground),
            why,
            next,
            funds,
            ladder_left_off: (lane.open - i64::try_from(ladder.len()).unwrap_or(i64::MAX)).max(0),
            ladder,
            memberships: history.iter().filter(|one| one.chain_id == lane.chain_id).map(membership).collect(),
            lane,
        });
    }
    Ok(List::whole(items))
}

fn membership(row: &standing::Membership) -> Membership {
    Membership { pool: row.pool.clone(), change: row.change.clone(), by: row.actor.clone(), at: row.at }
}

fn observed(ground: &Ground<'_>) -> Observed {
    ground.sight.map_or_else(Observed::default, |sight| Observed {
        block: sight.block,
        age_seconds: sight.age.map(seconds),
        pending_nonce: sight.pending,
        head_for_seconds: seconds(sight.head_for),
        leased: sight.leased,
    })
}

/// The sums are those by which the lane is paused; a signer has one lane a chain.
async fn funds(db: &Reader, ground: &Ground<'_>) -> Result<Option<Funds>, Error> {
    let (Some(settings), Some(sight), Some((market, tx_type))) = (ground.settings, ground.sight, ground.head.and_then(|head| head.market))
    else {
        return Ok(None);
    };
    let Some(balance) = sight.balance else { return Ok(None) };
    let fees = FeeQuote { base_fee: market.base_fee, priority_fee: market.priority_fee, tx_type };
    let price = lane_funds::price(fees, settings);
    let committed = committed(db, ground.lane.id, ground.lane.latest_nonce, price, &lane_funds::too_many()).await?;
    let money = lane_funds::money(balance, &committed, price, settings);
    let (floor, resumes_at) = (money.effective_floor(), money.resumes_at());
    let wanted = if lane_funds::is_unfunded(ground.lane.state, ground.lane.reason.as_deref()) { resumes_at } else { floor };
    Ok(Some(Funds {
        balance_wei: balance,
        balance_age_seconds: sight.balance_age.map(seconds),
        required_wei: money.required(),
        floor_wei: floor,
        resumes_at_wei: resumes_at,
        missing_wei: Wei(wanted.0.saturating_sub(balance.0)),
    }))
}

fn verdict(ground: &Ground<'_>, ladder: &[Rung], funds: Option<&Funds>) -> (String, Coming) {
    let lane = ground.lane;
    let reason = lane.reason.as_deref().unwrap_or("no reason was given");
    let mut why = match lane.state {
        LaneState::Active if lane.free > 0 => {
            format!("it takes work: {} before the window of {} is full", more(lane.free), lane.width)
        }
        LaneState::Active => {
            format!("its window of {} is full: nonces {} to {} are open", lane.width, lane.latest_nonce, lane.next_nonce - 1)
        }
        state => format!("it is {state} and takes no work: {reason}"),
    };
    if lane.delegated {
        why.push_str("; the sender has delegated itself (EIP-7702), so nodes keep one nonce of it at a time");
    }
    if let Some(sight) = ground.sight.filter(|sight| !sight.leased && lane.state != LaneState::Retired) {
        let look = sight.age.map_or_else(|| "it was never looked at".into(), |old| format!("the last look was {} ago", age(seconds(old))));
        why.push_str(&format!("; no process settles it now, {look}"));
        if lane.open > 0 {
            let next = Coming::of("unattended", "nothing, until a process that has the key runs and settles it");
            return (why, Coming { command: Some("holdfast workers list".into()), ..next });
        }
    }
    (why, next(ground, ladder, funds))
}

/// What an operator has to do comes before what the lane does by itself.
fn next(ground: &Ground<'_>, ladder: &[Rung], funds: Option<&Funds>) -> Coming {
    let lane = ground.lane;
    let signer = checksummed(&lane.signer);
    match lane.state {
        LaneState::Frozen => Coming {
            command: Some(format!("holdfast lanes thaw {signer}")),
            ..Coming::of(
                "frozen",
                "nothing is ended or priced until an operator has decided whether the chain or the endpoints were wrong (runbook \
                 HoldfastFinalityViolated); the bytes are still sent",
            )
        },
        LaneState::Paused if lane_funds::is_unfunded(lane.state, lane.reason.as_deref()) => {
            let amount = funds.filter(|funds| funds.missing_wei > Wei::ZERO).map_or_else(
                || format!("send native currency to {signer}: it goes on by itself"),
                |funds| {
                    format!(
                        "send at least {} ({} wei) to {signer}: at a balance of {} it goes on by itself",
                        native(funds.missing_wei),
                        funds.missing_wei,
                        native(funds.resumes_at_wei)
                    )
                },
            );
            Coming::of("top_up", amount)
        }
        LaneState::Drained => Coming {
            command: Some(format!("holdfast jobs signer-retire-check {signer}")),
            ..Coming::of("nothing", "nothing by itself: it can be retired, or taken back by holdfast jobs signer-undrain")
        },
        LaneState::Retired => Coming::of("nothing", "nothing: it never takes work again"),
        LaneState::Active | LaneState::Paused | LaneState::Draining => of_ladder(lane, ladder),
    }
}

fn of_ladder(lane: &Lane, ladder: &[Rung]) -> Coming {
    let Some(head) = ladder.iter().find(|rung| rung.place == Place::Head) else {
        return without_head(lane, ladder);
    };
    let nonce = head.transaction.nonce;
    let behind = ladder.iter().filter(|rung| rung.place == Place::Behind).count();
    let others = match behind {
        0 => String::new(),
        1 => "; 1 other waits behind it".into(),
        behind => format!("; {behind} others wait behind it"),
    };
    Coming { text: format!("nonce {nonce} comes first: {}{others}", head.next.text), ..head.next.clone() }
}

fn without_head(lane: &Lane, ladder: &[Rung]) -> Coming {
    let mined: Vec<_> = ladder.iter().filter(|rung| rung.place == Place::Mined).collect();
    match (mined.first(), lane.next_nonce - lane.latest_nonce) {
        (None, 0) => Coming::of("nothing", "nothing is open"),
        (None, _) => Coming::of(
            "unaccounted",
            format!(
                "nonce {} is next on the chain but not open here: the lane's settling finds out what took it, or uses it up by a transfer of nothing",
                lane.latest_nonce
            ),
        ),
        (Some(first), _) => {
            let told = match first.next.in_blocks {
                Some(left) if left > 0 => format!("{} mined: the first ends in at most {}", all(mined.len()), blocks(left)),
                _ => format!("{} mined: {}", all(mined.len()), first.next.text),
            };
            Coming { text: told, ..first.next.clone() }
        }
    }
}

fn all(count: usize) -> String {
    if count == 1 { "1 nonce is".into() } else { format!("{count} nonces are") }
}

fn more(count: i64) -> String {
    if count == 1 { "1 more nonce fits".into() } else { format!("{count} more nonces fit") }
}

#[cfg(test)]
#[path = "explain_lane_tests.rs"]
mod tests;
