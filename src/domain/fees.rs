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

/// The least price that replaces `tried` and meets the market.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    To(Price),
    /// The next price would be above the limit.
    AtLimit,
}

/// `floor(x * (10000 + bps) / 10000) + 1`: strictly more than nodes ask for that compare by greater-or-equal or by greater.
#[must_use]
pub fn bumped(x: Wei, bps: u32) -> Wei {
    let (whole, part) = x.0.div_mod(U256::from(10_000));
    let factor = U256::from(10_000_u64 + u64::from(bps));
    // In two parts, so that no price can overflow on the way.
    let raised = whole.saturating_mul(factor).saturating_add(part * factor / U256::from(10_000));
    Wei(raised.saturating_add(U256::one()))
}

/// Both fields rise by `bps` from the highest that was ever tried, or to the market where that is more.
#[must_use]
pub fn raised(tried: Price, market: Quote, bps: u32, floor: Wei, limit: Wei) -> Raised {
    let least = Price {
        max_fee_per_gas: bumped(tried.max_fee_per_gas, bps),
        max_priority_fee_per_gas: bumped(tried.max_priority_fee_per_gas, bps),
    };
    if least.max_fee_per_gas > limit {
        return Raised::AtLimit;
    }
    let wanted = price(market, floor, limit).unwrap_or(least);
    let max_fee_per_gas = least.max_fee_per_gas.max(wanted.max_fee_per_gas);
    let tip = least.max_priority_fee_per_gas.max(wanted.max_priority_fee_per_gas);
    Raised::To(Price { max_fee_per_gas, max_priority_fee_per_gas: tip.min(max_fee_per_gas) })
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

    #[test]
    fn f_02_a_bump_is_strictly_above_the_threshold_of_every_node() {
        for x in [0_u128, 1, 9, 10, 11, 99, 101, 15_297_156, 1 << 96] {
            let bump = bumped(Wei(U256::from(x)), 1_000).0;
            assert!(bump > U256::from(x) * 110 / 100, "{x}");
            assert_eq!(bump, U256::from(x) * 11_000 / 10_000 + 1, "{x}");
        }
        assert_eq!(bumped(Wei::ZERO, 1_000), Wei::from(1));
        assert_eq!(bumped(Wei::from(15_297_156), 1_000), Wei::from(16_826_872));
        assert_eq!(bumped(Wei::from(1_000_000), 1_000), Wei::from(1_100_001));
    }

    #[test]
    fn txr_09_no_raise_is_above_the_limit_and_none_is_made_at_it() {
        let tried = Price { max_fee_per_gas: Wei::from(90), max_priority_fee_per_gas: Wei::from(1) };
        let market = Quote { base_fee: Wei::from(1_000), priority_fee: Wei::from(1) };
        assert_eq!(raised(tried, market, 1_250, Wei::from(1), Wei::from(101)), Raised::AtLimit);
        let last = Price { max_fee_per_gas: Wei::from(102), max_priority_fee_per_gas: Wei::from(2) };
        assert_eq!(raised(tried, market, 1_250, Wei::from(1), Wei::from(102)), Raised::To(last));
    }

    proptest! {
        #[test]
        fn txr_08_a_raise_lifts_both_fields_and_meets_the_market(
            max in 0_u64..1 << 60, tip in 0_u64..1 << 60, base in 0_u64..1 << 60, asked in 0_u64..1 << 60, floor in 0_u64..1 << 40, limit in 1_u64..1 << 62, bps in 1_000_u32..10_000,
        ) {
            let tried = Price { max_fee_per_gas: Wei::from(max), max_priority_fee_per_gas: Wei::from(tip.min(max)) };
            let market = Quote { base_fee: Wei::from(base), priority_fee: Wei::from(asked) };
            let limit = Wei::from(limit);
            match raised(tried, market, bps, Wei::from(floor), limit) {
                Raised::To(new) => {
                    prop_assert!(new.max_fee_per_gas >= bumped(tried.max_fee_per_gas, bps) && new.max_priority_fee_per_gas >= bumped(tried.max_priority_fee_per_gas, bps));
                    prop_assert!(new.max_priority_fee_per_gas <= new.max_fee_per_gas && new.max_fee_per_gas <= limit);
                    if let Ok(wanted) = price(market, Wei::from(floor), limit) {
                        prop_assert!(new.max_fee_per_gas >= wanted.max_fee_per_gas && new.max_priority_fee_per_gas >= wanted.max_priority_fee_per_gas);
                    }
                }
                Raised::AtLimit => prop_assert!(bumped(tried.max_fee_per_gas, bps) > limit),
            }
        }
    }
}
