//! `holdfast lanes`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Cell, Page, Tone, address, cell, maybe, time, toned};
use super::{Global, session};
use crate::domain::encoding::checksummed;
use crate::operator::age;
use crate::operator::explain_lane::{self, Explanation, Place};
use crate::operator::lanes::{self, Lane};
use clap::Subcommand;
use entity::states::LaneState;
use entity::values::Address;

#[derive(Subcommand)]
pub enum Lanes {
    /// Every lane, the ones in trouble first
    List,
    /// The ladder of nonces of a signer, and what it waits for
    Explain { address: Address },
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
        }
        Ok(Code::Done)
    }
}

fn state(lane: &Lane) -> Cell {
    let tone = match lane.state {
        LaneState::Active => Tone::Good,
        LaneState::Paused => Tone::Bad,
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
    let lane = &explanation.lane;
    page.heading(&format!("Lane {} on chain {}", checksummed(&lane.signer), lane.chain_id));
    page.fields(&[
        ("pool", cell(&lane.pool)),
        ("state", state(lane)),
        ("why", cell(&explanation.why)),
        ("next", cell(&explanation.next)),
        ("fence", cell(format!("{} is what the next plan gets", lane.next_nonce))),
        ("latest", cell(format!("{} is what the chain takes next", lane.latest_nonce))),
        ("settled", cell(format!("all below {} have TX_CONFIRMATIONS", lane.settled_nonce))),
        ("window", cell(format!("{} of {} free", lane.free, lane.width))),
        ("head", maybe(explanation.head)),
    ]);
    page.heading("Open nonces, each waits for those above it");
    let rows: Vec<_> = explanation
        .ladder
        .iter()
        .map(|rung| {
            let t = &rung.transaction;
            let place = match rung.place {
                Place::Mined => toned("mined", Tone::Good),
                Place::Head => toned("head", Tone::Look),
                Place::Behind => cell("behind"),
            };
            vec![
                cell(t.nonce),
                place,
                cell(t.state),
                cell(age(t.age_seconds)),
                cell(t.attempts),
                cell(t.sends),
                maybe(t.last_answer.as_ref()),
                maybe(t.max_fee_per_gas),
                cell(t.job),
            ]
        })
        .collect();
    page.table(&["NONCE", "PLACE", "STATE", "AGE", "SIGNED", "SENDS", "LAST ANSWER", "MAX FEE", "JOB"], &rows, "none");
    page.heading("Pools that it joined and left");
    let rows: Vec<_> =
        explanation.memberships.iter().map(|one| vec![cell(time(one.at)), cell(&one.change), cell(&one.pool), cell(&one.by)]).collect();
    page.table(&["AT", "CHANGE", "POOL", "BY"], &rows, "none on record");
}
