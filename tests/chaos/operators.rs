//! What operators do meanwhile, by the command line and with whatever comes of it: a refusal, a time that runs out and a database that is away are
//! answers too. What was done stands in their log.

use super::Plan;
use super::faults::RELAYERS;
use crate::simulation::rng::Rng;
use crate::support::anvil::CHAIN_ID;
use crate::support::command;
use crate::support::world::{POOL, World};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Done, refused by a gate, time over, changed meanwhile, not now, partly done.
const ANSWERS: [i32; 6] = [0, 4, 5, 6, 7, 8];
/// After these, the act stands in the log.
const DONE: [i32; 2] = [0, 5];

/// The same database through a proxy.
pub fn through(url: &SecretString, port: u16) -> String {
    let url = url.expose_secret();
    let (front, name) = url.rsplit_once('/').expect("a database");
    let (login, _) = front.rsplit_once('@').expect("a login");
    format!("{login}@127.0.0.1:{port}/{name}")
}

/// How often each act was done.
#[derive(Default)]
pub struct Acts {
    done: BTreeMap<&'static str, i64>,
    refused: i64,
}

impl Acts {
    /// By the name that the log has for them.
    pub fn told(&self) -> impl Iterator<Item = (&'static str, i64)> {
        self.done.iter().map(|(action, times)| (*action, *times))
    }

    pub fn total(&self) -> i64 {
        self.done.values().sum::<i64>() + self.refused
    }

    pub fn words(&self) -> String {
        let mut words: Vec<_> = self.done.iter().map(|(action, times)| format!("{action} {times}")).collect();
        words.push(format!("refused or in vain {}", self.refused));
        words.join(", ")
    }
}

pub struct Operators {
    plan: Plan,
    dice: Rng,
    /// The signer that gives up its place, and the one that takes it.
    leaves: String,
    comes: String,
    chain: Vec<(&'static str, String)>,
}

impl Operators {
    pub fn new(plan: Plan, dice: Rng, world: &World) -> Self {
        let reads: Vec<&str> = world.providers.iter().map(|provider| provider.url.as_str()).collect();
        let chain = vec![
            ("DATABASE_URL", world.setting("DATABASE_URL").to_owned()),
            ("REDIS_URL", world.setting("REDIS_URL").to_owned()),
            ("QUEUE_PREFIX", world.setting("QUEUE_PREFIX").to_owned()),
            ("RPC_URL", world.providers[0].url.clone()),
            ("RPC_READ_URLS", reads.join(",")),
            ("CHAIN_ID", CHAIN_ID.to_string()),
            ("TX_REORG_LOOKBACK_BLOCKS", world.setting("TX_REORG_LOOKBACK_BLOCKS").to_owned()),
            ("DB_CONNECTION_TIMEOUT", "3000".to_owned()),
        ];
        Self {
            plan,
            dice,
            leaves: world.signers[2].address.to_string(),
            comes: "0x00000000000000000000000000000000000c4a05".to_owned(),
            chain,
        }
    }

    async fn run_one(&self, world: &World, arguments: &[&str]) -> i32 {
        let more: Vec<(&str, &str)> = self.chain.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (code, told) = command::run(world, &[arguments, &["--reason", "chaos"]].concat(), &more).await;
        assert!(ANSWERS.contains(&code), "{arguments:?} exits with {code}: {told}");
        if code == 7 {
            eprintln!("chaos: {arguments:?} is answered with: {}", told.replace('\n', " "));
        }
        code
    }

    pub async fn rest_a_signer(&self, world: &World) {
        assert_eq!(self.run_one(world, &["jobs", "signer-drain", &self.leaves, "30"]).await, 0);
    }

    pub async fn run(&mut self, world: &World, stop: &AtomicBool) -> Acts {
        let mut acts = Acts { done: BTreeMap::from([("signers.drain", 1)]), refused: 0 };
        let mut next = Instant::now() + self.plan.act_every;
        let mut rotated = false;
        while !stop.load(Ordering::Relaxed) {
            if Instant::now() < next {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            next = Instant::now() + self.plan.act_every;
            let worker = RELAYERS[usize::try_from(self.dice.below(3)).unwrap()];
            let signer = world.signers[usize::try_from(self.dice.below(2)).unwrap()].address.to_string();
            match self.dice.below(7) {
                0 => {
                    self.both(
                        world,
                        &mut acts,
                        ("workers.drain", &["jobs", "drain", worker, "5"]),
                        ("workers.undrain", &["jobs", "undrain", worker]),
                    )
                    .await
                }
                1 => {
                    let (drain, undrain) = (["jobs", "signer-drain", &signer, "8"], ["jobs", "signer-undrain", &signer]);
                    self.both(world, &mut acts, ("signers.drain", &drain), ("signers.undrain", &undrain)).await;
                }
                2 => self.both(world, &mut acts, ("queues.pause", &["queue", "pause"]), ("queues.resume", &["queue", "resume"])).await,
                3 => self.act(world, &mut acts, "queues.rebuild", &["queue", "rebuild", "5"]).await,
                4 => self.act(world, &mut acts, "", &["jobs", "replay", "--filter", "dead", "--yes"]).await,
                5 => self.act(world, &mut acts, "", &["operators", "verify"]).await,
                _ if !rotated => {
                    let chain = CHAIN_ID.to_string();
                    self.act(world, &mut acts, "", &["jobs", "signer-retire-check", &self.leaves]).await;
                    let rotate = ["jobs", "signer-pool-rotate", &chain, POOL, &self.leaves, &self.comes, "--unloaded"];
                    rotated = self.run_one(world, &rotate).await == 0;
                    *acts.done.entry("pools.rotate").or_default() += i64::from(rotated);
                    acts.refused += i64::from(!rotated);
                }
                _ => self.act(world, &mut acts, "", &["lanes", "list"]).await,
            }
        }
        acts
    }

    /// An act that the log knows by `action`; nothing where it is only a question.
    async fn act(&self, world: &World, acts: &mut Acts, action: &'static str, arguments: &[&str]) {
        if DONE.contains(&self.run_one(world, arguments).await) {
            if !action.is_empty() {
                *acts.done.entry(action).or_default() += 1;
            }
        } else {
            acts.refused += 1;
        }
    }

    async fn both(&self, world: &World, acts: &mut Acts, one: (&'static str, &[&str]), back: (&'static str, &[&str])) {
        self.act(world, acts, one.0, one.1).await;
        self.act(world, acts, back.0, back.1).await;
    }

    /// At the end nothing is drained or paused, whatever was refused in the middle.
    pub async fn give_everything_back(&self, world: &World) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let mut codes = vec![self.run_one(world, &["queue", "resume"]).await];
            for signer in &world.signers[..2] {
                codes.push(self.run_one(world, &["jobs", "signer-undrain", &signer.address.to_string()]).await);
            }
            for worker in RELAYERS {
                codes.push(self.run_one(world, &["jobs", "undrain", worker]).await);
            }
            // What is not drained refuses to be undrained.
            if codes.iter().all(|code| [0, 4].contains(code)) {
                return;
            }
            assert!(Instant::now() < until, "{codes:?}");
        }
    }
}
