//! `holdfast tx`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, address, cell, maybe, time};
use super::{Global, session};
use crate::domain::encoding::checksummed;
use crate::operator::age;
use crate::operator::transactions::{self, Detail, Filter, Transaction};
use clap::{Args, Subcommand};
use entity::values::Address;

#[derive(Subcommand)]
pub enum Transactions {
    /// Open transactions, the oldest first
    List(List),
    /// A transaction, by its id, the id of its job, or a hash
    Show { id: String },
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
        }
        Ok(Code::Done)
    }
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
