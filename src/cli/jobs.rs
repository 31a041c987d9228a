//! `holdfast jobs`.

use super::failure::{Code, Failure};
use super::output::{answer, answer_with};
use super::page::{Cell, Page, Tone, cell, maybe, time, toned};
use super::{Global, dead, drains, retire, session, tx};
use crate::domain::encoding::checksummed;
use crate::operator::cancel::{Cancelled, cancel};
use crate::operator::explain_job::{Explanation, OutcomeGroup};
use crate::operator::jobs::{self, Execution, Filter, Record};
use crate::operator::{age, explain_job::explain};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use entity::ids::JobId;
use entity::states::JobState;
use entity::values::Address;
use serde_json::json;

#[derive(Subcommand)]
pub enum Jobs {
    /// Newest first
    List(List),
    /// One job and its executions
    Show { id: JobId },
    /// Where a job stands, why, and what happens next
    Explain { id: JobId },
    /// Cancel a job; one that owns a nonce by a no-op of that nonce, if it is mined first
    Cancel { id: JobId },
    /// Take dead jobs up again, from their revalidation on
    Replay(dead::Replay),
    /// Note that the deaths of jobs are dealt with; they are kept
    Resolve {
        #[arg(required = true)]
        ids: Vec<JobId>,
    },
    /// Have a process take no more deliveries, and wait until it holds none
    Drain {
        /// INSTANCE_ID of the process, or the id of one start of it
        #[arg(value_name = "INSTANCE")]
        instance: String,
        /// How long to wait; the mark stays
        #[arg(value_name = "SECONDS", default_value_t = 120)]
        seconds: u64,
    },
    /// Have a process that was drained take deliveries again, if it still lives
    Undrain {
        #[arg(value_name = "INSTANCE")]
        instance: String,
    },
    /// Give a signer no more nonces, on every chain, and wait until all of its nonces have ended
    SignerDrain {
        #[arg(value_name = "ADDRESS")]
        signer: Address,
        /// How long to wait; the fence stays closed
        #[arg(value_name = "SECONDS", default_value_t = 120)]
        seconds: u64,
    },
    /// Give a signer that was drained nonces again
    SignerUndrain {
        #[arg(value_name = "ADDRESS")]
        signer: Address,
    },
    /// Prove that a signer may go; the proof is kept
    SignerRetireCheck {
        #[arg(value_name = "ADDRESS")]
        signer: Address,
    },
    /// Hand the place of a signer in a pool over to another, within 15 minutes of its proof
    SignerPoolRotate(retire::Rotate),
    /// Prove that a journal key may go; the proof is kept
    KeyRetireCheck {
        #[arg(value_name = "KEY")]
        key: String,
    },
}

#[derive(Args)]
pub struct List {
    #[arg(long, value_parser = PossibleValuesParser::new(JobState::all().into_iter().map(JobState::as_str)).try_map(|word| word.parse::<JobState>()))]
    state: Option<JobState>,
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// The next_cursor of the page before
    #[arg(long, value_name = "ID")]
    cursor: Option<JobId>,
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(jobs::PAGE_MAX)))]
    limit: u32,
}

impl Jobs {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::List(args) => list(global, &args)?,
            Self::Show { id } => {
                let record = session::at_desk(global, async |_, desk| jobs::show(desk, id).await)?;
                answer(global, "jobs.show", &record, |page| show(page, &record))?;
            }
            Self::Explain { id } => {
                let explanation = session::at_desk(global, async |_, desk| explain(desk, id).await)?;
                answer(global, "jobs.explain", &explanation, |page| explained(page, &explanation))?;
            }
            Self::Cancel { id } => cancelled(global, id)?,
            Self::Replay(args) => return dead::replayed(global, &args),
            Self::Resolve { ids } => return dead::resolved(global, &ids),
            Self::Drain { instance, seconds } => return drains::drain(global, &instance, seconds),
            Self::Undrain { instance } => return drains::undrain(global, &instance),
            Self::SignerDrain { signer, seconds } => return drains::signer_drain(global, signer, seconds),
            Self::SignerUndrain { signer } => return drains::signer_undrain(global, signer),
            Self::SignerRetireCheck { signer } => return retire::signer(global, signer),
            Self::SignerPoolRotate(args) => return retire::pool(global, &args),
            Self::KeyRetireCheck { key } => return retire::key(global, &key),
        }
        Ok(Code::Done)
    }
}

