//! The callers: a steady flow of jobs, each submitted under its key until it is accepted, some of them cancelled.

use crate::simulation::rng::Rng;
use crate::support::world::World;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Accepted {
    pub ids: Vec<String>,
}

pub struct Load {
    jobs_a_second: u64,
    dice: Rng,
}

impl Load {
    pub const fn new(jobs_a_second: u64, dice: Rng) -> Self {
        Self { jobs_a_second, dice }
    }

    /// Until told to stop. The address is that of the engine, whichever process that is.
    pub async fn run(mut self, world: &World, engine: &Arc<Mutex<String>>, stop: &AtomicBool) -> Accepted {
        let mut accepted = Accepted::default();
        let (began, mut due) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            let wanted = began.elapsed().as_millis() as u64 * self.jobs_a_second / 1_000;
            if wanted <= due {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            due += 1;
            let job = world.record();
            let id = self.until_accepted(world, engine, &job).await;
            if self.dice.chance(4) {
                // Whatever it answers, the job ends once: cancelled, or completed because its bytes were faster.
                let at = engine.lock().unwrap().clone();
                let _ = post(world, &at, &format!("/v1/jobs/{id}/cancel"), "", &json!({})).await;
            }
            accepted.ids.push(id);
        }
        accepted
    }

    async fn until_accepted(&self, world: &World, engine: &Arc<Mutex<String>>, job: &Value) -> String {
        let key = uuid::Uuid::new_v4().to_string();
        let began = Instant::now();
        loop {
            let at = engine.lock().unwrap().clone();
            match post(world, &at, "/v1/jobs", &key, job).await {
                Some((200..300, body)) => return body["id"].as_str().expect("an id").to_owned(),
                Some((429 | 500.., _)) | None => {}
                Some((status, body)) => panic!("{status}: {body}"),
            }
            assert!(began.elapsed() < Duration::from_secs(90), "nobody accepts work\n{}", world.told().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn post(world: &World, at: &str, path: &str, key: &str, body: &Value) -> Option<(u16, Value)> {
    let request = world.client.post(format!("{at}{path}")).bearer_auth(&world.api_key).json(body).timeout(Duration::from_secs(10));
    let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.unwrap_or(Value::Null)))
}
