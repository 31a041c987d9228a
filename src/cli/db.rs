//! `holdfast db`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Tone, cell, maybe, toned};
use super::{Global, session};
use crate::operator::schema;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Db {
    /// Bring the schema and the runtime login to what this program needs (DATABASE_MIGRATION_URL, DATABASE_URL, DATABASE_OPERATOR_URL)
    Migrate,
    /// Compare versions and checksums; exit code 10 when they differ
    Check,
}

impl Db {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::Migrate => migrate(global),
            Self::Check => check(global),
        }
    }
}

fn migrate(global: &Global) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let missing = |name: &str, what: &str| Failure::new(Code::Usage, "nothing was migrated", format!("{name} is not set: {what}"));
    let Some(owner) = &config.migration_url else {
        return Err(missing("DATABASE_MIGRATION_URL", "it names the owner of the schema").then("set DATABASE_MIGRATION_URL"));
    };
    let Some(runtime) = &config.database else {
        let what = "its user becomes the runtime login, with its password";
        return Err(missing("DATABASE_URL", what).then("set DATABASE_URL to postgres://USER:PASSWORD@HOST/DATABASE of the service"));
    };
    session::start_logs(global, &config);
    let done = session::wait(async { Ok(schema::migrate(owner, &runtime.url, config.operator_url.as_ref()).await?) })?;
    answer(global, "db.migrate", &done, |page| {
        match done.applied.len() {
            0 => page.line(format!("the schema is at version {}, nothing to apply", done.version)),
            count => page.line(format!("{count} migrations applied, the schema is at version {}", done.version)),
        }
        done.logins.iter().for_each(|login| page.line(format!("login {login} has what the privileges matrix says, and nothing else")));
    })?;
    Ok(Code::Done)
}

fn check(global: &Global) -> Result<Code, Failure> {
    let found = session::at_desk(global, async |_, desk| schema::check(desk).await)?;
    let equal = found.differences.is_empty();
    answer(global, "db.check", &found, |page| {
        page.fields(&[("expected", cell(found.expected)), ("found", maybe(found.found))]);
        match equal {
            true => page.toned_line("versions and checksums are equal", Tone::Good),
            false => {
                page.table(&["DIFFERENCE"], &found.differences.iter().map(|text| vec![toned(text, Tone::Bad)]).collect::<Vec<_>>(), "")
            }
        }
    })?;
    Ok(if equal { Code::Done } else { Code::Problems })
}
