//! One signer's lanes, explained: the fence, what the chain has taken and settled, and the ladder of open nonces between them.

use super::lanes::{self, Lane};
use super::transactions::Transaction;
use super::{Desk, Error, List, age};
use crate::domain::encoding::checksummed;
use crate::store::{standing, transactions};
use chrono::{DateTime, Utc};
use entity::states::{LaneState, LineageState};
use entity::values::Address;
use serde::Serialize;

/// Most rungs that are shown of a ladder.
const RUNGS_MAX: u32 = 500;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub lane: Lane,
    /// The newest block that a majority had reached.
    pub head: Option<i64>,
    pub why: String,
    pub next: String,
    /// The open nonces, lowest first: each waits for the ones before it.
    pub ladder: Vec<Rung>,
    /// When the signer joined and left which pool of the chain, oldest first.
    pub memberships: Vec<Membership>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Membership {
    pub pool: String,
    /// `joined` or `left`.
    pub change: String,
    pub by: String,
    pub at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Where it stands against the chain.
    pub place: Place,
    #[serde(flatten)]
    pub transaction: Transaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The chain has taken the nonce at its newest block; TX_CONFIRMATIONS are to come.
    Mined,
    /// The one that the chain takes next.
    Head,
    /// Behind the head.
    Behind,
}

/// # Errors
/// `NotFound` when the signer has no lane, and see [`Error`].
pub async fn explain(desk: &Desk, signer: Address) -> Result<List<Explanation>, Error> {
    let db = desk.reader();
    let mut lanes = lanes::load(&db).await?;
    lanes.retain(|lane| lane.signer == signer);
    if lanes.is_empty() {
        return Err(Error::NotFound { what: "lane of", id: checksummed(&signer) });
    }
    let (rows, heads, history) =
        futures::try_join!(transactions::open(&db, Some(signer), RUNGS_MAX), standing::heads(&db), standing::memberships(&db, signer))?;
    let now = desk.clock.now();
    let mut open: Vec<_> = rows.into_iter().map(|row| Transaction::at(now, row)).collect();
    let mut items = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let mine;
        (mine, open) = open.into_iter().partition::<Vec<_>, _>(|transaction| transaction.chain_id == lane.chain_id);
        let ladder: Vec<_> = mine.into_iter().map(|transaction| Rung { place: place(&lane, transaction.nonce), transaction }).collect();
        let head = heads.iter().find(|head| head.chain_id == lane.chain_id).map(|head| head.number);
        let (why, next) = verdict(&lane, &ladder);
        let memberships = history.iter().filter(|one| one.chain_id == lane.chain_id).map(membership).collect();
        items.push(Explanation { lane, head, why, next, ladder, memberships });
    }
    Ok(List::whole(items))
}

fn membership(row: &standing::Membership) -> Membership {
    Membership { pool: row.pool.clone(), change: row.change.clone(), by: row.actor.clone(), at: row.at }
}

fn place(lane: &Lane, nonce: i64) -> Place {
    match nonce.cmp(&lane.latest_nonce) {
        std::cmp::Ordering::Less => Place::Mined,
        std::cmp::Ordering::Equal => Place::Head,
        std::cmp::Ordering::Greater => Place::Behind,
    }
}

