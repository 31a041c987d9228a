//! Owns the encryption of the journal: signed bytes go in, and come out only for the row they were sealed for.
//! Never stores and never sends. Called where attempt rows are written and where they are opened to be sent again.

use super::Error;
use crate::config;
use crate::domain::encoding::{keccak256, push_field};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use entity::ids::LineageId;
use entity::values::{Address, Hash};
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// Random, 96 bits. Under one key about 2^32 seals are safe; rotate long before.
const IV_BYTES: usize = 12;

/// The row that the bytes belong to. Every field is authenticated: a ciphertext that is moved to another row does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub lineage: LineageId,
    pub chain_id: u64,
    pub signer: Address,
    pub nonce: u64,
    pub hash: Hash,
}

impl Binding {
    /// Stored rows depend on this layout; another one needs another first field.
    fn associated_data(&self, key_id: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(160 + key_id.len());
        push_field(&mut bytes, b"holdfast.journal.1");
        push_field(&mut bytes, key_id.as_bytes());
        push_field(&mut bytes, self.lineage.0.as_bytes());
        push_field(&mut bytes, &self.chain_id.to_be_bytes());
        push_field(&mut bytes, &self.signer.0);
        push_field(&mut bytes, &self.nonce.to_be_bytes());
        push_field(&mut bytes, &self.hash.0);
        bytes
    }
}

/// The three columns of an attempt row.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    pub key_id: String,
    pub iv: [u8; IV_BYTES],
    pub ciphertext: Vec<u8>,
}

/// Shown without its bytes: a ciphertext belongs in no log.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// All journal keys: each opens, only the active one seals. No `Debug`; the ciphers erase their keys when dropped.
pub struct Vault {
    ciphers: BTreeMap<String, Aes256Gcm>,
    active: String,
}

impl Vault {
    pub fn new(journal: &config::Journal) -> Result<Self, Error> {
        if !journal.keys.contains_key(&journal.active) {
            return Err(Error::NoActiveKey);
        }
        let cipher = |key: &config::JournalKey| Aes256Gcm::new(key.expose().into());
        let ciphers = journal.keys.iter().map(|(id, key)| (id.clone(), cipher(key))).collect();
        Ok(Self { ciphers, active: journal.active.clone() })
    }

