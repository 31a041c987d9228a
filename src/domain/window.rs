//! How many nonces of one signer may be open at a time. Pure; widths come from what the pools of the clients keep of one account.
//!
//! A window shrinks at once when a node says that it keeps no more, and grows back step by step. What is open beyond it stays open.

use super::rpc_verdict::Class;
use entity::states::ChainProfile;

/// The widest window of a delegated sender (EIP-7702): its balance may change by other hands, so pools keep one. `reserve.sql` and
/// `pick_lanes.sql` hold it.
pub const DELEGATED: i32 = 1;

/// What a lane's width comes to.
#[must_use]
pub fn effective(width: i32, delegated: bool) -> i32 {
    if delegated { width.min(DELEGATED) } else { width }
}

/// The window of a profile.
#[must_use]
pub const fn width(profile: ChainProfile) -> u32 {
    match profile {
        ChainProfile::Default | ChainProfile::Geth | ChainProfile::Reth | ChainProfile::Nitro | ChainProfile::Zksync => 16,
        ChainProfile::Hyperevm => 8,
    }
}

/// The width that an operator should not pass: nonces beyond it are lost or refused.
#[must_use]
pub const fn most(profile: ChainProfile) -> Option<u32> {
    match profile {
        ChainProfile::Geth => Some(64),
        ChainProfile::Reth => Some(16),
        ChainProfile::Hyperevm => Some(8),
        ChainProfile::Default | ChainProfile::Nitro | ChainProfile::Zksync => None,
    }
}

/// Whether each nonce has to wait until the one before it was taken: what comes too early is not kept.
#[must_use]
pub const fn strict_order(profile: ChainProfile) -> bool {
    matches!(profile, ChainProfile::Nitro | ChainProfile::Zksync)
}

/// What the operator set: for this lane, for the chain (zero: nothing), or by the profile.
#[must_use]
pub fn configured(profile: ChainProfile, of_chain: u32, of_lane: Option<u32>) -> u32 {
    of_lane.unwrap_or(if of_chain == 0 { width(profile) } else { of_chain }).max(1)
}

/// Whether an answer says that the node keeps no more transactions of this account.
#[must_use]
pub const fn is_too_many(class: Class) -> bool {
    matches!(class, Class::AccountQueueCap | Class::DelegatedInflightLimit)
}

/// The code of an account that has delegated itself (EIP-7702).
#[must_use]
pub fn is_delegation(code: &[u8]) -> bool {
    code.starts_with(&[0xef, 0x01, 0x00])
}

/// The next width, changed once `rested` after the last change: what the node holds where it refuses some for being too many, otherwise
/// twice as much as now, up to `configured`. `held` are the open nonces that it has not refused so.
#[must_use]
pub fn next(width: u32, configured: u32, held: u32, too_many: u32, rested: bool) -> u32 {
    let width = width.clamp(1, configured.max(1));
    match (rested, too_many) {
        (false, _) => width,
        (true, 0) => width.saturating_mul(2).min(configured.max(1)),
        (true, _) => width.min(held.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_profile_has_a_window_inside_its_bound_and_the_operator_has_the_last_word() {
        for profile in ChainProfile::all() {
            assert!(width(profile) >= 1 && most(profile).is_none_or(|most| width(profile) <= most), "{profile}");
            assert_eq!(configured(profile, 0, None), width(profile));
            assert_eq!((configured(profile, 33, None), configured(profile, 33, Some(4)), configured(profile, 0, Some(4))), (33, 4, 4));
        }
        assert_eq!([ChainProfile::Default, ChainProfile::Geth, ChainProfile::Hyperevm].map(width), [16, 16, 8]);
        assert!(strict_order(ChainProfile::Nitro) && strict_order(ChainProfile::Zksync) && !strict_order(ChainProfile::Geth));
    }

    #[test]
    fn only_a_designator_is_a_delegation() {
        assert!(is_delegation(&[&[0xef, 0x01, 0x00][..], &[7; 20]].concat()));
        for code in [&[][..], &[0x60, 0x80], &[0xef, 0x00, 0x01], &[0xef, 0x01]] {
            assert!(!is_delegation(code), "{code:?}");
        }
    }

    #[test]
    fn a_window_shrinks_to_what_the_node_holds_and_grows_back_by_doubling() {
        assert_eq!(next(16, 16, 4, 3, true), 4);
        assert_eq!(next(4, 16, 1, 1, false), 4, "an answer that was heard already narrows nothing more");
        assert_eq!(next(16, 16, 0, 3, true), 1, "never closed");
        assert_eq!(next(4, 16, 9, 1, true), 4, "a refusal widens nothing");
        assert_eq!(next(4, 16, 4, 0, false), 4);
        assert_eq!((next(4, 16, 4, 0, true), next(8, 16, 4, 0, true), next(16, 16, 4, 0, true)), (8, 16, 16));
        assert_eq!(next(64, 16, 0, 0, false), 16, "the operator's word counts at once");
    }

    proptest! {
        #[test]
        fn a_window_is_never_closed_nor_wider_than_configured(width in 1_u32..10_000, configured in 1_u32..10_000, held: u32, too_many in 0_u32..100, rested: bool) {
            let next = next(width.min(configured), configured, held, too_many, rested);
            prop_assert!(next >= 1 && next <= configured);
        }
    }
}
