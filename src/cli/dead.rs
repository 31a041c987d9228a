//! `holdfast jobs replay` and `jobs resolve`.

use super::failure::{Code, Failure};
use super::output::{answer, note};
use super::page::{Page, cell, maybe};
use super::{Global, session};
use crate::operator::replay::{self, Filter, Plan, Replayed, Resolved, told};
use chrono::{DateTime, Utc};
use clap::Args;
use entity::ids::JobId;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Jobs of one statement.
const CHUNK: usize = 100;
/// Refused ones that are told one by one.
const TOLD: usize = 100;

#[derive(Args)]
pub struct Replay {
    #[arg(required_unless_present = "filter", conflicts_with = "filter")]
    ids: Vec<JobId>,
    /// All dead jobs that nobody has dealt with and that fit: `dead` for every one, or project=, kind=, chain=, pool=, error=, since=, until=
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    filter: Vec<String>,
    /// Say what is meant, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Most jobs taken up in a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// Where a run that was broken off goes on
    #[arg(long, value_name = "CURSOR", requires = "filter")]
    cursor: Option<String>,
}

pub fn replayed(global: &Global, args: &Replay) -> Result<Code, Failure> {
    if args.filter.is_empty() { one_by_one(global, args) } else { by_filter(global, args) }
}

fn one_by_one(global: &Global, args: &Replay) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    if args.dry_run {
        return Err(usage("a dry run says what a filter means; what becomes of one job: holdfast jobs explain ID"));
    }
    let outcomes = session::at_desk_of(global, &config, async |_, desk| replay::replay(desk, &args.ids, (operator, &global.reason)).await)?;
    let outcomes: Vec<(JobId, Replayed)> = args.ids.iter().copied().zip(outcomes).collect();
    let done = outcomes.iter().filter(|(_, outcome)| *outcome == Replayed::Done).count();
    if let (0, [(id, outcome)]) = (done, outcomes.as_slice()) {
        let (word, text) = told(*id, *outcome);
        let code = if *outcome == Replayed::Unknown { Code::NotFound } else { Code::Refused };
        return Err(Failure::new(code, "not replayed", text).by(word).then(format!("holdfast jobs explain {id}")));
    }
    let items: Vec<Value> = outcomes.iter().map(item).collect();
    answer(global, "jobs.replay", &json!({ "items": items, "replayed": done }), |page| {
        outcomes.iter().for_each(|(id, outcome)| page.line(told(*id, *outcome).1));
    })?;
    Ok(if done == outcomes.len() { Code::Done } else { Code::Other(8) })
}

fn item((id, outcome): &(JobId, Replayed)) -> Value {
    let (word, detail) = told(*id, *outcome);
    json!({ "id": id, "outcome": word, "detail": detail })
}

fn usage(why: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, "nothing was changed", why)
}

/// `dead`, or `key=value`, each key once.
fn read(words: &[String]) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let moment = |text: &str| DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc)).map_err(|error| error.to_string());
    let (mut seen, mut all) = (Vec::new(), false);
    for word in words {
        if word == "dead" {
            all = true;
            continue;
        }
        let (key, value) =
            word.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(|| format!("{word:?} is not KEY=VALUE"))?;
        if seen.contains(&key) {
            return Err(format!("{key} is there twice"));
        }
        seen.push(key);
        let wrong = |error: String| format!("{key}: {value:?}: {error}");
        match key {
            "project" => filter.project = Some(value.into()),
            "kind" => filter.kind = Some(value.parse().map_err(|_| wrong("is no kind of job".into()))?),
            "chain" => filter.chain_id = Some(value.parse().map_err(|_| wrong("is no chain id".into()))?),
            "pool" => filter.pool = Some(value.into()),
            "error" => filter.error = Some(value.into()),
            "since" => filter.since = Some(moment(value).map_err(wrong)?),
            "until" => filter.until = Some(moment(value).map_err(wrong)?),
            other => return Err(format!("{other:?} is not known: project, kind, chain, pool, error, since, until")),
        }
    }
    if all && !seen.is_empty() { Err("dead means every one; leave it out beside KEY=VALUE".into()) } else { Ok(filter) }
}

/// The words that mean the same with this end in time.
fn written(words: &[String], until: DateTime<Utc>) -> String {
    let mut words: Vec<String> = words.iter().filter(|word| *word != "dead" && !word.starts_with("until=")).cloned().collect();
    words.push(format!("until={}", until.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)));
    words.join(",")
}

