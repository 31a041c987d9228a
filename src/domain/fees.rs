//! The price of a transaction (EIP-1559). Pure.

use entity::values::Wei;
use primitive_types::U256;

/// What the market asks for now, in wei per gas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    pub base_fee: Wei,
    pub priority_fee: Wei,
}

/// What a transaction offers, in wei per gas; the tip is never above the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    pub max_fee_per_gas: Wei,
    pub max_priority_fee_per_gas: Wei,
}

/// The operator's limit is below what the next block needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the base fee of {base_fee} wei per gas is above TX_MAX_FEE_PER_GAS_WEI {limit}")]
pub struct OverLimit {
    pub base_fee: Wei,
    pub limit: Wei,
}

/// Two base fees of head-room (six full blocks of +12.5 %) and the tip, all inside the operator's limit.
///
/// # Errors
/// `OverLimit` when even the bare base fee does not fit: signing now would only jam the nonce.
pub fn price(quote: Quote, floor: Wei, limit: Wei) -> Result<Price, OverLimit> {
    if quote.base_fee > limit {
        return Err(OverLimit { base_fee: quote.base_fee, limit });
    }
    let tip = quote.priority_fee.max(floor);
    let wanted = quote.base_fee.0.saturating_mul(U256::from(2)).saturating_add(tip.0);
    let max_fee_per_gas = Wei(wanted.min(limit.0));
    Ok(Price { max_fee_per_gas, max_priority_fee_per_gas: tip.min(max_fee_per_gas) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tip_above_the_limit_is_cut_to_it() {
        let gwei = |n: u64| Wei::from(n * 1_000_000_000);
        let price = price(Quote { base_fee: gwei(1), priority_fee: gwei(50) }, gwei(1), gwei(20)).unwrap();
        assert_eq!(price, Price { max_fee_per_gas: gwei(20), max_priority_fee_per_gas: gwei(20) });
    }

    proptest! {
        #[test]
        fn tip_is_at_most_the_cap_and_the_cap_at_most_the_limit(base in any::<u64>(), tip in any::<u64>(), floor in any::<u64>(), limit in any::<u64>()) {
            let (base, tip, floor, limit) = (Wei::from(base), Wei::from(tip), Wei::from(floor), Wei::from(limit));
            match price(Quote { base_fee: base, priority_fee: tip }, floor, limit) {
                Ok(p) => prop_assert!(p.max_priority_fee_per_gas <= p.max_fee_per_gas && p.max_fee_per_gas <= limit && p.max_fee_per_gas >= base),
                Err(_) => prop_assert!(base > limit),
            }
        }
    }
}
