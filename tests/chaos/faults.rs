//! What befalls the processes and what they stand on.

use super::Plan;
use crate::simulation::rng::Rng;
use crate::support::standby::Standby;
use crate::support::wait::eventually;
use crate::support::world::{Instance, SOON, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const RELAYERS: [&str; 3] = ["relayer-a", "relayer-b", "relayer-c"];
const ENGINES: [&str; 2] = ["engine-a", "engine-b"];
/// Longer than a lane's lease and a delivery's lock.
const FROZEN: Duration = Duration::from_secs(12);
/// How long Redis is away.
const AWAY: Duration = Duration::from_secs(4);

/// Each is brought back when it dies.
pub struct Processes {
    engines: Vec<Arc<Instance>>,
    relayers: Vec<Arc<Instance>>,
    address: Arc<Mutex<String>>,
    largest_kib: u64,
}

impl Processes {
    pub async fn start(world: &World) -> Self {
        let (mut engines, mut relayers) = (Vec::new(), Vec::new());
        // An engine that is there first knows of no pool yet.
        for name in RELAYERS {
            relayers.push(world.serve("relayer", &[("INSTANCE_ID", name)]).await);
        }
        for name in ENGINES {
            engines.push(world.serve("engine", &[("INSTANCE_ID", name)]).await);
        }
        let address = Arc::new(Mutex::new(engines[0].http.clone()));
        Self { engines, relayers, address, largest_kib: 0 }
    }

    pub fn engine_address(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.address)
    }

    pub const fn largest_mib(&self) -> u64 {
        self.largest_kib / 1024
    }

    fn weigh(&mut self) {
        for process in self.engines.iter().chain(&self.relayers) {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
            let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse().ok());
            self.largest_kib = self.largest_kib.max(kib.unwrap_or(0));
        }
    }

    /// Of the five; callers go to the other engine.
    fn kill(&mut self, world: &World, which: usize) {
        if which < ENGINES.len() {
            self.engines[which].kill9();
            self.engines[which] = world.launch("engine", &[("INSTANCE_ID", ENGINES[which])]);
            self.address.lock().unwrap().clone_from(&self.engines[1 - which].http);
        } else {
            let which = which - ENGINES.len();
            self.relayers[which].kill9();
            self.relayers[which] = world.launch("relayer", &[("INSTANCE_ID", RELAYERS[which])]);
        }
    }
}

#[derive(Default)]
pub struct Done {
    pub kills: u64,
    pub freezes: u64,
    pub flushes: u64,
    pub restarts: u64,
    pub crashes: u64,
    pub promotions: u64,
}

pub struct Faults {
    plan: Plan,
    dice: Rng,
    standby: Option<Arc<Standby>>,
    promoted: bool,
}

impl Faults {
    pub fn new(plan: Plan, dice: Rng, standby: Option<Arc<Standby>>) -> Self {
        Self { plan, dice, standby, promoted: false }
    }

    pub async fn run(mut self, world: &World, processes: &mut Processes, stop: &AtomicBool) -> Done {
        let (mut done, began) = (Done::default(), Instant::now());
        let mut strike = began + self.plan.strike_every;
        let mut thaw: Option<(Instant, Arc<Instance>)> = None;
        while !stop.load(Ordering::Relaxed) {
            if thaw.as_ref().is_some_and(|(at, _)| Instant::now() >= *at)
                && let Some((_, process)) = thaw.take()
            {
                process.thaw();
            }
            if !self.promoted && self.plan.promotion.is_some_and(|after| began.elapsed() >= after) {
                self.promote(world).await;
                done.promotions += 1;
            }
            if Instant::now() >= strike {
                strike = Instant::now() + self.plan.strike_every;
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

    /// A SIGKILL each time, and beside it often something else.
    async fn strike(&mut self, world: &World, processes: &mut Processes, done: &mut Done, thaw: &mut Option<(Instant, Arc<Instance>)>) {
        let which = usize::try_from(self.dice.below(5)).unwrap();
        processes.kill(world, which);
        done.kills += 1;
        match self.dice.below(8) {
            0 | 1 if thaw.is_none() => {
                let other = Arc::clone(&processes.relayers[(which + 1) % RELAYERS.len()]);
                other.freeze();
                *thaw = Some((Instant::now() + FROZEN, other));
                done.freezes += 1;
            }
            2 => {
                let mut redis = world.redis().await;
                if ::redis::cmd("FLUSHALL").query_async::<()>(&mut redis).await.is_ok() {
                    done.flushes += 1;
                }
            }
            3 => {
                let mut redis = world.redis.as_ref().expect("its own").lock().await;
                redis.stop().await;
                tokio::time::sleep(AWAY).await;
                redis.start_again().await;
                done.restarts += 1;
            }
            // After the promotion there is nobody who would bring the new writer back.
            4 if !self.promoted => {
                world.servers().crash_postgres();
                done.crashes += 1;
            }
            _ => {}
        }
    }

    /// The writer is lost for good; what it had acknowledged is on the standby.
    async fn promote(&mut self, world: &World) {
        let Some(standby) = &self.standby else { return };
        world.servers().crash_postgres();
        let door = world.postgres.as_ref().expect("a proxy");
        door.move_to(standby.address);
        door.reset();
        tokio::time::sleep(Duration::from_secs(2)).await;
        standby.promote().await;
        eventually("the new writer answers", SOON, async || world.try_count("jobs").await.is_some()).await;
        self.promoted = true;
    }
}
