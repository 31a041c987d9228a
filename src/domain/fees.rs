//! The price of a transaction, on chains with a base fee (EIP-1559) and without one. Pure.

use entity::values::Wei;
use primitive_types::U256;

/// The form in which a price is offered (EIP-2718). A nonce keeps the form of its first attempt: pools refuse a replacement of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxType {
    /// One gas price, on chains whose blocks have no base fee. Both fields of its `Price` hold it.
    Legacy,
    Eip1559,
}

impl TxType {
    /// The number of EIP-2718, as rows have it.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Legacy => 0,
            Self::Eip1559 => 2,
        }
    }

    #[must_use]
    pub const fn of(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::Legacy),
            2 => Some(Self::Eip1559),
            _ => None,
        }
    }
}

/// What the market asks for now, in wei per gas. Without a base fee the whole gas price is the priority fee.
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

impl Price {
    /// The same price in the form of a type: a legacy transaction has one.
    #[must_use]
    pub fn shaped(self, tx_type: TxType) -> Self {
        match tx_type {
            TxType::Eip1559 => self,
            TxType::Legacy => Self { max_priority_fee_per_gas: self.max_fee_per_gas, ..self },
        }
    }
}

/// The operator's limit is below what the next block needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chain asks for {base_fee} wei per gas, the limit is {limit} (TX_MAX_FEE_PER_GAS_WEI, or TX_MAX_TOTAL_FEE_WEI over the gas)")]
pub struct OverLimit {
    /// Of the next block; the gas price where blocks have no base fee.
    pub base_fee: Wei,
    pub limit: Wei,
}

/// The limit of a price at this much gas: nodes refuse a transaction whose whole fee passes a cap of theirs (geth and besu: `rpc.txfeecap`).
/// A total of zero is none.
#[must_use]
pub fn limit_at(gas_limit: u64, max_fee_per_gas: Wei, max_total_fee: Wei) -> Wei {
    if max_total_fee == Wei::ZERO {
        return max_fee_per_gas;
    }
    max_fee_per_gas.min(Wei(max_total_fee.0 / U256::from(gas_limit.max(1))))
}

/// The price of a first attempt of a type.
///
/// # Errors
/// `OverLimit` when what the chain asks for does not fit: signing now would only jam the nonce.
pub fn first(tx_type: TxType, quote: Quote, floor: Wei, limit: Wei) -> Result<Price, OverLimit> {
    match tx_type {
        TxType::Eip1559 => price(quote, floor, limit),
        TxType::Legacy => {
            let asked = Wei(quote.base_fee.0.saturating_add(quote.priority_fee.0)).max(floor);
            if asked > limit {
                return Err(OverLimit { base_fee: asked, limit });
            }
            Ok(Price { max_fee_per_gas: asked, max_priority_fee_per_gas: asked })
        }
    }
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

    #[test]
    fn a_chain_without_a_base_fee_gets_one_price_inside_the_limit() {
        let quote = Quote { base_fee: Wei::ZERO, priority_fee: Wei::from(7) };
        let one = |price: u64| Price { max_fee_per_gas: Wei::from(price), max_priority_fee_per_gas: Wei::from(price) };
        assert_eq!(first(TxType::Legacy, quote, Wei::from(5), Wei::from(20)), Ok(one(7)));
        assert_eq!(first(TxType::Legacy, quote, Wei::from(9), Wei::from(20)), Ok(one(9)), "the floor");
        assert_eq!(
            first(TxType::Legacy, quote, Wei::from(5), Wei::from(6)),
            Err(OverLimit { base_fee: Wei::from(7), limit: Wei::from(6) })
        );
        // A dearer attempt keeps the form.
        let Raised::To(raised) = raised(one(7), quote, 1_000, Wei::from(5), Wei::from(20)) else { panic!("at the limit") };
        assert_eq!(raised, one(8));
        for tx_type in [TxType::Legacy, TxType::Eip1559] {
            assert_eq!(TxType::of(tx_type.code()), Some(tx_type));
        }
        assert_eq!(TxType::of(1), None);
    }

    #[test]
    fn the_limit_on_a_whole_fee_is_a_limit_per_gas() {
        assert_eq!(limit_at(21_000, Wei::from(500), Wei::ZERO), Wei::from(500));
        assert_eq!(limit_at(21_000, Wei::from(500), Wei::from(2_100_000)), Wei::from(100));
        assert_eq!(limit_at(21_000, Wei::from(500), Wei::from(21_000_000)), Wei::from(500));
        assert_eq!(limit_at(0, Wei::from(500), Wei::from(7)), Wei::from(7));
    }

    proptest! {
        #[test]
        fn the_whole_fee_never_passes_its_limit(gas in 21_000_u64..1 << 24, base in 0_u64..1 << 40, tip in 0_u64..1 << 40, limit in 1_u64..1 << 50, total in 1_u64..u64::MAX) {
            let limit = limit_at(gas, Wei::from(limit), Wei::from(total));
            for tx_type in [TxType::Legacy, TxType::Eip1559] {
                if let Ok(price) = first(tx_type, Quote { base_fee: Wei::from(base), priority_fee: Wei::from(tip) }, Wei::from(1), limit) {
                    prop_assert!(price.max_fee_per_gas.0 * U256::from(gas) <= U256::from(total));
                    prop_assert!(price.max_priority_fee_per_gas <= price.max_fee_per_gas);
                    prop_assert_eq!(price.shaped(tx_type), price);
                }
            }
        }
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
