//! `holdfast workers`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Tone, cell, toned};
use super::{Global, session};
use crate::operator::{age, workers};
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Workers {
    /// Live ones first
    List,
}

impl Workers {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let Self::List = self;
        let list = session::at_desk(global, async |_, desk| workers::list(desk).await)?;
        answer(global, "workers.list", &list, |page| {
            let rows: Vec<_> = list
                .items
                .iter()
                .map(|worker| {
                    let tone = if worker.live { Tone::Good } else { Tone::Look };
                    let heartbeat = age(worker.heartbeat_age_seconds);
                    vec![
                        cell(&worker.instance),
                        cell(&worker.role),
                        toned(worker.standing(), tone),
                        cell(worker.processing),
                        cell(heartbeat),
                        cell(&worker.version),
                    ]
                })
                .collect();
            page.table(&["INSTANCE", "ROLE", "STATE", "PROCESSING", "HEARTBEAT", "VERSION"], &rows, "no worker has ever started");
        })?;
        Ok(Code::Done)
    }
}
