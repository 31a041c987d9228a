//! `holdfast tx`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Cell, Page, Tone, address, cell, maybe, time, toned};
use super::{Global, session};
use crate::domain::encoding::checksummed;
use crate::domain::funds::gwei;
use crate::operator::age;
use crate::operator::explain_tx::{self, Explanation};
use crate::operator::ladder::{Coming, Fees, Place};
use crate::operator::transactions::{self, Detail, Filter, Transaction};
use clap::{Args, Subcommand};
use entity::values::{Address, Wei};

#[derive(Subcommand)]
pub enum Transactions {
    /// Open transactions, the oldest first
    List(List),
    /// A transaction, by its id, the id of its job, or a hash
    Show { id: String },
    /// Where a transaction stands, what it may still offer, and what happens next
    Explain { id: String },
}

#[derive(Args)]
pub struct List {
    /// Of this signer only
    #[arg(long, value_name = "ADDRESS")]
    signer: Option<Address>,
    /// The newest nonces on this chain, ended ones too
    #[arg(long, value_name = "CHAIN", requires = "signer")]
    ended_on: Option<i64>,
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

impl Transactions {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::List(args) => {
                let filter = Filter { signer: args.signer, ended_on: args.ended_on, limit: args.limit };
                let list = session::at_desk(global, async |_, desk| transactions::list(desk, filter).await)?;
                answer(global, "tx.list", &list, |page| table(page, &list.items))?;
            }
            Self::Show { id } => {
                let list = session::at_desk(global, async |_, desk| transactions::show(desk, &id).await)?;
                answer(global, "tx.show", &list, |page| list.items.iter().for_each(|detail| show(page, detail)))?;
            }
            Self::Explain { id } => {
                let list = session::at_desk(global, async |_, desk| explain_tx::explain(desk, &id).await)?;
                answer(global, "tx.explain", &list, |page| list.items.iter().for_each(|one| explain(page, one)))?;
            }
        }
        Ok(Code::Done)
    }
}

pub fn place(place: Place) -> Cell {
    match place {
        Place::Mined => toned("mined", Tone::Good),
        Place::Head => toned("head", Tone::Look),
        Place::Behind => cell("behind"),
    }
}

/// One transaction in three lines.
pub fn brief(t: &Transaction) -> Vec<Part> {
    let told = t.last_answer.as_deref().unwrap_or("none");
    let since = if t.state.is_final() { "after" } else { "for" };
    let mut parts = vec![
        ("nonce", cell(format!("{} of {} on chain {}", t.nonce, checksummed(&t.signer), t.chain_id))),
        (
            "state",
            cell(format!("{} {since} {}, {} signed, sent {} times, last answer {told}", t.state, age(t.age_seconds), t.attempts, t.sends)),
        ),
    ];
    parts.extend(t.hash.map(|hash| ("hash", cell(hash))));
    parts
}

