//! A chain of our own: blocks and forks, one pool that miners take from, three endpoints with a view and a pool each. It obeys the rules
//! of a chain whatever anybody sends it, and its endpoints have the moods that the schedule gives them.

use super::plan::{Lie, Plan, PoolRules, QUIET_BASE_FEE, SendMood};
use super::rng::Rng;
use entity::values::Hash;
use holdfast::domain::rpc_verdict::Class;
use std::collections::{BTreeMap, HashMap};

pub const ACCOUNTS: usize = 2;
pub const GAS: u128 = 50_000;
const RICH: u128 = u128::MAX / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Job(usize),
    Nothing,
    Stranger,
}

/// A signed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    pub hash: Hash,
    pub account: usize,
    pub nonce: u64,
    pub max_fee: u128,
    pub tip: u128,
    pub effect: Effect,
}

pub struct Block {
    pub number: usize,
    pub hash: Hash,
    pub base_fee: u128,
    pub txs: Vec<(Bytes, bool)>,
    /// The nonces used up, after this block.
    pub counts: [u64; ACCOUNTS],
}

type Pool = BTreeMap<(usize, u64), Bytes>;

pub struct Endpoint {
    /// The blocks it shows, by height.
    pub view: Vec<usize>,
    pub pool: Pool,
    pub rules: PoolRules,
    pub lag: usize,
    pub frozen: bool,
    /// How far behind the node is that answers for receipts.
    pub split: usize,
    pub lie: Option<Lie>,
    pub down: bool,
    pub sends: Option<SendMood>,
}

pub struct Chain {
    blocks: Vec<Block>,
    pub main: Vec<usize>,
    /// Where a transaction was mined, on any fork.
    mined: HashMap<Hash, Vec<(usize, bool)>>,
    pub network: Pool,
    pub endpoints: Vec<Endpoint>,
    pub target_fee: u128,
    pub full: bool,
    /// Everything that is due is mined, and every endpoint follows at once.
    pub quiet: bool,
    pub balance: [u128; ACCOUNTS],
    minted: u64,
}

/// A receipt as it is, before anybody lies about it.
#[derive(Clone, Copy, Debug)]
pub struct Mined {
    pub number: u64,
    pub block: Hash,
    pub succeeded: bool,
}

fn hash(tag: u8, value: u64) -> Hash {
    let mut bytes = [tag; 32];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    Hash(bytes)
}

/// The rule that both fees rise by a tenth.
fn replaces(new: &Bytes, old: &Bytes, strictly: bool) -> bool {
    let dear = |new: u128, old: u128| if strictly { new > old * 110 / 100 } else { new >= old * 110 / 100 && new > old };
    dear(new.max_fee, old.max_fee) && dear(new.tip, old.tip)
}

fn offer(pool: &mut Pool, bytes: Bytes, strictly: bool) -> bool {
    let place = (bytes.account, bytes.nonce);
    if pool.get(&place).is_some_and(|old| !replaces(&bytes, old, strictly)) {
        return false;
    }
    pool.insert(place, bytes);
    true
}

impl Chain {
    pub fn new(plan: &Plan) -> Self {
        let mut chain = Self {
            blocks: Vec::new(),
            main: Vec::new(),
            mined: HashMap::new(),
            network: Pool::new(),
            endpoints: plan
                .pools
                .iter()
                .map(|rules| Endpoint {
                    view: Vec::new(),
                    pool: Pool::new(),
                    rules: *rules,
                    lag: 0,
                    frozen: false,
                    split: 0,
                    lie: None,
                    down: false,
                    sends: None,
                })
                .collect(),
            target_fee: QUIET_BASE_FEE,
            full: false,
            quiet: false,
            balance: [RICH; ACCOUNTS],
            minted: 0,
        };
        for number in 0..=plan.lookback {
            chain.push(usize::try_from(number).unwrap(), QUIET_BASE_FEE, Vec::new(), [0; ACCOUNTS]);
        }
        (0..chain.endpoints.len()).for_each(|endpoint| chain.follow(endpoint));
        chain
    }

    pub fn mint(&mut self, tag: u8) -> Hash {
        self.minted += 1;
        hash(tag, self.minted)
    }

    fn push(&mut self, number: usize, base_fee: u128, txs: Vec<(Bytes, bool)>, counts: [u64; ACCOUNTS]) {
        let hash = self.mint(0xB1);
        let at = self.blocks.len();
        for (bytes, succeeded) in &txs {
            self.mined.entry(bytes.hash).or_default().push((at, *succeeded));
        }
        self.blocks.push(Block { number, hash, base_fee, txs, counts });
        self.main.push(at);
    }

    pub fn tip(&self) -> &Block {
        &self.blocks[*self.main.last().unwrap()]
    }