fn list(global: &Global, args: &List) -> Result<(), Failure> {
    let filter = Filter { project: args.project.as_deref(), state: args.state, cursor: args.cursor, limit: args.limit };
    let list = session::at_desk(global, async |_, desk| jobs::list(desk, &filter).await)?;
    let more = list.next_cursor.iter().map(|cursor| format!("there are more: --cursor {cursor}")).collect::<Vec<_>>();
    answer_with(global, "jobs.list", &list, &more, |page| {
        let rows: Vec<_> = list
            .items
            .iter()
            .map(|job| {
                let error = job.error.as_ref().map(|error| &error.title);
                let nonce = job.transaction.as_ref().map(|t| t.nonce);
                vec![
                    cell(job.id),
                    state(job.state),
                    cell(job.kind),
                    cell(job.chain_id),
                    // How long it has been open; a job that has ended grows no older.
                    maybe(job.finished_at.is_none().then(|| age(job.age_seconds))),
                    maybe(job.finished_at.map(time)),
                    cell(job.attempts),
                    maybe(nonce),
                    maybe(error),
                ]
            })
            .collect();
        page.table(&["ID", "STATE", "KIND", "CHAIN", "AGE", "ENDED", "ATTEMPTS", "NONCE", "ERROR"], &rows, "no jobs");
    })
}

fn cancelled(global: &Global, id: JobId) -> Result<(), Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let what = session::at_desk_of(global, &config, async |_, desk| cancel(desk, id, None, Some((operator, &global.reason))).await)?;
    let (outcome, text) = match what {
        Cancelled::Done => ("cancelled", format!("job {id} is cancelled")),
        Cancelled::Asked => ("asked", format!("job {id} is being executed: it will get no nonce and is cancelled when the execution ends")),
        Cancelled::Noop => (
            "noop",
            format!(
                "job {id} owns a nonce: a no-op of the same nonce is sent over it, and whichever is mined decides\nholdfast jobs explain {id}"
            ),
        ),
        Cancelled::Unknown => return Err(Failure::new(Code::NotFound, "not found", format!("job {id} does not exist"))),
        Cancelled::TooLate(state) => return Err(too_late(id, state)),
    };
    answer(global, "jobs.cancel", &json!({ "id": id, "outcome": outcome }), |page| page.line(text))
}

fn too_late(id: JobId, state: JobState) -> Failure {
    let why = format!("job {id} has ended: it is {state}");
    Failure::new(Code::Refused, "not cancelled", why).by("job-ended").then(format!("holdfast jobs explain {id}"))
}

fn state(state: JobState) -> Cell {
    let tone = match state {
        JobState::Completed => Tone::Good,
        JobState::Dead | JobState::Quarantined | JobState::Reverted => Tone::Bad,
        JobState::Retry => Tone::Look,
        _ => Tone::Plain,
    };
    toned(state, tone)
}

