//! The proof that a signer or a journal key may go: read from Postgres, shown by a majority of independent hosts, kept with its facts
//! whether it passed or not. Changes nothing else: the hand-over (`rotate.rs`) and taking the key away are acts of their own.

use super::cancel::check as check_operator;
use super::lanes::load;
use super::{Desk, Error};
use crate::chain::{BlockTag, Chain, Pool};
use crate::config;
use crate::domain::quorum::Decision;
use crate::domain::retirement::{self, Gate, HOSTS_MIN, Shown};
use crate::store::audited::Operator;
use crate::store::retirement::{self as rows, After, Used};
use chrono::{DateTime, Utc};
use entity::states::{LaneState, LineageState};
use entity::values::{Address, Hash};
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use crate::store::retirement::Subject;

pub const SIGNER_RUNBOOK: &str = "docs/operations.md#rotate-a-signer";
pub const KEY_RUNBOOK: &str = "docs/operations.md#rotate-a-journal-key";

/// Lineages that are read at once.
const PAGE: u32 = 2_000;
/// Blocks that a majority is asked about at once.
const BLOCKS: usize = 100;
/// Faults that are told and kept; all of them are counted.
const FAULTS: usize = 100;

/// The chains that can be asked: those of a running service, or those of a configuration, reached when they are needed.
pub enum Chains<'a> {
    Connected(Vec<(config::Chain, Arc<dyn Chain>)>),
    Configured(&'a [config::Chain]),
}

/// Why a chain cannot be asked.
enum NoChain {
    Unknown,
    Silent(String),
}

impl Chains<'_> {
    fn settings(&self, id: i64) -> Option<&config::Chain> {
        let same = |chain: &&config::Chain| i64::try_from(chain.id) == Ok(id);
        match self {
            Self::Connected(chains) => chains.iter().map(|(settings, _)| settings).find(same),
            Self::Configured(chains) => chains.iter().find(same),
        }
    }

    async fn connect(&self, id: i64) -> Result<(&config::Chain, Arc<dyn Chain>), NoChain> {
        let settings = self.settings(id).ok_or(NoChain::Unknown)?;
        match self {
            Self::Connected(chains) => {
                let found = chains.iter().find(|(chain, _)| chain.id == settings.id);
                found.map(|(_, chain)| (settings, chain.clone())).ok_or(NoChain::Unknown)
            }
            Self::Configured(_) => {
                let pool = Pool::connect(settings).await.map_err(|error| NoChain::Silent(error.to_string()))?;
                Ok((settings, Arc::new(pool)))
            }
        }
    }

    /// A chain to ask, with its settings.
    pub(super) async fn chain(&self, id: i64) -> Result<(&config::Chain, Arc<dyn Chain>), Error> {
        self.connect(id).await.map_err(|why| match why {
            NoChain::Unknown => Error::Invalid("chain", format!("chain {id} is not configured here")),
            NoChain::Silent(told) => Error::Unavailable(told),
        })
    }

    /// The nonce that an account has used up, as a majority shows it at the newest block.
    pub(super) async fn consumed(&self, id: i64, account: Address) -> Result<(&config::Chain, u64), Error> {
        let (settings, chain) = self.chain(id).await?;
        match chain.consumed_nonces(vec![account], BlockTag::Latest).await.pop() {
            Some(Decision::Agreed(nonce, _)) => Ok((settings, nonce)),
            _ => Err(Error::Unavailable(format!("no majority of chain {id} shows the nonce of {account}"))),
        }
    }
}

/// Why it may not go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub gate: &'static str,
    pub detail: String,
}

/// What was read of one chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChainFacts {
    pub chain_id: i64,
    /// Independent hosts that vote.
    pub hosts: usize,
    /// The highest block that a majority has reached.
    pub head: Option<u64>,
    pub lookback: u64,
    /// The newest block of each endpoint.
    pub endpoints: BTreeMap<String, Option<u64>>,
    /// Ends whose block was compared.
    pub receipts: u64,
    pub blocks: u64,
    pub highest_block: Option<i64>,
}

/// A proof, passed or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub subject: String,
    pub passed: bool,
    /// Lineages that needed it.
    pub lineages: u64,
    /// INCIDENT_RETENTION_SECONDS.
    pub window_seconds: u64,
    /// Since its last use; null: it was never used.
    pub unused_seconds: Option<u64>,
    pub chains: Vec<ChainFacts>,
    /// The first of them; `fault_count` are all.
    pub faults: Vec<Fault>,
    pub fault_count: u64,
}

#[derive(Default)]
struct Findings {
    lineages: u64,
    unused_for: Option<Duration>,
    faults: BTreeMap<Gate, Vec<String>>,
    count: u64,
    chains: BTreeMap<i64, ChainFacts>,
}

impl Findings {
    fn fault(&mut self, gate: Gate, detail: impl FnOnce() -> String) {
        self.count += 1;
        let of_gate = self.faults.entry(gate).or_default();
        if of_gate.len() < FAULTS {
            of_gate.push(detail());
        }
    }

