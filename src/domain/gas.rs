//! How much gas a transaction is given: inside what the protocol, the block and the data allow. Pure; called before a nonce is bound, and
//! by the reading of submissions.

/// EIP-7825 (Osaka): no transaction may ask for more, whatever the block holds.
pub const TX_MAX: u64 = 16_777_216;

/// What a chain and its operator allow.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of the newest block.
    pub block_gas_limit: u64,
    /// TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS.
    pub share_bps: u32,
}

impl Bounds {
    /// The most that one transaction may ask for.
    #[must_use]
    pub fn most(self) -> u64 {
        let share = u128::from(self.block_gas_limit) * u128::from(self.share_bps) / 10_000;
        u64::try_from(share).unwrap_or(u64::MAX).min(TX_MAX)
    }
}

/// The call cannot be one transaction on this chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    #[error("it needs {wanted} gas and a transaction may have {TX_MAX} (EIP-7825)")]
    Transaction { wanted: u64 },
    #[error(
        "it needs {wanted} gas and may have {most}: {share_bps}/10000 (TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS) of a block of {block_gas_limit}"
    )]
    BlockShare { wanted: u64, most: u64, share_bps: u32, block_gas_limit: u64 },
}

/// The gas limit of a call: what its caller gave, or its estimate and a buffer as far as there is room for one; never below what the data costs.
///
/// # Errors
/// `OutOfBounds` when what the call needs does not fit.
pub fn limit(given: Option<u64>, estimate: u64, buffer_bps: u32, data: &[u8], bounds: Bounds) -> Result<u64, OutOfBounds> {
    let needed = given.unwrap_or(estimate).max(least(data));
    let most = bounds.most();
    if needed > TX_MAX {
        return Err(OutOfBounds::Transaction { wanted: needed });
    }
    if needed > most {
        let Bounds { block_gas_limit, share_bps } = bounds;
        return Err(OutOfBounds::BlockShare { wanted: needed, most, share_bps, block_gas_limit });
    }
    if given.is_some() {
        return Ok(needed);
    }
    let buffer = u128::from(estimate) * u128::from(buffer_bps) / 10_000;
    let wanted = u64::try_from(u128::from(estimate) + buffer).unwrap_or(u64::MAX);
    Ok(wanted.clamp(needed, most))
}

/// What a new estimate means for bytes that every node refuses for their gas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// Another limit: worth another attempt at the same nonce.
    To(u64),
    /// The estimate asks for what was refused.
    Same,
    /// What it asks for fits in no transaction.
    Never(OutOfBounds),
}

/// Compares what was refused with a fresh estimate.
#[must_use]
pub fn resized(refused: u64, estimate: u64, buffer_bps: u32, data: &[u8], bounds: Bounds) -> Resized {
    match limit(None, estimate, buffer_bps, data, bounds) {
        Ok(wanted) if wanted == refused => Resized::Same,
        Ok(wanted) => Resized::To(wanted),
        Err(out) => Resized::Never(out),
    }
}

/// Zero and other bytes, which the chain prices apart.
fn count(data: &[u8]) -> (u64, u64) {
    let zeros = data.iter().filter(|byte| **byte == 0).count() as u64;
    (zeros, data.len() as u64 - zeros)
}

/// Gas taken before the first instruction of a plain call: 21,000, 4 for each zero byte of the data and 16 for each other.
#[must_use]
pub fn intrinsic(data: &[u8]) -> u64 {
    let (zeros, others) = count(data);
    21_000 + zeros * 4 + others * 16
}

/// The floor of EIP-7623: what is charged at least, whatever the call does: 21,000, 10 for each zero byte, 40 for each other.
#[must_use]
pub fn floor(data: &[u8]) -> u64 {
    let (zeros, others) = count(data);
    21_000 + zeros * 10 + others * 40
}

/// The lowest gas limit with which a call can be mined on every chain. Some nodes accept less and then drop the transaction in silence.
#[must_use]
pub fn least(data: &[u8]) -> u64 {
    intrinsic(data).max(floor(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds { block_gas_limit: 36_000_000, share_bps: 10_000 };

    #[test]
    fn data_is_paid_before_the_call_starts() {
        assert_eq!((intrinsic(&[]), floor(&[])), (21_000, 21_000));
        assert_eq!((intrinsic(&[0, 0, 1]), floor(&[0, 0, 1])), (21_024, 21_060));
        assert_eq!(least(&[0, 0, 1]), 21_060);
        assert_eq!(
            least(&vec![1; crate::domain::transaction::MAX_DATA_BYTES]),
            21_000 + 40 * crate::domain::transaction::MAX_DATA_BYTES as u64
        );
    }

    #[test]
    fn refused_gas_is_tried_again_only_with_another_limit() {
        assert_eq!(resized(30_000, 50_000, 1_000, &[], WIDE), Resized::To(55_000));
        assert_eq!(resized(90_000, 50_000, 1_000, &[], WIDE), Resized::To(55_000), "too much is refused as well as too little");
        assert_eq!(resized(55_000, 50_000, 1_000, &[], WIDE), Resized::Same);
        assert!(matches!(resized(55_000, 17_000_000, 0, &[], WIDE), Resized::Never(OutOfBounds::Transaction { .. })));
    }

    #[test]
    fn an_estimate_gets_its_buffer_and_a_given_limit_stays() {
        assert_eq!(limit(None, 100_000, 2_000, &[], WIDE), Ok(120_000));
        assert_eq!(limit(Some(90_000), 100_000, 2_000, &[], WIDE), Ok(90_000));
        assert_eq!(limit(Some(21_000), 21_000, 2_000, &[1; 100], WIDE), Ok(25_000), "EIP-7623 asks for more than what was given");
        assert_eq!(limit(None, 21_000, 0, &[1; 100], WIDE), Ok(25_000));
    }

    #[test]
    fn the_buffer_gives_way_to_the_bounds_and_the_need_does_not() {
        assert_eq!(limit(None, TX_MAX - 1, 2_000, &[], WIDE), Ok(TX_MAX));
        assert_eq!(limit(None, TX_MAX + 1, 2_000, &[], WIDE), Err(OutOfBounds::Transaction { wanted: TX_MAX + 1 }));
        let half = Bounds { block_gas_limit: 1_000_000, share_bps: 5_000 };
        assert_eq!(limit(None, 450_000, 2_000, &[], half), Ok(500_000));
        let refused = limit(Some(500_001), 0, 0, &[], half).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "it needs 500001 gas and may have 500000: 5000/10000 (TX_MAX_BLOCK_GAS_SHARE_BASIS_POINTS) of a block of 1000000"
        );
    }

    proptest! {
        #[test]
        fn a_limit_is_inside_its_bounds_and_covers_the_need(
            given in prop::option::of(any::<u64>()), estimate: u64, buffer in 0_u32..100_000, data in prop::collection::vec(any::<u8>(), 0..64), block: u64, share in 1_u32..=10_000,
        ) {
            let bounds = Bounds { block_gas_limit: block, share_bps: share };
            let needed = given.unwrap_or(estimate).max(least(&data));
            match limit(given, estimate, buffer, &data, bounds) {
                Ok(gas) => prop_assert!(gas >= needed && gas <= TX_MAX && gas <= bounds.most()),
                Err(_) => prop_assert!(needed > bounds.most()),
            }
        }
    }
}
