//! Owns turning JSON values into tokens of given types, exactly or not at all, and counting the bytes they take. Called by `abi` alone.

use super::signature::shown_one;
use super::{ArgumentFault, Error};
use crate::domain::encoding;
use entity::values::{Wei, bytes_from_hex};
use ethabi::{ParamType, Token};
use serde_json::Value;
use std::fmt::Write;

const WORD: usize = 32;

/// Whether the encoding puts an offset in the head and the value behind it.
fn is_dynamic(kind: &ParamType) -> bool {
    match kind {
        ParamType::Bytes | ParamType::String | ParamType::Array(_) => true,
        ParamType::FixedArray(inner, _) => is_dynamic(inner),
        ParamType::Tuple(parts) => parts.iter().any(is_dynamic),
        _ => false,
    }
}

/// Walks types and values together. `room` is what is left of the call data, so that a small request cannot grow large in memory.
pub(super) struct Builder {
    pub(super) path: String,
    pub(super) room: usize,
}

impl Builder {
    fn fault(&self, fault: ArgumentFault) -> Error {
        Error::Argument { path: self.path.clone(), fault }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        self.room = self.room.checked_sub(bytes).ok_or_else(|| self.fault(ArgumentFault::TooLarge))?;
        Ok(())
    }

    /// A tuple, or the arguments themselves.
    pub(super) fn all(&mut self, types: &[ParamType], values: &[Value]) -> Result<Vec<Token>, Error> {
        self.count(types.len(), values.len())?;
        types.iter().zip(values).enumerate().map(|(at, (kind, value))| self.at(at, kind, value)).collect()
    }

    fn every(&mut self, kind: &ParamType, values: &[Value]) -> Result<Vec<Token>, Error> {
        values.iter().enumerate().map(|(at, value)| self.at(at, kind, value)).collect()
    }

    fn at(&mut self, at: usize, kind: &ParamType, value: &Value) -> Result<Token, Error> {
        let outer = self.path.len();
        // Writing to a String cannot fail.
        let _ = write!(self.path, "/{at}");
        let token = self.one(kind, value)?;
        self.path.truncate(outer);
        Ok(token)
    }

    fn count(&self, expected: usize, got: usize) -> Result<(), Error> {
        if expected == got { Ok(()) } else { Err(self.fault(ArgumentFault::Count { expected, got })) }
    }

    fn one(&mut self, kind: &ParamType, value: &Value) -> Result<Token, Error> {
        if is_dynamic(kind) {
            self.spend(WORD)?;
        }
        match kind {
            ParamType::Tuple(parts) => {
                let values = self.array(kind, value)?;
                self.all(parts, values).map(Token::Tuple)
            }
            ParamType::Array(inner) => {
                let values = self.array(kind, value)?;
                self.spend(WORD)?;
                self.every(inner, values).map(Token::Array)
            }
            ParamType::FixedArray(inner, length) => {
                let values = self.array(kind, value)?;
                self.count(*length, values.len())?;
                self.every(inner, values).map(Token::FixedArray)
            }
            ParamType::Bytes => {
                let bytes = self.hex(kind, value)?;
                self.spend(WORD + bytes.len().next_multiple_of(WORD))?;
                Ok(Token::Bytes(bytes))
            }
            ParamType::String => {
                let text = self.text(kind, value)?;
                self.spend(WORD + text.len().next_multiple_of(WORD))?;
                Ok(Token::String(text.into()))
            }
            _ => {
                self.spend(WORD)?;
                self.single(kind, value)
            }
        }
    }

    /// The types of exactly one word.
    fn single(&self, kind: &ParamType, value: &Value) -> Result<Token, Error> {
        Ok(match kind {
            ParamType::Bool => Token::Bool(value.as_bool().ok_or_else(|| self.fault(ArgumentFault::NotABool))?),
            ParamType::Address => {
                let address = encoding::parse_address(self.text(kind, value)?).map_err(|e| self.fault(e.into()))?;
                Token::Address(address.0.into())
            }
            ParamType::FixedBytes(size) => {
                let bytes = self.hex(kind, value)?;
                if bytes.len() != *size {
                    return Err(self.fault(ArgumentFault::Length { expected: *size, got: bytes.len() }));
                }
                Token::FixedBytes(bytes)
            }
            ParamType::Int(bits) => Token::Int(self.signed(kind, *bits, value)?.0),
            // All others were taken before: what is left is an unsigned integer.
            other => {
                let bits = if let ParamType::Uint(bits) = other { *bits } else { 256 };
                let amount = self.magnitude(kind, self.digits(kind, value)?)?;
                if amount.0.bits() > bits {
                    return Err(self.fault(ArgumentFault::Range(shown_one(kind))));
                }
                Token::Uint(amount.0)
            }
        })
    }

    fn array<'v>(&self, kind: &ParamType, value: &'v Value) -> Result<&'v [Value], Error> {
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.fault(ArgumentFault::NotAnArray(shown_one(kind))))
    }

    fn text<'v>(&self, kind: &ParamType, value: &'v Value) -> Result<&'v str, Error> {
        value.as_str().ok_or_else(|| self.fault(ArgumentFault::NotAString(shown_one(kind))))
    }

    fn hex(&self, kind: &ParamType, value: &Value) -> Result<Vec<u8>, Error> {
        bytes_from_hex(self.text(kind, value)?).ok_or_else(|| self.fault(ArgumentFault::NotHex(shown_one(kind))))
    }

    fn digits<'v>(&self, kind: &ParamType, value: &'v Value) -> Result<&'v str, Error> {
        // A JSON number above 2^53 has lost its last digits in most clients before it is sent.
        if value.is_number() { Err(self.fault(ArgumentFault::Number(shown_one(kind)))) } else { self.text(kind, value) }
    }

    fn magnitude(&self, kind: &ParamType, digits: &str) -> Result<Wei, Error> {
        digits.parse().map_err(|_| {
            let plain = !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|c| c.is_ascii_digit());
            let negative = digits.strip_prefix('-').is_some_and(|d| !d.is_empty() && d.bytes().all(|c| c.is_ascii_digit()));
            let name = shown_one(kind);
            self.fault(if plain || negative { ArgumentFault::Range(name) } else { ArgumentFault::NotDecimal(name) })
        })
    }

    /// Two's complement over 256 bits, as the encoding wants it.
    fn signed(&self, kind: &ParamType, bits: usize, value: &Value) -> Result<Wei, Error> {
        let text = self.digits(kind, value)?;
        let negative = text.starts_with('-');
        let digits = text.strip_prefix('-').unwrap_or(text);
        let minus_zero_or_twice = negative && (digits == "0" || digits.starts_with('-'));
        if minus_zero_or_twice {
            return Err(self.fault(ArgumentFault::NotDecimal(shown_one(kind))));
        }
        let Wei(amount) = self.magnitude(kind, digits)?;
        let limit = Wei::from(1).0 << (bits - 1);
        if amount > limit || (amount == limit && !negative) {
            return Err(self.fault(ArgumentFault::Range(shown_one(kind))));
        }
        Ok(Wei(if negative { amount.overflowing_neg().0 } else { amount }))
    }
}
