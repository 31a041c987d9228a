//! `holdfast demo`.

use super::Global;
use super::failure::{Code, Failure};
use super::output::Format;
use crate::app;
use clap::Args;

#[derive(Args)]
pub struct Demo {
    /// Jobs to submit
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// Signers to use
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    lanes: u32,
}

impl Demo {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let options =
            app::DemoOptions { jobs: self.jobs, lanes: self.lanes, data: global.data.clone(), json: global.output != Format::Text };
        Ok(Code::from_app(app::demo(options)?))
    }
}
