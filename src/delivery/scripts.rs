//! Runs our Lua scripts, many calls of one script in one round trip. Loads a script again when Redis has forgotten it.

use super::{error::Error, pool::Pool};
use redis::{Cmd, Pipeline, ServerErrorKind, Value};
use std::sync::LazyLock;

/// The text is kept because it has to be sent again after Redis has lost it.
pub struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}

pub static PUBLISH: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("lua/place.lua"), include_str!("lua/publish.lua"))));
pub static STANDING: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("lua/place.lua"), include_str!("lua/standing.lua"))));
pub static HEAL: LazyLock<Script> = LazyLock::new(|| Script::new(concat!(include_str!("lua/place.lua"), include_str!("lua/heal.lua"))));
pub static EXTEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/extend.lua")));
pub static SWEEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/sweep.lua")));
pub static OLDEST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/oldest.lua")));

/// One call: its keys and its arguments.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl Invocation {
    pub fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.push(argument);
        self
    }

    pub fn push(&mut self, argument: impl Into<String>) {
        self.arguments.push(argument.into());
    }

    fn command(&self, script: &Script) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}

/// One reply per call, in order. The outer error is for all of them, an inner one for that call alone.
/// After a restart Redis has no scripts: then the script is loaded and all calls are made again, which every script allows.
pub async fn run(pool: &Pool, name: &'static str, script: &Script, calls: &[Invocation]) -> Result<Vec<Result<Value, Error>>, Error> {
    let mut replies = pool.send(name, &pipeline_of(script, calls, false)).await?;
    if replies.iter().any(is_forgotten) {
        replies = pool.send(name, &pipeline_of(script, calls, true)).await?;
        replies.drain(..1.min(replies.len()));
    }
    if replies.len() != calls.len() {
        return Err(Error::Unexpected { call: name, detail: "another number of replies than calls" });
    }
    Ok(replies.into_iter().map(|reply| accepted(name, reply)).collect())
}

/// The single call.
pub async fn run_one(pool: &Pool, name: &'static str, script: &Script, call: Invocation) -> Result<Value, Error> {
    let mut replies = run(pool, name, script, &[call]).await?;
    replies.pop().unwrap_or(Err(Error::Unexpected { call: name, detail: "no reply" }))
}

fn pipeline_of(script: &Script, calls: &[Invocation], load: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.len() + 1);
    pipeline.ignore_errors();
    if load {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text);
    }
    for call in calls {
        pipeline.add_command(call.command(script));
    }
    pipeline
}

fn is_forgotten(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// Turns an error reply inside a pipeline into an error.
pub fn accepted(call: &'static str, reply: Value) -> Result<Value, Error> {
    match reply {
        Value::ServerError(error) => Err(Error::from_server(
            call,
            error.kind().unwrap_or(ServerErrorKind::ResponseError),
            error.code(),
            error.details().unwrap_or_default(),
        )),
        other => Ok(other),
    }
}

/// Reads a reply as `T`.
pub fn read<T: redis::FromRedisValue>(call: &'static str, reply: Value) -> Result<T, Error> {
    redis::from_redis_value(reply).map_err(|_| Error::Unexpected { call, detail: "a reply of another shape" })
}
