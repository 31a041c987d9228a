//! Another process of this program beside us: the relayers of `demo`. Ends with us, whatever becomes of us.

use super::Error;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// A running sibling. Dropping it kills it.
pub struct Sibling {
    child: Child,
}

impl Sibling {
    /// Starts this program again with these arguments and nothing of our environment but what is given.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(arguments: &[&str], environment: &[(&str, String)], log: &std::path::Path) -> Result<Self, Error> {
        let log =
            std::fs::File::options().create(true).append(true).open(log).map_err(|error| Error::io(log.display().to_string(), &error))?;
        let child = Command::new("/proc/self/exe")
            .args(arguments)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::io("starting a second process", &error))?;
        Ok(Self { child })
    }

    /// SIGKILL, as a machine that loses power.
    ///
    /// # Errors
    /// When there is nothing to kill any more.
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().await.map_err(|error| Error::io("killing a process", &error))
    }

    /// SIGTERM, then waits for its exit code.
    ///
    /// # Errors
    /// When it was killed by a signal or cannot be waited for.
    pub async fn terminate(&mut self) -> Result<i32, Error> {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
        let status = self.child.wait().await.map_err(|error| Error::io("waiting for a process", &error))?;
        Ok(status.code().unwrap_or(137))
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}