    /// One more block. `fails` says which jobs revert now.
    pub fn mine(&mut self, rng: &mut Rng, fails: &dyn Fn(usize) -> bool) {
        let tip = self.tip();
        let (number, mut counts, last) = (tip.number + 1, tip.counts, tip.base_fee);
        let most = last / 4;
        let base_fee = if self.target_fee > last { (last + most).min(self.target_fee) } else { (last - most).max(self.target_fee) };
        let mut room = if self.full { 0 } else { rng.range(1, 6) };
        let mut txs = Vec::new();
        for (account, count) in counts.iter_mut().enumerate() {
            while let Some(bytes) = self.network.get(&(account, *count)).copied() {
                let payable = bytes.max_fee >= base_fee && self.can_pay(&bytes);
                if room == 0 || !payable || (!self.quiet && rng.chance(10)) {
                    break;
                }
                room -= 1;
                *count += 1;
                txs.push((bytes, !matches!(bytes.effect, Effect::Job(job) if fails(job))));
            }
        }
        self.push(number, base_fee, txs, counts);
        self.network.retain(|(account, nonce), _| *nonce >= counts[*account]);
        for endpoint in 0..self.endpoints.len() {
            if self.quiet || !rng.chance(12) {
                self.follow(endpoint);
            }
            // What a pool has it offers again now and then.
            if self.quiet || rng.chance(15) {
                self.gossip(endpoint);
            }
        }
    }

    fn can_pay(&self, bytes: &Bytes) -> bool {
        bytes.effect == Effect::Stranger || bytes.max_fee.saturating_mul(GAS) <= self.balance[bytes.account]
    }

    fn gossip(&mut self, endpoint: usize) {
        let counts = self.tip().counts;
        for bytes in self.endpoints[endpoint].pool.values().filter(|bytes| bytes.nonce >= counts[bytes.account]) {
            offer(&mut self.network, *bytes, false);
        }
    }

    /// An endpoint comes as far as its mood allows.
    pub fn follow(&mut self, at: usize) {
        let endpoint = &mut self.endpoints[at];
        if endpoint.frozen {
            return;
        }
        let shown = (self.main.len() - endpoint.lag.min(self.main.len() - 1)).max(1);
        // Of two forks of the same length the one that was seen first.
        if shown <= endpoint.view.len() {
            return;
        }
        let common = endpoint.view.iter().zip(&self.main[..shown]).take_while(|(a, b)| a == b).count();
        endpoint.view.truncate(common);
        endpoint.view.extend_from_slice(&self.main[common..shown]);
        let counts = self.blocks[*endpoint.view.last().unwrap()].counts;
        endpoint.pool.retain(|(account, nonce), _| *nonce >= counts[*account]);
    }

    pub fn reorganise(&mut self, depth: usize, loses: bool, rng: &mut Rng, fails: &dyn Fn(usize) -> bool) {
        let depth = depth.min(self.main.len() - 2);
        let orphans = self.main.split_off(self.main.len() - depth);
        for at in orphans {
            for (bytes, _) in self.blocks[at].txs.clone() {
                // What somebody else has sent he sends again; ours may be lost.
                if bytes.effect == Effect::Stranger || !(loses && rng.chance(50)) {
                    offer(&mut self.network, bytes, false);
                }
            }
        }
        for _ in 0..=depth {
            self.mine(rng, fails);
        }
    }

    pub fn stranger(&mut self, account: usize) -> Bytes {
        let nonce = self.tip().counts[account];
        let max_fee = 4_000 * super::plan::GWEI;
        let bytes = Bytes { hash: self.mint(0xF0), account, nonce, max_fee, tip: max_fee / 2, effect: Effect::Stranger };
        offer(&mut self.network, bytes, false);
        bytes
    }

    pub fn rich(&mut self) {
        self.balance = [RICH; ACCOUNTS];
    }

    /// What the writer answers to bytes, and what it does with them.
    pub fn send(&mut self, at: usize, bytes: Bytes, refused: bool, rng: &mut Rng) -> Class {
        if self.endpoints[at].down {
            return if rng.chance(50) { Class::NotSent } else { Class::ServiceUnavailable };
        }
        match self.endpoints[at].sends {
            None => self.take(at, bytes, refused),
            Some(SendMood::Swallows) => Class::Ok,
            Some(SendMood::TimesOut) => {
                self.take(at, bytes, refused);
                Class::NoAnswer
            }
            Some(SendMood::Says(class)) => {
                if rng.chance(50) {
                    self.take(at, bytes, refused);
                }
                class
            }
        }
    }

