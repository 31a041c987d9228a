//! Lanes and signers, as lists: the ones in trouble first.

use super::{Desk, Error, List, seconds};
use crate::domain::window;
use crate::store::standing::{self, Load};
use crate::store::{Reader, lanes};
use entity::ids::LaneId;
use entity::states::LaneState;
use entity::values::Address;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lane {
    pub id: LaneId,
    pub chain_id: i64,
    pub pool: String,
    pub signer: Address,
    pub state: LaneState,
    pub reason: Option<String>,
    /// The fence: what the next plan gets.
    pub next_nonce: i64,
    /// What the chain would take next, at its newest block.
    pub latest_nonce: i64,
    /// The same at TX_CONFIRMATIONS.
    pub settled_nonce: i64,
    /// How many nonces may be open past the latest: one where the sender has delegated itself (EIP-7702).
    pub width: i32,
    pub delegated: bool,
    /// How many more plans it could take now.
    pub free: i64,
    pub open: i64,
    /// Of the open ones, those that nothing was signed for.
    pub unsigned: i64,
    pub oldest_open_seconds: Option<u64>,
}

impl Lane {
    pub(super) fn new(row: lanes::Lane, load: Option<&Load>) -> Self {
        let width = window::effective(row.width, row.delegated);
        let room = i64::from(width) - (row.next_nonce - row.latest_nonce);
        Self {
            free: if row.state == LaneState::Active { room.max(0) } else { 0 },
            open: load.map_or(0, |load| load.open),
            unsigned: load.map_or(0, |load| load.unsigned),
            oldest_open_seconds: load.map(|load| seconds(load.oldest)),
            id: row.id,
            chain_id: row.chain_id,
            pool: row.pool,
            signer: row.signer,
            state: row.state,
            reason: row.reason,
            next_nonce: row.next_nonce,
            latest_nonce: row.latest_nonce,
            settled_nonce: row.settled_nonce,
            width,
            delegated: row.delegated,
        }
    }
}

/// A key, and the lanes that it has on the chains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signer {
    pub signer: Address,
    pub open: i64,
    pub lanes: Vec<Lane>,
}

pub(super) async fn load(db: &Reader) -> Result<Vec<Lane>, Error> {
    let (rows, loads) = futures::try_join!(lanes::all(db), standing::loads(db))?;
    let loads: HashMap<LaneId, Load> = loads.into_iter().map(|load| (load.lane, load)).collect();
    Ok(rows.into_iter().map(|row| (loads.get(&row.id).copied(), row)).map(|(load, row)| Lane::new(row, load.as_ref())).collect())
}

/// What is not active first, then by the age of its oldest open nonce.
pub(super) fn worst_first(lanes: &mut [Lane]) {
    lanes.sort_by_key(|lane| (lane.state == LaneState::Active, std::cmp::Reverse(lane.oldest_open_seconds), lane.id));
}

/// # Errors
/// See [`Error`].
pub async fn list(desk: &Desk) -> Result<List<Lane>, Error> {
    let mut lanes = load(&desk.reader()).await?;
    worst_first(&mut lanes);
    Ok(List::whole(lanes))
}

/// # Errors
/// See [`Error`].
pub async fn signers(desk: &Desk) -> Result<List<Signer>, Error> {
    let mut by_signer: BTreeMap<Address, Vec<Lane>> = BTreeMap::new();
    for lane in load(&desk.reader()).await? {
        by_signer.entry(lane.signer).or_default().push(lane);
    }
    let signers = by_signer.into_iter().map(|(signer, lanes)| Signer { signer, open: lanes.iter().map(|lane| lane.open).sum(), lanes });
    Ok(List::whole(signers.collect()))
}
