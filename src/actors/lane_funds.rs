//! The money and the window of a lane, looked at once a round by its LaneReconciler under the lane's lease: pauses a lane whose signer
//! cannot pay, lets it go on by itself, narrows its window when a node keeps no more, and sees when the sender has delegated itself.
//! Never sends and never touches a nonce. What one block says is asked once.

use super::rpc_quorum::{self, Desk, View};
use crate::chain::FeeQuote;
use crate::config;
use crate::domain::funds::{Head, Money, Verdict};
use crate::domain::{fees, rpc_verdict, window};
use crate::store::lanes::{Committed, Lane};
use crate::store::{self, Db};
use crate::telemetry::metrics;
use entity::ids::WorkerId;
use entity::states::LaneState;
use entity::values::{Hash, Wei};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The first word of the reason of a lane that this pauses; words for people follow.
pub const UNFUNDED: &str = "insufficient_funds";
/// How often the code of a sender is asked for.
const CODE_EVERY: Duration = Duration::from_secs(60);
/// The same once a node has said that it keeps no more of this account.
const CODE_IN_DOUBT: Duration = Duration::from_secs(5);
/// How long a window rests between two changes.
const WINDOW_RESTS: Duration = Duration::from_secs(30);
const WEI_PER_NATIVE: f64 = 1e18;

/// What was seen of one lane in earlier rounds.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    block: Option<Hash>,
    balance: Option<Wei>,
    code_at: Option<Instant>,
    window_at: Option<Instant>,
    /// A node has just refused nonces for being too many.
    in_doubt: bool,
    shown: bool,
}

/// One round of a lane.
pub struct Round<'a> {
    pub db: &'a Db,
    pub desk: &'a Desk,
    pub lane: &'a Lane,
    pub holder: WorkerId,
    /// The nonce that the chain takes next, where a majority shows it.
    pub latest: Option<i64>,
    pub view: View,
}

/// A balance, and whether it has risen since the last look.
#[derive(Clone, Copy)]
struct Balance {
    amount: Wei,
    rose: bool,
}

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once. True: the signer was topped up and the head of the lane, which a node had refused, may be sent again at once.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn watch(&self, round: &Round<'_>) -> Result<bool, store::Error> {
        self.code(round).await?;
        let Some(balance) = self.balance(round).await? else { return Ok(false) };
        let latest = round.latest.unwrap_or(round.lane.latest_nonce);
        let price = price(round.view.fees, &round.desk.settings);
        let committed = store::lanes::committed(&round.db.reader(), round.lane.id, latest, price, &too_many()).await?;
        let settings = &round.desk.settings;
        let money = money(balance.amount, &committed, price, settings);
        self.show(round, &money);
        self.widen_or_narrow(round, &committed).await?;
        let paused = is_unfunded(round.lane.state, round.lane.reason.as_deref());
        act(round, &money, paused).await?;
        Ok(paused && money.refused && balance.rose)
    }

    /// Another process has the lane now: its figures are told there.
    pub fn rest(&self, desk: &Desk, lane: &str) {
        let mut seen = self.seen();
        if std::mem::take(&mut seen.shown) {
            let label = desk.label();
            for gauge in [&metrics::SIGNER_BALANCE, &metrics::SIGNER_BALANCE_FLOOR, &metrics::SIGNER_WINDOW] {
                gauge.set(f64::NAN, &[&label, lane]);
            }
        }
        *seen = Seen::default();
    }

    async fn balance(&self, round: &Round<'_>) -> Result<Option<Balance>, store::Error> {
        let known = {
            let seen = self.seen();
            (seen.block == Some(round.view.head.hash)).then_some(seen.balance).flatten()
        };
        if let Some(amount) = known {
            return Ok(Some(Balance { amount, rose: false }));
        }
        let asked = round.desk.chain.balances(vec![round.lane.signer]).await.pop();
        let Some(Ok(amount)) = asked else { return Ok(self.seen().balance.map(|amount| Balance { amount, rose: false })) };
        let before = {
            let mut seen = self.seen();
            seen.block = Some(round.view.head.hash);
            seen.balance.replace(amount)
        };
        if before != Some(amount) {
            store::lanes::note_balance(round.db, round.lane.id, amount).await?;
        }
        Ok(Some(Balance { amount, rose: before.is_some_and(|before| before < amount) }))
    }

    async fn code(&self, round: &Round<'_>) -> Result<(), store::Error> {
        let every = if self.seen().in_doubt { CODE_IN_DOUBT } else { CODE_EVERY };
        if self.seen().code_at.is_some_and(|at| at.elapsed() < every) {
            return Ok(());
        }
        let Some(delegated) = round.desk.chain.delegated(vec![round.lane.signer]).await.pop().flatten() else { return Ok(()) };
        self.seen().code_at = Some(Instant::now());
        note_delegated(round.db, round.lane, delegated).await
    }

    /// The row holds the width, so that all processes see it; whoever has the lane widens it again after a while.
    async fn widen_or_narrow(&self, round: &Round<'_>, committed: &Committed) -> Result<(), store::Error> {
        let settings = &round.desk.settings;
        let count = |value: i64| u32::try_from(value).unwrap_or_default();
        let of_lane = settings.lane_widths.get(&round.lane.signer).copied();
        let configured = window::configured(settings.profile, settings.lane_width, of_lane);
        let width = u32::try_from(round.lane.width).unwrap_or(1);
        let rested = self.seen().window_at.is_none_or(|at| at.elapsed() >= WINDOW_RESTS);
        let too_many = count(committed.too_many);
        self.seen().in_doubt = too_many > 0;
        let next = window::next(width, configured, count(committed.open - committed.too_many), too_many, rested);
        if next == width {
            return Ok(());
        }
        store::lanes::set_width(round.db, round.lane.id, round.holder, next).await?;
        self.seen().window_at = Some(Instant::now());
        tracing::warn!(
            event = "lane_window_changed", lane = %round.lane.id, signer = %round.lane.signer, from = width, to = next, configured, refused = too_many,
            "how many nonces may be open follows what the node keeps"
        );
        Ok(())
    }

    fn show(&self, round: &Round<'_>, money: &Money) {
        let (label, signer) = (round.desk.label(), round.lane.signer.to_string());
        let labels = [label.as_str(), signer.as_str()];
        metrics::SIGNER_BALANCE.set(native(money.balance), &labels);
        metrics::SIGNER_BALANCE_FLOOR.set(native(money.effective_floor()), &labels);
        let width = window::effective(round.lane.width, round.lane.delegated);
        metrics::SIGNER_WINDOW.set(f64::from(width), &labels);
        self.seen().shown = true;
    }
}

