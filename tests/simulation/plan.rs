//! What a seed means: the settings of the run, its jobs, and the schedule of its faults. A fault can be taken out of the schedule
//! and everything else stays, which is how a failing run is made smaller.

use super::rng::Rng;
use entity::values::Wei;
use holdfast::domain::replacement::Rules;
use holdfast::domain::rpc_verdict::Class;
use std::time::Duration;

pub const ENDPOINTS: usize = 3;
/// Transactions go to this one, and in some runs to the others as well.
pub const WRITER: usize = 0;
pub const PROCESSES: usize = 2;
pub const BLOCK_MS: u64 = 2_000;
pub const GWEI: u128 = 1_000_000_000;
/// What the base fee comes back to.
pub const QUIET_BASE_FEE: u128 = 10 * GWEI;

/// How the liar lies. Never more than one endpoint of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Shows receipts that do not exist, or with the other status.
    Forges,
    /// Shows no receipt at all.
    Denies,
    /// Counts more or fewer nonces than were used up.
    CountsMore(u64),
    CountsFewer(u64),
    /// Shows other hashes of blocks.
    Rehashes,
    /// Is far ahead of the chain.
    RunsAhead,
    /// Tells a quarter, or four times, of the price.
    Misprices(bool),
}

/// What an endpoint does to what is sent through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMood {
    /// Takes it and does not answer.
    TimesOut,
    /// Says that it has taken it, and has not.
    Swallows,
    /// Says this, whatever it has done with the bytes.
    Says(Class),
}

/// The named places of a process, as those of `fail::POINTS`: the statement or the call before has been done, and nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Claimed,
    Reserved,
    Recorded,
    Given,
    Counted,
    Decided,
    Revived,
    Replaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Lag {
        endpoint: usize,
        blocks: usize,
    },
    Freeze {
        endpoint: usize,
    },
    /// Two nodes behind one name: the one that is asked for receipts is so many blocks behind.
    Split {
        endpoint: usize,
        blocks: usize,
    },
    Lie {
        endpoint: usize,
        lie: Lie,
    },
    Down {
        endpoint: usize,
    },
    Send {
        endpoint: usize,
        mood: SendMood,
    },
    /// The pool of an endpoint, or the one that miners take from (None), is emptied.
    Evict {
        endpoint: Option<usize>,
    },
    /// So many blocks are replaced by one more; some of our transactions are lost on the way.
    Reorg {
        depth: usize,
        loses: bool,
    },
    /// The base fee goes to so many times what it is.
    Market {
        times: u128,
    },
    /// Blocks have no room.
    Full,
    /// Somebody else sends with our key.
    Stranger {
        account: usize,
    },
    /// A signer can pay for so many transactions at a quiet market.
    Poor {
        account: usize,
        affords: u128,
    },
    /// A process dies after so many more of its steps and is away until the end of the fault.
    Crash {
        process: usize,
        steps: u64,
    },
    /// A process does nothing, then goes on in the middle of what it did.
    Pause {
        process: usize,
    },
    /// The same at the next passing of a place: it dies there, or stands still and goes on.
    Stop {
        process: usize,
        point: Point,
        dies: bool,
    },
    Cancel {
        job: usize,
    },
    /// A delivery comes to whoever asks next, whatever lock is on it.
    Redeliver {
        job: usize,
    },
    /// Postgres refuses; or it answers, and half of its answers are lost on the way.
    Postgres {
        answers_lost: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub at: u64,
    pub until: u64,
    pub fault: Fault,
}

#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub at: u64,
    /// Its call reverts on the chain although the simulation says that it works.
    pub reverts: bool,
    /// The writer refuses its bytes for what they are.
    pub refused: bool,
    /// From then on its call reverts, and the simulation says so.
    pub hopeless: Option<u64>,
}

/// The pool of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct PoolRules {
    /// A replacement has to be strictly more than a tenth dearer (reth), not only a tenth (geth).
    pub strictly: bool,
    /// Takes only the nonce that is next.
    pub no_gaps: bool,
    /// So many nonces past the next.
    pub slots: u64,
    /// Refuses what is below the base fee.
    pub at_market: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub accounts: usize,
    pub width: i32,
    pub confirmations: u64,
    pub lookback: u64,
    pub rules: Rules,
    /// Transactions are given to all endpoints.
    pub broadcasts: bool,
    pub pools: [PoolRules; ENDPOINTS],
    pub jobs: Vec<Job>,
    pub faults: Vec<Timed>,
    /// The end of all faults.
    pub quiet_at: u64,
    /// From then on no lane may be idle while work waits; more jobs come.
    pub watched_from: u64,
    pub horizon: u64,
}

