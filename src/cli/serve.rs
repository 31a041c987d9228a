//! `holdfast serve`.

use super::failure::{Code, Failure};
use super::{Global, session};
use crate::app;
use crate::config::{Chain, Config, Role};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

#[derive(Args)]
pub struct Serve {
    /// What this process does; by default HOLDFAST_ROLE, else all
    #[arg(long, value_parser = PossibleValuesParser::new(Role::WORDS.map(|(word, _)| word)).map(|word| role(&word)))]
    role: Option<Role>,
    /// One endpoint is the whole quorum: for the relayers of `holdfast demo`, never for money
    #[arg(long, hide = true)]
    single_endpoint: bool,
}

fn role(word: &str) -> Role {
    Role::WORDS.into_iter().find(|(known, _)| *known == word).map_or(Role::All, |(_, role)| role)
}

impl Serve {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let mut overrides = session::overrides(global);
        if let Some(role) = self.role {
            overrides = overrides.with("HOLDFAST_ROLE", role.as_str());
        }
        if self.single_endpoint {
            overrides = overrides.with(Chain::SINGLE_ENDPOINT, "true");
        }
        let config = Config::from_process(global.config.as_deref(), &overrides)?;
        config.check_service()?;
        Ok(Code::from_app(app::serve(&config)?))
    }
}
