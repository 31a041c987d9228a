//! `holdfast lanes`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Cell, Page, Tone, address, cell, maybe, time, toned};
use super::{Global, session, tx};
use crate::domain::encoding::checksummed;
use crate::domain::funds::{gwei, native};
use crate::operator::age;
use crate::operator::explain_lane::{self, Explanation, Funds};
use crate::operator::lanes::{self, Lane};
use crate::operator::retire::Chains;
use crate::operator::thaw::{self, Thawed};
use clap::Subcommand;
use entity::states::LaneState;
use entity::values::{Address, Wei};

/// Nonces whose next steps are told one by one; the others wait for them.
const TOLD: usize = 20;

#[derive(Subcommand)]
pub enum Lanes {
    /// Every lane, the ones in trouble first
    List,
    /// The ladder of nonces of a signer, and what it waits for
    Explain { address: Address },
    /// Lets a frozen lane settle again: ends that a majority contradicts are undone and their bytes sent again
    Thaw {
        address: Address,
        /// Only on this chain; without it, on every chain where it is frozen
        #[arg(long)]
        chain: Option<i64>,
        /// Say what would be undone, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

impl Lanes {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::List => {
                let list = session::at_desk(global, async |_, desk| lanes::list(desk).await)?;
                answer(global, "lanes.list", &list, |page| show(page, &list.items))?;
            }
            Self::Explain { address } => {
                let list = session::at_desk(global, async |_, desk| explain_lane::explain(desk, address).await)?;
                answer(global, "lanes.explain", &list, |page| list.items.iter().for_each(|lane| explain(page, lane)))?;
            }
            Self::Thaw { address, chain, dry_run } => {
                let config = session::config_for_postgres(global)?;
                let operator = session::operator(&config)?;
                let list = session::at_desk_of(global, &config, async |config, desk| {
                    thaw::thaw(desk, (address, chain), &Chains::Configured(&config.chains), dry_run, (operator, &global.reason)).await
                })?;
                answer(global, "lanes.thaw", &list, |page| list.items.iter().for_each(|lane| thawed(page, lane)))?;
            }
        }
        Ok(Code::Done)
    }
}

fn thawed(page: &mut Page, lane: &Thawed) {
    let who = format!("{} on chain {}", checksummed(&lane.signer), lane.chain_id);
    match lane.reopened {
        Some(ends) => {
            page.toned_line(format!("{who} is thawed: {ends} ends are provisional again, and its next round undoes them"), Tone::Good)
        }
        None => page.line(format!("{who} would be thawed")),
    }
    page.line(format!("it was frozen for {}", lane.reason));
    page.line(format!("a majority was asked about {} blocks; nonce {} is what the chain takes next", lane.blocks, lane.consumed));
    let row = |end: &thaw::Undone| {
        let stood = end.block.map_or_else(|| cell("given up to a stranger"), cell);
        vec![cell(end.nonce), cell(end.job), stood, maybe(end.hash)]
    };
    let rows: Vec<_> = lane.undone.iter().map(row).collect();
    page.table(&["NONCE", "JOB", "BLOCK", "TRANSACTION"], &rows, "a majority contradicts no final end: all of them stand");
    let left = lane.contradicted - i64::try_from(lane.undone.len()).unwrap_or(0);
    if left > 0 {
        page.line(format!("and {left} more above them"));
    }
    if lane.reopened.is_some() {
        page.line(format!(
            "it gives out no nonce yet; once `holdfast lanes explain {0}` is as it should be: holdfast jobs signer-undrain {0}",
            checksummed(&lane.signer)
        ));
    }
}

fn state(lane: &Lane) -> Cell {
    let tone = match lane.state {
        LaneState::Active => Tone::Good,
        LaneState::Paused | LaneState::Frozen => Tone::Bad,
        _ => Tone::Look,
    };
    toned(lane.state, tone)
}

fn show(page: &mut Page, lanes: &[Lane]) {
    let rows: Vec<_> = lanes
        .iter()
        .map(|lane| {
            vec![
                address(&lane.signer),
                cell(lane.chain_id),
                cell(&lane.pool),
                state(lane),
                cell(lane.next_nonce),
                cell(lane.latest_nonce),
                cell(lane.settled_nonce),
                cell(lane.open),
                maybe(lane.oldest_open_seconds.map(age)),
                maybe(lane.reason.as_ref()),
            ]
        })
        .collect();
    page.table(
        &["SIGNER", "CHAIN", "POOL", "STATE", "FENCE", "LATEST", "SETTLED", "OPEN", "OLDEST", "REASON"],
        &rows,
        "no lane: no process with SIGNER_KEYS has started yet",
    );
}

