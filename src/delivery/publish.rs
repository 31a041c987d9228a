//! Puts deliveries into Redis and tells where they are. Never removes a record: that is `heal.rs`, for the reconciler alone.

use super::{
    error::Error,
    keys::{Keys, RECORD_NAME, delivery_id},
    pool::Pool,
    scripts::{self, Invocation},
};
use crate::telemetry::metrics::QUEUE_PUBLISHED;
use entity::ids::JobId;
use redis::Value;
use std::time::Duration;

/// One script call stays far under the time in which others notice that Redis is busy.
const CARDS_PER_CALL: usize = 100;
const IDS_PER_CALL: usize = 500;

/// What a delivery is made of. Everything else about the job is read from Postgres when it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    pub job_id: JobId,
    pub generation: i32,
    /// 1 is the most urgent, 100 the least; others are brought into that range.
    pub priority: u8,
    /// From now, by Redis' clock.
    pub delay: Duration,
}

/// Where a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Absent,
    Waiting,
    Delayed,
    Active,
    /// A terminal record: this id will never run again, a new run needs the next generation.
    Finished,
    /// A record that is in no list: it will never run, and publishing its id does nothing until it is healed.
    Orphan,
}

/// What publishing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    New,
    /// The id exists; nothing was changed. `Finished` and `Orphan` mean that nothing will run.
    Duplicate(Standing),
}

/// One answer per card, in order, in one round trip. May be repeated as a whole after any error.
pub async fn publish(pool: &Pool, keys: &Keys, cards: &[Card]) -> Vec<Result<Published, Error>> {
    if cards.is_empty() {
        return Vec::new();
    }
    let calls: Vec<Invocation> = cards.chunks(CARDS_PER_CALL).map(|chunk| invocation(keys, chunk)).collect();
    let answers = match scripts::run(pool, "publish", &scripts::PUBLISH, &calls).await {
        Ok(replies) => {
            replies.into_iter().zip(cards.chunks(CARDS_PER_CALL)).flat_map(|(reply, chunk)| per_card(reply, chunk.len())).collect()
        }
        Err(error) => vec![Err(error); cards.len()],
    };
    count(&answers);
    answers
}

/// One answer per id, in order, in one round trip.
pub async fn standing(pool: &Pool, keys: &Keys, ids: &[(JobId, i32)]) -> Result<Vec<Standing>, Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let calls: Vec<Invocation> = ids
        .chunks(IDS_PER_CALL)
        .map(|chunk| {
            let mut call = Invocation::default().key(keys.of("meta")).arg(keys.base.clone());
            chunk.iter().for_each(|&(job, generation)| call.push(delivery_id(job, generation)));
            call
        })
        .collect();
    let mut standings = Vec::with_capacity(ids.len());
    for reply in scripts::run(pool, "standing", &scripts::STANDING, &calls).await? {
        let words: Vec<String> = scripts::read("standing", reply?)?;
        for word in words {
            standings.push(standing_of("standing", &word)?);
        }
    }
    if standings.len() != ids.len() {
        return Err(Error::Unexpected { call: "standing", detail: "another number of answers than ids" });
    }
    Ok(standings)
}

fn invocation(keys: &Keys, cards: &[Card]) -> Invocation {
    let mut call = Invocation::default().key(keys.of("meta")).arg(keys.base.clone()).arg(RECORD_NAME);
    for card in cards {
        let id = delivery_id(card.job_id, card.generation);
        // Without a priority a record would overtake all that have one.
        let priority = card.priority.clamp(1, 100);
        let delay = card.delay.as_millis();
        call.push(id.clone());
        call.push(format!(r#"{{"job":"{}","generation":{}}}"#, card.job_id, card.generation));
        // One attempt: repeating is decided in Postgres, not by a queue client.
        call.push(format!(r#"{{"jobId":"{id}","attempts":1,"priority":{priority},"delay":{delay}}}"#));
        call.push(priority.to_string());
        call.push(delay.to_string());
    }
    call
}

fn per_card(reply: Result<Value, Error>, cards: usize) -> Vec<Result<Published, Error>> {
    let words: Result<Vec<String>, Error> = reply.and_then(|reply| scripts::read("publish", reply));
    match words {
        Ok(words) if words.len() == cards => words.iter().map(|word| published_of(word)).collect(),
        Ok(_) => vec![Err(Error::Unexpected { call: "publish", detail: "another number of answers than cards" }); cards],
        Err(error) => vec![Err(error); cards],
    }
}

fn published_of(word: &str) -> Result<Published, Error> {
    if word == "new" { Ok(Published::New) } else { standing_of("publish", word).map(Published::Duplicate) }
}

fn standing_of(call: &'static str, word: &str) -> Result<Standing, Error> {
    Ok(match word {
        "absent" => Standing::Absent,
        "waiting" => Standing::Waiting,
        "delayed" => Standing::Delayed,
        "active" => Standing::Active,
        "finished" => Standing::Finished,
        "orphan" => Standing::Orphan,
        _ => return Err(Error::Unexpected { call, detail: "an unknown place" }),
    })
}

fn count(answers: &[Result<Published, Error>]) {
    let (mut new, mut duplicate, mut failed) = (0, 0, 0);
    for answer in answers {
        match answer {
            Ok(Published::New) => new += 1,
            Ok(Published::Duplicate(_)) => duplicate += 1,
            Err(_) => failed += 1,
        }
    }
    for (number, result) in [(new, "new"), (duplicate, "duplicate"), (failed, "error")] {
        if number > 0 {
            QUEUE_PUBLISHED.add(number, &[result]);
        }
    }
}
