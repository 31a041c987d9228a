//! The process between the service and its local parts: starts them, restarts one that ends by itself, and stops them when its
//! standard input closes or it is told to. Never talks to the parts beyond asking whether they answer. [`run`] is called by
//! `cli` for the hidden command `local-guard`, which `local::Running` starts.

use std::{
    fs,
    io::{BufRead, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use futures::future::try_join_all;
use nix::sys::signal::Signal;
use tokio::{
    process::Child,
    signal::unix::{Signal as SignalStream, SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    child::{Identity, Program, open_log, tail},
    evm_node,
    folder::{Folder, free_port},
    messages::{Event, Fault, Orders, Part, Ready},
    postgres_server, redis_server,
};
use crate::clock::{Clock, SystemClock};

const ATTEMPTS: u32 = 3;
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// A part that ran this long has its earlier crashes forgiven.
const STEADY_AFTER: Duration = Duration::from_secs(30);
const ORPHANS_GONE_WITHIN: Duration = Duration::from_secs(30);

/// The whole life of the guard; the exit code of its process. Has a thread and a runtime of its own, so it may be called from
/// anywhere: the kernel's parent-death signal counts from the thread that starts a child.
pub fn run() -> ExitCode {
    let life = std::thread::Builder::new().name("local-guard".into()).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(live());
        // A thread of the runtime may still wait for a lock that we no longer want.
        runtime.shutdown_background();
        done
    });
    match life.map(|thread| thread.join()) {
        Ok(Ok(Ok(true))) => ExitCode::SUCCESS,
        Ok(_) | Err(_) => ExitCode::FAILURE,
    }
}

/// Whether it came up.
async fn live() -> std::io::Result<bool> {
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut child_ended = signal(SignalKind::child())?;
    let (orders, mut stop) = listen();
    let Ok(orders) = orders.await else { return Ok(false) };
    let [terminate, interrupt, hangup] = &mut signals;
    let mut stopped = std::pin::pin!(async {
        tokio::select! {
            _ = stop.recv() => {}
            () = received(terminate) => {}
            () = received(interrupt) => {}
            () = received(hangup) => {}
        }
    });
    let (dir, owner) = (orders.dir.clone(), orders.owner);
    let taken = tokio::select! {
        taken = tokio::task::spawn_blocking(move || Folder::take(&dir, owner)) => taken.map_err(std::io::Error::other)?,
        () = &mut stopped => return Ok(false),
    };
    let mut house = match taken {
        Ok(folder) => House::new(folder, orders),
        Err(fault) => {
            tell(&Event::Failed(fault));
            return Ok(false);
        }
    };
    let up = tokio::select! {
        up = house.bring_up() => up,
        () = &mut stopped => {
            house.shut_down().await;
            return Ok(false);
        }
    };
    match up {
        Ok(ready) => {
            house.note("ready");
            tell(&Event::Ready(ready));
        }
        Err(fault) => {
            house.note(&format!("giving up: {fault:?}"));
            house.shut_down().await;
            tell(&Event::Failed(fault));
            return Ok(false);
        }
    }
    tokio::select! {
        () = house.supervise(&mut child_ended) => {}
        () = &mut stopped => {}
    }
    house.shut_down().await;
    Ok(true)
}

async fn received(stream: &mut std::io::Result<SignalStream>) {
    match stream {
        Ok(stream) => _ = stream.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// The first line of standard input, and its end (or the word "stop") as a message.
fn listen() -> (tokio::sync::oneshot::Receiver<Orders>, mpsc::Receiver<()>) {
    let (give, orders) = tokio::sync::oneshot::channel();
    let (tell_stop, stop) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
        if let Some(orders) = lines.next().and_then(|l| serde_json::from_str(&l).ok()) {
            let _ = give.send(orders);
            while lines.next().is_some_and(|l| l.trim() != "stop") {}
        }
        let _ = tell_stop.blocking_send(());
    });
    (orders, stop)
}

/// The owner may be gone: then nobody reads, and that is no reason to stop stopping.
fn tell(event: &Event) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, event);
    let _ = out.write_all(b"\n").and_then(|()| out.flush());
}

/// One part and its present process.
struct Slot {
    part: Part,
    port: u16,
    program: Option<Program>,
    child: Option<Child>,
    since: Instant,
    crashes: u32,
    /// When to start it again.
    due: Option<Instant>,
}

struct House {
    folder: Folder,
    orders: Orders,
    /// In the order in which they are stopped.
    slots: Vec<Slot>,
}

