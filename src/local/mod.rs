//! The embedded default: our own Postgres, Redis and EVM node, real ones, as child processes in one folder.
//! Owns that folder and every process it starts; never touches a server that someone else runs, and knows nothing of
//! schemas, jobs or lanes. Called by `app` for `dev` and `demo`, and by tests; `cli` calls [`guard::run`] for the hidden
//! command `local-guard`.
//!
//! The processes are not children of the caller but of a *guard*, a second process of the same binary in a process group
//! of its own. The caller holds the guard's standard input; when that closes, because the caller asked for it, returned or
//! was killed with SIGKILL, the guard stops what it started and ends. Nothing outlives its owner, and no Ctrl-C at the
//! terminal reaches the database before the service has drained.

mod child;
mod evm_node;
mod folder;
pub mod guard;
mod messages;
mod parts;
mod postgres_server;
mod redis_server;
mod sibling;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use secrecy::SecretString;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::watch,
};

pub use evm_node::{DEV_FUNDER_KEY, DEV_MNEMONIC, Evm, Hardfork};
pub use folder::default_dir;
pub use messages::Part;
use messages::{Event, Fault, Orders, Ready};
pub use parts::{Missing, Parts};
pub use postgres_server::{DATABASE, OWNER_LOGIN, RUNTIME_LOGIN};
pub use sibling::Sibling;

/// The first start of all runs `initdb` on what may be a slow, busy disk.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The guard's own deadlines for the three parts add up to less.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error("{} is in use by another holdfast, process {pid}: stop it, or choose another folder", dir.display())]
    InUse { dir: PathBuf, pid: u32 },
    #[error("Postgres does not run as root, and the user it runs as instead ({user}) cannot enter {}: choose another data folder", at.display())]
    Unreachable { user: String, at: PathBuf },
    /// It cannot be a data folder, or what is in it is broken.
    #[error("the data folder cannot be used, because of {}: {detail}", at.display())]
    Folder { at: PathBuf, detail: String },
    #[error("{part} did not start; its log is {}\n{detail}", log.display())]
    Part { part: Part, log: PathBuf, detail: String },
    #[error("not ready after {} s; the logs are in {}", READY_WITHIN.as_secs(), dir.display())]
    Slow { dir: PathBuf },
    #[error("the guard of the local parts ended before they were ready; its log is {}", log.display())]
    GuardLost { log: PathBuf },
    #[error("{what}: {detail}")]
    Io { what: String, detail: String },
}

impl Error {
    fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Io { what: what.into(), detail: error.to_string() }
    }

    fn from_fault(fault: Fault, dir: &Path) -> Self {
        match fault {
            Fault::InUse { pid } => Self::InUse { dir: dir.to_owned(), pid },
            Fault::Unreachable { user, at } => Self::Unreachable { user, at },
            Fault::Folder { at, detail } => Self::Folder { at, detail },
            Fault::Part { part, log, detail } => Self::Part { part, log, detail },
            Fault::Io { what, detail } => Self::Io { what, detail },
        }
    }
}

/// What to start, where and how.
#[derive(Debug, Clone)]
pub struct Options {
    pub dir: PathBuf,
    pub parts: Parts,
    /// How the EVM node behaves; not looked at when `external_rpc` is given.
    pub evm: Evm,
    /// Off makes commits cheap and a power cut fatal: for tests only.
    pub fsync: bool,
    /// The operator's own node: then none is started.
    pub external_rpc: Option<SecretString>,
    /// The program that knows `local-guard`, when it is not the running one (as in a test binary).
    pub guard_program: Option<PathBuf>,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>, parts: Parts) -> Self {
        Self { dir: dir.into(), parts, evm: Evm::default(), fsync: true, external_rpc: None, guard_program: None }
    }
}

/// The parts, running. Dropping it stops them without waiting; [`Running::stop`] waits.
#[derive(Debug)]
pub struct Running {
    pub dir: PathBuf,
    /// The runtime login. It exists once the migration has made it, with the password that is in this URL.
    pub database_url: SecretString,
    pub runtime_password: SecretString,
    /// The owner of the database, for migrations.
    pub owner_url: SecretString,
    pub redis_url: SecretString,
    pub rpc_url: SecretString,
    /// `None` with an external node: only that node knows.
    pub chain_id: Option<u64>,
    /// The process ids of what was started, by part; a part that was restarted has another.
    pub pids: Vec<(Part, u32)>,
    pub guard_pid: u32,
    guard: Child,
    hold: Option<ChildStdin>,
    ended: watch::Receiver<bool>,
}

