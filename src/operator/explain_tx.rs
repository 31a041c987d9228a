//! One transaction, explained: where its nonce stands on its lane, what it offers and may still offer, and what comes next and when.
//! Asks Postgres only.

use super::ladder::{self, Coming, Fees, Place, Seen};
use super::transactions::{self, Transaction};
use super::{Desk, Error, List, age, lanes};
use crate::domain::encoding::checksummed;
use crate::store::transactions::Lineage;
use entity::states::LineageState;
use entity::values::Hash;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    #[serde(flatten)]
    pub transaction: Transaction,
    /// Null once it has ended.
    pub place: Option<Place>,
    pub hashes: Vec<Hash>,
    pub why: String,
    pub next: Coming,
    pub then: Option<Coming>,
    pub fees: Option<Fees>,
}

/// The transactions that an id names (its own, that of its job, or a hash), newest first.
///
/// # Errors
/// `Invalid` when it is none of these, `NotFound` when there is none.
pub async fn explain(desk: &Desk, id: &str) -> Result<List<Explanation>, Error> {
    let rows = transactions::named(&desk.reader(), id).await?;
    Ok(List::whole(explained(desk, rows).await?))
}

/// Explains rows of one job. Open nonces are loaded together, whatever their number.
pub(super) async fn explained(desk: &Desk, rows: Vec<Lineage>) -> Result<Vec<Explanation>, Error> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (db, now, signer) = (desk.reader(), desk.clock.now(), first.signer);
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let (lanes, seen, opened) = futures::try_join!(lanes::load(&db), Seen::load(&db, signer), ladder::opened(&db, &ids))?;
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(lane) = lanes.iter().find(|lane| lane.id == row.lane) else { continue };
        // Of a job that got a second nonce from another signer nothing but the newest is open.
        let ground = seen.ground(lane, &desk.chains, now);
        let (id, transaction) = (row.id, Transaction::at(now, row));
        if transaction.state.is_final() {
            items.push(ended(&ground, transaction));
            continue;
        }
        let rung = ladder::rung(&ground, transaction, opened.get(&id));
        let why = open(&rung.transaction, rung.place, lane.latest_nonce);
        let place = Some(rung.place);
        items.push(Explanation {
            transaction: rung.transaction,
            place,
            hashes: rung.hashes,
            why,
            next: rung.next,
            then: rung.then,
            fees: rung.fees,
        });
    }
    Ok(items)
}

fn open(t: &Transaction, place: Place, latest: i64) -> String {
    let told = t.last_answer.as_deref().unwrap_or("none");
    let mut why = match t.state {
        LineageState::Allocated => format!("nonce {} is reserved for {} and nothing is signed", t.nonce, age(t.age_seconds)),
        _ if t.sends == 0 => format!("nonce {} is signed for {} and was never sent", t.nonce, age(t.age_seconds)),
        _ => format!(
            "nonce {} is open for {}: {} signed, sent {}, the last answer was {told}",
            t.nonce,
            age(t.age_seconds),
            attempts(t.attempts),
            times(t.sends)
        ),
    };
    why.push_str(&match place {
        Place::Mined => "; the chain has taken it".into(),
        Place::Head => "; the chain takes it next".into(),
        Place::Behind => format!("; it waits for nonce {latest}, which the chain takes first"),
    });
    why
}

fn attempts(count: i64) -> String {
    if count == 1 { "1 attempt".into() } else { format!("{count} attempts") }
}

fn times(count: i32) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// What proves an end.
pub(super) fn proven(t: &Transaction) -> String {
    let at = t.block.map_or_else(String::new, |block| format!(" in block {} ({})", block.number, block.hash));
    match t.state {
        LineageState::Mined => format!("{} was mined{at} and succeeded", hash(t)),
        LineageState::Reverted => format!("{} was mined{at} and reverted", hash(t)),
        LineageState::Superseded => {
            format!(
                "nonce {} of {} was used up by a transaction that is not ours: holdfast tx show {} has the proof",
                t.nonce,
                checksummed(&t.signer),
                t.id
            )
        }
        _ => format!("nonce {} was given back unsigned", t.nonce),
    }
}

fn hash(t: &Transaction) -> String {
    t.hash.map_or_else(|| "it".into(), |hash| hash.to_string())
}

fn ended(ground: &ladder::Ground<'_>, transaction: Transaction) -> Explanation {
    let next = match ladder::finality(&transaction, ground) {
        Some(told) if transaction.finalized_at.is_none() => Coming::of("finalize", told),
        Some(told) => Coming::of("nothing", format!("nothing: {told}")),
        None => Coming::of("nothing", "nothing"),
    };
    let hashes = transaction.hash.into_iter().collect();
    Explanation { why: proven(&transaction), transaction, place: None, hashes, next, then: None, fees: None }
}
