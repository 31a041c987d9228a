//! `holdfast status`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, Tone, cell, maybe, toned};
use super::{Global, session};
use crate::operator::age;
use crate::operator::overview::{self, Overview, Severity};
use crate::operator::rpc::{self, Endpoint};
use serde::Serialize;

pub fn run(global: &Global) -> Result<Code, Failure> {
    let standing = session::at_desk(global, async |config, desk| {
        let (overview, endpoints) = futures::join!(overview::overview(desk), rpc::examine(config));
        Ok(Standing { overview: overview?, endpoints })
    })?;
    answer(global, "status", &standing, |page| {
        show(page, &standing.overview);
        show_endpoints(page, &standing.endpoints);
    })?;
    Ok(Code::Done)
}

#[derive(Serialize)]
struct Standing {
    #[serde(flatten)]
    overview: Overview,
    /// As they are seen from where the command runs.
    endpoints: Vec<Endpoint>,
}

fn show_endpoints(page: &mut Page, endpoints: &[Endpoint]) {
    if endpoints.is_empty() {
        return;
    }
    page.heading("Endpoints");
    let known = |flag: Option<bool>| cell(flag.map_or("-", |flag| if flag { "yes" } else { "no" }));
    let number = |number: Option<u64>| maybe(number.map(|number| number.to_string()));
    let size = |size: Option<usize>| maybe(size.map(|size| size.to_string()));
    let rows: Vec<_> = endpoints
        .iter()
        .map(|one| {
            let able = [known(one.finalized_tag), known(one.block_receipts), size(one.batch_requests), size(one.request_bytes)];
            let mut row = vec![cell(one.chain_id.to_string()), cell(&one.name), cell(one.role), known(one.chain_id_ok), number(one.head)];
            row.extend(able);
            row
        })
        .collect();
    page.table(&["CHAIN", "ENDPOINT", "ROLE", "ON CHAIN", "HEAD", "FINALIZED", "BLOCK RECEIPTS", "BATCH", "BYTES"], &rows, "");
}

fn show(page: &mut Page, overview: &Overview) {
    if overview.findings.is_empty() {
        page.toned_line("all is well", Tone::Good);
    }
    let rows: Vec<_> = overview
        .findings
        .iter()
        .map(|finding| {
            let severity = match finding.severity {
                Severity::Critical => toned("CRITICAL", Tone::Bad),
                Severity::Warning => toned("warning", Tone::Look),
            };
            vec![severity, cell(&finding.what), cell(&finding.next)]
        })
        .collect();
    if !rows.is_empty() {
        page.table(&["SEVERITY", "WHAT", "NEXT"], &rows, "");
    }
    page.heading("Now");
    let jobs: Vec<_> = overview.jobs.iter().filter(|(_, count)| **count > 0).map(|(state, count)| format!("{count} {state}")).collect();
    let ages = &overview.ages;
    let (lanes, workers) = (&overview.lanes, &overview.workers);
    let heads: Vec<_> = overview
        .heads
        .iter()
        .map(|head| format!("chain {} block {} ({} ago)", head.chain_id, head.number, age(head.age_seconds)))
        .collect();
    page.fields(&[
        ("jobs", cell(if jobs.is_empty() { "none open".into() } else { jobs.join(", ") })),
        ("oldest due job", maybe(ages.ready_seconds.map(age))),
        ("longest execution", maybe(ages.processing_seconds.map(age))),
        ("oldest open nonce", maybe(ages.open_nonce_seconds.map(age))),
        ("unpublished", cell(format!("{}, the oldest for {}", overview.outbox_pending, ages.outbox_seconds.map_or("0s".into(), age)))),
        (
            "lanes",
            cell(format!("{} active, {} not, {} open nonces, room for {}", lanes.active, lanes.other, lanes.open_nonces, lanes.free)),
        ),
        ("workers", cell(format!("{} live with {} executions, {} silent", workers.live, workers.processing, workers.stale))),
        ("heads", cell(if heads.is_empty() { "-".into() } else { heads.join(", ") })),
        (
            "schema",
            cell(format!(
                "version {}, this program {}",
                overview.schema.found.map_or("none".into(), |v| v.to_string()),
                overview.schema.expected
            )),
        ),
    ]);
}
