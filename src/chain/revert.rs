//! Why a contract refused, in words. Owns the decoding of revert data; never calls a chain. Called by `simulate`.

use super::classify::revert_bytes;
use super::error::RpcError;

const REASON_MAX: usize = 256;
const ERROR_STRING: [u8; 4] = [0x08, 0xc3, 0x79, 0xa0];
const PANIC: [u8; 4] = [0x4e, 0x48, 0x7b, 0x71];

/// The reason and the bytes of a revert.
#[must_use]
pub fn explain(error: &RpcError) -> (String, Vec<u8>) {
    let data = error.data.as_ref().and_then(revert_bytes).unwrap_or_default();
    let reason = reason(&data).unwrap_or_else(|| from_message(&error.message));
    (plain(&reason), data)
}

fn reason(data: &[u8]) -> Option<String> {
    let (selector, arguments) = data.split_first_chunk::<4>()?;
    match *selector {
        ERROR_STRING => match ethabi::decode(&[ethabi::ParamType::String], arguments).ok()?.pop()? {
            ethabi::Token::String(text) => Some(text),
            _ => None,
        },
        PANIC => {
            let code = ethabi::decode(&[ethabi::ParamType::Uint(256)], arguments).ok()?.pop()?.into_uint()?;
            Some(format!("panic {code:#04x}: {}", panic_meaning(code.low_u64())))
        }
        _ => Some(format!("custom error {}", entity::values::hex_from_bytes(selector))),
    }
}

const fn panic_meaning(code: u64) -> &'static str {
    match code {
        0x01 => "an assertion failed",
        0x11 => "arithmetic overflow or underflow",
        0x12 => "division by zero",
        0x21 => "no such enum value",
        0x22 => "a badly encoded storage array",
        0x31 => "pop of an empty array",
        0x32 => "array index out of bounds",
        0x41 => "too much memory",
        0x51 => "call of an uninitialised function",
        _ => "unknown",
    }
}

/// Without data the client's own words are all there is.
fn from_message(message: &str) -> String {
    let lower = message.to_ascii_lowercase();
    let rest = lower.find("reverted").map_or(message, |at| &message[at + "reverted".len()..]);
    let rest = rest.trim_start_matches([':', ' ', '.']).trim();
    if rest.is_empty() { "without a reason".to_owned() } else { rest.to_owned() }
}

/// The contract chose these characters.
fn plain(reason: &str) -> String {
    reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rpc_verdict::Class;
    use serde_json::{Value, json};

    fn explained(message: &str, data: Option<Value>) -> String {
        explain(&RpcError { code: 3, message: message.into(), data, class: Class::Revert }).0
    }

    fn hex(selector: [u8; 4], token: ethabi::Token) -> String {
        entity::values::hex_from_bytes(&[&selector[..], &ethabi::encode(&[token])[..]].concat())
    }

    #[test]
    fn a_string_a_panic_and_a_custom_error_are_told_apart() {
        let text = hex(ERROR_STRING, ethabi::Token::String("ERC20: low\nbalance".into()));
        assert_eq!(explained("execution reverted", Some(json!(text))), "ERC20: low balance");
        assert_eq!(explained("Error: VM Exception", Some(json!({"message": "x", "data": text}))), "ERC20: low balance");
        let panic = hex(PANIC, ethabi::Token::Uint(0x11.into()));
        assert_eq!(explained("execution reverted", Some(json!(panic))), "panic 0x11: arithmetic overflow or underflow");
        assert_eq!(explained("execution reverted", Some(json!("0x12345678"))), "custom error 0x12345678");
    }

    #[test]
    fn without_readable_data_the_words_of_the_client_remain() {
        assert_eq!(explained("execution reverted: too early", None), "too early");
        assert_eq!(explained("execution reverted", Some(json!("0x"))), "without a reason");
        assert_eq!(explained("VM execution error.", None), "VM execution error.");
        assert_eq!(explained("execution reverted: x", Some(json!("0x08c379a0"))), "x");
        let endless = hex(ERROR_STRING, ethabi::Token::String("é".repeat(5000)));
        assert_eq!(explained("", Some(json!(endless))).chars().count(), REASON_MAX);
    }
}
