//! `holdfast queue`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, Tone, cell, maybe, time, toned};
use super::{Global, session, waiting};
use crate::operator::age;
use crate::operator::queues::{self, Queue, Wish};
use clap::Subcommand;
use serde_json::json;
use std::time::Duration;

#[derive(Subcommand)]
pub enum Commands {
    /// How much is where in Redis, and what is wanted of the queue
    Stats,
    /// Have nobody take deliveries, in any process; what is being executed goes on
    Pause,
    /// Have deliveries taken again
    Resume,
    /// Publish every open delivery anew, and wait until that is done
    Rebuild {
        /// How long to wait; it goes on without the command
        #[arg(value_name = "SECONDS", default_value_t = 600)]
        seconds: u64,
    },
}

impl Commands {
    pub fn run(self, global: &Global) -> Result<Code, Failure> {
        match self {
            Self::Stats => stats(global),
            Self::Pause => pause(global, true),
            Self::Resume => pause(global, false),
            Self::Rebuild { seconds } => rebuild(global, seconds),
        }
    }
}

fn stats(global: &Global) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let prefix = config.queue.as_ref().map(|queue| queue.prefix.clone());
    let (wish, redis) = session::at_desk_of(global, &config, async |config, desk| {
        let wish = queues::wish(desk, prefix.as_deref()).await?;
        let Some(settings) = &config.queue else { return Ok((wish, None)) };
        Ok((wish, Some(queues::view_at(settings, &config.service.instance_id).await?)))
    })?;
    answer(global, "queue.stats", &json!({ "wanted": wish, "redis": redis }), |page| told(page, &wish, redis.as_ref()))?;
    Ok(Code::Done)
}

fn told(page: &mut Page, wish: &Wish, redis: Option<&Queue>) {
    let state = match (wish.paused_at, wish.lost_at, wish.rebuild_at) {
        (Some(at), ..) => toned(format!("paused since {}", time(at)), Tone::Bad),
        (_, Some(at), _) => toned(format!("Redis lost its data at {}: it is being published anew", time(at)), Tone::Look),
        (.., Some(at)) => toned(format!("being published anew since {}", time(at)), Tone::Look),
        _ => toned("running", Tone::Good),
    };
    let mut parts = vec![("queue", cell(&wish.prefix)), ("state", state), ("unpublished", cell(wish.unpublished))];
    if let Some(redis) = redis {
        let memory = redis.used_memory.map(|used| format!("{} MiB", used / (1 << 20)));
        parts.extend([
            ("ready", cell(redis.ready)),
            ("oldest", maybe(redis.oldest_ready_seconds.map(age))),
            ("delayed", cell(redis.delayed)),
            ("active", cell(redis.active)),
            ("kept", cell(format!("{} completed, {} failed", redis.completed, redis.failed))),
            ("redis", cell(&redis.redis_version)),
            ("eviction", maybe(redis.eviction_policy.as_ref())),
            ("memory", maybe(memory)),
        ]);
    }
    page.fields(&parts);
}

fn pause(global: &Global, paused: bool) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let prefix = config.queue.as_ref().map(|queue| queue.prefix.as_str());
    let wish = session::at_desk_of(global, &config, async |_, desk| queues::pause(desk, prefix, paused, (operator, &global.reason)).await)?;
    let name = if paused { "queue.pause" } else { "queue.resume" };
    answer(global, name, &wish, |page| match wish.paused_at {
        Some(_) => page.line(format!("queue {} is paused: within seconds no process takes deliveries; holdfast queue resume", wish.prefix)),
        None => page.line(format!("queue {} runs: deliveries are taken again within seconds", wish.prefix)),
    })?;
    Ok(Code::Done)
}

fn rebuild(global: &Global, seconds: u64) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let prefix = config.queue.as_ref().map(|queue| queue.prefix.as_str());
    let waited = session::at_desk_of(global, &config, async |_, desk| {
        let first = queues::rebuild(desk, prefix, (operator, &global.reason)).await?;
        let look = async || queues::wish(desk, prefix).await;
        let tell = |wish: &Wish| match wish.rebuild_at {
            Some(_) => "waits for a process of the service to begin".to_owned(),
            None => format!("{} deliveries are still to be published", wish.unpublished),
        };
        waiting::wait(global.output, Duration::from_secs(seconds), first, look, Wish::is_whole, tell).await
    })?;
    let (wish, code) = match waited {
        waiting::Waited::Done(wish) => (wish, Code::Done),
        waiting::Waited::Out(wish) => (wish, Code::TimedOut),
    };
    answer(global, "queue.rebuild", &wish, |page| match code {
        Code::Done => page.toned_line(format!("every open delivery of queue {} is published", wish.prefix), Tone::Good),
        _ => page.toned_line("the time is over; it goes on without this command: holdfast queue stats", Tone::Look),
    })?;
    Ok(code)
}