impl House {
    fn new(folder: Folder, orders: Orders) -> Self {
        let parts = [orders.anvil.is_some().then_some(Part::EvmNode), Some(Part::Redis), Some(Part::Postgres)];
        let slots = parts
            .into_iter()
            .flatten()
            .map(|part| Slot { part, port: 0, program: None, child: None, since: Instant::now(), crashes: 0, due: None })
            .collect();
        Self { folder, orders, slots }
    }

    async fn bring_up(&mut self) -> Result<Ready, Fault> {
        self.clear_orphans().await?;
        self.orders.postgres = postgres_server::programs(&self.folder, &self.orders.postgres, &self.orders.postgres_version)?;
        let (folder, orders) = (&self.folder, &self.orders);
        try_join_all(self.slots.iter_mut().map(|slot| slot.bring_up(folder, orders))).await?;
        let ports: Vec<(Part, u16)> = self.slots.iter().map(|s| (s.part, s.port)).collect();
        self.folder.keep_ports(ports)?;
        self.write_children()?;
        let port = |part| self.slots.iter().find(|s| s.part == part).map(|s| s.port);
        let settings = &self.folder.settings;
        let postgres = port(Part::Postgres).unwrap_or_default();
        let evm = port(Part::EvmNode);
        Ok(Ready {
            database_url: postgres_server::url(postgres_server::RUNTIME_LOGIN, &settings.runtime_password, postgres),
            runtime_password: settings.runtime_password.clone(),
            owner_url: postgres_server::url(postgres_server::OWNER_LOGIN, &settings.owner_password, postgres),
            redis_url: redis_server::url(&settings.redis_password, port(Part::Redis).unwrap_or_default()),
            rpc_url: evm.map(|p| format!("http://127.0.0.1:{p}")),
            chain_id: evm.map(|_| self.orders.evm.chain_id),
            pids: self.slots.iter().filter_map(|s| Some((s.part, s.child.as_ref()?.id()?))).collect(),
        })
    }

