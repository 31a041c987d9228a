//! Owns reading a request's body: JSON only, bounded in size and time, without two fields of one name.
//! Never knows what the body means.

use super::problem::{Kind, Problem};
use crate::domain::submission::parse::FieldError;
use actix_web::dev::Payload;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use actix_web::{FromRequest, HttpRequest, web};
use futures::future::LocalBoxFuture;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;
use std::time::Duration;

pub const MAX_BODY_BYTES: usize = 256 * 1024;
/// A client that sends its body drop by drop holds a connection, and no longer than this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the parser gives up, before its stack does.
const DEEPEST: usize = 127;

/// The JSON of a body.
#[derive(Debug)]
pub struct Json(pub Value);

impl FromRequest for Json {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let typed = check_type(request);
        let payload = web::Payload::from_request(request, payload);
        Box::pin(async move {
            typed?;
            let payload = payload.await.map_err(|error| Problem::internal(&error))?;
            parse(&read(payload).await?).map(Self)
        })
    }
}

fn check_type(request: &HttpRequest) -> Result<(), Problem> {
    let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    let essence = header(CONTENT_TYPE).and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(Kind::WrongType, "the body must be application/json"));
    }
    if header(CONTENT_ENCODING).is_some_and(|encoding| !encoding.trim().eq_ignore_ascii_case("identity")) {
        return Err(Problem::new(Kind::WrongType, "the body must not be compressed"));
    }
    Ok(())
}

/// # Errors
/// A problem that says where the text is no JSON.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0).map_err(|error| Problem::new(Kind::MalformedJson, told(&error)))
}

/// What the parser found, in our words where its own name our parser instead of the fault.
fn told(error: &serde_json::Error) -> String {
    let at = format!("line {} column {}", error.line(), error.column());
    let text = error.to_string();
    if text.starts_with("recursion limit") {
        return format!("the body is nested too deep, at {at}: at most {DEEPEST} objects and arrays may stand within each other");
    }
    if error.is_eof() { format!("the body ends in the middle of its JSON, at {at}") } else { text }
}

/// A body where none is needed: nothing, or an object without fields. What else is sent was meant to say something, and is not heard.
#[derive(Debug)]
pub struct Nothing;

impl FromRequest for Nothing {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let typed = check_type(request);
        let payload = web::Payload::from_request(request, payload);
        Box::pin(async move {
            let bytes = read(payload.await.map_err(|error| Problem::internal(&error))?).await?;
            if bytes.is_empty() {
                return Ok(Self);
            }
            typed?;
            match parse(&bytes)? {
                Value::Object(fields) if fields.is_empty() => Ok(Self),
                Value::Object(fields) => Err(Problem::fields(
                    fields
                        .keys()
                        .map(|name| FieldError { pointer: pointer(name), code: "unknown-field", message: TAKES_NONE.into() })
                        .collect(),
                )),
                _ => Err(Problem::fields(vec![FieldError { pointer: String::new(), code: "wrong-type", message: TAKES_NONE.into() }])),
            }
        })
    }
}

const TAKES_NONE: &str = "the body must be empty or {}";

/// Of a field of the body.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

async fn read(payload: web::Payload) -> Result<web::Bytes, Problem> {
    match tokio::time::timeout(PATIENCE, payload.to_bytes_limited(MAX_BODY_BYTES)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(_))) => Err(Problem::new(Kind::InvalidRequest, "the body ended too early")),
        Ok(Err(_)) => Err(Problem::new(Kind::TooLarge, format!("a body has at most {MAX_BODY_BYTES} bytes"))),
        Err(_) => Err(Problem::new(Kind::BodyTimeout, format!("a body must arrive within {} seconds", PATIENCE.as_secs()))),
    }
}

/// `Value` takes the last of two fields with one name, another parser takes the first: nobody could say what was asked for.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element_seed(Self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field {name:?} is there twice: nobody could say which one counts")));
            }
            fields.insert(name, from.next_value_seed(Self)?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_it_stands() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,1.5,"x\u0000ü"],"b":{}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#] {
            let problem = parse(text.as_bytes()).unwrap_err();
            assert_eq!(problem.kind(), Kind::MalformedJson);
            assert!(problem.to_string().contains("there twice"), "{problem}");
        }
    }

    #[test]
    fn each_way_to_be_unreadable_has_its_own_words() {
        let told = |text: &str| parse(text.as_bytes()).unwrap_err().body("").detail;
        let twice = told(r#"{"kind":"a","kind":"b"}"#);
        assert!(twice.starts_with("the field \"kind\" is there twice: nobody could say which one counts"), "{twice}");
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(DEEPEST).as_bytes()).is_ok());
        let deep = told(&nested(DEEPEST + 1));
        assert!(deep.starts_with("the body is nested too deep, at line 1 column 128: at most 127 "), "{deep}");
        assert_eq!(told("{\"a\":"), "the body ends in the middle of its JSON, at line 1 column 5");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "{}x", "{'a':1}", "{\"a\":1e999}", "\"\\ud800\"", "NaN", deep.as_str()] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.20}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}
