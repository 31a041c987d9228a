//! Owns a private key in this process's memory and signs with it. Never shows it. Called through the trait `Signer`.

use super::{Error, Signer, recovered};
use crate::domain::transaction::{Signature, Unsigned};
use entity::values::{Address, Hash};
use futures::future::{BoxFuture, ready};
use web3::signing::{Key, SecretKey, SecretKeyRef};

/// The key stays in one place on the heap, so that erasing it at the end erases the only lasting copy. No `Clone`, no `Debug`.
pub struct LocalSigner {
    key: Box<SecretKey>,
    address: Address,
}

impl LocalSigner {
    /// None if the number is zero or not below the order of the curve.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Option<Self> {
        let mut on_stack = SecretKey::from_slice(bytes).ok()?;
        let key = Box::new(on_stack);
        on_stack.non_secure_erase();
        let address = Address(SecretKeyRef::new(&key).address().0);
        Some(Self { key, address })
    }

    /// Deterministic (RFC 6979): signing again after a crash gives the same bytes.
    fn sign_now(&self, digest: Hash) -> Result<Signature, Error> {
        let made = SecretKeyRef::new(&self.key).sign_message(&digest.0).map_err(|_| Error::Refused)?;
        let signature = Signature::new(made.v == 1, made.r.0, made.s.0)?;
        // A faulty bit would burn the nonce on bytes that no node takes, or send from a stranger's account.
        self.verify(digest, &signature)?;
        Ok(signature)
    }

    fn verify(&self, digest: Hash, signature: &Signature) -> Result<(), Error> {
        if recovered(digest, signature) == Some(self.address) { Ok(()) } else { Err(Error::SelfCheck { signer: self.address }) }
    }
}

impl Signer for LocalSigner {
    fn address(&self) -> Address {
        self.address
    }

    fn sign<'a>(&'a self, transaction: &'a Unsigned) -> BoxFuture<'a, Result<Signature, Error>> {
        // Lazy, so that the work is done by the thread that polls.
        Box::pin(async move { ready(self.sign_now(transaction.sighash())).await })
    }
}

impl Drop for LocalSigner {
    fn drop(&mut self) {
        self.key.non_secure_erase();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entity::values::{Wei, bytes_from_hex, hex_from_bytes};
    use futures::executor::block_on;

    fn signer(hex: &str) -> LocalSigner {
        LocalSigner::new(&bytes_from_hex(hex).unwrap().try_into().unwrap()).unwrap()
    }

    /// The raw bytes were made with ethers 6.
    #[test]
    fn signed_bytes_equal_those_of_an_independent_signer() {
        let signer = signer("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80");
        assert_eq!(signer.address().to_string(), "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
        let mut data = bytes_from_hex("0xb5c645bd").unwrap();
        data.extend_from_slice(&[0xab; 32]);
        let transaction: Unsigned = crate::domain::transaction::Eip1559 {
            chain_id: 31_337,
            nonce: 127,
            max_priority_fee_per_gas: Wei::from(1_000_000_000),
            max_fee_per_gas: Wei::from(2_000_000_000),
            gas_limit: 90_000,
            to: "0x5fbdb2315678afecb367f032d93f642f64180aa3".parse().unwrap(),
            value: Wei::ZERO,
            data,
        }
        .into();
        let signed = transaction.signed(&block_on(signer.sign(&transaction)).unwrap());
        assert_eq!(
            hex_from_bytes(&signed.raw),
            "0x02f891827a697f843b9aca00847735940083015f90945fbdb2315678afecb367f032d93f642f64180aa380a4b5c645bdababababababababababababababababababababababababababababababababc001a0ead373237df567f16c51c73454eeed543be517a84bda8eb25a19672b63161bcfa00445e4724185fd566228fbf9c4f2628ed7f8a7f0d0c16cd1a33bc24bcd8771b2"
        );
        assert_eq!(signed, transaction.signed(&block_on(signer.sign(&transaction)).unwrap()));
    }

    #[test]
    fn a_signature_over_something_else_fails_the_self_check() {
        let (one, other) = (signer(&format!("0x{}", "46".repeat(32))), signer(&format!("0x{}", "47".repeat(32))));
        let signature = one.sign_now(Hash([1; 32])).unwrap();
        assert!(one.verify(Hash([1; 32]), &signature).is_ok());
        assert!(matches!(one.verify(Hash([2; 32]), &signature), Err(Error::SelfCheck { .. })));
        assert!(matches!(other.verify(Hash([1; 32]), &signature), Err(Error::SelfCheck { .. })));
        let flipped = Signature::new(!signature.y_parity(), *signature.r(), *signature.s()).unwrap();
        assert!(one.verify(Hash([1; 32]), &flipped).is_err());
    }

    #[test]
    fn numbers_outside_the_curve_are_no_keys() {
        let order = bytes_from_hex("0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141").unwrap();
        let mut below: [u8; 32] = order.clone().try_into().unwrap();
        below[31] -= 1;
        assert!(LocalSigner::new(&below).is_some());
        assert!(LocalSigner::new(&order.try_into().unwrap()).is_none());
        assert!(LocalSigner::new(&[0; 32]).is_none());
        assert!(LocalSigner::new(&[0xff; 32]).is_none());
    }

    /// Prints what the self-check costs; run by hand: `cargo test --release … -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn measure_the_self_check() {
        let signer = signer(&format!("0x{}", "46".repeat(32)));
        let rounds = 5_000u32;
        let digest = |n: u32| crate::domain::encoding::keccak256(&n.to_be_bytes());
        let start = std::time::Instant::now();
        let signatures: Vec<_> = (0..rounds).map(|n| signer.sign_now(digest(n)).unwrap()).collect();
        let both = start.elapsed() / rounds;
        let start = std::time::Instant::now();
        for (n, signature) in (0..rounds).zip(&signatures) {
            signer.verify(digest(n), signature).unwrap();
        }
        eprintln!("sign and check {both:?}, of which check {:?}", start.elapsed() / rounds);
    }
}