/// A name and its sentence on a page.
pub type Part = (&'static str, Cell);

/// What is to happen, with the time and the command that belong to it.
pub fn coming(name: &'static str, coming: &Coming) -> Vec<Part> {
    let mut parts = vec![(name, cell(&coming.text))];
    parts.extend(coming.at.filter(|_| coming.in_seconds > Some(0)).map(|at| ("when", cell(time(at)))));
    parts.extend(coming.command.as_ref().map(|command| ("look at", cell(command))));
    parts
}

/// What is offered, what comes next, and what is left to the limit; in gwei.
pub fn prices(fees: Option<&Fees>) -> (String, String, String) {
    let Some(fees) = fees else { return ("-".into(), "-".into(), "-".into()) };
    let pair = |most, tip| format!("{}/{}", short(most), short(tip));
    let next = fees.next_max_fee_per_gas_wei.zip(fees.next_max_priority_fee_per_gas_wei);
    let next = next.map_or_else(|| "at its limit".into(), |(most, tip)| pair(most, tip));
    let left = format!("{}%, {}", fees.limit_distance_percent, fees.attempts_left);
    (pair(fees.max_fee_per_gas_wei, fees.max_priority_fee_per_gas_wei), next, left)
}

/// Three digits below a gwei are enough to compare prices by eye; less than that is shown whole.
fn short(price: Wei) -> String {
    let text = gwei(price);
    match text.split_once('.') {
        Some((whole, part)) if whole != "0" && part.len() > 3 => format!("{whole}.{}", &part[..3]),
        _ => text,
    }
}

fn explain(page: &mut Page, one: &Explanation) {
    let t = &one.transaction;
    page.heading(&format!("Transaction {}", t.id));
    let mut parts = vec![
        ("job", cell(t.job)),
        ("nonce", cell(format!("{} of {} on chain {}", t.nonce, checksummed(&t.signer), t.chain_id))),
        ("state", cell(t.state)),
        ("why", cell(&one.why)),
    ];
    parts.extend(outlook(one));
    page.story(&parts);
}

/// What happens to a nonce, what it may still offer, and what was signed for it.
pub fn outlook(one: &Explanation) -> Vec<Part> {
    let mut parts = coming("next", &one.next);
    parts.extend(one.then.iter().flat_map(|then| coming("then", then)));
    parts.extend(one.fees.iter().flat_map(offers));
    parts.extend(one.hashes.iter().enumerate().map(|(place, hash)| (if place == 0 { "signed" } else { "" }, cell(hash))));
    parts
}

fn offers(fees: &Fees) -> Vec<Part> {
    let limit = format!(
        "{} gwei: {} gwei ({}%) are left, which is {} more attempts; {} replacements are left",
        gwei(fees.limit_max_fee_per_gas_wei),
        gwei(fees.limit_distance_wei),
        fees.limit_distance_percent,
        fees.attempts_left,
        fees.replacements_left
    );
    let price = |most, tip| format!("at most {} gwei, tip {} gwei", gwei(most), gwei(tip));
    let next = fees.next_max_fee_per_gas_wei.zip(fees.next_max_priority_fee_per_gas_wei).map(|(most, tip)| price(most, tip));
    vec![
        ("offers", cell(price(fees.max_fee_per_gas_wei, fees.max_priority_fee_per_gas_wei))),
        ("bump", next.map_or_else(|| cell("none: it is at its limit"), cell)),
        ("limit", cell(limit)),
    ]
}

pub fn table(page: &mut Page, transactions: &[Transaction]) {
    let rows: Vec<_> = transactions
        .iter()
        .map(|t| {
            vec![
                cell(t.chain_id),
                address(&t.signer),
                cell(t.nonce),
                cell(t.state),
                cell(age(t.age_seconds)),
                cell(t.sends),
                maybe(t.last_answer.as_ref()),
                maybe(t.hash),
                cell(t.job),
            ]
        })
        .collect();
    page.table(&["CHAIN", "SIGNER", "NONCE", "STATE", "AGE", "SENDS", "LAST ANSWER", "HASH", "JOB"], &rows, "no transaction is open");
}

fn show(page: &mut Page, detail: &Detail) {
    let t = &detail.transaction;
    page.heading(&format!("Transaction {}", t.id));
    page.fields(&[
        ("job", cell(t.job)),
        ("place", cell(format!("nonce {} of {} on chain {}", t.nonce, checksummed(&t.signer), t.chain_id))),
        ("state", cell(t.state)),
        ("call", cell(format!("{} wei to {}, at most {} gas", t.value, checksummed(&t.to), t.gas_limit))),
        ("age", cell(age(t.age_seconds))),
        ("sent", cell(format!("{} times, last {}", t.sends, t.last_sent_at.map_or("never".into(), time)))),
        ("last answer", maybe(t.last_answer.as_ref())),
        ("hash", maybe(t.hash)),
        ("block", maybe(t.block.map(|block| format!("{} {}", block.number, block.hash)))),
        ("gas used", maybe(t.gas_used)),
        ("gas price paid", maybe(t.effective_gas_price)),
        ("proof", maybe(detail.proof.as_ref())),
    ]);
    page.heading("Signed");
    let rows: Vec<_> = detail
        .signed
        .iter()
        .map(|s| {
            let prices = (cell(s.max_fee_per_gas), cell(s.max_priority_fee_per_gas));
            vec![cell(s.ordinal), cell(s.purpose), cell(s.hash), prices.0, prices.1, cell(&s.journal_key), cell(time(s.created_at))]
        })
        .collect();
    page.table(&["NO", "PURPOSE", "HASH", "MAX FEE", "TIP", "JOURNAL KEY", "AT"], &rows, "nothing was signed");
}
