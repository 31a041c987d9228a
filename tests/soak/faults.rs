//! What goes wrong: one endpoint after the other, processes that die or stop, a Redis that forgets and a Postgres that crashes.

use super::Plan;
use crate::simulation::rng::Rng;
use crate::support::rpc_proxy::RpcProxy;
use crate::support::world::{Instance, World};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The engine and the two relayers, each brought back when it dies.
pub struct Processes {
    engine: Arc<Instance>,
    address: Arc<Mutex<String>>,
    relayers: [Arc<Instance>; 2],
    broadcast: String,
    largest_kib: u64,
}

const NAMES: [&str; 2] = ["relayer-a", "relayer-b"];

impl Processes {
    pub async fn start(world: &World, broadcast: &str) -> Self {
        let engine = world.engine().await;
        let relayer = async |name| world.serve("relayer", &[("INSTANCE_ID", name), ("RPC_BROADCAST_URLS", broadcast)]).await;
        let relayers = [relayer(NAMES[0]).await, relayer(NAMES[1]).await];
        let address = Arc::new(Mutex::new(engine.http.clone()));
        Self { engine, address, relayers, broadcast: broadcast.to_owned(), largest_kib: 0 }
    }

    pub fn engine_address(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.address)
    }

    pub const fn largest_mib(&self) -> u64 {
        self.largest_kib / 1024
    }

    fn weigh(&mut self) {
        for pid in [self.engine.pid, self.relayers[0].pid, self.relayers[1].pid] {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse().ok());
            self.largest_kib = self.largest_kib.max(kib.unwrap_or(0));
        }
    }

    fn kill_relayer(&mut self, world: &World, which: usize) {
        self.relayers[which].kill9();
        let changes = [("INSTANCE_ID", NAMES[which]), ("RPC_BROADCAST_URLS", self.broadcast.as_str())];
        self.relayers[which] = world.launch("relayer", &changes);
    }

    fn kill_engine(&mut self, world: &World) {
        self.engine.kill9();
        self.engine = world.launch("engine", &[]);
        self.address.lock().unwrap().clone_from(&self.engine.http);
    }
}

#[derive(Default)]
pub struct Done {
    pub kills: u64,
    pub freezes: u64,
    pub flushes: u64,
    pub crashes: u64,
    pub endpoint_faults: u64,
}

pub struct Faults {
    plan: Plan,
    dice: Rng,
}

/// How long one endpoint misbehaves in one way.
const TURN: Duration = Duration::from_secs(7);
/// Longer than a lane's lease.
const FROZEN: Duration = Duration::from_secs(12);

impl Faults {
    pub const fn new(plan: Plan, dice: Rng) -> Self {
        Self { plan, dice }
    }

    pub async fn run(mut self, world: &World, processes: &mut Processes, stop: &AtomicBool) -> Done {
        let mut done = Done::default();
        let (mut turn, mut kill) = (Instant::now(), Instant::now() + self.plan.kill_every);
        let mut thaw: Option<(Instant, Arc<Instance>)> = None;
        let mut bad = 0;
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= turn {
                turn = now + TURN;
                world.providers[bad].heal();
                bad = (bad + 1) % world.providers.len();
                self.misbehave(&world.providers[bad]).await;
                done.endpoint_faults += 1;
            }
            if thaw.as_ref().is_some_and(|(at, _)| now >= *at)
                && let Some((_, process)) = thaw.take()
            {
                process.thaw();
            }
            if now >= kill {
                kill = now + self.plan.kill_every;
                processes.weigh();
                self.strike(world, processes, &mut done, &mut thaw).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if let Some((_, process)) = thaw {
            process.thaw();
        }
        done
    }

    /// A SIGKILL each time, and beside it now and then something worse.
    async fn strike(&mut self, world: &World, processes: &mut Processes, done: &mut Done, thaw: &mut Option<(Instant, Arc<Instance>)>) {
        done.kills += 1;
        if done.kills.is_multiple_of(5) {
            processes.kill_engine(world);
        } else {
            let which = usize::try_from(done.kills % 2).unwrap();
            processes.kill_relayer(world, which);
            if done.kills.is_multiple_of(6) && thaw.is_none() {
                let other = Arc::clone(&processes.relayers[1 - which]);
                other.freeze();
                *thaw = Some((Instant::now() + FROZEN, other));
                done.freezes += 1;
            }
        }
        if done.kills.is_multiple_of(7) {
            let mut redis = world.redis().await;
            let () = ::redis::cmd("FLUSHALL").query_async(&mut redis).await.expect("flushed");
            done.flushes += 1;
        }
        if done.kills.is_multiple_of(16) {
            world.servers().crash_postgres();
            done.crashes += 1;
        }
    }

    async fn misbehave(&mut self, endpoint: &RpcProxy) {
        const SEND: &str = "eth_sendRawTransaction";
        let error = |code: i64, message: &str| json!({"error": {"code": code, "message": message}});
        match self.dice.below(13) {
            0 => drop(endpoint.hang("*", Duration::from_secs(3))),
            1 => drop(endpoint.reset("*").every(2)),
            2 => drop(endpoint.status("*", 503)),
            3 => drop(endpoint.raw("*", 429, "Retry-After: 2", "slow down")),
            4 => endpoint.lag(30),
            5 => endpoint.freeze_head().await,
            6 => endpoint.freeze_view().await,
            7 => drop(endpoint.reply("eth_getTransactionReceipt", json!({"result": Value::Null}))),
            8 => drop(endpoint.reply("eth_getTransactionCount", json!({"result": "0x7fffffff"}))),
            9 => drop(endpoint.accept_then_drop(SEND)),
            10 => drop(endpoint.reply(SEND, error(-32_000, "already known"))),
            11 => drop(endpoint.reply(SEND, error(-32_000, "nonce too low"))),
            _ => drop(endpoint.reply(SEND, error(-32_000, "insufficient funds for gas * price + value"))),
        }
    }
}