    /// Restarts what ends, each on its own port, later each time.
    async fn supervise(&mut self, child_ended: &mut SignalStream) {
        loop {
            let next = self.slots.iter().filter_map(|s| s.due).min();
            tokio::select! {
                _ = child_ended.recv() => {}
                () = async { match next { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {}
            }
            let mut changed = false;
            for index in 0..self.slots.len() {
                if let Some(text) = self.slots[index].look() {
                    self.note(&text);
                }
                if self.slots[index].due.is_some_and(|at| at <= Instant::now()) {
                    changed = true;
                    let slot = &mut self.slots[index];
                    let log = self.folder.log(slot.part);
                    match slot.start(&log) {
                        Ok(()) => tell(&Event::Restarted { part: slot.part }),
                        Err(error) => {
                            slot.expect_again();
                            let text = format!("{} cannot be started: {error}", slot.part);
                            self.note(&text);
                        }
                    }
                }
            }
            if changed && let Err(fault) = self.write_children() {
                self.note(&format!("{fault:?}"));
            }
        }
    }

    async fn shut_down(&mut self) {
        for slot in &mut self.slots {
            if let (Some(program), Some(mut child)) = (&slot.program, slot.child.take()) {
                program.stop(&mut child).await;
            }
        }
        let _ = fs::remove_file(self.children_file());
        self.note("stopped");
    }

    /// A guard that was killed too could stop nothing. What it left, by its own list or at work in our data, is stopped here:
    /// two servers on one data folder is what must never be.
    async fn clear_orphans(&mut self) -> Result<(), Fault> {
        let text = fs::read_to_string(self.children_file()).unwrap_or_default();
        let mut left: Vec<Identity> = serde_json::from_str(&text).unwrap_or_default();
        left.extend(postgres_server::at_work(&self.folder).into_iter().map(Identity::of));
        left.retain(|i| i.is_alive());
        if !left.is_empty() {
            tell(&Event::Progress { text: format!("stopping {} processes that a killed predecessor left", left.len()) });
        }
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
            left.iter().for_each(|i| i.signal(signal));
            let since = Instant::now();
            while left.iter().any(|i| i.is_alive()) && since.elapsed() < ORPHANS_GONE_WITHIN / 3 {
                sleep(LOOK_EVERY).await;
            }
            left.retain(|i| i.is_alive());
        }
        if let Some(stubborn) = left.first() {
            let detail = format!("process {} works in this folder and cannot be stopped", stubborn.pid);
            return Err(Fault::Io { what: format!("clearing {}", self.folder.dir.display()), detail });
        }
        postgres_server::forget_the_dead(&self.folder);
        Ok(())
    }

    fn write_children(&self) -> Result<(), Fault> {
        let pids = self.slots.iter().filter_map(|s| s.child.as_ref()?.id());
        let children: Vec<Identity> = pids.map(Identity::of).collect();
        super::folder::write_private(&self.children_file(), &serde_json::to_vec(&children).unwrap_or_default())
    }

    fn children_file(&self) -> PathBuf {
        self.folder.dir.join("children.json")
    }

    /// A line in the guard's log.
    fn note(&self, text: &str) {
        if let Ok(mut log) = open_log(&self.folder.dir.join("guard.log")) {
            let _ = writeln!(log, "{} {text}", SystemClock.now().to_rfc3339());
        }
    }
}

impl Slot {
    /// Until it answers. A first start may find its port taken by then, or its predecessor not quite gone: so it is tried again,
    /// elsewhere.
    async fn bring_up(&mut self, folder: &Folder, orders: &Orders) -> Result<(), Fault> {
        let log = folder.log(self.part);
        self.port = folder.port(self.part)?;
        for attempt in 1..=ATTEMPTS {
            self.prepare(folder, orders).await?;
            self.start(&log).map_err(|e| Fault::io(format!("starting {}", self.part), &e))?;
            let since = Instant::now();
            while since.elapsed() < ANSWERS_WITHIN {
                // First whether it lives: whoever answers on the port of a dead process is a stranger.
                if self.child.as_mut().is_none_or(|c| !matches!(c.try_wait(), Ok(None))) {
                    break;
                }
                if self.answers(folder).await {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
            if since.elapsed() >= ANSWERS_WITHIN {
                let detail = format!("it does not answer after {} s\n{}", ANSWERS_WITHIN.as_secs(), tail(&log));
                return Err(Fault::Part { part: self.part, log, detail });
            }
            if attempt < ATTEMPTS {
                sleep(Duration::from_millis(500) * attempt).await;
                self.port = free_port()?;
            }
        }
        Err(Fault::Part { part: self.part, detail: tail(&log), log })
    }

    async fn prepare(&mut self, folder: &Folder, orders: &Orders) -> Result<(), Fault> {
        let say = |text: String| tell(&Event::Progress { text });
        let name = match self.part {
            Part::Postgres => format!("Postgres {}", orders.postgres_version),
            Part::Redis | Part::EvmNode => self.part.to_string(),
        };
        self.program = match self.part {
            Part::Postgres => {
                if postgres_server::is_new(folder) {
                    say(format!("making a new Postgres in {}", folder.dir.display()));
                    postgres_server::create(folder, &orders.postgres, orders.fsync).await?;
                }
                Some(postgres_server::program(folder, &orders.postgres, self.port, orders.fsync))
            }
            Part::Redis => {
                redis_server::prepare(folder, self.port, orders.fsync)?;
                Some(redis_server::program(&folder.dir, &orders.redis))
            }
            Part::EvmNode => {
                if let Some(warning) = evm_node::prepare(&folder.dir)? {
                    say(warning);
                }
                orders.anvil.as_ref().map(|anvil| evm_node::program(&folder.dir, anvil, &orders.evm, self.port))
            }
        };
        say(format!("starting {name} on port {}", self.port));
        Ok(())
    }

    fn start(&mut self, log: &std::path::Path) -> std::io::Result<()> {
        self.due = None;
        let Some(program) = &self.program else { return Ok(()) };
        self.child = Some(program.spawn(log)?);
        self.since = Instant::now();
        Ok(())
    }

    async fn answers(&self, folder: &Folder) -> bool {
        match self.part {
            Part::Postgres => self.child.as_ref().and_then(Child::id).is_some_and(|pid| postgres_server::answers(folder, pid)),
            Part::Redis => redis_server::answers(&folder.settings.redis_password, self.port).await,
            Part::EvmNode => evm_node::answers(self.port).await,
        }
    }

    /// Notices an end, and says so.
    fn look(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        if self.since.elapsed() > STEADY_AFTER {
            self.crashes = 0;
        }
        self.expect_again();
        Some(format!("{} ended by itself: {status}", self.part))
    }

    fn expect_again(&mut self) {
        let pause = Duration::from_millis(100).saturating_mul(1 << self.crashes.min(10)).min(BACK_OFF_MAX);
        self.crashes = self.crashes.saturating_add(1);
        self.due = Some(Instant::now() + pause);
    }
}