    fn take(&mut self, at: usize, bytes: Bytes, refused: bool) -> Class {
        let can_pay = self.can_pay(&bytes);
        let endpoint = &mut self.endpoints[at];
        let tip = &self.blocks[*endpoint.view.last().unwrap()];
        let next = tip.counts[bytes.account];
        if refused {
            return Class::PolicyRejected;
        }
        if bytes.nonce < next {
            return Class::NonceTooLow;
        }
        if endpoint.pool.get(&(bytes.account, bytes.nonce)).is_some_and(|known| known.hash == bytes.hash) {
            return Class::AlreadyKnown;
        }
        if endpoint.rules.no_gaps
            && bytes.nonce > next + endpoint.pool.range((bytes.account, next)..(bytes.account, bytes.nonce)).count() as u64
        {
            return Class::NonceTooHigh;
        }
        if bytes.nonce >= next + endpoint.rules.slots {
            return Class::AccountQueueCap;
        }
        if !can_pay {
            return Class::InsufficientFunds;
        }
        if endpoint.rules.at_market && bytes.max_fee < tip.base_fee {
            return Class::Underpriced;
        }
        if !offer(&mut endpoint.pool, bytes, endpoint.rules.strictly) {
            return Class::ReplacementUnderpriced;
        }
        offer(&mut self.network, bytes, false);
        Class::Ok
    }

    // What an endpoint shows. None: no answer.

    pub fn head(&self, at: usize) -> Option<u64> {
        let endpoint = &self.endpoints[at];
        let head = endpoint.view.len() as u64 - 1;
        match endpoint.lie {
            _ if endpoint.down => None,
            Some(Lie::RunsAhead) => Some(head + 50),
            _ => Some(head),
        }
    }

    pub fn base_fee(&self, at: usize) -> Option<u128> {
        let endpoint = &self.endpoints[at];
        let shown = self.blocks[*endpoint.view.last()?].base_fee;
        match endpoint.lie {
            _ if endpoint.down => None,
            Some(Lie::Misprices(dear)) => Some(if dear { shown * 4 } else { shown / 4 }),
            _ => Some(shown),
        }
    }

    /// The nonces used up at a block, or at the newest.
    pub fn count(&self, at: usize, account: usize, number: Option<u64>) -> Option<u64> {
        let endpoint = &self.endpoints[at];
        let newest = endpoint.view.len() - 1;
        let height = number.map_or(newest, |number| usize::try_from(number).unwrap().min(newest));
        let count = self.blocks[endpoint.view[height]].counts[account];
        match endpoint.lie {
            _ if endpoint.down => None,
            Some(Lie::CountsMore(more)) => Some(count + more),
            Some(Lie::CountsFewer(fewer)) => Some(count.saturating_sub(fewer)),
            _ => Some(count),
        }
    }

    /// The head of the node that answers for receipts.
    pub fn head_behind(&self, at: usize) -> Option<u64> {
        self.head(at).map(|head| head.saturating_sub(self.endpoints[at].split as u64))
    }

    pub fn receipt(&self, at: usize, hash: Hash) -> Option<Option<Mined>> {
        let endpoint = &self.endpoints[at];
        if endpoint.down {
            return None;
        }
        let known = endpoint.view.len() - endpoint.split.min(endpoint.view.len() - 1);
        let truth = self.find(&endpoint.view[..known], hash);
        Some(match endpoint.lie {
            Some(Lie::Denies) => None,
            Some(Lie::Forges) => {
                let deep = &self.blocks[endpoint.view[endpoint.view.len().saturating_sub(6)]];
                let forged = Mined { number: deep.number as u64, block: deep.hash, succeeded: true };
                Some(truth.map_or(forged, |mined| Mined { succeeded: !mined.succeeded, ..mined }))
            }
            _ => truth,
        })
    }

    pub fn block_hash(&self, at: usize, number: u64) -> Option<Option<(u64, Hash)>> {
        let endpoint = &self.endpoints[at];
        if endpoint.down {
            return None;
        }
        let block = endpoint.view.get(usize::try_from(number).unwrap()).map(|at| &self.blocks[*at]);
        Some(block.map(|block| (number, if endpoint.lie == Some(Lie::Rehashes) { hash(0xEE, number) } else { block.hash })))
    }

    // The truth, for the checks.

    fn find(&self, view: &[usize], hash: Hash) -> Option<Mined> {
        let (at, succeeded) = self.mined.get(&hash)?.iter().find(|(at, _)| view.get(self.blocks[*at].number) == Some(at))?;
        let block = &self.blocks[*at];
        Some(Mined { number: block.number as u64, block: block.hash, succeeded: *succeeded })
    }

    pub fn canonical(&self, hash: Hash) -> Option<Mined> {
        self.find(&self.main, hash)
    }

    /// Every transaction of the canonical chain, and whether it succeeded.
    pub fn history(&self) -> impl Iterator<Item = &(Bytes, bool)> {
        self.main.iter().flat_map(|at| &self.blocks[*at].txs)
    }
}
