//! `holdfast doctor`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, Tone, cell, toned};
use super::{Global, session};
use crate::clock::SystemClock;
use crate::operator::doctor::{self, Check, Status};
use serde_json::json;

pub fn run(global: &Global) -> Result<Code, Failure> {
    let checks = match session::config(global) {
        Err(faults) => doctor::of_faults(&faults),
        Ok(config) => {
            session::start_logs(global, &config);
            session::wait(async { Ok(doctor::examine(&config, &SystemClock).await) })?
        }
    };
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    answer(global, "doctor", &json!({ "items": checks }), |page| show(page, &checks))?;
    Ok(if failed { Code::Problems } else { Code::Done })
}

fn show(page: &mut Page, checks: &[Check]) {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let status = match check.status {
                Status::Fail => toned("FAIL", Tone::Bad),
                Status::Warn => toned("warn", Tone::Look),
                Status::Ok => toned("ok", Tone::Good),
            };
            let next = check.next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
            vec![status, cell(&check.name), cell(format!("{}{next}", check.detail))]
        })
        .collect();
    page.table(&["STATUS", "CHECK", "DETAIL"], &rows, "nothing was checked");
}
