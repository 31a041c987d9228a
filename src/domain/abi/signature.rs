//! Owns reading a function signature into types and writing types back in their canonical form. Called by `abi` alone.

use super::{Error, MAX_DEPTH, SignatureFault};
use ethabi::ParamType;

/// A descent over the signature. ethabi's own reader skips empty parts and lets sizes pass that no type has.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// One more character is taken.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let from = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        // Only ASCII was taken, so both ends are borders of characters.
        self.text.get(from..self.at).unwrap_or_default()
    }

    pub(super) fn fault(&self, fault: SignatureFault) -> Error {
        Error::Signature { at: self.at, fault }
    }

    fn expected(&self, what: &'static str) -> Error {
        self.fault(if self.peek().is_some_and(|c| c.is_ascii_whitespace()) {
            SignatureFault::Space
        } else {
            SignatureFault::Expected(what)
        })
    }

    /// The types up to the closing parenthesis; the opening one is already taken.
    pub(super) fn list(&mut self, depth: usize) -> Result<Vec<ParamType>, Error> {
        let mut types = Vec::new();
        if self.peek() == Some(b')') {
            self.at += 1;
            return Ok(types);
        }
        loop {
            types.push(self.one(depth)?);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b')') => {
                    self.at += 1;
                    return Ok(types);
                }
                _ => return Err(self.expected("`,` or `)`")),
            }
        }
    }

    fn one(&mut self, depth: usize) -> Result<ParamType, Error> {
        let from = self.at;
        let mut kind = if self.peek() == Some(b'(') {
            if depth >= MAX_DEPTH {
                return Err(self.fault(SignatureFault::TooDeep));
            }
            self.at += 1;
            let parts = self.list(depth + 1)?;
            if parts.is_empty() {
                return Err(Error::Signature { at: from, fault: SignatureFault::UnknownType("()".into()) });
            }
            ParamType::Tuple(parts)
        } else {
            let word = self.take_while(|c| c.is_ascii_alphanumeric());
            if word.is_empty() {
                return Err(self.expected("a type"));
            }
            elementary(word).ok_or_else(|| Error::Signature { at: from, fault: SignatureFault::UnknownType(word.into()) })?
        };
        while self.peek() == Some(b'[') {
            if depth + nesting(&kind) >= MAX_DEPTH {
                return Err(self.fault(SignatureFault::TooDeep));
            }
            kind = self.array_of(kind)?;
        }
        Ok(kind)
    }

    fn array_of(&mut self, element: ParamType) -> Result<ParamType, Error> {
        self.at += 1;
        let from = self.at;
        let length = self.take_while(|c| c != b']' && c.is_ascii_graphic());
        if self.peek() != Some(b']') {
            return Err(self.expected("`]`"));
        }
        self.at += 1;
        if length.is_empty() {
            return Ok(ParamType::Array(Box::new(element)));
        }
        // An element takes at least a word, so longer arrays could never fit a transaction.
        match number(length) {
            Some(length) => Ok(ParamType::FixedArray(Box::new(element), usize::from(length))),
            None => Err(Error::Signature { at: from, fault: SignatureFault::ArrayLength }),
        }
    }
}

/// A decimal from 1 to 65535 in the one way to write it.
fn number(text: &str) -> Option<u16> {
    if text.starts_with('0') || !text.bytes().all(|c| c.is_ascii_digit()) { None } else { text.parse().ok() }
}

fn elementary(word: &str) -> Option<ParamType> {
    let bits = |text: &str| if text.is_empty() { Some(256) } else { number(text).filter(|n| n % 8 == 0 && *n <= 256) };
    Some(match word {
        "address" => ParamType::Address,
        "bool" => ParamType::Bool,
        "string" => ParamType::String,
        "bytes" => ParamType::Bytes,
        _ => {
            if let Some(rest) = word.strip_prefix("uint") {
                ParamType::Uint(bits(rest)?.into())
            } else if let Some(rest) = word.strip_prefix("int") {
                ParamType::Int(bits(rest)?.into())
            } else {
                ParamType::FixedBytes(number(word.strip_prefix("bytes")?).filter(|n| *n <= 32)?.into())
            }
        }
    })
}

/// How many arrays and tuples stand inside each other, this one counted.
fn nesting(kind: &ParamType) -> usize {
    match kind {
        ParamType::Array(inner) | ParamType::FixedArray(inner, _) => 1 + nesting(inner),
        ParamType::Tuple(parts) => 1 + parts.iter().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

/// The canonical text of a list of types, in parentheses.
pub(super) fn shown(types: &[ParamType]) -> String {
    let parts: Vec<String> = types.iter().map(shown_one).collect();
    format!("({})", parts.join(","))
}

pub(super) fn shown_one(kind: &ParamType) -> String {
    match kind {
        ParamType::Address => "address".into(),
        ParamType::Bool => "bool".into(),
        ParamType::String => "string".into(),
        ParamType::Bytes => "bytes".into(),
        ParamType::Uint(bits) => format!("uint{bits}"),
        ParamType::Int(bits) => format!("int{bits}"),
        ParamType::FixedBytes(size) => format!("bytes{size}"),
        ParamType::Array(inner) => format!("{}[]", shown_one(inner)),
        ParamType::FixedArray(inner, length) => format!("{}[{length}]", shown_one(inner)),
        ParamType::Tuple(parts) => shown(parts),
    }
}