fn show(page: &mut Page, record: &Record) {
    let job = &record.job;
    let error = job.error.as_ref().map(|error| format!("{}: {}", error.title, error.detail.as_deref().unwrap_or(&error.r#type)));
    let nonce = job.transaction.as_ref().map(|t| format!("{} of {}, {}", t.nonce, checksummed(&t.signer), t.state));
    page.fields(&[
        ("job", cell(job.id)),
        ("state", state(job.state)),
        ("kind", cell(job.kind)),
        ("project", cell(&job.project)),
        ("pool", cell(format!("{} on chain {}", job.pool, job.chain_id))),
        ("call", cell(format!("{} wei to {}", job.value, checksummed(&job.to)))),
        ("priority", cell(job.priority)),
        ("age", cell(age(job.age_seconds))),
        ("attempts", cell(job.attempts)),
        ("run at", cell(time(job.run_at))),
        ("accepted", cell(time(job.created_at))),
        ("changed", cell(time(job.updated_at))),
        ("ended", maybe(job.finished_at.map(time))),
        ("error", maybe(error)),
        ("dealt with", maybe(record.resolution.as_ref().map(|one| format!("{} by {}: {}", time(one.at), one.operator, one.reason)))),
        ("nonce", maybe(nonce)),
        ("hash", maybe(job.transaction.as_ref().and_then(|t| t.hash))),
    ]);
    executions(page, &record.executions);
}

fn executions(page: &mut Page, executions: &[Execution]) {
    page.heading("Executions");
    let rows: Vec<_> = executions
        .iter()
        .map(|one| {
            vec![
                cell(one.number),
                cell(time(one.started_at)),
                maybe(one.finished_at.map(time)),
                maybe(one.outcome),
                maybe(one.error.as_ref()),
                cell(one.generation),
                cell(one.worker),
                cell(one.token),
            ]
        })
        .collect();
    page.table(&["NO", "STARTED", "ENDED", "OUTCOME", "ERROR", "DELIVERY", "WORKER", "TOKEN"], &rows, "none");
}

fn explained(page: &mut Page, explanation: &Explanation) {
    let (job, next) = (&explanation.job, &explanation.next);
    let mut parts = vec![("job", cell(job.id)), ("state", state(job.state)), ("why", cell(&explanation.why)), ("next", cell(&next.action))];
    parts.extend(next.at.map(|at| ("when", cell(time(at)))));
    parts.extend(next.command.as_ref().map(|command| ("look at", cell(command))));
    let delivery = format!("generation {}, published {}", job.delivery.generation, job.delivery.published_at.map_or("never".into(), time));
    parts.extend([("age", cell(age(job.age_seconds))), ("attempts", cell(attempts(explanation))), ("delivery", cell(delivery))]);
    page.story(&parts);
    if let Some(one) = &explanation.outlook {
        page.heading(&format!("Nonce {} of {}", one.transaction.nonce, checksummed(&one.transaction.signer)));
        page.story(&tx::outlook(one));
    }
    page.heading("Executions by how they ended");
    let rows: Vec<_> = explanation.outcomes.iter().map(outcome_row).collect();
    page.table(&["TIMES", "OUTCOME", "ERROR", "LAST", "DETAIL OF THE NEWEST"], &rows, "none yet");
    if !explanation.transactions.is_empty() {
        page.heading("Transactions, the newest first");
        explanation.transactions.iter().for_each(|t| page.story(&tx::brief(t)));
    }
    page.heading("History");
    let rows: Vec<_> =
        explanation.history.iter().map(|change| vec![cell(change.version), cell(&change.state), cell(time(change.at))]).collect();
    page.table(&["NO", "STATE", "AT"], &rows, "none");
}

/// How many executions there were, and how many more may count. Those that were given back cost nothing, so that a job may have had more
/// than its budget.
fn attempts(explanation: &Explanation) -> String {
    let mut text = explanation.job.attempts.to_string();
    if explanation.given_back > 0 {
        text.push_str(&format!(", of which {} were given back and cost nothing", explanation.given_back));
    }
    if let Some(left) = explanation.attempts_left {
        text.push_str(&format!("; {left} more may fail before the job is dead"));
    }
    text
}

fn outcome_row(group: &OutcomeGroup) -> Vec<Cell> {
    let outcome = group.outcome.map_or_else(|| "runs".into(), |outcome| outcome.to_string());
    vec![cell(group.count), cell(outcome), maybe(group.error.as_ref()), cell(time(group.last_at)), maybe(group.detail.as_ref())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_cancellation_is_refused_by_the_gate_that_fits() {
        let gate = |state| too_late(JobId(uuid::Uuid::nil()), state).gate;
        assert_eq!(gate(JobState::Completed).as_deref(), Some("job-ended"));
        assert_eq!(too_late(JobId(uuid::Uuid::nil()), JobState::Dead).code, Code::Refused);
    }
}
