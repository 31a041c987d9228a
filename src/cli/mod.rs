//! The command line: what is said, in which form, and with which exit code. One file a group of commands, no logic: everything is
//! done by `operator` and `app`. Called by `main` alone.

mod bench;
mod db;
mod dead;
mod demo;
mod dev;
mod doctor;
mod drains;
mod failure;
mod jobs;
mod keys;
mod lanes;
mod operators;
mod output;
mod page;
mod queue;
mod retire;
mod serve;
mod session;
mod status;
mod tx;
mod version;
mod waiting;
mod workers;

use crate::local;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use failure::{Code, Failure};
use output::Format;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Durable transactions for EVM chains: accepts work, signs it once, gets it mined, and says at any moment where it stands.
#[derive(Parser)]
#[command(
    name = "holdfast",
    version,
    max_term_width = 120,
    after_help = "Exit codes: 0 done, 1 internal, 2 usage or configuration, 3 not found, \
4 refused by a safety gate, 5 wait timed out, 6 changed concurrently, 7 dependency unavailable, 8 partly done, 10 checks found problems"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// A line of which only the form of the answer matters.
#[derive(Parser)]
#[command(disable_help_flag = true, disable_version_flag = true)]
struct Loose {
    #[arg(short, long, value_enum)]
    output: Option<Format>,
    #[arg(num_args = 0..)]
    rest: Vec<String>,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
struct Global {
    /// Form of the answer on stdout; logs and errors go to stderr
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Who is named in the log of operators; by default OPERATOR_ID
    #[arg(long, global = true, value_name = "NAME")]
    operator_id: Option<String>,
    /// Why, for the log of operators
    #[arg(long, global = true, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Settings; by default the file that HOLDFAST_CONFIG names
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of `holdfast dev`, also for commands beside it [default: .holdfast]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(long, global = true, env = "NO_COLOR", hide = true, hide_env = true, num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    no_color: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve(serve::Serve),
    /// Run everything here, with its own Postgres, Redis and EVM node
    Dev(dev::Dev),
    /// Show the main job: two relayers, one killed in the middle, nothing lost
    Demo(demo::Demo),
    /// The schema and the logins
    #[command(subcommand)]
    Db(db::Db),
    /// How everything stands, the worst first
    Status,
    /// Check the configuration and everything that the service depends on
    Doctor,
    /// Jobs
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    /// Signers on chains, and their nonces
    #[command(subcommand)]
    Lanes(lanes::Lanes),
    /// Transactions: metadata only
    #[command(subcommand)]
    #[command(name = "tx")]
    Transactions(tx::Transactions),
    /// Processes that execute jobs
    #[command(subcommand)]
    Workers(workers::Workers),
    /// The queue in Redis
    #[command(subcommand)]
    Queue(queue::Commands),
    /// API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// The log of what operators did
    #[command(subcommand)]
    Operators(operators::Operators),
    /// Measure: its own API, the raw node and raw Postgres in one run
    Bench(bench::Bench),
    /// The version of the program and of the schema that it works with
    Version,
    /// Starts and stops the parts of `holdfast dev`
    #[command(hide = true)]
    LocalGuard,
}

/// Does what the command line says; the exit code of the process.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error).into(),
    };
    // It has an exit code of its own, and nobody reads what it says.
    if matches!(cli.command, Command::LocalGuard) {
        return local::guard::run();
    }
    let format = cli.global.output;
    match cli.dispatch() {
        Ok(code) => code.into(),
        Err(failure) => {
            failure.tell(format);
            failure.code.into()
        }
    }
}

impl Cli {
    fn dispatch(self) -> Result<Code, Failure> {
        let global = &self.global;
        match self.command {
            Command::Serve(command) => command.run(global),
            Command::Dev(command) => command.run(global),
            Command::Demo(command) => command.run(global),
            Command::Db(command) => command.run(global),
            Command::Status => status::run(global),
            Command::Doctor => doctor::run(global),
            Command::Jobs(command) => command.run(global),
            Command::Lanes(command) => command.run(global),
            Command::Transactions(command) => command.run(global),
            Command::Workers(command) => command.run(global),
            Command::Queue(command) => command.run(global),
            Command::Keys(command) => command.run(global),
            Command::Operators(command) => command.run(global),
            Command::Bench(command) => command.run(global),
            Command::Version => version::run(global),
            Command::LocalGuard => Ok(Code::Done),
        }
    }
}

