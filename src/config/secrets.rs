//! Owns the reading of secrets that are written as JSON, without losing a repeated name and without a message that quotes a value.
//! Never decides which names are allowed. Called by `journal`, `signers` and `remote`.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use zeroize::Zeroizing;

/// A JSON value as far as a secret can be one.
pub(super) enum Item {
    Text(Zeroizing<String>),
    List(Vec<Item>),
    Object(Members),
    Other,
}

/// The members of a JSON object in their order, repeated names included.
pub(super) struct Members(pub Vec<(String, Item)>);

/// Why there are no members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    NotJson,
    NotAnObject,
}

/// Why a text is no 32-byte secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    NoPrefix,
    Length,
    NotHex,
}

impl Members {
    pub fn parse(text: &str) -> Result<Self, Shape> {
        // The errors of serde_json quote values, so only their kind is kept.
        serde_json::from_str::<IgnoredAny>(text).map_err(|_| Shape::NotJson)?;
        serde_json::from_str::<Self>(text).map_err(|_| Shape::NotAnObject)
    }
}

/// The 32 bytes of `0x` and 64 hex digits.
pub(super) fn bytes32(text: &str) -> Result<Zeroizing<[u8; 32]>, Malformed> {
    let digits = text.strip_prefix("0x").ok_or(Malformed::NoPrefix)?;
    if digits.chars().count() != 64 {
        return Err(Malformed::Length);
    }
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(digits, bytes.as_mut_slice()).map_err(|_| Malformed::NotHex)?;
    Ok(bytes)
}

/// A name as it may be shown: who swaps name and value must not see the value printed.
pub(super) fn shown(name: &str, position: usize) -> String {
    let longest_hex = name.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap_or(0);
    if longest_hex < 20 && name.len() <= 127 { format!("{name:?}") } else { format!("number {position}") }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_str<E>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(Zeroizing::new(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Item, E> {
                Ok(Item::Text(Zeroizing::new(text)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Item::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Item::Object(Members(members)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Item, E> {
                Ok(Item::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Item, E> {
                Ok(Item::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Item, E> {
                Ok(Item::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Item, E> {
                Ok(Item::Other)
            }
            fn visit_unit<E>(self) -> Result<Item, E> {
                Ok(Item::Other)
            }
        }
        from.deserialize_any(Any)
    }
}
