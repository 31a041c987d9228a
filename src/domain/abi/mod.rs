//! Owns turning `"record(bytes32)"` and a JSON list of arguments into call data.
//! Never guesses: a value that does not fit its type exactly is refused with the place where it stands. Called by intake.

mod arguments;
mod signature;

use crate::domain::encoding::{self, keccak256};
use crate::domain::transaction::MAX_DATA_BYTES;
use arguments::Builder;
use ethabi::ParamType;
use serde_json::Value;
use signature::{Reader, shown};

/// How deep arrays and tuples may nest. Real contracts stay under four; the cap bounds the recursion.
const MAX_DEPTH: usize = 8;
const MAX_SIGNATURE_BYTES: usize = 1024;

/// Why a function and its arguments make no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `at` counts bytes of the signature.
    #[error("{fault} (at character {at})")]
    Signature { at: usize, fault: SignatureFault },
    #[error("{fault}")]
    Argument { path: String, fault: ArgumentFault },
}

impl Error {
    /// The JSON pointer of the faulty part in the request body.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Signature { .. } => "/function",
            Self::Argument { path, .. } => path,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    #[error("a function signature has at most {MAX_SIGNATURE_BYTES} characters")]
    TooLong,
    #[error("must be like transfer(address,uint256): a name of letters, digits, _ and $ before the parenthesis")]
    Name,
    #[error("expected {0}")]
    Expected(&'static str),
    #[error("a signature holds types only: no spaces and no argument names")]
    Space,
    #[error("`{0}` is no ABI type")]
    UnknownType(String),
    #[error("the length of a fixed array must be a decimal number from 1 to 65535")]
    ArrayLength,
    #[error("arrays and tuples may nest at most {MAX_DEPTH} deep")]
    TooDeep,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    #[error("expected {expected} values, got {got}")]
    Count { expected: usize, got: usize },
    #[error("expected a JSON array for {0}")]
    NotAnArray(String),
    #[error("{0} must be a decimal string such as \"1000\", not a JSON number")]
    Number(String),
    #[error("{0} must be a decimal string without leading zeros, plus sign, point or exponent")]
    NotDecimal(String),
    #[error("out of range for {0}")]
    Range(String),
    #[error("expected true or false")]
    NotABool,
    #[error("expected a JSON string for {0}")]
    NotAString(String),
    #[error("{0} must be 0x followed by an even number of hex digits")]
    NotHex(String),
    #[error("expected exactly {expected} bytes, got {got}")]
    Length { expected: usize, got: usize },
    #[error("not an address: {0}")]
    Address(#[from] encoding::Error),
    #[error("the call data would be larger than {MAX_DATA_BYTES} bytes")]
    TooLarge,
}

/// A parsed signature, with its aliases written out (`uint` is `uint256`).
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    canonical: String,
    inputs: Vec<ParamType>,
}

impl Function {
    pub fn parse(signature: &str) -> Result<Self, Error> {
        let mut reader = Reader::new(signature);
        if signature.len() > MAX_SIGNATURE_BYTES {
            return Err(reader.fault(SignatureFault::TooLong));
        }
        let name = reader.take_while(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'$');
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || reader.peek() != Some(b'(') {
            return Err(reader.fault(if reader.peek() == Some(b' ') { SignatureFault::Space } else { SignatureFault::Name }));
        }
        reader.advance();
        let inputs = reader.list(0)?;
        if reader.peek().is_some() {
            return Err(reader.fault(SignatureFault::Expected("the end of the signature")));
        }
        Ok(Self { canonical: format!("{name}{}", shown(&inputs)), inputs })
    }

    /// The form whose hash begins with the selector.
    #[must_use]
    pub fn signature(&self) -> &str {
        &self.canonical
    }

    #[must_use]
    pub fn selector(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = keccak256(self.canonical.as_bytes()).0;
        [a, b, c, d]
    }

