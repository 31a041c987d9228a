//! `holdfast keys`.

use super::failure::{Code, Failure};
use super::output::{answer, note};
use super::{Global, session};
use crate::operator::api_key;
use clap::Subcommand;
use serde_json::json;

#[derive(Subcommand)]
pub enum Keys {
    /// Make an API key; it is printed once and never again
    Create {
        /// Whose jobs the key sees
        #[arg(long, value_name = "NAME", default_value = "default")]
        project: String,
    },
}

impl Keys {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        let Self::Create { project } = self;
        let config = session::config_for_postgres(global)?;
        let operator = session::operator(&config)?;
        let key = session::at_desk_of(global, &config, async |_, desk| api_key::create(desk, &project, (operator, &global.reason)).await)?;
        answer(global, "keys.create", &json!({ "id": key.id, "project": project, "key": *key.plaintext }), |page| {
            page.line(&*key.plaintext)
        })?;
        note(global.output, &format!("key {} of project {project}: keep it now, it cannot be shown again", key.id));
        Ok(Code::Done)
    }
}