    #[must_use]
    pub fn active_key_id(&self) -> &str {
        &self.active
    }

    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.ciphers.keys().map(String::as_str)
    }

    pub fn seal(&self, binding: &Binding, raw: &[u8]) -> Result<Sealed, Error> {
        // A wrong hash here would be found only when the row is needed most.
        if keccak256(raw) != binding.hash {
            return Err(Error::WrongHash);
        }
        let cipher = self.cipher(&self.active)?;
        let mut iv = [0; IV_BYTES];
        getrandom::fill(&mut iv).map_err(|_| Error::NoRandomness)?;
        let payload = Payload { msg: raw, aad: &binding.associated_data(&self.active) };
        // Fails only beyond 64 GiB; such bytes are certainly not the ones of a transaction.
        let ciphertext = cipher.encrypt(&Nonce::from(iv), payload).map_err(|_| Error::WrongHash)?;
        Ok(Sealed { key_id: self.active.clone(), iv, ciphertext })
    }

    pub fn open(&self, binding: &Binding, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, Error> {
        let cipher = self.cipher(&sealed.key_id)?;
        let payload = Payload { msg: &sealed.ciphertext, aad: &binding.associated_data(&sealed.key_id) };
        let raw = cipher.decrypt(&Nonce::from(sealed.iv), payload).map(Zeroizing::new).map_err(|_| Error::Tampered)?;
        // The key's holder could still have sealed other bytes.
        if keccak256(&raw) != binding.hash {
            return Err(Error::Tampered);
        }
        Ok(raw)
    }

    fn cipher(&self, key_id: &str) -> Result<&Aes256Gcm, Error> {
        self.ciphers.get(key_id).ok_or_else(|| Error::UnknownKey(key_id.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Journal, JournalKey};
    use std::collections::HashSet;
    use uuid::Uuid;

    const RAW: &[u8] = b"\x02signed bytes";

    fn vault(keys: &[(&str, u8)], active: &str) -> Vault {
        let keys = keys.iter().map(|(id, byte)| ((*id).into(), JournalKey::new([*byte; 32]))).collect();
        Vault::new(&Journal { keys, active: active.into() }).unwrap()
    }

    fn binding() -> Binding {
        Binding { lineage: LineageId(Uuid::from_u128(1)), chain_id: 31_337, signer: Address([1; 20]), nonce: 7, hash: keccak256(RAW) }
    }

    #[test]
    fn what_was_sealed_opens_for_its_row() {
        let vault = vault(&[("k1", 1)], "k1");
        let sealed = vault.seal(&binding(), RAW).unwrap();
        assert_eq!(sealed.key_id, "k1");
        assert!(!sealed.ciphertext.windows(4).any(|part| part == &RAW[..4]));
        assert_eq!(*vault.open(&binding(), &sealed).unwrap(), RAW);
    }

    #[test]
    fn swapping_any_bound_field_fails() {
        // Both ids hold the same key, so that only the associated data tells them apart.
        let vault = vault(&[("k1", 1), ("k2", 1)], "k1");
        let sealed = vault.seal(&binding(), RAW).unwrap();
        for other in [
            Binding { lineage: LineageId(Uuid::from_u128(2)), ..binding() },
            Binding { chain_id: 1, ..binding() },
            Binding { signer: Address([2; 20]), ..binding() },
            Binding { nonce: 8, ..binding() },
            Binding { hash: keccak256(b"other"), ..binding() },
        ] {
            assert!(matches!(vault.open(&other, &sealed), Err(Error::Tampered)), "{other:?}");
        }
        let renamed = Sealed { key_id: "k2".into(), ..sealed.clone() };
        assert!(matches!(vault.open(&binding(), &renamed), Err(Error::Tampered)));
        assert!(vault.open(&binding(), &sealed).is_ok());
    }

    #[test]
    fn a_changed_bit_anywhere_fails() {
        let vault = vault(&[("k1", 1)], "k1");
        let sealed = vault.seal(&binding(), RAW).unwrap();
        for at in 0..sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            changed.ciphertext[at] ^= 1;
            assert!(matches!(vault.open(&binding(), &changed), Err(Error::Tampered)));
        }
        let mut changed = sealed.clone();
        changed.iv[0] ^= 1;
        assert!(matches!(vault.open(&binding(), &changed), Err(Error::Tampered)));
        for length in [0, 15, sealed.ciphertext.len() - 1] {
            let cut = Sealed { ciphertext: sealed.ciphertext[..length].to_vec(), ..sealed.clone() };
            assert!(matches!(vault.open(&binding(), &cut), Err(Error::Tampered)));
        }
    }

    #[test]
    fn old_keys_open_and_only_the_active_one_seals() {
        let before = vault(&[("k1", 1)], "k1");
        let old = before.seal(&binding(), RAW).unwrap();
        let rotated = vault(&[("k1", 1), ("k2", 2)], "k2");
        assert_eq!(*rotated.open(&binding(), &old).unwrap(), RAW);
        let new = rotated.seal(&binding(), RAW).unwrap();
        assert_eq!(new.key_id, "k2");
        assert!(matches!(before.open(&binding(), &new), Err(Error::UnknownKey(id)) if id == "k2"));
        let retired = vault(&[("k2", 2)], "k2");
        assert!(matches!(retired.open(&binding(), &old), Err(Error::UnknownKey(id)) if id == "k1"));
        assert_eq!(rotated.key_ids().collect::<Vec<_>>(), ["k1", "k2"]);
        assert_eq!(rotated.active_key_id(), "k2");
    }

    #[test]
    fn an_id_that_was_given_another_key_does_not_open() {
        let sealed = vault(&[("k1", 1)], "k1").seal(&binding(), RAW).unwrap();
        assert!(matches!(vault(&[("k1", 2)], "k1").open(&binding(), &sealed), Err(Error::Tampered)));
    }

    #[test]
    fn the_active_key_must_be_configured() {
        let keys = [("k1".to_owned(), JournalKey::new([1; 32]))].into();
        assert!(matches!(Vault::new(&Journal { keys, active: "k2".into() }), Err(Error::NoActiveKey)));
    }

    #[test]
    fn bytes_are_checked_against_their_hash_on_the_way_in_and_out() {
        let vault = vault(&[("k1", 1)], "k1");
        assert!(matches!(vault.seal(&binding(), b"other bytes"), Err(Error::WrongHash)));
        // Sealed by someone who has the key, but bound to a hash that is not theirs.
        let forged = Payload { msg: b"other bytes", aad: &binding().associated_data("k1") };
        let ciphertext = vault.ciphers["k1"].encrypt(&Nonce::from([0; IV_BYTES]), forged).unwrap();
        let sealed = Sealed { key_id: "k1".into(), iv: [0; IV_BYTES], ciphertext };
        assert!(matches!(vault.open(&binding(), &sealed), Err(Error::Tampered)));
    }

    #[test]
    fn no_iv_comes_twice() {
        let vault = vault(&[("k1", 1)], "k1");
        let ivs: HashSet<_> = (0..10_000).map(|_| vault.seal(&binding(), RAW).unwrap().iv).collect();
        assert_eq!(ivs.len(), 10_000);
    }

    #[test]
    fn the_debug_form_has_no_bytes() {
        let sealed = vault(&[("k1", 1)], "k1").seal(&binding(), RAW).unwrap();
        assert_eq!(format!("{sealed:?}"), "Sealed { key_id: \"k1\", .. }");
    }
}
