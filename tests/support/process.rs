//! Processes that a test starts: their signals, their logs, their end. Nothing outlives the test process, however it ends.

use super::wait::{eventually, found};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// A shell that kills what is still written down, and removes the folders of servers once they have stopped, when its input ends:
/// and that is when this process ends in any way.
const LEASH: &str = r#"live=" "
while read -r act what; do
  case $act in
    +) live="$live$what " ;;
    -) live="${live%% $what *} ${live#* $what }" ;;
    d) set -- "$@" "$what" ;;
  esac
done
for pid in $live; do kill -9 "$pid"; done
for dir; do
  left=150
  while [ -e "$dir/postgres/postmaster.pid" ] && [ $left -gt 0 ]; do sleep 0.2; left=$((left - 1)); done
  rm -rf "$dir"
done"#;

#[expect(clippy::zombie_processes, reason = "it outlives this process: that is its purpose")]
static LEASHED: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    let mut shell =
        Command::new("/bin/sh").args(["-c", LEASH]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Mutex::new(shell.stdin.take().unwrap())
});

/// Below the ports that the system takes for outgoing connections and apart from those of the embedded parts.
static NEXT_PORT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(u16::try_from(std::process::id() % 70).unwrap() * 100 + 10_000));

/// Removes a folder of servers when this process ends.
pub fn remove_at_the_end(dir: &std::path::Path) {
    writeln!(LEASHED.lock().unwrap(), "d {}", dir.display()).unwrap();
}

/// A port that nothing listens on.
pub fn free_port() -> u16 {
    loop {
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>, Arc<AtomicU16>);

impl Log {
    fn follow(&self, from: impl Read + Send + 'static) {
        let (lines, open) = (self.0.clone(), self.1.clone());
        open.fetch_add(1, Ordering::SeqCst);
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line.contains(text))
    }
}

/// A child process with its log. Killed when dropped.
pub struct Process {
    pub name: String,
    pub pid: i32,
    pub log: Log,
    child: Mutex<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
        let _ = writeln!(LEASHED.lock().unwrap(), "- {}", self.pid);
    }
}

impl Process {
    pub fn spawn<S: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = S>,
        environment: &BTreeMap<String, String>,
    ) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let log = Log::default();
        log.follow(child.stdout.take().unwrap());
        log.follow(child.stderr.take().unwrap());
        let pid = i32::try_from(child.id()).unwrap();
        writeln!(LEASHED.lock().unwrap(), "+ {pid}").unwrap();
        Self { name: name.to_owned(), pid, log, child: Mutex::new(child) }
    }

    pub fn signal(&self, signal: Signal) {
        if self.status().is_none() {
            kill(Pid::from_raw(self.pid), signal).unwrap();
        }
    }

    /// How it ended; None while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    pub fn is_alive(&self) -> bool {
        self.status().is_none()
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill9(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// SIGSTOP: it does nothing, and its sockets stay.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits for its end: the exit code, or the signal as a negative number.
    pub async fn exit(&self, within: Duration) -> i32 {
        let status = found(&format!("{} ends", self.name), within, async || self.status()).await;
        status.code().unwrap_or_else(|| -status.signal().unwrap_or_default())
    }

    /// All that it said, once it has ended.
    pub async fn whole_log(&self) -> Vec<String> {
        eventually("its last line was read", Duration::from_secs(5), async || self.log.1.load(Ordering::SeqCst) == 0).await;
        self.log.lines()
    }

    /// SIGTERM; the exit code.
    pub async fn term(&self, within: Duration) -> i32 {
        self.signal(Signal::SIGTERM);
        self.exit(within).await
    }

    pub async fn logged(&self, text: &str, within: Duration) {
        eventually(&format!("{} logs {text}", self.name), within, async || self.log.has(text)).await;
    }

    /// The last lines of its log, for a message.
    pub fn tail(&self) -> String {
        let lines = self.log.lines();
        let from = lines.len().saturating_sub(40);
        format!("--- {} (pid {}, {:?})\n{}", self.name, self.pid, self.status(), lines[from..].join("\n"))
    }
}