fn by_filter(global: &Global, args: &Replay) -> Result<Code, Failure> {
    let filter = read(&args.filter).map_err(|why| usage(format!("--filter: {why}")))?;
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    if !args.dry_run && global.reason.trim().is_empty() {
        return Err(usage("many jobs are meant: --reason must say why they are taken up again"));
    }
    let asked_before = args.yes || args.dry_run;
    if !asked_before && !std::io::stdin().is_terminal() {
        return Err(usage("nobody can be asked here: look with --dry-run, then give --yes"));
    }
    let plan = session::at_desk_of(global, &config, async |_, desk| replay::plan(desk, &filter).await)?;
    let words = written(&args.filter, plan.until);
    if args.dry_run || plan.jobs == 0 {
        answer(global, "jobs.replay", &json!({ "plan": plan, "filter": words }), |page| planned(page, &plan))?;
        return Ok(Code::Done);
    }
    if !args.yes && !confirmed(global, &plan) {
        return Err(usage("it was not confirmed"));
    }
    let filter = Filter { until: Some(plan.until), ..filter };
    let (mut cursor, mut done, mut refused, mut asked) = (args.cursor.clone(), 0_usize, Vec::new(), 0_usize);
    let pause = Duration::from_secs_f64(CHUNK as f64 / f64::from(args.per_second));
    let ended = session::at_desk_of(global, &config, async |_, desk| {
        loop {
            let began = tokio::time::Instant::now();
            let step = replay::step(desk, &filter, cursor.as_deref(), CHUNK, (operator, &global.reason)).await?;
            asked += step.outcomes.len();
            done += step.outcomes.iter().filter(|(_, outcome)| *outcome == Replayed::Done).count();
            refused
                .extend(step.outcomes.into_iter().filter(|(_, outcome)| *outcome != Replayed::Done).take(TOLD - refused.len().min(TOLD)));
            let Some(next) = step.next_cursor else { return Ok(()) };
            cursor = Some(next);
            note(global.output, &format!("{done} of about {} are queued again", plan.jobs));
            tokio::time::sleep_until(began + pause).await;
        }
    });
    if let Err(failure) = ended {
        let from = cursor.map(|cursor| format!(" --cursor {cursor}")).unwrap_or_default();
        let again = format!("holdfast jobs replay --filter '{words}'{from} --yes --reason '…'");
        return Err(Failure { why: format!("{} ({done} jobs are queued again)", failure.why), ..failure }.then(again));
    }
    let left = asked - done;
    let items: Vec<Value> = refused.iter().map(item).collect();
    answer(global, "jobs.replay", &json!({ "plan": plan, "filter": words, "replayed": done, "refused": left, "items": items }), |page| {
        page.line(format!("{done} jobs are queued again, {left} are not"));
        refused.iter().for_each(|(id, outcome)| page.line(told(*id, *outcome).1));
    })?;
    Ok(if left == 0 { Code::Done } else { Code::Other(8) })
}

fn planned(page: &mut Page, plan: &Plan) {
    let more = if plan.more { "more than " } else { "" };
    page.line(format!("{more}{} dead jobs are meant", plan.jobs));
    let row =
        |one: &replay::Group| vec![cell(one.jobs), cell(&one.project), cell(one.kind), maybe(one.error.as_ref()), cell(one.with_nonce)];
    page.table(&["JOBS", "PROJECT", "KIND", "DIED OF", "HAD A NONCE"], &plan.groups.iter().map(row).collect::<Vec<_>>(), "none");
    page.line(
        "what has used its nonce up, or may still do so, is refused job by job; every other is revalidated before anything is signed",
    );
}

fn confirmed(global: &Global, plan: &Plan) -> bool {
    let mut page = Page::new(false);
    planned(&mut page, plan);
    note(global.output, &page.into_text());
    let more = if plan.more { "more than " } else { "" };
    let _ = write!(std::io::stderr(), "moves {more}{} dead jobs to queued; type that number to go on: ", plan.jobs);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok() && line.trim() == plan.jobs.to_string()
}

pub fn resolved(global: &Global, ids: &[JobId]) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let outcomes = session::at_desk_of(global, &config, async |_, desk| replay::resolve(desk, ids, (operator, &global.reason)).await)?;
    let said = |id: JobId, outcome: Resolved| match outcome {
        Resolved::Done => ("resolved", format!("job {id} is dealt with")),
        Resolved::Already => ("already", format!("job {id} was dealt with before: holdfast jobs show {id}")),
        Resolved::NotDead(state) => ("not-dead", format!("job {id} is {state}: only what is dead waits for somebody")),
        Resolved::Unknown => ("not-found", format!("job {id} does not exist")),
    };
    let told: Vec<_> = ids.iter().zip(&outcomes).map(|(id, outcome)| (*id, *outcome, said(*id, *outcome))).collect();
    if let [(id, outcome @ (Resolved::NotDead(_) | Resolved::Unknown), (word, text))] = told.as_slice() {
        let code = if *outcome == Resolved::Unknown { Code::NotFound } else { Code::Refused };
        return Err(Failure::new(code, "not resolved", text.clone()).by(*word).then(format!("holdfast jobs explain {id}")));
    }
    let items: Vec<Value> = told.iter().map(|(id, _, (word, text))| json!({ "id": id, "outcome": word, "detail": text })).collect();
    answer(global, "jobs.resolve", &json!({ "items": items }), |page| told.iter().for_each(|(_, _, (_, text))| page.line(text.clone())))?;
    let whole = outcomes.iter().all(|outcome| matches!(outcome, Resolved::Done | Resolved::Already));
    Ok(if whole { Code::Done } else { Code::Other(8) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_filter_says_what_it_means_and_every_fault_is_told() {
        let filter = read(&words("project=web,kind=transfer,chain=1,error=no_lane,since=2026-01-01T00:00:00Z")).unwrap();
        assert_eq!((filter.project.as_deref(), filter.chain_id, filter.error.as_deref()), (Some("web"), Some(1), Some("no_lane")));
        assert_eq!(read(&words("dead")).unwrap(), Filter::default());
        for wrong in
            ["", "web", "project=", "project=a,project=b", "kind=x", "chain=x", "since=yesterday", "colour=red", "dead,kind=transfer"]
        {
            assert!(read(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_goes_on_means_no_jobs_that_died_since() {
        let until = DateTime::from_timestamp_micros(1_733_561_234_123_456).unwrap();
        let again = written(&words("error=x,until=2026-01-01T00:00:00Z"), until);
        assert_eq!(again, "error=x,until=2024-12-07T08:47:14.123456Z");
        assert_eq!(read(&words(&again)).unwrap().until, Some(until));
    }
}