impl Running {
    /// Starts the guard, and returns when every part answers. `progress` gets one line a step, also later, when a part had
    /// to be restarted.
    pub async fn start(options: Options, progress: impl Fn(&str) + Send + 'static) -> Result<Self, Error> {
        let dir = folder::absolute(&options.dir).map_err(|e| Error::io(format!("the data folder {}", options.dir.display()), &e))?;
        let orders = Orders {
            owner: child::Identity::of(std::process::id()),
            dir: dir.clone(),
            postgres: options.parts.postgres,
            postgres_version: options.parts.postgres_version,
            redis: options.parts.redis,
            anvil: if options.external_rpc.is_some() { None } else { options.parts.anvil },
            evm: options.evm,
            fsync: options.fsync,
        };
        let mut guard = guard_command(options.guard_program.as_deref())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Error::io("starting the guard of the local parts", &e))?;
        let guard_pid = guard.id().unwrap_or_default();
        let lost = || Error::GuardLost { log: dir.join("guard.log") };
        let mut hold = guard.stdin.take().ok_or_else(lost)?;
        let mut events = BufReader::new(guard.stdout.take().ok_or_else(lost)?).lines();
        let line = format!("{}\n", serde_json::to_string(&orders).unwrap_or_default());
        hold.write_all(line.as_bytes()).await.map_err(|_| lost())?;
        // On every early return `hold` is dropped, and with it whatever the guard had started by then.
        let ready = tokio::time::timeout(READY_WITHIN, until_ready(&mut events, &dir, &progress))
            .await
            .map_err(|_| Error::Slow { dir: dir.clone() })??;
        let (tell, ended) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok(Some(line)) = events.next_line().await {
                pass_on(&line, &progress);
            }
            let _ = tell.send(true);
        });
        Ok(Self {
            dir,
            database_url: ready.database_url.into(),
            runtime_password: ready.runtime_password.into(),
            owner_url: ready.owner_url.into(),
            redis_url: ready.redis_url.into(),
            rpc_url: options.external_rpc.unwrap_or_else(|| ready.rpc_url.unwrap_or_default().into()),
            chain_id: ready.chain_id,
            pids: ready.pids,
            guard_pid,
            guard,
            hold: Some(hold),
            ended,
        })
    }

    /// Returns when the guard is gone, by [`Running::stop`] or by accident. Then nothing restarts a part any more, and the
    /// parts themselves are stopping too.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|gone| *gone).await;
    }

    /// Stops the EVM node, Redis and Postgres, in this order, and returns when they are gone.
    pub async fn stop(mut self) -> Result<(), Error> {
        drop(self.hold.take());
        match tokio::time::timeout(STOPPED_WITHIN, self.guard.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::io("waiting for the guard of the local parts", &error)),
            Err(_) => {
                let _ = self.guard.start_kill();
                Err(Error::Io { what: "stopping the local parts".into(), detail: format!("not done after {} s", STOPPED_WITHIN.as_secs()) })
            }
        }
    }
}

/// The same binary, out of reach of the terminal's signals, and without our environment: it may hold keys.
fn guard_command(program: Option<&Path>) -> Command {
    let program = program.map(Path::to_owned).unwrap_or_else(|| {
        // The link names a file that is gone when the binary was rebuilt meanwhile; the link itself still opens it.
        let link = PathBuf::from("/proc/self/exe");
        std::fs::read_link(&link).ok().filter(|target| target.exists()).unwrap_or(link)
    });
    let mut command = Command::new(program);
    command.arg("local-guard").env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").process_group(0);
    command
}

async fn until_ready(events: &mut Lines<BufReader<ChildStdout>>, dir: &Path, progress: &impl Fn(&str)) -> Result<Ready, Error> {
    while let Ok(Some(line)) = events.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Event::Ready(ready)) => return Ok(ready),
            Ok(Event::Failed(fault)) => return Err(Error::from_fault(fault, dir)),
            Ok(Event::Progress { .. } | Event::Restarted { .. }) => pass_on(&line, progress),
            Err(_) => break,
        }
    }
    Err(Error::GuardLost { log: dir.join("guard.log") })
}

fn pass_on(line: &str, progress: &impl Fn(&str)) {
    match serde_json::from_str(line) {
        Ok(Event::Progress { text }) => progress(&text),
        Ok(Event::Restarted { part }) => {
            tracing::warn!(%part, "a local part ended by itself and was restarted");
            progress(&format!("{part} ended by itself and was restarted"));
        }
        Ok(Event::Ready(_) | Event::Failed(_)) | Err(_) => {}
    }
}
