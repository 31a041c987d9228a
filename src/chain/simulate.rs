//! Trying calls before they cost anything. Owns the rule that a revert needs a second voice. Never sends a transaction.
//! Called through the trait `Chain`.

use super::error::Failure;
use super::pool::Pool;
use super::revert::explain;
use super::types::{Call, Simulated, SimulationError};
use super::wire::{Quantity, Request, call_params};
use crate::domain::rpc_verdict::Class;
use serde_json::value::RawValue;

type Outcome = Result<Simulated, SimulationError>;

fn request(call: &Call) -> Request {
    Request::new(if call.gas.is_some() { "eth_call" } else { "eth_estimateGas" }, call_params(call))
}

fn outcome(call: &Call, answer: Result<Box<RawValue>, Failure>) -> Outcome {
    match (answer, call.gas) {
        (Ok(_), Some(gas)) => Ok(Simulated { gas_estimate: gas }),
        (Ok(result), None) => match serde_json::from_str::<Quantity>(result.get()) {
            Ok(Quantity(gas_estimate)) => Ok(Simulated { gas_estimate }),
            Err(_) => Err(SimulationError::Unavailable),
        },
        (Err(Failure::Rpc(error)), _) => match error.class {
            // Without a price in the call the allowance is the gas limit of the node: the call burns all there is.
            Class::Revert | Class::EstimateExceedsAllowance | Class::TerminallyStuck => {
                let (reason, data) = explain(&error);
                Err(SimulationError::Reverted { reason, data })
            }
            Class::InsufficientFunds => Err(SimulationError::InsufficientFunds),
            _ => Err(SimulationError::Unavailable),
        },
        (Err(_), _) => Err(SimulationError::Unavailable),
    }
}

impl Pool {
    pub(super) async fn try_calls(&self, calls: &[Call]) -> Vec<Outcome> {
        let requests: Vec<_> = calls.iter().map(request).collect();
        if self.configured() == 1 {
            let answers = self.hedged_batch(&requests).await;
            return calls.iter().zip(answers).map(|(call, answer)| outcome(call, answer)).collect();
        }
        // The endpoint that answered must be known, so that another one confirms.
        let patience = self.hedge() + std::time::Duration::from_millis(calls.len() as u64);
        let asked = self.hedged(patience, |endpoint| {
            let requests = &requests;
            async move {
                let answers = endpoint.ask::<Box<RawValue>>(requests).await;
                let answered = answers.iter().any(|answer| !matches!(answer, Err(failure) if failure.is_endpoint_fault()));
                if answered || requests.is_empty() {
                    return Ok((answers, endpoint));
                }
                Err(answers.into_iter().find_map(Result::err).unwrap_or(Failure::Malformed("no answer")))
            }
        });
        let Ok((answers, first)) = asked.await else { return calls.iter().map(|_| Err(SimulationError::Unavailable)).collect() };
        let mut outcomes: Vec<Outcome> = calls.iter().zip(answers).map(|(call, answer)| outcome(call, answer)).collect();

        let mut doubtful: Vec<usize> =
            (0..calls.len()).filter(|at| matches!(outcomes[*at], Err(SimulationError::Reverted { .. }))).collect();
        for second in self.ranked().into_iter().filter(|endpoint| endpoint.name() != first.name()) {
            if doubtful.is_empty() {
                break;
            }
            let again: Vec<_> = doubtful.iter().map(|at| requests[*at].clone()).collect();
            let answers = second.ask::<Box<RawValue>>(&again).await;
            let mut unheard = Vec::new();
            for (at, answer) in doubtful.into_iter().zip(answers) {
                match answer {
                    Err(failure) if failure.is_endpoint_fault() => unheard.push(at),
                    answer => {
                        if !matches!(outcome(&calls[at], answer), Err(SimulationError::Reverted { .. })) {
                            outcomes[at] = Err(SimulationError::Unavailable);
                        }
                    }
                }
            }
            doubtful = unheard;
        }
        for at in doubtful {
            outcomes[at] = Err(SimulationError::Unavailable);
        }
        outcomes
    }
}
