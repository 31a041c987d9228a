//! `holdfast bench`.

use super::failure::{Code, Failure};
use super::output::Format;
use super::{Global, dev};
use crate::app;
use clap::Args;
use std::time::Duration;

#[derive(Args)]
pub struct Bench {
    /// Jobs to submit; by default as many as fit into --seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: Option<u32>,
    /// How long to submit [default: 30, when --jobs is not given]
    #[arg(long, value_name = "SECONDS", value_parser = dev::seconds)]
    seconds: Option<Duration>,
    /// Open loop: submit this many a second, whatever the answers take; without it, as fast as answers come
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Signers to use
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    lanes: u32,
    /// Seconds from block to block; 0 mines each transaction at once [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = dev::seconds)]
    block_time: Option<Duration>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    rate.filter(|rate| *rate > 0.0 && *rate <= 1e6).ok_or_else(|| "must be a number above 0, at most 1000000".into())
}

impl Bench {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let options = app::BenchOptions {
            jobs: self.jobs,
            seconds: self.seconds.or_else(|| self.jobs.is_none().then_some(Duration::from_secs(30))),
            rate: self.rate,
            lanes: self.lanes,
            block_time: self.block_time,
            data: global.data.clone(),
            json: global.output != Format::Text,
        };
        Ok(Code::from_app(app::bench(options)?))
    }
}
