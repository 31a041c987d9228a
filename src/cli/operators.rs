//! `holdfast operators`.

use super::failure::{Code, Failure};
use super::output::{answer, answer_with};
use super::page::{Tone, cell, maybe, time};
use super::{Global, session};
use crate::operator::log::{self, Filter};
use clap::{Args, Subcommand};
use entity::values::Hash;

#[derive(Subcommand)]
pub enum Operators {
    /// Who did what and why, newest first
    Log(Log),
    /// Compute the hash of every act anew: shows a row that was changed, added or taken out
    Verify {
        /// A hash that an earlier run or the log has told: is it still there?
        #[arg(long, value_name = "HASH")]
        kept: Option<Hash>,
    },
}

#[derive(Args)]
pub struct Log {
    /// Of this operator
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Of this kind, such as jobs.replay
    #[arg(long, value_name = "NOUN.VERB")]
    action: Option<String>,
    /// To this job, worker, signer or pool, as the log names it
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// The next_cursor of the page before
    #[arg(long, value_name = "N")]
    cursor: Option<i64>,
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(log::PAGE_MAX)))]
    limit: u32,
}

impl Operators {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::Log(args) => acts(global, &args),
            Self::Verify { kept } => verified(global, kept),
        }
    }
}

fn acts(global: &Global, args: &Log) -> Result<Code, Failure> {
    let filter = Filter {
        operator: args.by.as_deref(),
        action: args.action.as_deref(),
        target: args.target.as_deref(),
        cursor: args.cursor,
        limit: args.limit,
    };
    let list = session::at_desk(global, async |_, desk| log::list(desk, &filter).await)?;
    let more: Vec<_> = list.next_cursor.iter().map(|cursor| format!("there are more: --cursor {cursor}")).collect();
    answer_with(global, "operators.log", &list, &more, |page| {
        let rows: Vec<_> = list
            .items
            .iter()
            .map(|act| {
                vec![
                    cell(act.position),
                    cell(time(act.at)),
                    cell(&act.operator),
                    cell(&act.login),
                    cell(&act.action),
                    cell(&act.target),
                    maybe(act.before.as_ref()),
                    maybe(act.after.as_ref()),
                    cell(&act.reason),
                ]
            })
            .collect();
        page.table(
            &["NO", "AT", "OPERATOR", "LOGIN", "ACTION", "TARGET", "BEFORE", "AFTER", "REASON"],
            &rows,
            "nobody has done anything yet",
        );
    })?;
    Ok(Code::Done)
}

fn verified(global: &Global, kept: Option<Hash>) -> Result<Code, Failure> {
    let checked = session::at_desk(global, async |_, desk| log::verify(desk, kept).await)?;
    answer(global, "operators.verify", &checked, |page| {
        match &checked.broken {
            Some(broken) => page.toned_line(format!("row {} is wrong: {}", broken.position, broken.why), Tone::Bad),
            None => page.toned_line(format!("{} rows are as they were written", checked.rows), Tone::Good),
        }
        if let Some(head) = checked.head {
            page.line(format!("the newest of them has the hash {head}: keep it elsewhere"));
        }
        if checked.known == Some(false) {
            page.toned_line("the hash that was given is of none of them: rows were cut off or written anew", Tone::Bad);
        }
    })?;
    Ok(if checked.broken.is_some() || checked.known == Some(false) { Code::Problems } else { Code::Done })
}
