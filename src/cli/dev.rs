//! `holdfast dev`.

use super::Global;
use super::failure::{Code, Failure};
use super::output::Format;
use crate::app;
use clap::Args;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Args)]
pub struct Dev {
    /// Where the public API listens [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Where operators, health and metrics are served [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Seconds from block to block; 0 mines each transaction at once [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    block_time: Option<Duration>,
    /// Signers to make [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    lanes: Option<u32>,
}

/// A length of time in seconds, with a fraction or without.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(number).map_err(|_| "must be a number of seconds, 0 or more".to_owned())?;
    if duration > Duration::from_secs(86_400) { Err("must be at most a day".into()) } else { Ok(duration) }
}

impl Dev {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let options = app::DevOptions {
            http: self.http,
            admin: self.admin,
            data: global.data.clone(),
            config: global.config.clone(),
            block_time: self.block_time,
            lanes: self.lanes,
            json: global.output != Format::Text,
        };
        Ok(Code::from_app(app::dev(options)?))
    }
}
