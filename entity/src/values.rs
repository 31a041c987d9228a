//! Values of the chain as they are stored and shown: addresses and hashes as 0x-hex, amounts as decimal strings.

use primitive_types::U256;
use sea_orm::prelude::BigDecimal;
use sea_orm::sea_query::{ArrayType, Nullable, ValueType, ValueTypeErr};
use sea_orm::{ColIdx, ColumnType, DbErr, QueryResult, TryFromU64, TryGetError, TryGetable, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// Why a text is no value of the wanted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not `0x` and an even number of hex digits of the wanted length.
    Hex { bytes: usize },
    /// Not a decimal integer from 0 to 2^256-1 without sign, point, exponent or leading zero.
    Decimal,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hex { bytes } => write!(f, "must be 0x followed by {} hex digits", bytes * 2),
            Self::Decimal => f.write_str("must be a decimal string of an integer from 0 to 2^256-1"),
        }
    }
}

impl std::error::Error for Malformed {}

fn nibble(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

/// The bytes of a 0x-prefixed hex text, or None.
#[must_use]
pub fn bytes_from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

/// 0x-prefixed lower-case hex.
#[must_use]
pub fn hex_from_bytes(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("0x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

macro_rules! fixed_bytes {
    ($($(#[$doc:meta])* $name:ident, $size:literal);+ $(;)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $size]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex_from_bytes(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(text: &str) -> Result<Self, Malformed> {
                bytes_from_hex(text).and_then(|b| b.try_into().ok()).map(Self).ok_or(Malformed::Hex { bytes: $size })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&hex_from_bytes(&self.0))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }

        impl From<$name> for Value {
            fn from(v: $name) -> Self {
                Value::Bytes(Some(v.0.to_vec()))
            }
        }

        impl TryGetable for $name {
            fn try_get_by<I: ColIdx>(row: &QueryResult, at: I) -> Result<Self, TryGetError> {
                <Vec<u8> as TryGetable>::try_get_by(row, at)?
                    .try_into()
                    .map(Self)
                    .map_err(|_| TryGetError::DbErr(DbErr::Type(concat!(stringify!($name), " of a wrong length").into())))
            }
        }

        impl ValueType for $name {
            fn try_from(v: Value) -> Result<Self, ValueTypeErr> {
                match v {
                    Value::Bytes(Some(b)) => b.try_into().map(Self).map_err(|_| ValueTypeErr),
                    _ => Err(ValueTypeErr),
                }
            }
            fn type_name() -> String {
                stringify!($name).into()
            }
            fn array_type() -> ArrayType {
                ArrayType::Bytes
            }
            fn column_type() -> ColumnType {
                ColumnType::VarBinary(sea_orm::sea_query::StringLen::None)
            }
        }

        impl Nullable for $name {
            fn null() -> Value {
                Value::Bytes(None)
            }
        }

        impl TryFromU64 for $name {
            fn try_from_u64(_: u64) -> Result<Self, DbErr> {
                Err(DbErr::ConvertFromU64(stringify!($name)))
            }
        }
    )+};
}

fixed_bytes! {
    /// An account or contract.
    Address, 20;
    /// keccak-256 of a transaction, a block or a call.
    Hash, 32;
}

/// A uint256, most often in wei. NUMERIC(78,0) in Postgres, a decimal string outside, never a float.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wei(pub U256);

impl Wei {
    pub const ZERO: Self = Self(U256::zero());

    fn to_numeric(self) -> BigDecimal {
        // The digits of a U256 are always a valid BigDecimal.
        BigDecimal::from_str(&self.0.to_string()).unwrap_or_default()
    }

    fn from_numeric(v: &BigDecimal) -> Option<Self> {
        let v = v.with_scale(0).to_plain_string();
        U256::from_dec_str(&v).ok().map(Self)
    }
}

impl From<u64> for Wei {
    fn from(v: u64) -> Self {
        Self(v.into())
    }
}

impl fmt::Display for Wei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Wei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Wei {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let plain =
            text == "0" || (!text.starts_with('0') && !text.is_empty() && text.len() <= 78 && text.bytes().all(|c| c.is_ascii_digit()));
        if !plain {
            return Err(Malformed::Decimal);
        }
        U256::from_dec_str(text).map(Self).map_err(|_| Malformed::Decimal)
    }
}

impl Serialize for Wei {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Wei {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl From<Wei> for Value {
    fn from(v: Wei) -> Self {
        Value::BigDecimal(Some(Box::new(v.to_numeric())))
    }
}

impl TryGetable for Wei {
    fn try_get_by<I: ColIdx>(row: &QueryResult, at: I) -> Result<Self, TryGetError> {
        let v = <BigDecimal as TryGetable>::try_get_by(row, at)?;
        Self::from_numeric(&v).ok_or_else(|| TryGetError::DbErr(DbErr::Type("uint256 out of range".into())))
    }
}

impl ValueType for Wei {
    fn try_from(v: Value) -> Result<Self, ValueTypeErr> {
        match v {
            Value::BigDecimal(Some(v)) => Self::from_numeric(&v).ok_or(ValueTypeErr),
            _ => Err(ValueTypeErr),
        }
    }
    fn type_name() -> String {
        "Wei".into()
    }
    fn array_type() -> ArrayType {
        ArrayType::BigDecimal
    }
    fn column_type() -> ColumnType {
        ColumnType::Decimal(Some((78, 0)))
    }
}

impl Nullable for Wei {
    fn null() -> Value {
        Value::BigDecimal(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: &str = "115792089237316195423570985008687907853269984665640564039457584007913129639935";

    #[test]
    fn amounts_are_exact_decimal_strings_up_to_2_256_minus_1() {
        for text in ["0", "1", "1000", "100000000000000000000000", MAX] {
            let wei: Wei = text.parse().unwrap();
            assert_eq!(wei.to_string(), text);
            assert_eq!(Wei::from_numeric(&wei.to_numeric()), Some(wei));
        }
    }

    #[test]
    fn anything_but_a_plain_decimal_integer_is_refused() {
        let over = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
        for text in ["", "00", "01", "-1", "+1", "1.0", "1e3", " 1", "0x1", "١", over] {
            assert_eq!(text.parse::<Wei>(), Err(Malformed::Decimal), "{text:?}");
        }
    }

    #[test]
    fn hex_needs_the_prefix_and_the_exact_length() {
        let full = format!("0x{}", "aB".repeat(20));
        assert_eq!(full.parse::<Address>().unwrap().to_string(), full.to_lowercase());
        for text in ["", "0x", "0xabc", &full[2..], &format!("{full}00"), &full.replace('a', "g")] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }
}
