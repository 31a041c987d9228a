//! Owns reading one submitted job from JSON: every field is checked and every fault is reported with its place, so a caller
//! repairs a body once. Never asks a chain or a database: what exists is told by [`Rules`]. Called by `http` for each job of a request.
//!
//! Whatever passes here is taken by the constraints of the schema too: many submissions share one statement, and a row that
//! Postgres refused would take the others down with it.

use super::NewJob;
use crate::domain::gas;
use crate::domain::transaction::MAX_DATA_BYTES;
use crate::domain::{abi, encoding};
use chrono::{DateTime, TimeDelta, Utc};
use entity::states::JobKind;
use entity::values::{Address, Wei, bytes_from_hex};
use serde_json::{Map, Value};

/// As Postgres shows it: with a blank after each comma and colon.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;
pub const DEFAULT_PRIORITY: i16 = 50;
/// The most gas that one transaction may ask for since EIP-7825.
pub const MAX_GAS_LIMIT: u64 = 1 << 24;
const FURTHEST_RUN: TimeDelta = TimeDelta::days(365);
/// Every field that a job may have.
pub const FIELDS: [&str; 12] =
    ["kind", "chain_id", "pool", "to", "data", "function", "args", "value", "gas_limit", "priority", "run_at", "metadata"];

/// What a job may refer to.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub chains: &'a [i64],
    /// Chain and name.
    pub pools: &'a [(i64, String)],
    pub now: DateTime<Utc>,
}

/// One fault of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// JSON pointer of the faulty field.
    pub pointer: String,
    /// `required`, `unknown-field`, `wrong-type`, `malformed`, `out-of-range`, `too-large`, `not-allowed` or `does-not-exist`.
    pub code: &'static str,
    pub message: String,
}

