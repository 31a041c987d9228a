//! `contract_call`: call data to a contract, as accepted.

use super::CallPlan;
use crate::store::execution::Execution;

pub(super) fn plan(execution: &Execution) -> CallPlan {
    CallPlan {
        to: execution.to,
        value: execution.value,
        data: execution.data.clone(),
        gas_limit: execution.gas_limit.and_then(|gas| u64::try_from(gas).ok()),
    }
}
