//! What an operator and a readiness check want to know: Redis itself, the size and the age of the queue, its epoch, its pause switch.

use super::{
    error::Error,
    keys::Keys,
    pool::Pool,
    scripts::{self, Invocation, accepted, read},
};
use redis::{Pipeline, Value, cmd};
use std::{collections::HashMap, time::Duration};
use uuid::Uuid;

/// How many deliveries are where. `waiting` is what BullMQ calls wait: handed-back foreign records; ours wait in `prioritized`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub waiting: u64,
    pub prioritized: u64,
    pub delayed: u64,
    pub active: u64,
    pub completed: u64,
    pub failed: u64,
    pub paused: bool,
}

impl Counts {
    /// What could be taken now.
    #[must_use]
    pub const fn ready(&self) -> u64 {
        self.waiting + self.prioritized
    }
}

/// What Redis says about itself. `None` where the server does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub version: (u32, u32, u32),
    pub eviction_policy: Option<String>,
    pub append_only: Option<bool>,
    /// Whether snapshots are configured; needs the right to CONFIG GET.
    pub snapshots: Option<bool>,
    pub used_memory: Option<u64>,
    /// `None` also when unlimited.
    pub max_memory: Option<u64>,
    pub is_primary: Option<bool>,
}

impl Facts {
    /// Redis 7 is the oldest that is supported.
    #[must_use]
    pub const fn is_supported(&self) -> bool {
        self.version.0 >= 7
    }

    /// Any other policy may drop locks and records. An untold policy is not a good one.
    #[must_use]
    pub fn never_evicts(&self) -> bool {
        self.eviction_policy.as_deref() == Some("noeviction")
    }
}

pub async fn ping(pool: &Pool) -> Result<(), Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().cmd("PING");
    one(pool, "ping", &pipeline).await.map(|_| ())
}

pub async fn check(pool: &Pool) -> Result<Facts, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().cmd("INFO").cmd("CONFIG").arg("GET").arg("save");
    let mut replies = pool.send("check", &pipeline).await?.into_iter();
    let info: String = read("check", accepted("check", replies.next().unwrap_or(Value::Nil))?)?;
    // Managed services refuse CONFIG; then the answer is unknown, not wrong.
    let save: Option<HashMap<String, String>> =
        replies.next().and_then(|reply| accepted("check", reply).ok()).and_then(|r| read("check", r).ok());
    let mut facts = facts_of(&info);
    facts.snapshots = save.and_then(|save| save.get("save").map(|rule| !rule.is_empty()));
    Ok(facts)
}

fn facts_of(info: &str) -> Facts {
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let number = |name: &str| fields.get(name).and_then(|text| text.trim().parse::<u64>().ok());
    let mut parts = fields.get("redis_version").unwrap_or(&"").trim().split('.').map(|part| part.parse().unwrap_or(0));
    Facts {
        version: (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0)),
        eviction_policy: fields.get("maxmemory_policy").map(|policy| policy.trim().to_owned()),
        append_only: number("aof_enabled").map(|enabled| enabled == 1),
        snapshots: None,
        used_memory: number("used_memory"),
        max_memory: number("maxmemory").filter(|&limit| limit > 0),
        is_primary: fields.get("role").map(|role| role.trim() == "master"),
    }
}

pub async fn counts(pool: &Pool, keys: &Keys) -> Result<Counts, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    for list in ["wait", "active"] {
        pipeline.cmd("LLEN").arg(keys.of(list));
    }
    for set in ["prioritized", "delayed", "completed", "failed"] {
        pipeline.cmd("ZCARD").arg(keys.of(set));
    }
    pipeline.cmd("HEXISTS").arg(keys.of("meta")).arg("paused");
    let mut numbers = Vec::with_capacity(7);
    for reply in pool.send("counts", &pipeline).await? {
        numbers.push(read::<u64>("counts", accepted("counts", reply)?)?);
    }
    let [waiting, active, prioritized, delayed, completed, failed, paused] = numbers[..] else {
        return Err(Error::Unexpected { call: "counts", detail: "another number of replies than commands" });
    };
    Ok(Counts { waiting, prioritized, delayed, active, completed, failed, paused: paused == 1 })
}

/// For how long the longest waiting delivery has been due; `None` when none waits.
pub async fn oldest_waiting_age(pool: &Pool, keys: &Keys) -> Result<Option<Duration>, Error> {
    let call = Invocation::default().key(keys.of("prioritized")).arg(keys.base.clone());
    let age: i64 = read("oldest_waiting_age", scripts::run_one(pool, "oldest_waiting_age", &scripts::OLDEST, call).await?)?;
    Ok(u64::try_from(age).ok().map(Duration::from_millis))
}

fn millis((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1_000).saturating_add(micros / 1_000)
}

/// The clock of Redis, in milliseconds of the epoch.
pub async fn now_millis(pool: &Pool) -> Result<u64, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().cmd("TIME");
    let reply = pool.send("time", &pipeline).await?.pop().unwrap_or(Value::Nil);
    Ok(millis(read("time", accepted("time", reply)?)?))
}

