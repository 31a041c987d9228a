//! Reads a signed type-2 or legacy transaction without the code under test, so that the fault proxy is an independent witness.

use entity::values::{Address, Hash};
use rlp::{Rlp, RlpStream};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTransaction {
    pub from: Address,
    pub chain_id: u64,
    pub nonce: u64,
    pub tip: u128,
    pub cap: u128,
    pub gas: u64,
    pub to: Option<Address>,
    pub data: Vec<u8>,
    pub hash: Hash,
    pub legacy: bool,
}

const FIELDS: usize = 12;
const SIGNED_FIELDS: usize = 9;

/// The bytes of r and s, each right-aligned.
fn halves(fields: &Rlp<'_>, at: usize) -> Option<[u8; 64]> {
    let mut signature = [0; 64];
    for (half, at) in [at, at + 1].into_iter().enumerate() {
        let number = fields.at(at).ok()?.data().ok()?;
        let end = (half + 1) * 32;
        signature.get_mut(end.checked_sub(number.len())?..end)?.copy_from_slice(number);
    }
    Some(signature)
}

/// A transaction of before EIP-2718, for one chain (EIP-155).
fn legacy(raw: &[u8]) -> Option<RawTransaction> {
    let fields = Rlp::new(raw);
    let v: u64 = (fields.item_count().ok()? == 9).then(|| fields.val_at(6).ok()).flatten()?;
    let chain_id = v.checked_sub(35)? / 2;
    let mut unsigned = RlpStream::new_list(9);
    for at in 0..6 {
        unsigned.append_raw(fields.at(at).ok()?.as_raw(), 1);
    }
    unsigned.append(&chain_id).append(&0_u8).append(&0_u8);
    let signed_hash = web3::signing::keccak256(&unsigned.out());
    let parity = i32::try_from((v - 35) % 2).ok()?;
    let from = web3::signing::recover(&signed_hash, &halves(&fields, 7)?, parity).ok()?;
    let price: u128 = fields.val_at(1).ok()?;
    Some(RawTransaction {
        from: Address(from.0),
        chain_id,
        nonce: fields.val_at(0).ok()?,
        tip: price,
        cap: price,
        gas: fields.val_at(2).ok()?,
        to: <[u8; 20]>::try_from(fields.at(3).ok()?.data().ok()?).ok().map(Address),
        data: fields.val_at(5).ok()?,
        hash: Hash(web3::signing::keccak256(raw)),
        legacy: true,
    })
}

/// None when the bytes are no well-formed, signed transaction of type 2 or of none.
pub fn decode(raw: &[u8]) -> Option<RawTransaction> {
    if raw.first().is_some_and(|first| *first >= 0xc0) {
        return legacy(raw);
    }
    let (kind, payload) = raw.split_first()?;
    let fields = Rlp::new(payload);
    if *kind != 2 || fields.item_count().ok()? != FIELDS {
        return None;
    }
    let mut unsigned = RlpStream::new_list(SIGNED_FIELDS);
    for at in 0..SIGNED_FIELDS {
        unsigned.append_raw(fields.at(at).ok()?.as_raw(), 1);
    }
    let signed_hash = web3::signing::keccak256(&[&[2], unsigned.out().as_ref()].concat());
    let signature = halves(&fields, 10)?;
    let parity: u8 = fields.val_at(9).ok()?;
    let from = web3::signing::recover(&signed_hash, &signature, i32::from(parity)).ok()?;
    let to = fields.at(5).ok()?.data().ok()?;
    Some(RawTransaction {
        from: Address(from.0),
        chain_id: fields.val_at(0).ok()?,
        nonce: fields.val_at(1).ok()?,
        tip: fields.val_at(2).ok()?,
        cap: fields.val_at(3).ok()?,
        gas: fields.val_at(4).ok()?,
        to: <[u8; 20]>::try_from(to).ok().map(Address),
        data: fields.val_at(7).ok()?,
        hash: Hash(web3::signing::keccak256(raw)),
        legacy: false,
    })
}
