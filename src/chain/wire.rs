//! JSON-RPC as bytes. Owns the writing of requests and the reading of answers, without a detour through a JSON tree; performs no IO.
//! Called by `endpoint`.

use super::classify::Words;
use super::error::{Failure, RpcError, tidy};
use crate::domain::rpc_verdict::Class;
use entity::values::{Address, Hash, Wei};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::{self, Write as _};

pub const SEND_RAW: &str = "eth_sendRawTransaction";

/// One call: the method and its parameters as a JSON array.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Cow<'static, str>,
    pub params: String,
}

impl Request {
    /// `params` must be a JSON array; all callers build it from values that need no escaping.
    pub fn new(method: &'static str, params: String) -> Self {
        Self { method: Cow::Borrowed(method), params }
    }

    fn write(&self, body: &mut Vec<u8>, id: u64) {
        body.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        body.extend_from_slice(id.to_string().as_bytes());
        body.extend_from_slice(b",\"method\":\"");
        body.extend_from_slice(self.method.as_bytes());
        body.extend_from_slice(b"\",\"params\":");
        body.extend_from_slice(self.params.as_bytes());
        body.push(b'}');
    }
}

/// The body for some calls with ids from `first`. A single call goes without the array, for nodes that know no batches.
#[must_use]
pub fn body(calls: &[Request], first: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(calls.iter().map(|call| call.params.len() + call.method.len() + 64).sum());
    if let [only] = calls {
        only.write(&mut body, first);
        return body;
    }
    body.push(b'[');
    for (call, id) in calls.iter().zip(first..) {
        if id != first {
            body.push(b',');
        }
        call.write(&mut body, id);
    }
    body.push(b']');
    body
}

/// An answer that holds for the whole request.
#[derive(Debug)]
pub enum Whole {
    /// The node does not take this many calls at once; each may be sent again. `sized`: fewer may be taken, else it takes no batch.
    TooMany {
        sized: bool,
    },
    Failed(Failure),
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    // A plain Option would take `"result": null` for an absent result.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<WireError>,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default)]
    code: Value,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    data: Option<Value>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl WireError {
    fn failure(self, http: Option<u16>, words: &Words) -> Failure {
        let code = self.code.as_i64().or_else(|| self.code.as_str()?.parse().ok()).unwrap_or(0);
        let message = match self.message {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let class = words.classify(code, &message, self.data.as_ref(), http);
        Failure::Rpc(RpcError { code, message: tidy(&message), data: self.data, class })
    }
}

impl Answer<'_> {
    fn outcome<T: DeserializeOwned>(self, http: Option<u16>, words: &Words) -> Result<T, Failure> {
        match (self.error, self.result) {
            (Some(error), _) => Err(error.failure(http, words)),
            (None, Some(result)) => serde_json::from_str(result.get()).map_err(|_| Failure::Malformed("a result of another shape")),
            (None, None) => Err(Failure::Malformed("neither result nor error")),
        }
    }

    fn has_id(&self, wanted: u64) -> bool {
        let text = self.id.map_or("", RawValue::get).trim_matches('"');
        text.parse() == Ok(wanted)
    }
}

/// Reads the answers to `count` calls with ids from `first`, in the order of the calls.
pub fn read<T: DeserializeOwned>(
    status: u16,
    bytes: &[u8],
    (first, count): (u64, usize),
    words: &Words,
) -> Result<Vec<Result<T, Failure>>, Whole> {
    let http = (!(200..300).contains(&status)).then_some(status);
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        match serde_json::from_slice::<Vec<Answer<'_>>>(bytes) {
            Ok(answers) => return Ok(in_order(answers, (first, count), |answer| answer.outcome(http, words))),
            Err(_) => return Err(Whole::Failed(Failure::Malformed("an array of something else"))),
        }
    }
    match serde_json::from_slice::<Answer<'_>>(bytes) {
        Ok(answer) if count == 1 => {
            // Some providers leave the id out of their errors; with one call there is no doubt whose it is. A result needs its id.
            let stray = answer.error.is_none() && !answer.has_id(first);
            Ok(vec![if stray { Err(Failure::Malformed("the answer to another call")) } else { answer.outcome(http, words) }])
        }
        Ok(Answer { error: Some(error), .. }) => match error.failure(http, words) {
            Failure::Rpc(error) if refuses_batch(&error) => Err(Whole::TooMany { sized: speaks_of_size(&error) }),
            failure => Err(Whole::Failed(failure)),
        },
        Ok(_) => Err(Whole::TooMany { sized: false }),
        Err(_) => match http {
            Some(413) if count > 1 => Err(Whole::TooMany { sized: true }),
            // The text of a page is no verdict, whatever words it has.
            Some(status) => Err(Whole::Failed(Failure::Http { status, retry_after: None })),
            None => Err(Whole::Failed(Failure::Malformed(if bytes.is_empty() { "an empty body" } else { "no JSON" }))),
        },
    }
}

fn speaks_of_size(error: &RpcError) -> bool {
    let words = error.message.to_ascii_lowercase();
    ["large", "limit", "exceed", "max", "size", "too many", "at most"].iter().any(|word| words.contains(word))
}