/// Whether something could have been taken for at least `patience`. False while the queue is paused.
pub async fn is_overdue(pool: &Pool, keys: &Keys, patience: Duration) -> Result<bool, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().cmd("LLEN").arg(keys.of("wait")).cmd("ZCARD").arg(keys.of("prioritized"));
    pipeline.cmd("ZRANGE").arg(keys.of("delayed")).arg(0).arg(0).arg("WITHSCORES");
    pipeline.cmd("HMGET").arg(keys.of("meta")).arg("paused").arg("concurrency");
    pipeline.cmd("TIME");
    let mut replies = pool.send("is_overdue", &pipeline).await?.into_iter().map(|reply| accepted("is_overdue", reply));
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let ready = read::<u64>("is_overdue", next()?)? + read::<u64>("is_overdue", next()?)?;
    let head: Vec<(String, f64)> = read("is_overdue", next()?)?;
    let stopped: Vec<Option<String>> = read("is_overdue", next()?)?;
    let latest = millis(read("is_overdue", next()?)?).saturating_sub(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    // Scores are due times in milliseconds times 4096.
    let is_late = |score: f64| score < latest as f64 * 4096.0;
    Ok(stopped.iter().all(Option::is_none) && (ready > 0 || head.first().is_some_and(|&(_, score)| is_late(score))))
}

/// Stops or starts intake by every consumer of this queue, active handlers go on. Kept by Redis, so a lost Redis forgets it.
pub async fn set_paused(pool: &Pool, keys: &Keys, paused: bool) -> Result<(), Error> {
    let mut pipeline = Pipeline::new();
    pipeline.atomic().ignore_errors();
    if paused {
        pipeline.cmd("HSET").arg(keys.of("meta")).arg("paused").arg(1);
        pipeline.cmd("DEL").arg(keys.of("marker"));
    } else {
        pipeline.cmd("HDEL").arg(keys.of("meta")).arg("paused");
        // Wakes the idle; they find out for themselves whether anything is there.
        pipeline.cmd("ZADD").arg(keys.of("marker")).arg(0).arg("0");
    }
    pipeline.cmd("XADD").arg(keys.of("events")).arg("MAXLEN").arg("~").arg(10_000).arg("*");
    pipeline.arg("event").arg(if paused { "paused" } else { "resumed" });
    for reply in pool.send("set_paused", &pipeline).await? {
        accepted("set_paused", reply)?;
    }
    Ok(())
}

/// Which data set this Redis holds; `None` for one that has lost its data or never had any.
pub async fn epoch(pool: &Pool, keys: &Keys) -> Result<Option<Uuid>, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().add_command(cmd("GET").arg(keys.epoch()).to_owned());
    let text: Option<String> = read("epoch", one(pool, "epoch", &pipeline).await?)?;
    text.map(|text| Uuid::try_parse(&text).map_err(|_| Error::Unexpected { call: "epoch", detail: "not a UUID" })).transpose()
}

/// Marks an unmarked data set; the answer is the epoch it has now, which is another's when somebody was faster.
pub async fn plant_epoch(pool: &Pool, keys: &Keys, epoch: Uuid) -> Result<Uuid, Error> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    pipeline.cmd("SET").arg(keys.epoch()).arg(epoch.to_string()).arg("NX");
    pipeline.cmd("GET").arg(keys.epoch());
    let mut replies = pool.send("plant_epoch", &pipeline).await?;
    let text: String = read("plant_epoch", accepted("plant_epoch", replies.pop().unwrap_or(Value::Nil))?)?;
    replies.into_iter().try_for_each(|reply| accepted("plant_epoch", reply).map(|_| ()))?;
    Uuid::try_parse(&text).map_err(|_| Error::Unexpected { call: "plant_epoch", detail: "not a UUID" })
}

async fn one(pool: &Pool, call: &'static str, pipeline: &Pipeline) -> Result<Value, Error> {
    accepted(call, pool.send(call, pipeline).await?.pop().unwrap_or(Value::Nil))
}

/// How many calls Redis has answered that crossed the network: scripts, blocking reads and plain commands that no script uses.
/// For `holdfast bench` alone.
pub async fn round_trips(pool: &Pool) -> Result<f64, Error> {
    const CROSSING: [&str; 8] = ["evalsha", "eval", "bzpopmin", "ping", "info", "config|get", "client|setname", "xread"];
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors().cmd("INFO").arg("commandstats");
    let reply = pool.send("info", &pipeline).await?.pop().unwrap_or(Value::Nil);
    let text: String = redis::from_redis_value(reply).unwrap_or_default();
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = rest.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok()?;
        CROSSING.contains(&name).then_some(calls)
    };
    Ok(text.lines().filter_map(calls).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_what_redis_tells() {
        let facts = facts_of(
            "# Server\r\nredis_version:7.0.15\r\nused_memory:1000\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nrole:master\r\n",
        );
        assert_eq!(facts.version, (7, 0, 15));
        assert!(facts.is_supported() && !facts.never_evicts());
        assert_eq!((facts.append_only, facts.max_memory, facts.is_primary), (Some(false), None, Some(true)));
    }

    #[test]
    fn what_redis_does_not_tell_is_neither_supported_nor_safe() {
        let facts = facts_of("");
        assert!(!facts.is_supported() && !facts.never_evicts());
    }
}
