//! Owns reading a request's body: JSON only, bounded in size and time, without two fields of one name.
//! Never knows what the body means.

use super::problem::{Kind, Problem};
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
            match tokio::time::timeout(PATIENCE, payload.to_bytes_limited(MAX_BODY_BYTES)).await {
                Ok(Ok(Ok(bytes))) => parse(&bytes).map(Self),
                Ok(Ok(Err(_))) => Err(Problem::new(Kind::InvalidRequest, "the body ended too early")),
                Ok(Err(_)) => Err(Problem::new(Kind::TooLarge, format!("a body has at most {MAX_BODY_BYTES} bytes"))),
                Err(_) => Err(Problem::new(Kind::BodyTimeout, format!("a body must arrive within {} seconds", PATIENCE.as_secs()))),
            }
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
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0).map_err(|error| Problem::new(Kind::MalformedJson, error.to_string()))
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
                return Err(A::Error::custom(format_args!("the field {name:?} is there twice")));
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
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "{}x", "{'a':1}", "{\"a\":1e999}", "\"\\ud800\"", "NaN", deep.as_str()] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.20}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}
