//! `transfer`: native currency to an account. A contract may receive it, so its gas is estimated like any call's.

use super::CallPlan;
use crate::store::execution::Execution;

pub(super) fn plan(execution: &Execution) -> CallPlan {
    CallPlan {
        to: execution.to,
        value: execution.value,
        data: Vec::new(),
        gas_limit: execution.gas_limit.and_then(|gas| u64::try_from(gas).ok()),
    }
}