fn refuses_batch(error: &RpcError) -> bool {
    matches!(error.code, -32600 | -32700) || error.class == Class::MethodUnsupported || error.message.to_ascii_lowercase().contains("batch")
}

fn in_order<'a, T>(
    answers: Vec<Answer<'a>>,
    (first, count): (u64, usize),
    outcome: impl Fn(Answer<'a>) -> Result<T, Failure>,
) -> Vec<Result<T, Failure>> {
    let mut places: Vec<Option<Result<T, Failure>>> = (0..count).map(|_| None).collect();
    for (position, answer) in answers.into_iter().enumerate() {
        // Nearly all servers keep the order; only where one does not is the id looked for.
        let place = match places.get(position) {
            Some(None) if answer.has_id(first + position as u64) => position,
            _ => match (first..).zip(0..count).find(|(id, _)| answer.has_id(*id)) {
                Some((_, place)) => place,
                None => continue,
            },
        };
        if let Some(free @ None) = places.get_mut(place) {
            *free = Some(outcome(answer));
        }
    }
    places.into_iter().map(|place| place.unwrap_or(Err(Failure::Malformed("no answer to this call of the batch")))).collect()
}

/// The parameters of eth_sendRawTransaction.
#[must_use]
pub fn raw_params(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2 + 6);
    text.push_str("[\"0x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push_str("\"]");
    text
}

/// The parameters of eth_estimateGas, or of eth_call against the latest block where the gas is given.
#[must_use]
pub fn call_params(call: &super::types::Call) -> String {
    let mut text = format!("[{{\"from\":\"{}\"", call.from);
    let data = entity::values::hex_from_bytes(&call.data);
    // Writing into a String cannot fail.
    let _ = match call.to {
        Some(to) => write!(text, ",\"to\":\"{to}\""),
        None => Ok(()),
    };
    let _ = write!(text, ",\"value\":\"{:#x}\",\"data\":\"{data}\"", call.value.0);
    let _ = match call.gas {
        Some(gas) => write!(text, ",\"gas\":\"{gas:#x}\"}},\"latest\"]"),
        None => write!(text, "}}]"),
    };
    text
}

/// `["0x…", "tag"]`.
#[must_use]
pub fn address_params(address: Address, tag: &str) -> String {
    format!("[\"{address}\",\"{tag}\"]")
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Wei;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity as 0x-hex")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Wei, E> {
        let digits = text.strip_prefix("0x").filter(|digits| !digits.is_empty() && digits.len() <= 64);
        let digits = digits.filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        digits.and_then(|digits| web3::types::U256::from_str_radix(digits, 16).ok()).map(Wei).ok_or_else(|| E::custom("no quantity"))
    }
}

/// A 256-bit quantity as clients write it; leading zeros are let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub Wei);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(QuantityVisitor).map(Self)
    }
}

/// A quantity that fits 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity(pub u64);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Wei(amount) = from.deserialize_str(QuantityVisitor)?;
        u64::try_from(amount).map(Self).map_err(|_| D::Error::custom("a quantity over 64 bits"))
    }
}

/// What is read of a block; everything else is skipped.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    pub number: Quantity,
    pub hash: Hash,
    #[serde(default)]
    pub base_fee_per_gas: Option<Amount>,
    pub gas_limit: Quantity,
    pub timestamp: Quantity,
}

/// What is read of a block to compare it.
#[derive(Clone, Debug, Deserialize)]
pub struct BlockIdentity {
    pub number: Quantity,
    pub hash: Hash,
}

/// What is read of a receipt.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireReceipt {
    pub transaction_hash: Hash,
    #[serde(default)]
    pub block_hash: Option<Hash>,
    #[serde(default)]
    pub block_number: Option<Quantity>,
    #[serde(default)]
    pub status: Option<Quantity>,
    pub gas_used: Quantity,
    #[serde(default)]
    pub effective_gas_price: Option<Amount>,
}