/// A gauge is a double: good for an alert, never for arithmetic.
fn native(amount: Wei) -> f64 {
    amount.to_string().parse::<f64>().unwrap_or(f64::MAX) / WEI_PER_NATIVE
}

/// What a transaction would offer now; the limit where the market asks for more.
#[must_use]
pub fn price(fees: FeeQuote, settings: &config::Chain) -> Wei {
    fees::first(fees.tx_type, fees.market(), settings.min_priority_fee, settings.max_fee_per_gas)
        .map_or(settings.max_fee_per_gas, |price| price.max_fee_per_gas)
}

/// What is judged of a signer's money; also by whoever explains a lane.
#[must_use]
pub fn money(balance: Wei, committed: &Committed, price: Wei, settings: &config::Chain) -> Money {
    Money {
        balance,
        committed: committed.amount,
        head: committed.head.map(|(gas, max_fee_per_gas)| Head { gas_limit: u64::try_from(gas).unwrap_or_default(), max_fee_per_gas }),
        max_fee_per_gas: price,
        floor: settings.signer_balance_floor,
        bump_bps: settings.fee_bump_bps,
        limit: settings.max_fee_per_gas,
        refused: committed.head_answer.as_deref() == Some(rpc_verdict::Class::InsufficientFunds.as_str()),
    }
}

/// Whether a lane is paused for lack of money: it goes on by itself.
#[must_use]
pub fn is_unfunded(state: LaneState, reason: Option<&str>) -> bool {
    state == LaneState::Paused && reason.is_some_and(|why| why.starts_with(UNFUNDED))
}

/// The answers that say that a node keeps no more of an account.
#[must_use]
pub fn too_many() -> Vec<&'static str> {
    rpc_verdict::Class::ALL.iter().filter(|class| window::is_too_many(**class)).map(|class| class.as_str()).collect()
}

async fn act(round: &Round<'_>, money: &Money, paused: bool) -> Result<(), store::Error> {
    if round.lane.state != LaneState::Active && !paused {
        return Ok(());
    }
    let (lane, signer) = (round.lane.id, round.lane.signer);
    match money.judge(paused) {
        Verdict::Stays => Ok(()),
        Verdict::Pause(words) => {
            let reason = format!("{UNFUNDED}: {words}; top the signer up, the lane goes on by itself");
            if store::lanes::pause(round.db, lane, round.holder, Some(&reason)).await? {
                tracing::warn!(event = "lane_paused", %lane, %signer, reason, "the signer cannot pay");
            }
            Ok(())
        }
        Verdict::Resume => {
            if store::lanes::pause(round.db, lane, round.holder, None).await? {
                tracing::info!(event = "lane_resumed", %lane, %signer, balance = %money.balance, "the signer can pay again");
            }
            Ok(())
        }
    }
}

async fn note_delegated(db: &Db, lane: &Lane, delegated: bool) -> Result<(), store::Error> {
    if store::lanes::note_delegated(db, lane.id, delegated).await? {
        tracing::warn!(
            event = "sender_delegation_changed", lane = %lane.id, signer = %lane.signer, delegated,
            "a sender that has delegated itself (EIP-7702) has one nonce open at a time"
        );
    }
    Ok(())
}

/// What has to be known before a lane takes work, as far as it can be: balances and delegations.
///
/// # Errors
/// See [`store::Error`].
pub async fn prime(db: &Db, chains: &rpc_quorum::Handle, lanes: &[Lane]) -> Result<(), store::Error> {
    for desk in chains.desks() {
        let mine: Vec<_> = lanes.iter().filter(|lane| u64::try_from(lane.chain_id) == Ok(desk.settings.id)).collect();
        let signers: Vec<_> = mine.iter().map(|lane| lane.signer).collect();
        let (balances, delegated) = tokio::join!(desk.chain.balances(signers.clone()), desk.chain.delegated(signers));
        for ((lane, balance), delegated) in mine.iter().zip(balances).zip(delegated) {
            if let Ok(balance) = balance {
                store::lanes::note_balance(db, lane.id, balance).await?;
            }
            if let Some(delegated) = delegated {
                note_delegated(db, lane, delegated).await?;
            }
        }
    }
    Ok(())
}