    /// In the order of the gates, as many as are told.
    fn told(&self) -> Vec<Fault> {
        let all = self.faults.iter().flat_map(|(gate, details)| details.iter().map(|detail| (*gate, detail.clone())));
        all.take(FAULTS).map(|(gate, detail)| Fault { gate: gate.as_str(), detail }).collect()
    }
}

/// A chain that answers, and where its deepest block that still counts is.
struct Voter {
    chain: Arc<dyn Chain>,
    head: u64,
    lookback: u64,
    consumed: BTreeMap<Address, Option<u64>>,
}

/// Checks whether something may go, and keeps what was found.
///
/// # Errors
/// `NotFound` when there never was such a signer or key, `NoOperator`, and see [`Error`]. A proof that does not pass is no error.
pub async fn check(
    desk: &Desk,
    subject: &Subject,
    chains: &Chains<'_>,
    settings: &config::Retirement,
    active_key: Option<&str>,
    operator: (&str, &str),
) -> Result<Proof, Error> {
    check_operator(operator.0, operator.1)?;
    if !rows::is_known(&desk.reader(), subject).await? {
        let what = if matches!(subject, Subject::Signer(_)) { "signer" } else { "journal key" };
        return Err(Error::NotFound { what, id: subject.name() });
    }
    let mut found = Findings::default();
    fences(desk, subject, active_key, &mut found).await?;
    let mut voters: BTreeMap<i64, Option<Voter>> = BTreeMap::new();
    let mut after = After::default();
    loop {
        let page = rows::uses(&desk.reader(), subject, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = After::of(last);
        for chain_id in page.iter().map(|used| used.chain_id).collect::<BTreeSet<_>>() {
            if let Entry::Vacant(place) = voters.entry(chain_id) {
                place.insert(voter(chains, chain_id, &mut found).await);
            }
        }
        judge(&page, &mut voters, &mut found).await;
    }
    if !retirement::has_rested(found.unused_for, settings.window) {
        let (unused, window) = (found.unused_for.unwrap_or_default().as_secs(), settings.window.as_secs());
        found.fault(Gate::IncidentRetention, || format!("last used {} ago; it is kept for {}", super::age(unused), super::age(window)));
    }
    keep(desk, subject, settings, found, operator).await
}

async fn keep(
    desk: &Desk,
    subject: &Subject,
    settings: &config::Retirement,
    found: Findings,
    operator: (&str, &str),
) -> Result<Proof, Error> {
    let mut proof = Proof {
        id: 0,
        at: desk.clock.now(),
        subject: subject.name(),
        passed: found.count == 0,
        lineages: found.lineages,
        window_seconds: settings.window.as_secs(),
        unused_seconds: found.unused_for.map(|unused| unused.as_secs()),
        faults: found.told(),
        fault_count: found.count,
        chains: found.chains.into_values().collect(),
    };
    let text = serde_json::to_value(&proof).map(|mut facts| {
        // The row has these itself.
        facts.as_object_mut().into_iter().for_each(|facts| ["id", "at"].iter().for_each(|key| drop(facts.remove(*key))));
        facts.to_string()
    });
    let text = text.map_err(|error| Error::Invalid("proof", error.to_string()))?;
    let by = Operator { id: operator.0, reason: operator.1 };
    (proof.id, proof.at) = rows::keep(&desk.db, subject, proof.passed, &text, by).await?;
    Ok(proof)
}

/// Nothing new may need it while the proof is made.
async fn fences(desk: &Desk, subject: &Subject, active_key: Option<&str>, found: &mut Findings) -> Result<(), Error> {
    match subject {
        Subject::JournalKey(id) if active_key == Some(id.as_str()) => {
            found.fault(Gate::KeyActive, || format!("TX_JOURNAL_ACTIVE_KEY_ID is {id}: new rows are encrypted with it"));
        }
        Subject::JournalKey(_) => {}
        Subject::Signer(address) => {
            let lanes = load(&desk.reader()).await?;
            let open =
                lanes.iter().filter(|lane| lane.signer == *address && !matches!(lane.state, LaneState::Drained | LaneState::Retired));
            open.for_each(|lane| found.fault(Gate::SignerNotDrained, || format!("its lane on chain {} is {}", lane.chain_id, lane.state)));
        }
    }
    Ok(())
}

/// A chain whose majority of at least three independent hosts shows a head; None, and a fault, where there is none.
async fn voter(chains: &Chains<'_>, chain_id: i64, found: &mut Findings) -> Option<Voter> {
    let mut facts = ChainFacts { chain_id, ..ChainFacts::default() };
    let Some(settings) = chains.settings(chain_id) else {
        found.fault(Gate::ChainUnknown, || format!("chain {chain_id} is not configured here"));
        return None;
    };
    (facts.hosts, facts.lookback) = (settings.distinct_hosts(), settings.reorg_lookback);
    let (hosts, lookback) = (facts.hosts, facts.lookback);
    if hosts < HOSTS_MIN {
        found.chains.insert(chain_id, facts);
        found.fault(Gate::IndependentHosts, || {
            format!("chain {chain_id} is asked through {hosts} independent hosts, a proof needs {HOSTS_MIN}: set RPC_READ_URLS")
        });
        return None;
    }
    let chain = match chains.connect(chain_id).await {
        Ok((_, chain)) => chain,
        Err(why) => {
            found.chains.insert(chain_id, facts);
            let told = if let NoChain::Silent(told) = why { told } else { "not configured".into() };
            found.fault(Gate::Quorum, || format!("chain {chain_id}: {told}"));
            return None;
        }
    };
    let heads = chain.heads().await;
    facts.head = heads.reached;
    facts.endpoints = heads.endpoints.into_iter().map(|one| (one.endpoint, one.head.map(|head| head.number))).collect();
    found.chains.insert(chain_id, facts);
    match heads.reached {
        Some(head) => Some(Voter { chain, head, lookback, consumed: BTreeMap::new() }),
        None => {
            found.fault(Gate::Quorum, || format!("no majority of the endpoints of chain {chain_id} shows a head"));
            None
        }
    }
}

async fn judge(page: &[Used], voters: &mut BTreeMap<i64, Option<Voter>>, found: &mut Findings) {
    for used in page {
        found.lineages += 1;
        found.unused_for = Some(found.unused_for.map_or(used.unused_for, |least| least.min(used.unused_for)));
        if retirement::is_open(used.state) {
            found.fault(Gate::ActiveLineages, || format!("{} is {}", named(used), used.state));
        }
    }
    for (chain_id, voter) in voters {
        let Some(voter) = voter else { continue };
        let of_chain: Vec<&Used> = page.iter().filter(|used| used.chain_id == *chain_id && !retirement::is_open(used.state)).collect();
        let canonical = canonical(voter, &of_chain).await;
        for used in of_chain {
            end(used, voter, &canonical, found).await;
        }
        if let Some(facts) = found.chains.get_mut(chain_id) {
            facts.blocks += canonical.len() as u64;
        }
    }
}

/// The canonical hash at every height with an end that is deep enough to be asked about, by a majority, so many at a time.
async fn canonical(voter: &Voter, ends: &[&Used]) -> BTreeMap<u64, Decision<Option<Hash>>> {
    let floor = retirement::floor(voter.head, voter.lookback);
    let heights = ends.iter().filter_map(|used| u64::try_from(used.block?.0).ok());
    let heights: Vec<u64> =
        heights.filter(|height| floor.is_some_and(|floor| *height <= floor)).collect::<BTreeSet<_>>().into_iter().collect();
    let mut told = BTreeMap::new();
    for batch in heights.chunks(BLOCKS) {
        told.extend(batch.iter().copied().zip(voter.chain.block_hashes(batch.to_vec()).await));
    }
    told
}

async fn end(used: &Used, voter: &mut Voter, canonical: &BTreeMap<u64, Decision<Option<Hash>>>, found: &mut Findings) {
    let (head, lookback) = (voter.head, voter.lookback);
    let shown = Shown { head, lookback, canonical: Decision::Insufficient, consumed: None };
    let gate = match (used.state, used.block) {
        (LineageState::Mined | LineageState::Reverted, Some((number, hash))) => {
            if let Some(facts) = found.chains.get_mut(&used.chain_id) {
                facts.receipts += 1;
                facts.highest_block = facts.highest_block.max(Some(number));
            }
            let height = u64::try_from(number).unwrap_or(u64::MAX);
            let canonical = canonical.get(&height).copied().unwrap_or(Decision::Insufficient);
            retirement::receipt(height, hash, Shown { canonical, ..shown })
        }
        (LineageState::Abandoned, _) => None,
        _ => {
            let consumed = match voter.consumed.get(&used.signer) {
                Some(known) => *known,
                None => {
                    let counted = counted(voter, used.signer).await;
                    voter.consumed.insert(used.signer, counted);
                    counted
                }
            };
            retirement::stranger(u64::try_from(used.nonce).unwrap_or(u64::MAX), Shown { consumed, ..shown })
        }
    };
    let Some(gate) = gate else { return };
    found.fault(gate, || {
        let where_ = used.block.map(|(number, hash)| format!(" in block {number} {hash}")).unwrap_or_default();
        let why = match gate {
            Gate::ReceiptDepth => format!("is not {lookback} blocks behind the head {head}"),
            Gate::CanonicalHash => "stands in a block that is not the one of a majority at its height".into(),
            _ => "could not be read by a majority".into(),
        };
        format!("{} is {}{where_}, which {why}", named(used), used.state)
    });
}

/// The nonces that an account had used up TX_REORG_LOOKBACK_BLOCKS ago.
async fn counted(voter: &Voter, account: Address) -> Option<u64> {
    let floor = retirement::floor(voter.head, voter.lookback)?;
    voter.chain.consumed_nonces(vec![account], BlockTag::Number(floor)).await.pop().and_then(Decision::agreed)
}

fn named(used: &Used) -> String {
    format!("lineage {} (nonce {} of {} on chain {})", used.lineage.0, used.nonce, used.signer, used.chain_id)
}