/// Fees of the last blocks. Clients leave out or null any part of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeeHistory {
    #[serde(default)]
    pub base_fee_per_gas: Option<Vec<Option<Amount>>>,
    #[serde(default)]
    pub reward: Option<Vec<Option<Vec<Option<Amount>>>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(n: usize) -> Vec<Request> {
        (0..n).map(|i| Request::new("eth_test", format!("[{i}]"))).collect()
    }

    fn answers(text: &str, count: usize) -> Result<Vec<Result<u64, Failure>>, Whole> {
        read(200, text.as_bytes(), (10, count), &Words::default())
    }

    #[test]
    fn requests_are_valid_json_with_ids_in_order() {
        let one: Value = serde_json::from_slice(&body(&calls(1), 7)).unwrap();
        assert_eq!(one, serde_json::json!({"jsonrpc": "2.0", "id": 7, "method": "eth_test", "params": [0]}));
        let many: Vec<Value> = serde_json::from_slice(&body(&calls(3), 7)).unwrap();
        assert_eq!(many.iter().map(|call| call["id"].as_u64().unwrap()).collect::<Vec<_>>(), [7, 8, 9]);
        let call =
            super::super::types::Call { from: Address([1; 20]), to: None, value: Wei::from(255), data: vec![0xab], gas: Some(21000) };
        let params: Value = serde_json::from_str(&call_params(&call)).unwrap();
        assert_eq!(params[0]["value"], "0xff");
        assert_eq!(params[0]["gas"], "0x5208");
        assert_eq!(params[1], "latest");
        assert_eq!(raw_params(&[2, 0xfe]), "[\"0x02fe\"]");
    }

    #[test]
    fn answers_are_matched_by_id_and_a_missing_one_fails_alone() {
        let text = r#"[{"id":12,"result":2},{"id":"10","result":0},{"id":99,"result":9},{"id":12,"result":7}]"#;
        let got = answers(text, 3).unwrap();
        assert_eq!(got[0], Ok(0));
        assert_eq!(got[1], Err(Failure::Malformed("no answer to this call of the batch")));
        assert_eq!(got[2], Ok(2), "the first answer to a call counts");
    }

    #[test]
    fn a_null_result_is_a_result_and_an_absent_one_is_not() {
        let got = read::<Option<u64>>(200, br#"[{"id":10,"result":null},{"id":11}]"#, (10, 2), &Words::default()).unwrap();
        assert_eq!(got[0], Ok(None));
        assert!(matches!(got[1], Err(Failure::Malformed(_))));
    }

    #[test]
    fn an_error_without_an_id_belongs_to_the_only_call() {
        let got = answers(r#"{"error":{"code":429,"message":"slow down"}}"#, 1).unwrap();
        assert_eq!(got[0].as_ref().unwrap_err().class(), Class::RateLimited);
        assert!(matches!(answers(r#"{"id":3,"result":1}"#, 1).unwrap()[0], Err(Failure::Malformed(_))));
    }

    #[test]
    fn a_refused_batch_is_told_from_a_limit_on_the_whole_request() {
        assert!(matches!(
            answers(r#"{"id":null,"error":{"code":-32600,"message":"Invalid request"}}"#, 2),
            Err(Whole::TooMany { sized: false })
        ));
        let limited = r#"{"id":null,"error":{"code":-32600,"message":"batch limit 10 exceeded"}}"#;
        assert!(matches!(answers(limited, 20), Err(Whole::TooMany { sized: true })));
        assert!(matches!(answers(r#"{"id":10,"result":1}"#, 2), Err(Whole::TooMany { sized: false })));
        assert!(matches!(read::<u64>(413, b"too large", (10, 2), &Words::default()), Err(Whole::TooMany { sized: true })));
        let limited = answers(r#"{"id":null,"error":{"code":-32005,"message":"limit exceeded"}}"#, 2);
        assert!(matches!(limited, Err(Whole::Failed(failure)) if failure.class() == Class::RateLimited));
    }

    #[test]
    fn pages_cut_and_empty_bodies_are_never_a_verdict() {
        let page = b"<html>execution reverted: nonce too low</html>";
        for (status, bytes, class) in [
            (200, &page[..], Class::Malformed),
            (503, &page[..], Class::ServiceUnavailable),
            (429, &page[..], Class::RateLimited),
            (403, &page[..], Class::QuotaOrAuth),
            (200, &b"{\"id\":10,\"resu"[..], Class::Malformed),
            (200, &b""[..], Class::Malformed),
            (200, &b"[1,2]"[..], Class::Malformed),
        ] {
            let Err(Whole::Failed(failure)) = read::<u64>(status, bytes, (10, 1), &Words::default()) else { panic!("{status} {bytes:?}") };
            assert_eq!(failure.class(), class, "{status}");
        }
    }

    #[test]
    fn an_error_object_under_a_bad_status_is_still_read() {
        let got = read::<u64>(400, br#"{"id":10,"error":{"code":-32000,"message":"nonce too low"}}"#, (10, 1), &Words::default()).unwrap();
        assert_eq!(got[0].as_ref().unwrap_err().class(), Class::NonceTooLow);
        let got = read::<u64>(503, br#"{"id":10,"error":{"code":"-32000","message":null}}"#, (10, 1), &Words::default()).unwrap();
        assert_eq!(got[0].as_ref().unwrap_err().class(), Class::ServiceUnavailable);
    }

    #[test]
    fn quantities_are_exact_up_to_256_bits_and_nothing_else() {
        let max = format!("\"0x{}\"", "f".repeat(64));
        assert_eq!(serde_json::from_str::<Amount>(&max).unwrap().0.0, web3::types::U256::MAX);
        assert_eq!(serde_json::from_str::<Quantity>("\"0x00ff\"").unwrap().0, 255);
        for text in ["\"\"", "\"0x\"", "\"12\"", "\"0xzz\"", "5", "null", "\"0x10000000000000000\""] {
            assert!(serde_json::from_str::<Quantity>(text).is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Amount>(&format!("\"0x1{}\"", "0".repeat(64))).is_err());
    }
}
