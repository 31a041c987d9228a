//! What the next block is expected to cost. Owns the reading of fee histories, suggestions and gas prices, all of one answer from one
//! endpoint: parts that are missing or broken send the question to another endpoint and never become a zero. Never prices a transaction.
//! Called through the trait `Chain`.

use super::endpoint::Endpoint;
use super::error::{Error, Failure};
use super::pool::Pool;
use super::types::FeeQuote;
use super::wire::{Amount, Block, FeeHistory, Request};
use crate::domain::fees::TxType;
use crate::domain::rpc_verdict::Class;
use entity::values::Wei;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Blocks whose fees are looked at, and the percentile of their rewards.
const FEE_HISTORY: &str = "[\"0x5\",\"latest\",[50]]";

fn without_parameters(method: &'static str) -> Request {
    Request::new(method, "[]".to_owned())
}

fn read<T: DeserializeOwned>(answer: Option<Result<Box<RawValue>, Failure>>) -> Result<T, Failure> {
    let raw = answer.unwrap_or(Err(Failure::Malformed("no answer")))?;
    serde_json::from_str(raw.get()).map_err(|_| Failure::Malformed("a result of another shape"))
}

/// The whole quote as one endpoint sees it.
async fn quote(endpoint: &Endpoint, floor: Wei) -> Result<FeeQuote, Failure> {
    let calls =
        [Request::new("eth_getBlockByNumber", "[\"latest\",false]".to_owned()), Request::new("eth_feeHistory", FEE_HISTORY.to_owned())];
    let mut answers = endpoint.ask::<Box<RawValue>>(&calls).await.into_iter();
    let head: Block = read(answers.next())?;
    let Some(Amount(of_head)) = head.base_fee_per_gas else { return legacy(endpoint, floor).await };
    let history: FeeHistory = match read(answers.next()) {
        Ok(history) => history,
        // The base fee of the head and the node's suggestion have to do.
        Err(failure) if failure.class() == Class::MethodUnsupported => FeeHistory::default(),
        Err(failure) => return Err(failure),
    };
    let next = history.base_fee_per_gas.unwrap_or_default().into_iter().flatten().next_back();
    let rewards = history.reward.unwrap_or_default().into_iter().flatten().flat_map(|block| block.into_iter().flatten().next());
    let mut rewards: Vec<Wei> = rewards.map(|Amount(reward)| reward).filter(|reward| *reward > Wei::ZERO).collect();
    rewards.sort_unstable();
    let priority_fee = match rewards.get(rewards.len() / 2) {
        Some(median) => *median,
        None => suggestion(endpoint).await?,
    };
    // A history that is behind its own head, or says zero, makes nothing cheaper than the head was.
    let base_fee = next.map_or(of_head, |Amount(fee)| fee.max(of_head));
    Ok(FeeQuote { base_fee, priority_fee: priority_fee.max(floor), tx_type: TxType::Eip1559 })
}

/// Of a chain whose blocks have no base fee: its gas price, whole.
async fn legacy(endpoint: &Endpoint, floor: Wei) -> Result<FeeQuote, Failure> {
    let Amount(price) = endpoint.ask_one(without_parameters("eth_gasPrice")).await?;
    Ok(FeeQuote { base_fee: Wei::ZERO, priority_fee: price.max(floor), tx_type: TxType::Legacy })
}

/// Of a quiet chain, where no reward was paid lately. The floor takes the place of one that is not given.
async fn suggestion(endpoint: &Endpoint) -> Result<Wei, Failure> {
    match endpoint.ask_one::<Option<Amount>>(without_parameters("eth_maxPriorityFeePerGas")).await {
        Ok(suggested) => Ok(suggested.map_or(Wei::ZERO, |Amount(fee)| fee)),
        Err(Failure::Rpc(error)) if !error.class.is_endpoint_fault() => Ok(Wei::ZERO),
        Err(failure) => Err(failure),
    }
}

impl Pool {
    pub(super) async fn ask_fees(&self) -> Result<FeeQuote, Error> {
        let floor = self.min_priority_fee();
        Ok(self.hedged(self.hedge(), |endpoint| async move { quote(&endpoint, floor).await }).await?)
    }
}