fn verdict(lane: &Lane, ladder: &[Rung]) -> (String, String) {
    let why = match lane.state {
        LaneState::Active if lane.free > 0 => {
            format!("it takes work: {} more nonces fit before the window of {} is full", lane.free, lane.width)
        }
        LaneState::Active => format!("its window is full: nonces {} to {} are open", lane.latest_nonce, lane.next_nonce - 1),
        state => format!("it is {state} and takes no work: {}", lane.reason.as_deref().unwrap_or("no reason was given")),
    };
    let Some(head) = ladder.iter().find(|rung| rung.place == Place::Head) else {
        let mined = ladder.iter().filter(|rung| rung.place == Place::Mined).count();
        return match (mined, lane.next_nonce - lane.latest_nonce) {
            (0, 0) => (why, "nothing is open".into()),
            (0, _) => (
                why,
                format!("nonce {} is next on the chain but not open here: the lane's settling finds out what took it", lane.latest_nonce),
            ),
            _ => (why, format!("{mined} nonces are mined and wait for TX_CONFIRMATIONS")),
        };
    };
    let (t, old) = (&head.transaction, age(head.transaction.age_seconds));
    let next = match t.state {
        LineageState::Allocated => format!("nonce {} is reserved for {old} and not signed: holdfast jobs explain {}", t.nonce, t.job),
        LineageState::Signed => format!("nonce {} is signed for {old} and was never sent: the next look at the lane sends it", t.nonce),
        _ => format!(
            "nonce {} is with the chain for {old}, sent {} times, last answer {}: all others wait for it",
            t.nonce,
            t.sends,
            t.last_answer.as_deref().unwrap_or("none")
        ),
    };
    (why, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::ids::{JobId, LaneId, LineageId};
    use entity::values::Wei;
    use uuid::Uuid;

    fn lane() -> Lane {
        Lane {
            id: LaneId(1),
            chain_id: 1,
            pool: "local:relayer".into(),
            signer: Address([7; 20]),
            state: LaneState::Active,
            reason: None,
            next_nonce: 8,
            latest_nonce: 5,
            settled_nonce: 4,
            width: 16,
            free: 13,
            open: 4,
            unsigned: 0,
            oldest_open_seconds: None,
        }
    }

    fn rung(lane: &Lane, nonce: i64, state: LineageState) -> Rung {
        let transaction = Transaction {
            id: LineageId(Uuid::nil()),
            job: JobId(Uuid::nil()),
            chain_id: 1,
            signer: lane.signer,
            nonce,
            state,
            hash: None,
            to: Address([1; 20]),
            value: Wei::ZERO,
            gas_limit: 21_000,
            max_fee_per_gas: None,
            max_priority_fee_per_gas: None,
            attempts: 1,
            sends: 3,
            last_sent_at: None,
            last_answer: None,
            block: None,
            gas_used: None,
            effective_gas_price: None,
            created_at: chrono::DateTime::UNIX_EPOCH,
            ended_at: None,
            age_seconds: 65,
        };
        Rung { place: place(lane, nonce), transaction }
    }

    #[test]
    fn the_nonce_that_all_others_wait_for_is_named() {
        let lane = lane();
        let ladder: Vec<_> = (4..8).map(|nonce| rung(&lane, nonce, LineageState::Broadcast)).collect();
        assert_eq!(ladder.iter().map(|rung| rung.place).collect::<Vec<_>>(), [Place::Mined, Place::Head, Place::Behind, Place::Behind]);
        let (why, next) = verdict(&lane, &ladder);
        assert_eq!(why, "it takes work: 13 more nonces fit before the window of 16 is full");
        assert_eq!(next, "nonce 5 is with the chain for 1m5s, sent 3 times, last answer none: all others wait for it");
    }

    #[test]
    fn a_hole_at_the_head_is_told_and_so_is_rest() {
        let mut lane = lane();
        let (_, next) = verdict(&lane, &[rung(&lane, 6, LineageState::Broadcast)]);
        assert!(next.starts_with("nonce 5 is next on the chain but not open here"), "{next}");
        lane.next_nonce = 5;
        assert_eq!(verdict(&lane, &[]).1, "nothing is open");
        assert_eq!(verdict(&lane, &[rung(&lane, 4, LineageState::Broadcast)]).1, "1 nonces are mined and wait for TX_CONFIRMATIONS");
    }

    #[test]
    fn a_paused_lane_gives_its_reason() {
        let lane = Lane { state: LaneState::Paused, reason: Some("a stranger used nonce 5".into()), free: 0, ..lane() };
        assert_eq!(verdict(&lane, &[]).0, "it is paused and takes no work: a stranger used nonce 5");
    }
}