/// Reads a job. `prefix` is the pointer of the job in the request: empty, or such as `/jobs/3`.
///
/// # Errors
/// Every fault of the body.
pub fn parse(body: &Value, rules: &Rules<'_>, prefix: &str) -> Result<NewJob, Vec<FieldError>> {
    let Some(fields) = body.as_object() else {
        return Err(vec![FieldError { pointer: prefix.into(), code: "wrong-type", message: "must be a JSON object".into() }]);
    };
    let mut reader = Reader { fields, prefix, faults: Vec::new() };
    reader.refuse_unknown();
    reader.refuse_null();
    let kind = reader.kind();
    let chain_id = reader.chain(rules);
    let pool = reader.pool(rules, chain_id);
    let to = reader.target();
    let value = reader.value(kind);
    let data = reader.data(kind);
    let gas_limit = reader.gas_limit(data.as_deref());
    let priority = reader.priority();
    let run_at = reader.run_at(rules.now);
    let metadata = reader.metadata();
    let faults = reader.faults;
    match (kind, chain_id, pool, to, data) {
        (Some(kind), Some(chain_id), Some(pool), Some(to), Some(data)) if faults.is_empty() => {
            Ok(NewJob { kind, chain_id, pool, to, value, data, gas_limit, priority, run_at, metadata })
        }
        _ => Err(faults),
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    prefix: &'a str,
    faults: Vec<FieldError>,
}

/// A name inside a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl<'a> Reader<'a> {
    fn fault(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        self.faults.push(FieldError { pointer: format!("{}/{field}", self.prefix), code, message: message.into() });
    }

    /// A field that is there; null has its fault already.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn required(&mut self, field: &str) -> Option<&'a Value> {
        let value = self.get(field);
        if value.is_none() && !self.fields.contains_key(field) {
            self.fault(field, "required", format!("{field} is required"));
        }
        value
    }

    fn text(&mut self, field: &str, value: &'a Value) -> Option<&'a str> {
        let text = value.as_str();
        if text.is_none() {
            self.fault(field, "wrong-type", "must be a JSON string");
        }
        text
    }

    fn refuse_unknown(&mut self) {
        for name in self.fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            self.fault(&escaped(name), "unknown-field", "no such field");
        }
    }

    /// Whoever writes null has lost a value on the way: taking it for "not given" would send another amount than was meant.
    fn refuse_null(&mut self) {
        for name in FIELDS.into_iter().filter(|name| self.fields.get(*name).is_some_and(Value::is_null)) {
            self.fault(name, "wrong-type", "must not be null: leave the field out");
        }
    }

    fn kind(&mut self) -> Option<JobKind> {
        let value = self.required("kind")?;
        let kind = self.text("kind", value)?.parse().ok();
        if kind.is_none() {
            let known: Vec<&str> = JobKind::all().into_iter().map(JobKind::as_str).collect();
            self.fault("kind", "does-not-exist", format!("must be one of {}", known.join(", ")));
        }
        kind
    }

    fn chain(&mut self, rules: &Rules<'_>) -> Option<i64> {
        let value = self.required("chain_id")?;
        let Some(id) = value.as_i64() else {
            self.fault("chain_id", "wrong-type", "must be an integer");
            return None;
        };
        if rules.chains.contains(&id) {
            return Some(id);
        }
        let known: Vec<String> = rules.chains.iter().map(i64::to_string).collect();
        self.fault("chain_id", "does-not-exist", format!("this service does not serve chain {id}; it serves {}", listed(&known)));
        None
    }

    fn pool(&mut self, rules: &Rules<'_>, chain: Option<i64>) -> Option<String> {
        let value = self.required("pool")?;
        let name = self.text("pool", value)?;
        // Without a chain there is nothing to look the name up in, and the chain has its own fault.
        let chain = chain?;
        let known: Vec<String> = rules.pools.iter().filter(|(id, _)| *id == chain).map(|(_, name)| name.clone()).collect();
        if known.iter().any(|pool| pool == name) {
            return Some(name.into());
        }
        self.fault("pool", "does-not-exist", format!("chain {chain} has no such pool; it has {}", listed(&known)));
        None
    }

    fn target(&mut self) -> Option<Address> {
        let value = self.required("to")?;
        let text = self.text("to", value)?;
        match encoding::parse_address(text) {
            Ok(Address(bytes)) if bytes == [0; 20] => {
                self.fault("to", "not-allowed", "the zero address cannot be a target: what is sent there is lost");
                None
            }
            Ok(address) => Some(address),
            Err(error) => {
                self.fault("to", "malformed", error.to_string());
                None
            }
        }
    }

    /// A transfer says how much; a call carries nothing unless it says so.
    fn value(&mut self, kind: Option<JobKind>) -> Wei {
        if kind == Some(JobKind::Transfer) && self.required("value").is_none() {
            return Wei::ZERO;
        }
        self.amount("value").unwrap_or_default()
    }

    fn amount(&mut self, field: &str) -> Option<Wei> {
        let value = self.get(field)?;
        if value.is_number() {
            // A number above 2^53 has lost its last digits in most clients before it is sent.
            self.fault(field, "wrong-type", "must be a decimal string such as \"1000\", not a JSON number");
            return None;
        }
        let text = self.text(field, value)?;
        match text.parse() {
            Ok(amount) => Some(amount),
            Err(error) => {
                let error: entity::values::Malformed = error;
                self.fault(field, "malformed", error.to_string());
                None
            }
        }
    }

    fn data(&mut self, kind: Option<JobKind>) -> Option<Vec<u8>> {
        let (data, function, args) = (self.get("data"), self.get("function"), self.get("args"));
        if kind == Some(JobKind::Transfer) {
            for (field, _) in [("data", data), ("function", function), ("args", args)].into_iter().filter(|(_, value)| value.is_some()) {
                self.fault(field, "not-allowed", "a transfer carries no call: use kind contract_call");
            }
            return Some(Vec::new());
        }
        if args.is_some() && function.is_none() {
            self.fault("args", "not-allowed", "args need the function that takes them");
        }
        match (data, function) {
            (Some(_), Some(_)) => {
                self.fault("function", "not-allowed", "either data or function, not both");
                None
            }
            (Some(data), None) => self.bytes(data),
            (None, Some(function)) => self.call(function, args),
            (None, None) if kind.is_some() && ["data", "function"].iter().all(|field| !self.fields.contains_key(*field)) => {
                self.fault("data", "required", "data, or function and args, is required (\"0x\" for a call without data)");
                None
            }
            (None, None) => None,
        }
    }

    fn bytes(&mut self, value: &'a Value) -> Option<Vec<u8>> {
        let text = self.text("data", value)?;
        let bytes = bytes_from_hex(text);
        match bytes {
            None => self.fault("data", "malformed", "must be 0x followed by an even number of hex digits"),
            Some(bytes) if bytes.len() <= MAX_DATA_BYTES => return Some(bytes),
            Some(_) => self.fault("data", "too-large", format!("call data has at most {MAX_DATA_BYTES} bytes")),
        }
        None
    }

    fn call(&mut self, function: &'a Value, args: Option<&'a Value>) -> Option<Vec<u8>> {
        let signature = self.text("function", function)?;
        if args.is_none() && self.fields.contains_key("args") {
            return None;
        }
        let args: &[Value] = match args.map(Value::as_array) {
            None => &[],
            Some(Some(args)) => args,
            Some(None) => {
                self.fault("args", "wrong-type", "must be a JSON array");
                return None;
            }
        };
        abi::calldata(signature, args)
            .map_err(|error| self.fault(error.path().trim_start_matches('/'), "malformed", error.to_string()))
            .ok()
    }

    fn gas_limit(&mut self, data: Option<&[u8]>) -> Option<i64> {
        let amount = self.amount("gas_limit")?;
        let least = gas::least(data.unwrap_or_default());
        if amount < Wei::from(least) || amount > Wei::from(MAX_GAS_LIMIT) {
            self.fault("gas_limit", "out-of-range", format!("must be from {least} (what this call costs at least) to {MAX_GAS_LIMIT}"));
            return None;
        }
        i64::try_from(amount.0.low_u64()).ok()
    }

    fn priority(&mut self) -> i16 {
        let Some(value) = self.get("priority") else { return DEFAULT_PRIORITY };
        if !value.is_i64() && !value.is_u64() {
            self.fault("priority", "wrong-type", "must be an integer, not in quotes");
            return DEFAULT_PRIORITY;
        }
        let priority = value.as_i64().and_then(|number| i16::try_from(number).ok()).filter(|number| (1..=100).contains(number));
        if priority.is_none() {
            self.fault("priority", "out-of-range", "must be an integer from 1 (first) to 100 (last)");
        }
        priority.unwrap_or(DEFAULT_PRIORITY)
    }

    fn run_at(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let value = self.get("run_at")?;
        let text = self.text("run_at", value)?;
        let Ok(at) = DateTime::parse_from_rfc3339(text) else {
            self.fault("run_at", "malformed", "must be an RFC 3339 time such as 2030-01-31T12:00:00Z");
            return None;
        };
        if at > now + FURTHEST_RUN {
            self.fault("run_at", "out-of-range", "must be within a year from now");
            return None;
        }
        // Postgres keeps microseconds: what is finer must not make another fingerprint of the same row.
        DateTime::from_timestamp_micros(at.timestamp_micros())
    }

    /// As text with sorted keys, so that their order in the request makes no other fingerprint.
    fn metadata(&mut self) -> Option<String> {
        let value = self.get("metadata")?;
        if !value.is_object() {
            self.fault("metadata", "wrong-type", "must be a JSON object");
            return None;
        }
        let mut form = Canonical { text: String::new(), separators: 0, place: "metadata".into() };
        if let Err(message) = form.write(value) {
            self.fault(&form.place, "not-allowed", message);
            return None;
        }
        if form.text.len() + form.separators > MAX_METADATA_BYTES {
            self.fault("metadata", "too-large", format!("metadata has at most {MAX_METADATA_BYTES} bytes"));
            return None;
        }
        Some(form.text)
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

struct Canonical {
    text: String,
    /// Commas and colons, each of which Postgres follows with a blank.
    separators: usize,
    /// Where it writes, as a pointer without its first slash; where it stopped, after a fault.
    place: String,
}

impl Canonical {
    /// Goes into a member; gives how long the place was before.
    fn enter(&mut self, name: &str) -> usize {
        let outer = self.place.len();
        self.place.push('/');
        self.place.push_str(name);
        outer
    }

    fn separate(&mut self, by: char) {
        self.text.push(by);
        self.separators += 1;
    }

    fn scalar(&mut self, value: &Value) -> Result<(), &'static str> {
        let text = value.to_string();
        if value.is_number() && text.contains('e') {
            // It has lost digits already, and Postgres would write it out in hundreds of them.
            return Err("a number too large or too small to be exact: write it as a string");
        }
        self.text.push_str(&text);
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), &'static str> {
        if text.contains('\0') {
            return Err("the character U+0000 cannot be stored");
        }
        self.scalar(&Value::from(text))
    }

    fn write(&mut self, value: &Value) -> Result<(), &'static str> {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                self.text.push('{');
                for (at, (name, value)) in fields.into_iter().enumerate() {
                    if at > 0 {
                        self.separate(',');
                    }
                    let outer = self.enter(&escaped(name));
                    self.string(name)?;
                    self.separate(':');
                    self.write(value)?;
                    self.place.truncate(outer);
                }
                self.text.push('}');
            }
            Value::Array(values) => {
                self.text.push('[');
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        self.separate(',');
                    }
                    let outer = self.enter(&at.to_string());
                    self.write(value)?;
                    self.place.truncate(outer);
                }
                self.text.push(']');
            }
            Value::String(text) => self.string(text)?,
            Value::Null | Value::Bool(_) | Value::Number(_) => self.scalar(value)?,
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