    /// The call data of this function with these arguments.
    pub fn call(&self, args: &[Value]) -> Result<Vec<u8>, Error> {
        let mut builder = Builder { path: "/args".into(), room: MAX_DATA_BYTES - 4 };
        let tokens = builder.all(&self.inputs, args)?;
        let mut data = self.selector().to_vec();
        data.extend_from_slice(&ethabi::encode(&tokens));
        Ok(data)
    }
}

/// Both steps at once, for a request that is used a single time.
pub fn calldata(signature: &str, args: &[Value]) -> Result<Vec<u8>, Error> {
    Function::parse(signature)?.call(args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::values::hex_from_bytes;
    use proptest::prelude::*;
    use serde_json::json;

    fn call(signature: &str, args: Value) -> Result<Vec<u8>, Error> {
        calldata(signature, args.as_array().unwrap())
    }

    fn refused(signature: &str, args: Value) -> (String, ArgumentFault) {
        match call(signature, args) {
            Err(Error::Argument { path, fault }) => (path, fault),
            other => panic!("{signature}: {other:?}"),
        }
    }

    /// The expected bytes were made with ethers 6.
    #[test]
    fn call_data_equals_that_of_an_independent_encoder() {
        let nested = json!([
            "255",
            [[format!("0x{}", "11".repeat(20)), "0x0102", ["-5", "7"]], [format!("0x{}", "22".repeat(20)), "0x", []]],
            "hé",
            "0xabcdef",
            [[true, false]]
        ]);
        let expected = "0xd26ba0e900000000000000000000000000000000000000000000000000000000000000ff00000000000000000000000000000000000000000000000000000000000000a00000000000000000000000000000000000000000000000000000000000000280abcdef000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002c0000000000000000000000000000000000000000000000000000000000000004000000000000000000000000000000000000000000000000000000000000001400000000000000000000000001111111111111111111111111111111111111111000000000000000000000000000000000000000000000000000000000000006000000000000000000000000000000000000000000000000000000000000000a0000000000000000000000000000000000000000000000000000000000000000201020000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffb000000000000000000000000000000000000000000000000000000000000000700000000000000000000000022222222222222222222222222222222222222220000000000000000000000000000000000000000000000000000000000000060000000000000000000000000000000000000000000000000000000000000008000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000368c3a90000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000100000000000000000000000000000000000000000000000000000000000000010000000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(hex_from_bytes(&call("f(uint8,(address,bytes,int256[])[2],string,bytes3,bool[2][])", nested).unwrap()), expected);

        let edges = json!([
            "-128",
            "-57896044618658097711785492504343953926634992332820282019728792003956564819968",
            "115792089237316195423570985008687907853269984665640564039457584007913129639935"
        ]);
        let expected = "0xb48963e1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff808000000000000000000000000000000000000000000000000000000000000000ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
        assert_eq!(hex_from_bytes(&call("g(int8,int,uint)", edges).unwrap()), expected);
        assert_eq!(hex_from_bytes(&call("z()", json!([])).unwrap()), "0xc5d7802e");
    }

    #[test]
    fn selectors_are_those_of_the_compiler() {
        for (signature, selector) in [
            ("record(bytes32)", "0xb5c645bd"),
            ("revertAlways()", "0x975af67a"),
            ("setFailing(bool)", "0x049ddbf8"),
            ("burn(uint)", "0x42966c68"),
            ("times(bytes32)", "0xca5d7610"),
            ("total()", "0x2ddbd13a"),
            ("transfer(address,uint256)", "0xa9059cbb"),
        ] {
            assert_eq!(hex_from_bytes(&Function::parse(signature).unwrap().selector()), selector, "{signature}");
        }
    }

    #[test]
    fn aliases_are_written_out() {
        let function = Function::parse("a_$1(uint,int[],(uint[3][],(int))[2])").unwrap();
        assert_eq!(function.signature(), "a_$1(uint256,int256[],(uint256[3][],(int256))[2])");
    }

    #[test]
    fn a_signature_that_is_none_is_refused_with_its_place() {
        use SignatureFault as F;
        for (signature, at, fault) in [
            ("", 0, F::Name),
            ("record", 6, F::Name),
            ("(bytes32)", 0, F::Name),
            ("1a()", 2, F::Name),
            ("récord()", 1, F::Name),
            ("function record(bytes32)", 8, F::Space),
            ("a(bytes32 id)", 9, F::Space),
            ("a(uint8, uint8)", 8, F::Space),
            ("a(uint8", 7, F::Expected("`,` or `)`")),
            ("a(uint8,)", 8, F::Expected("a type")),
            ("a(,uint8)", 2, F::Expected("a type")),
            ("a()b", 3, F::Expected("the end of the signature")),
            ("a(uint8))", 8, F::Expected("the end of the signature")),
            ("a(uint8[)", 9, F::Expected("`]`")),
            ("a(())", 2, F::UnknownType("()".into())),
            ("a(uint8[0])", 8, F::ArrayLength),
            ("a(uint8[01])", 8, F::ArrayLength),
            ("a(uint8[65536])", 8, F::ArrayLength),
            ("a(uint8[-1])", 8, F::ArrayLength),
        ] {
            assert_eq!(Function::parse(signature), Err(Error::Signature { at, fault }), "{signature}");
        }
        for word in [
            "uint7", "uint0", "uint264", "uint08", "int9", "bytes0", "bytes33", "bytes032", "byte", "fixed", "function", "Address",
            "tuple", "uint256x",
        ] {
            let fault = F::UnknownType(word.into());
            assert_eq!(Function::parse(&format!("a({word})")), Err(Error::Signature { at: 2, fault }));
        }
        assert_eq!(Function::parse(&format!("{}()", "a".repeat(1024))), Err(Error::Signature { at: 0, fault: F::TooLong }));
        assert_eq!(Function::parse("a(uint7)").unwrap_err().path(), "/function");
        assert_eq!(Function::parse("a(uint7)").unwrap_err().to_string(), "`uint7` is no ABI type (at character 2)");
    }

    #[test]
    fn nesting_ends_at_eight() {
        for (eight, nine) in [
            (format!("a(uint8{})", "[]".repeat(8)), format!("a(uint8{})", "[]".repeat(9))),
            (format!("a({}uint8{})", "(".repeat(8), ")".repeat(8)), format!("a({}uint8{})", "(".repeat(9), ")".repeat(9))),
            (format!("a({}uint8[]{}[])", "(".repeat(6), ")".repeat(6)), format!("a({}uint8[][]{}[])", "(".repeat(6), ")".repeat(6))),
        ] {
            assert!(Function::parse(&eight).is_ok(), "{eight}");
            assert!(matches!(Function::parse(&nine), Err(Error::Signature { fault: SignatureFault::TooDeep, .. })), "{nine}");
        }
    }

    #[test]
    fn integers_are_decimal_strings_within_their_range() {
        use ArgumentFault as F;
        for (kind, good) in [("uint8", "0"), ("uint8", "255"), ("int8", "127"), ("int8", "-128"), ("int16", "-1"), ("uint256", "1")] {
            assert!(call(&format!("a({kind})"), json!([good])).is_ok(), "{kind} {good}");
        }
        let two_256 = "115792089237316195423570985008687907853269984665640564039457584007913129639936";
        for (kind, bad) in [("uint8", "256"), ("int8", "128"), ("int8", "-129"), ("uint8", "-1"), ("uint256", two_256), ("int256", two_256)]
        {
            assert_eq!(refused(&format!("a({kind})"), json!([bad])), ("/args/0".into(), F::Range(kind.into())), "{bad}");
        }
        for bad in ["", "-", "-0", "--1", "+1", "01", "-01", "1.0", "1e3", "0x1", " 1", "1_000", "١"] {
            for kind in ["int256", "uint256"] {
                let (path, fault) = refused(&format!("a({kind})"), json!([bad]));
                assert_eq!(path, "/args/0");
                assert!(matches!(fault, F::NotDecimal(_) | F::Range(_)), "{kind} {bad:?}: {fault:?}");
            }
        }
        for bad in [json!(1), json!(1.5), json!(-1)] {
            assert_eq!(refused("a(uint8,int8)", json!(["1", bad])), ("/args/1".into(), F::Number("int8".into())));
        }
        assert_eq!(refused("a(uint8)", json!([null])).1, F::NotAString("uint8".into()));
    }

    #[test]
    fn a_fault_names_its_place() {
        use ArgumentFault as F;
        let address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
        for (signature, args, path, fault) in [
            ("a(uint8)", json!([]), "/args", F::Count { expected: 1, got: 0 }),
            ("a()", json!(["1"]), "/args", F::Count { expected: 0, got: 1 }),
            ("a((uint8,bool)[])", json!([[["1", true], ["2", "true"]]]), "/args/0/1/1", F::NotABool),
            ("a((uint8,bool)[])", json!([[["1", true], ["2"]]]), "/args/0/1", F::Count { expected: 2, got: 1 }),
            ("a(bool[2])", json!([[true, true, true]]), "/args/0", F::Count { expected: 2, got: 3 }),
            ("a(bool[])", json!([true]), "/args/0", F::NotAnArray("bool[]".into())),
            ("a((bool))", json!([{"x": true}]), "/args/0", F::NotAnArray("(bool)".into())),
            ("a(bytes4)", json!(["0x010203"]), "/args/0", F::Length { expected: 4, got: 3 }),
            ("a(bytes4)", json!(["0x0102030405"]), "/args/0", F::Length { expected: 4, got: 5 }),
            ("a(bytes)", json!(["0102"]), "/args/0", F::NotHex("bytes".into())),
            ("a(bytes)", json!(["0x012"]), "/args/0", F::NotHex("bytes".into())),
            ("a(string)", json!([7]), "/args/0", F::NotAString("string".into())),
            ("a(address)", json!([address.replace('A', "a").replacen('b', "B", 1)]), "/args/0", F::Address(encoding::Error::Checksum)),
        ] {
            assert_eq!(refused(signature, args), (path.into(), fault), "{signature}");
        }
        assert!(call("a(address)", json!([address])).is_ok());
        assert!(call("a(address)", json!([address.to_lowercase()])).is_ok());
    }

    #[test]
    fn call_data_has_a_limit() {
        let fits = "00".repeat(MAX_DATA_BYTES - 4 - 64 - 32);
        assert!(call("a(bytes)", json!([format!("0x{fits}")])).is_ok());
        assert_eq!(refused("a(bytes)", json!([format!("0x{}", "00".repeat(MAX_DATA_BYTES))])), ("/args/0".into(), ArgumentFault::TooLarge));
        let many: Vec<Value> = vec![json!([]); 10_000];
        assert_eq!(refused("a(bool[][])", json!([many])).1, ArgumentFault::TooLarge);
    }

    fn types() -> impl Strategy<Value = ParamType> {
        let leaf = prop_oneof![
            Just(ParamType::Address),
            Just(ParamType::Bool),
            Just(ParamType::String),
            Just(ParamType::Bytes),
            (1usize..=32).prop_map(|n| ParamType::Uint(n * 8)),
            (1usize..=32).prop_map(|n| ParamType::Int(n * 8)),
            (1usize..=32).prop_map(ParamType::FixedBytes),
        ];
        leaf.prop_recursive(4, 16, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|t| ParamType::Array(Box::new(t))),
                (inner.clone(), 1usize..4).prop_map(|(t, n)| ParamType::FixedArray(Box::new(t), n)),
                prop::collection::vec(inner, 1..4).prop_map(ParamType::Tuple),
            ]
        })
    }

    /// Some valid value of a type, chosen by `seed`.
    fn value_of(kind: &ParamType, seed: u64) -> Value {
        let small = usize::try_from(seed % 4).unwrap();
        let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match kind {
            ParamType::Address => json!(entity::values::Address([seed as u8; 20]).to_string()),
            ParamType::Bool => json!(seed.is_multiple_of(2)),
            ParamType::String => json!("é".repeat(small * 20)),
            ParamType::Bytes => json!(hex_from_bytes(&vec![seed as u8; small * 20])),
            ParamType::FixedBytes(n) => json!(hex_from_bytes(&vec![seed as u8; *n])),
            ParamType::Uint(_) => json!((seed % 256).to_string()),
            ParamType::Int(_) => json!((i64::from(seed as u8) - 128).to_string()),
            ParamType::Array(inner) => (0..small).map(|i| value_of(inner, next + i as u64)).collect(),
            ParamType::FixedArray(inner, n) => (0..*n).map(|i| value_of(inner, next + i as u64)).collect(),
            ParamType::Tuple(parts) => parts.iter().enumerate().map(|(i, t)| value_of(t, next + i as u64)).collect(),
        }
    }

    proptest! {
        #[test]
        fn signatures_are_read_back_and_the_room_is_counted_exactly(inputs in prop::collection::vec(types(), 0..4), seed in 0..u64::MAX / 2) {
            let function = Function { canonical: format!("a{}", shown(&inputs)), inputs };
            prop_assume!(function.canonical.len() <= MAX_SIGNATURE_BYTES);
            prop_assert_eq!(&Function::parse(&function.canonical).unwrap(), &function);

            let args: Vec<Value> = function.inputs.iter().map(|t| value_of(t, seed)).collect();
            let mut builder = Builder { path: "/args".into(), room: 1 << 30 };
            let tokens = builder.all(&function.inputs, &args).unwrap();
            let encoded = ethabi::encode(&tokens);
            prop_assert_eq!((1 << 30) - builder.room, encoded.len());
            prop_assert_eq!(builder.path, "/args");
            prop_assert_eq!(ethabi::decode(&function.inputs, &encoded).unwrap(), tokens);
        }

        #[test]
        fn no_signature_makes_the_reader_panic(text in "[a-z(),\\[\\]0-9 é]{0,40}") {
            let _ = Function::parse(&text);
            let _ = Function::parse(&format!("a({text}"));
        }
    }
}