fn wei(value: u128) -> Wei {
    Wei(primitive_types::U256::from(value))
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED);
        let accounts = if rng.chance(30) { 2 } else { 1 };
        let lookback = rng.range(7, 9);
        let quiet_at = rng.range(30_000, 60_000);
        let limit = u128::from(rng.range(35, 200)) * GWEI;
        let rules = Rules {
            stuck: Duration::from_millis(rng.range(6_000, 12_000)),
            patience: Duration::from_millis(1_000),
            bump_bps: [1_000, 1_250, 2_000][rng.index(3)],
            floor: wei(GWEI),
            limit: wei(limit),
            noop_limit: wei(limit * 2),
            max_replacements: u32::try_from(rng.range(8, 12)).unwrap(),
        };
        let pools = std::array::from_fn(|_| PoolRules {
            strictly: rng.chance(50),
            no_gaps: rng.chance(25),
            slots: rng.range(2, 10),
            at_market: rng.chance(40),
        });
        let mut jobs: Vec<Job> = (0..rng.range(3, 9)).map(|_| job(&mut rng, quiet_at)).collect();
        let faults = faults(&mut rng, quiet_at, accounts, jobs.len(), usize::try_from(lookback).unwrap());
        let watched_from = quiet_at + 70_000;
        for late in 0..2 {
            jobs.push(Job { at: watched_from + 1_000 + late * 3_000, reverts: false, refused: false, hopeless: None });
        }
        Self {
            seed,
            accounts,
            width: i32::try_from(rng.range(1, 8)).unwrap(),
            confirmations: rng.range(2, 4),
            lookback,
            rules,
            broadcasts: rng.chance(40),
            pools,
            jobs,
            faults,
            quiet_at,
            watched_from,
            horizon: quiet_at + 240_000,
        }
    }
}

fn job(rng: &mut Rng, quiet_at: u64) -> Job {
    let at = rng.range(0, quiet_at * 2 / 3);
    let hopeless = match rng.below(100) {
        0..5 => Some(0),
        5..16 => Some(at + rng.range(0, 8_000)),
        _ => None,
    };
    Job { at, reverts: rng.chance(10), refused: rng.chance(6), hopeless }
}

/// Kinds of faults in `fault`.
const KINDS: u64 = 23;

/// A run has a few kinds of faults and many of each: so they meet more often than if all runs had all of them.
fn faults(rng: &mut Rng, quiet_at: u64, accounts: usize, jobs: usize, lookback: usize) -> Vec<Timed> {
    let liar = rng.index(ENDPOINTS);
    let mut kinds: Vec<u64> = (0..KINDS).filter(|_| rng.chance(35)).collect();
    kinds.push(rng.below(KINDS));
    let mut faults: Vec<Timed> = (0..rng.range(4, 18))
        .map(|_| {
            let at = rng.range(1_000, quiet_at * 4 / 5);
            let until = if rng.chance(30) { quiet_at } else { (at + rng.range(1_000, 25_000)).min(quiet_at) };
            let kind = kinds[rng.index(kinds.len())];
            Timed { at, until, fault: fault(rng, kind, (liar, accounts, jobs, lookback)) }
        })
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn fault(rng: &mut Rng, kind: u64, (liar, accounts, jobs, lookback): (usize, usize, usize, usize)) -> Fault {
    let endpoint = rng.index(ENDPOINTS);
    let process = rng.index(PROCESSES);
    match kind {
        0 => Fault::Lag { endpoint, blocks: 1 + rng.index(12) },
        1 => Fault::Freeze { endpoint },
        2 | 3 => Fault::Lie { endpoint: liar, lie: lie(rng) },
        4 => Fault::Down { endpoint },
        5 => Fault::Send { endpoint: [WRITER, endpoint][rng.index(2)], mood: send_mood(rng) },
        6 => Fault::Evict { endpoint: [None, None, Some(endpoint)][rng.index(3)] },
        7 | 8 => Fault::Reorg { depth: 1 + rng.index(lookback - 1), loses: rng.chance(60) },
        9 => Fault::Market { times: u128::from(rng.range(2, 8)) },
        10 => Fault::Full,
        11 => Fault::Stranger { account: rng.index(accounts) },
        12 => Fault::Poor { account: rng.index(accounts), affords: u128::from(rng.below(4)) },
        13 => Fault::Crash { process, steps: rng.range(0, 30) },
        14 => Fault::Pause { process },
        15..=17 => Fault::Stop { process, point: POINTS[rng.index(POINTS.len())], dies: rng.chance(60) },
        18 => Fault::Cancel { job: rng.index(jobs) },
        19 => Fault::Redeliver { job: rng.index(jobs) },
        20 => Fault::Postgres { answers_lost: rng.chance(50) },
        _ => Fault::Split { endpoint, blocks: 6 + rng.index(10) },
    }
}

const POINTS: [Point; 9] = [
    Point::Claimed,
    Point::Reserved,
    Point::Reserved,
    Point::Recorded,
    Point::Given,
    Point::Counted,
    Point::Decided,
    Point::Revived,
    Point::Replaced,
];

fn lie(rng: &mut Rng) -> Lie {
    match rng.below(11) {
        0 | 1 => Lie::Forges,
        2..=5 => Lie::Denies,
        6 => Lie::CountsMore(rng.range(1, 3)),
        7 => Lie::CountsFewer(rng.range(1, 3)),
        8 => Lie::Rehashes,
        9 => Lie::RunsAhead,
        _ => Lie::Misprices(rng.chance(50)),
    }
}

fn send_mood(rng: &mut Rng) -> SendMood {
    const WORDS: [Class; 8] = [
        Class::AlreadyKnown,
        Class::NonceTooLow,
        Class::Underpriced,
        Class::ReplacementUnderpriced,
        Class::Unknown,
        Class::TxpoolFull,
        Class::RateLimited,
        Class::HashMismatch,
    ];
    match rng.below(4) {
        0 => SendMood::TimesOut,
        1 => SendMood::Swallows,
        _ => SendMood::Says(WORDS[rng.index(WORDS.len())]),
    }
}