fn explain(page: &mut Page, explanation: &Explanation) {
    let (lane, seen) = (&explanation.lane, &explanation.observed);
    page.heading(&format!("Lane {} on chain {}", checksummed(&lane.signer), lane.chain_id));
    let look = match (seen.block, seen.age_seconds) {
        (Some(block), Some(old)) => format!("at block {block}, {} ago", age(old)),
        _ => "never".into(),
    };
    let waits = if lane.next_nonce > lane.latest_nonce { format!(", for {} now", age(seen.head_for_seconds)) } else { String::new() };
    let mut parts = vec![("state", state(lane)), ("why", cell(&explanation.why))];
    parts.extend(tx::coming("next", &explanation.next));
    parts.extend([
        ("pool", cell(&lane.pool)),
        ("fence", cell(format!("{} is what the next plan gets", lane.next_nonce))),
        ("pending", maybe(seen.pending_nonce.map(|pending| format!("{pending} is what a node counts with its pool, a hint")))),
        ("latest", cell(format!("{} is what the chain takes next{waits}", lane.latest_nonce))),
        ("settled", cell(format!("all below {} have TX_CONFIRMATIONS", lane.settled_nonce))),
        ("window", cell(format!("{} of {} free", lane.free, lane.width))),
        ("seen", cell(look)),
        ("head", maybe(explanation.head.map(|head| head_of(head, explanation)))),
        ("money", maybe(explanation.funds.as_ref().map(money))),
    ]);
    page.story(&parts);
    rungs(page, explanation);
    page.heading("Pools that it joined and left");
    let rows: Vec<_> =
        explanation.memberships.iter().map(|one| vec![cell(time(one.at)), cell(&one.change), cell(&one.pool), cell(&one.by)]).collect();
    page.table(&["AT", "CHANGE", "POOL", "BY"], &rows, "none on record");
}

fn head_of(head: i64, explanation: &Explanation) -> String {
    let old = explanation.head_age_seconds.map_or_else(String::new, |old| format!(", {} ago", age(old)));
    let fee = explanation.base_fee_per_gas_wei.map_or_else(String::new, |fee| format!(", base fee {} gwei", gwei(fee)));
    format!("block {head}{old}{fee}")
}

fn money(funds: &Funds) -> String {
    let old = funds.balance_age_seconds.map_or_else(String::new, |old| format!(" (changed {} ago)", age(old)));
    let missing = if funds.missing_wei == Wei::ZERO { String::new() } else { format!("; {} is missing", native(funds.missing_wei)) };
    format!(
        "holds {}{old}; what is open may cost {}; below {} it takes no work{missing}",
        native(funds.balance_wei),
        native(funds.required_wei),
        native(funds.floor_wei)
    )
}

fn rungs(page: &mut Page, explanation: &Explanation) {
    page.heading("Open nonces, each waits for those above it (prices in gwei: at most / tip)");
    let rows: Vec<_> = explanation
        .ladder
        .iter()
        .map(|rung| {
            let t = &rung.transaction;
            let (offers, bump, left) = tx::prices(rung.fees.as_ref());
            vec![
                cell(t.nonce),
                tx::place(rung.place),
                cell(t.state),
                cell(age(t.age_seconds)),
                cell(t.attempts),
                cell(t.sends),
                cell(offers),
                cell(bump),
                cell(left),
                maybe(t.last_answer.as_ref()),
            ]
        })
        .collect();
    page.table(&["NONCE", "PLACE", "STATE", "AGE", "SIGNED", "SENT", "OFFERS", "NEXT PRICE", "LEFT", "LAST ANSWER"], &rows, "none");
    if explanation.ladder_left_off > 0 {
        page.line(format!("and {} more above them", explanation.ladder_left_off));
    }
    if explanation.ladder.is_empty() {
        return;
    }
    page.line("LEFT is the part of the limit that is not used, and how many dearer attempts it still allows.");
    page.heading("What happens to each");
    for rung in explanation.ladder.iter().take(TOLD) {
        let name = rung.transaction.nonce.to_string();
        let mut text = rung.next.text.clone();
        if let Some(then) = &rung.then {
            text.push_str(&format!("; then: {}", then.text));
        }
        let hash = rung.hashes.last().map(|hash| format!("{hash}, the newest of {}", rung.hashes.len()));
        let mut parts = vec![(name.as_str(), cell(text)), ("", cell(format!("job {}", rung.transaction.job)))];
        parts.extend(hash.map(|hash| ("", cell(hash))));
        page.story(&parts);
    }
    if explanation.ladder.len() > TOLD {
        page.line(format!("and {} more: holdfast tx explain JOB", explanation.ladder.len() - TOLD));
    }
}
