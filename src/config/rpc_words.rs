//! What the operator says about the words of a chain's endpoints. Owns the check of each row; never classifies. Read by `chain`.

use super::fault::Problem;
use super::layers::Section;

/// A compiled pattern larger than this is no wording.
const PATTERN_MAX: usize = 64 * 1024;

/// The classes that words can have, as `domain::rpc_verdict` names them.
const CLASSES: &[&str] = &[
    "already_known",
    "accepted_other_pool",
    "nonce_too_low",
    "nonce_too_high",
    "nonce_lower_invalid",
    "future_replace_pending",
    "account_queue_cap",
    "delegated_inflight_limit",
    "pool_type_conflict",
    "authority_conflict",
    "txpool_full",
    "rate_limited",
    "quota_or_auth",
    "method_unsupported",
    "node_not_ready",
    "insufficient_funds",
    "replacement_underpriced",
    "underpriced",
    "gas_intrinsic",
    "gas_block_limit",
    "gas_tx_cap",
    "fee_fields_invalid",
    "fee_cap_exceeded",
    "invalid_signature",
    "wrong_chain_id",
    "unsupported_type",
    "oversized",
    "overflow",
    "decode_error",
    "invalid_sender_code",
    "policy_rejected",
    "terminally_stuck",
    "revert",
    "estimate_exceeds_allowance",
    "service_unavailable",
    "unknown",
];

/// What words mean, before the built-in table is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorOverride {
    /// A regular expression over the words, in any case.
    pub pattern: String,
    pub class: &'static str,
}

pub(super) fn read(from: &Section<'_>) -> Vec<ErrorOverride> {
    let (key, name) = ("rpc_error_overrides", "RPC_ERROR_OVERRIDES");
    let mut overrides = Vec::new();
    for (index, [pattern, class]) in from.records(key, name, ["pattern", "class"], "pattern and class").into_iter().enumerate() {
        let row = index + 1;
        let fault = |problem| from.layers().fault(from.name_of(key, name), problem);
        let sound = !pattern.is_empty() && regex::RegexBuilder::new(&pattern).size_limit(PATTERN_MAX).build().is_ok();
        if !sound {
            fault(Problem::NotAPattern { row });
        }
        match CLASSES.iter().find(|known| **known == class) {
            Some(class) if sound => overrides.push(ErrorOverride { pattern, class }),
            Some(_) => {}
            None => fault(Problem::NotAClass { row, classes: CLASSES.join(", ") }),
        }
    }
    overrides
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rpc_verdict::Class;

    #[test]
    fn the_classes_are_those_that_words_can_have() {
        let classes: Vec<_> = Class::ALL.iter().filter(|class| class.is_of_words()).map(|class| class.as_str()).collect();
        assert_eq!(CLASSES, classes);
    }
}