/// Help and version are answers; everything else that clap refuses is a misuse.
fn code_of(error: &clap::Error) -> Code {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) { Code::Done } else { Code::Usage }
}

fn misused(error: &clap::Error) -> Code {
    let code = code_of(error);
    if code == Code::Done {
        let _ = write!(std::io::stdout().lock(), "{error}");
        return code;
    }
    // The line could not be read, but the wanted form of the answer mostly can.
    let read = Loose::command().ignore_errors(true).try_get_matches();
    match read.ok().and_then(form_in).unwrap_or(Format::Text) {
        Format::Text => drop(write!(std::io::stderr().lock(), "{error}")),
        format => {
            let text = error.to_string();
            let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Failure::new(code, "the command line cannot be read", why).then("holdfast --help").tell(format);
        }
    }
    code
}

/// Clap reads no further than to the first flag that it does not know.
fn form_in(read: clap::ArgMatches) -> Option<Format> {
    read.get_one::<Format>("output").copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_commands_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_of_the_contract_is_there() {
        let id = "0190b3f0-0000-7000-8000-000000000000";
        let signer = "0x00000000000000000000000000000000000000aa";
        for line in [
            "serve --role relayer",
            "dev --http 127.0.0.1:0 --admin 127.0.0.1:0 --data d --block-time 0.5 --lanes 4",
            "demo --jobs 200 --lanes 4",
            "db migrate",
            "db check",
            "status",
            "doctor",
            "jobs list --state dead --limit 10",
            &format!("jobs show {id}"),
            &format!("jobs explain {id}"),
            &format!("jobs cancel {id} --operator-id anna --reason test"),
            &format!("jobs replay {id} --reason test"),
            "jobs replay --filter error=no_lane,project=web --dry-run",
            &format!("jobs resolve {id} --reason test"),
            "operators log --by anna",
            "operators verify",
            "queue stats",
            "queue pause --reason test",
            "queue resume --reason test",
            "queue rebuild 60 --reason test",
            "jobs drain node-1 30",
            "jobs undrain node-1",
            &format!("jobs signer-drain {signer} 120"),
            &format!("jobs signer-undrain {signer}"),
            &format!("jobs signer-retire-check {signer}"),
            "jobs key-retire-check 2026-01",
            &format!("jobs signer-pool-rotate 31337 local:relayer {signer} {signer} --unloaded"),
            "lanes list",
            &format!("lanes explain {signer}"),
            "tx list",
            &format!("tx show {id} -o json"),
            "workers list",
            "bench --jobs 100 --lanes 2",
            "bench --rate 50 --seconds 10 --block-time 1",
            "keys create --project web",
            "version",
            "local-guard",
        ] {
            assert!(parse(&format!("holdfast {line}")).is_ok(), "{line}: {}", parse(&format!("holdfast {line}")).err().unwrap());
        }
    }

    #[test]
    fn a_misuse_exits_with_two_and_help_with_zero() {
        let id = "0190b3f0-0000-7000-8000-000000000000";
        for line in [
            "",
            "nonsense",
            "jobs show 12",
            "jobs list --state lost",
            "serve --role king",
            "lanes explain 0x12",
            "jobs",
            "dev --block-time -1",
        ] {
            assert_eq!(code_of(&parse(&format!("holdfast {line}")).err().unwrap()), Code::Usage, "{line}");
        }
        for line in ["--help", "--version", "jobs --help"] {
            assert_eq!(code_of(&parse(&format!("holdfast {line}")).err().unwrap()), Code::Done, "{line}");
        }
        assert!(parse(&format!("holdfast -o json jobs show {id}")).is_ok());
    }

    #[test]
    fn the_form_of_the_answer_is_found_on_a_line_that_cannot_be_read() {
        for line in ["nonsense -o json", "-o json jobs show 12", "--output=json jobs list --bogus"] {
            let read = Loose::command().ignore_errors(true).try_get_matches_from(["holdfast"].into_iter().chain(line.split_whitespace()));
            let found = read.ok().and_then(form_in);
            assert_eq!(found, Some(Format::Json), "{line}");
        }
    }
}
