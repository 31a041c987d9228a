//! One process of the guard: how it is started, recognised later, and stopped. Knows nothing of what it runs. Called by `guard`
//! and by the three parts.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command as BlockingCommand, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use super::folder::RunAs;

const LOG_BYTES_MAX: u64 = 16 << 20;
const LOG_LINES_SHOWN: usize = 12;

/// A process that is told from a later one with the same number by when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub pid: u32,
    /// In ticks since boot; 0 if it was gone when we looked.
    began: u64,
}

impl Identity {
    pub fn of(pid: u32) -> Self {
        Self { pid, began: stat(pid).map_or(0, |(_, began)| began) }
    }

    /// A process that has ended but was not yet waited for by its parent is dead.
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, began)| began == self.began && !matches!(state, 'Z' | 'X'))
    }

    pub fn signal(self, signal: Signal) {
        if self.is_alive() {
            send(self.pid, signal);
        }
    }
}

fn stat(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, brackets and blanks too.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

fn send(pid: u32, signal: Signal) {
    if let Ok(raw) = i32::try_from(pid) {
        // It may end between the look and the signal: nothing to do then.
        let _ = kill(Pid::from_raw(raw), signal);
    }
}

/// What to run. The environment is empty but for what is named: ours may hold keys.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Where it runs, and what it calls home.
    pub home: PathBuf,
    pub environment: Vec<(&'static str, String)>,
    pub user: Option<RunAs>,
    /// Each with how long it may take; SIGKILL comes after the last.
    pub stop_signals: &'static [(Signal, Duration)],
}

impl Program {
    pub fn command(&self) -> Command {
        let signal = self.stop_signals.first().map_or(Signal::SIGTERM, |(s, _)| *s);
        let mut command = if let Some(setpriv) = setpriv() {
            // The kernel sends this signal when the guard dies, even by SIGKILL: the last way out for whoever kills us all.
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", signal.as_str().trim_start_matches("SIG")]);
            if let Some(user) = &self.user {
                command.args(["--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string(), "--clear-groups"]);
            }
            command.arg("--").arg(&self.path);
            command
        } else {
            let mut command = Command::new(&self.path);
            if let Some(user) = &self.user {
                command.uid(user.uid).gid(user.gid);
            }
            command
        };
        command.args(&self.arguments).current_dir(&self.home).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.home);
        command.envs(self.environment.iter().map(|(k, v)| (*k, v.as_str())));
        command
    }

    /// Its output is added to the log.
    pub fn spawn(&self, log: &Path) -> io::Result<Child> {
        let out = open_log(log)?;
        let err = out.try_clone()?;
        self.command().stdout(out).stderr(err).spawn()
    }

    pub async fn stop(&self, child: &mut Child) {
        for (signal, wait) in self.stop_signals {
            let Some(pid) = child.id() else { return };
            send(pid, *signal);
            if tokio::time::timeout(*wait, child.wait()).await.is_ok() {
                return;
            }
        }
        let _ = child.kill().await;
    }
}

/// The one that can set the parent-death signal; not every system has it.
fn setpriv() -> Option<&'static Path> {
    static FOUND: std::sync::OnceLock<Option<PathBuf>> = std::sync::OnceLock::new();
    FOUND
        .get_or_init(|| {
            let path = PathBuf::from("/usr/bin/setpriv");
            let mut trial = BlockingCommand::new(&path);
            trial.args(["--pdeathsig", "TERM", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            trial.status().is_ok_and(|s| s.success()).then_some(path)
        })
        .as_deref()
}

pub(super) fn open_log(path: &Path) -> io::Result<fs::File> {
    if fs::metadata(path).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The end of a log, for a message.
pub(super) fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_and_its_number_alone_proves_nothing() {
        let me = Identity::of(std::process::id());
        assert!(me.is_alive());
        assert!(!Identity { began: me.began + 1, ..me }.is_alive());

        let mut child = BlockingCommand::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id());
        assert!(identity.is_alive());
        identity.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }

    #[test]
    fn a_part_sees_nothing_of_our_environment() {
        let program = Program {
            path: "/usr/bin/env".into(),
            arguments: Vec::new(),
            home: "/".into(),
            environment: vec![("LC_ALL", "C.UTF-8".into())],
            user: None,
            stop_signals: &[],
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = runtime.block_on(async { program.command().stdout(Stdio::piped()).output().await.unwrap() });
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<&str> = text.lines().filter_map(|l| l.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH"]);
    }
}
