//! Owns what a provider that is behind or on an old fork answers to reads. Called by the RPC proxy alone.

use serde_json::{Value, json};
use std::collections::HashMap;

/// Which chain a provider believes in.
#[derive(Clone, Debug, Default)]
pub enum View {
    #[default]
    Live,
    /// So many blocks behind the node.
    Behind(u64),
    /// For ever at this block of whatever fork the node is on.
    At(u64),
    /// For ever at this block, with the answers of the fork it had then.
    Recorded { head: u64, answers: HashMap<String, Value> },
}

/// Position of the block parameter of the methods that read a state or a block.
const BLOCK_PARAMETER: &[(&str, usize)] = &[
    ("eth_call", 1),
    ("eth_estimateGas", 1),
    ("eth_getBalance", 1),
    ("eth_getCode", 1),
    ("eth_getTransactionCount", 1),
    ("eth_getStorageAt", 2),
    ("eth_getBlockByNumber", 0),
    ("eth_getBlockReceipts", 0),
    ("eth_getBlockTransactionCountByNumber", 0),
    ("eth_feeHistory", 1),
];

/// What becomes of one read.
pub enum Read {
    Answer(Value),
    Forward(Value),
}

pub fn key(method: &str, params: &Value) -> String {
    format!("{method}{params}")
}

pub fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub fn hex(number: u64) -> Value {
    json!(format!("{number:#x}"))
}

impl View {
    /// The block a provider of this view calls the latest.
    pub fn head(&self, real: u64) -> u64 {
        match self {
            Self::Live => real,
            Self::Behind(blocks) => real.saturating_sub(*blocks),
            Self::At(head) | Self::Recorded { head, .. } => (*head).min(real),
        }
    }

    /// Rewrites a call so that it sees no later block, or answers it.
    pub fn before(&self, head: u64, method: &str, params: &Value) -> Read {
        if let Self::Recorded { answers, .. } = self
            && let Some(answer) = answers.get(&key(method, params))
        {
            return Read::Answer(answer.clone());
        }
        if method == "eth_blockNumber" {
            return Read::Answer(json!({ "result": hex(head) }));
        }
        let mut params = params.clone();
        if method == "eth_getLogs" {
            if let Some(filter) = params.get_mut(0).and_then(Value::as_object_mut)
                && !filter.contains_key("blockHash")
            {
                let to = filter.get("toBlock").and_then(number).map_or(head, |to| to.min(head));
                filter.insert("toBlock".into(), hex(to));
                if filter.get("fromBlock").and_then(number).is_some_and(|from| from > head) {
                    return Read::Answer(json!({ "result": [] }));
                }
            }
            return Read::Forward(params);
        }
        if let Some((_, at)) = BLOCK_PARAMETER.iter().find(|(name, _)| *name == method)
            && let Some(list) = params.as_array_mut()
        {
            let block = list.get(*at).cloned().unwrap_or_else(|| json!("latest"));
            let later = number(&block).is_some_and(|block| block > head);
            if later && method.starts_with("eth_getBlock") {
                return Read::Answer(json!({ "result": null }));
            } else if later {
                return Read::Answer(json!({ "error": { "code": -32000, "message": "header not found" } }));
            } else if matches!(block.as_str(), Some("latest" | "pending")) {
                list.resize(list.len().max(*at + 1), Value::Null);
                list[*at] = hex(head);
            }
        }
        Read::Forward(params)
    }

    /// Hides what an answer tells of later blocks.
    pub fn after(head: u64, method: &str, answer: &mut Value) {
        let block = |value: &Value, name: &str| value.get(name).and_then(number);
        let Some(result) = answer.get_mut("result") else { return };
        match method {
            "eth_getTransactionReceipt" if block(result, "blockNumber").is_some_and(|n| n > head) => *result = Value::Null,
            "eth_getBlockByHash" | "eth_getBlockByNumber" if block(result, "number").is_some_and(|n| n > head) => *result = Value::Null,
            "eth_getTransactionByHash" if block(result, "blockNumber").is_some_and(|n| n > head) => {
                for field in ["blockNumber", "blockHash", "transactionIndex"] {
                    result[field] = Value::Null;
                }
            }
            _ => {}
        }
    }
}
