//! The contract that says which signers are members, where the operator has one: what is asked of it, as text in the settings. Never asks.

use entity::values::{Address, bytes_from_hex};

/// Where the signer's address stands in the call, as a word of 32 bytes.
const SIGNER: &str = "{signer}";

/// A call whose answer is a `bool`, such as OpenZeppelin's `hasRole(bytes32,address)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub contract: Address,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Membership {
    /// `ADDRESS/CALL`, the call as hex digits with `{signer}` once; None: it is not of that form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (contract, call) = text.split_once('/')?;
        let (before, after) = call.split_once(SIGNER)?;
        let bytes = |digits: &str| if digits.is_empty() { Some(Vec::new()) } else { bytes_from_hex(&format!("0x{digits}")) };
        let found = Self { contract: contract.parse().ok()?, before: bytes(before.strip_prefix("0x")?)?, after: bytes(after)? };
        // A function is named by four bytes, and its arguments are whole words.
        let whole = found.before.len() % 32 == 4 && found.after.len().is_multiple_of(32);
        whole.then_some(found)
    }

    /// The data of the call for a signer.
    #[must_use]
    pub fn data(&self, signer: Address) -> Vec<u8> {
        let mut data = self.before.clone();
        data.extend_from_slice(&[0; 12]);
        data.extend_from_slice(&signer.0);
        data.extend_from_slice(&self.after);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_signer_where_its_argument_is() {
        let (contract, role) = ("0x5fbdb2315678afecb367f032d93f642f64180aa3", "ab".repeat(32));
        let found = Membership::parse(&format!("{contract}/0x91d14854{role}{{signer}}")).unwrap();
        let data = found.data(Address([0x11; 20]));
        assert_eq!((found.contract.to_string(), data.len()), (contract.to_owned(), 68));
        assert_eq!((&data[..5], &data[36..49]), (&[0x91, 0xd1, 0x48, 0x54, 0xab][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11][..]));
        for bad in [
            "",
            "0x5fbdb2315678afecb367f032d93f642f64180aa3",
            "x/0x91d14854{signer}",
            "0x5fbdb2315678afecb367f032d93f642f64180aa3/0x91d14854",
            "0x5fbdb2315678afecb367f032d93f642f64180aa3/0x91d148{signer}",
            "0x5fbdb2315678afecb367f032d93f642f64180aa3/91d14854{signer}",
            "0x5fbdb2315678afecb367f032d93f642f64180aa3/0x91d14854{signer}ab",
        ] {
            assert_eq!(Membership::parse(bad), None, "{bad}");
        }
    }
}
