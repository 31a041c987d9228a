//! Owns signing: the trait behind which a key lives, the keys by pool, and the vault that seals signed bytes for the journal.
//! Never sends and never stores. Called by the actors that sign and by whoever opens a journal row to send it again.

mod local;
mod remote;
mod vault;

pub use local::LocalSigner;
pub use remote::RemoteSigner;
pub use vault::{Binding, Sealed, Vault};

use crate::config;
use crate::domain::transaction::{self, Signature, Unsigned};
use entity::values::{Address, Hash};
use futures::future::{BoxFuture, join_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Fewer signatures than this are not worth another thread.
const LEAST_CHUNK: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Configuration: names the place of the key, never the key.
    #[error("signer key {index} of pool {pool} is zero or not below the order of the curve")]
    InvalidKey { pool: String, index: usize },
    /// Configuration: two lanes would hand out the nonces of one account.
    #[error("signer key {index} of pool {pool} is the same as key {other_index} of pool {other_pool}")]
    DuplicateKey { pool: String, index: usize, other_pool: String, other_index: usize },
    /// The signature is not one of this signer's. Nothing may be sent; the hardware or the remote key is broken.
    #[error("the signature of {signer} does not recover to that address")]
    SelfCheck { signer: Address },
    /// Configuration: a remote signer that cannot be asked.
    #[error("the remote signer of pool {pool} cannot be used: its URL is none")]
    BadPlace { pool: String },
    /// Nothing was signed that is known of; the next execution asks again.
    #[error("the remote signer of {signer} gave no signature: {why}")]
    Silent { signer: Address, why: &'static str },
    #[error("the remote signer of {signer} refused ({code}): {told}")]
    RemoteRefused { signer: Address, code: i64, told: String },
    /// Nothing may be sent: the remote signer signs what it was not asked for.
    #[error("the remote signer of {signer} signed something else: {field} differs")]
    Foreign { signer: Address, field: &'static str },
    #[error("the signature is unusable: {0}")]
    Unusable(#[from] transaction::Error),
    #[error("the key refused the digest")]
    Refused,
    /// The thread that signed is gone. The same digest may be signed again: it gives the same signature.
    #[error("signing was interrupted")]
    Interrupted,
    #[error("the active journal key is not among the journal keys")]
    NoActiveKey,
    /// The row waits until an operator brings the key back.
    #[error("journal key {0} is not configured")]
    UnknownKey(String),
    /// Stop and look: the row is not what was sealed.
    #[error("a journal row fails its authentication")]
    Tampered,
    #[error("the bytes to be sealed do not have the hash that they are bound to")]
    WrongHash,
    #[error("the operating system gives no random bytes")]
    NoRandomness,
}

/// An account that can sign. Remote keys fit: signing may wait and may fail.
pub trait Signer: Send + Sync {
    fn address(&self) -> Address;

    /// Signs a transaction. Whoever implements this answers only with a signature of exactly that, which recovers to `address`.
    fn sign<'a>(&'a self, transaction: &'a Unsigned) -> BoxFuture<'a, Result<Signature, Error>>;
}

/// Whose signature this is.
fn recovered(digest: Hash, signature: &Signature) -> Option<Address> {
    let mut compact = [0; 64];
    compact[..32].copy_from_slice(signature.r());
    compact[32..].copy_from_slice(signature.s());
    web3::signing::recover(&digest.0, &compact, i32::from(signature.y_parity())).ok().map(|address| Address(address.0))
}

/// Signs everything that waits, on CPU threads, and answers in the same order. Signers may differ; one failure spoils no other.
pub async fn sign_many(work: Vec<(Arc<dyn Signer>, Unsigned)>) -> Vec<Result<Signature, Error>> {
    let threads = available_parallelism().map_or(1, usize::from);
    let size = work.len().div_ceil(threads).max(LEAST_CHUNK);
    let mut chunks = Vec::with_capacity(threads);
    let mut rest = work;
    while !rest.is_empty() {
        let tail = rest.split_off(size.min(rest.len()));
        let chunk = std::mem::replace(&mut rest, tail);
        let count = chunk.len();
        let runtime = tokio::runtime::Handle::current();
        // A local key signs while it is polled, so the polling itself must happen off the event loop; remote keys wait side by side.
        let task = tokio::task::spawn_blocking(move || {
            runtime.block_on(join_all(chunk.iter().map(|(signer, transaction)| signer.sign(transaction))))
        });
        chunks.push((count, task));
    }
    let mut signatures = Vec::new();
    for (count, task) in chunks {
        match task.await {
            Ok(chunk) => signatures.extend(chunk),
            Err(_) => signatures.extend((0..count).map(|_| Err(Error::Interrupted))),
        }
    }
    signatures
}

/// The signers of this process, by pool and by address.
#[derive(Clone, Default)]
pub struct Keyring {
    pools: BTreeMap<String, Vec<Arc<dyn Signer>>>,
    by_address: BTreeMap<Address, Arc<dyn Signer>>,
}

impl Keyring {
    pub fn new(keys: &config::SignerKeys) -> Result<Self, Error> {
        let mut ring = Self::default();
        let mut places: BTreeMap<Address, (String, usize)> = BTreeMap::new();
        for pool in &keys.pools {
            for (index, key) in pool.keys.iter().enumerate() {
                let signer = LocalSigner::new(key.expose()).ok_or_else(|| Error::InvalidKey { pool: pool.pool.clone(), index })?;
                let address = signer.address();
                if let Some((other_pool, other_index)) = places.insert(address, (pool.pool.clone(), index)) {
                    return Err(Error::DuplicateKey { pool: pool.pool.clone(), index, other_pool, other_index });
                }
                ring.insert(&pool.pool, Arc::new(signer));
            }
        }
        for pool in &keys.remote.pools {
            for (index, signer) in RemoteSigner::of_pool(pool, keys.remote.timeout)?.into_iter().enumerate() {
                if let Some((other_pool, other_index)) = places.insert(signer.address(), (pool.pool.clone(), index)) {
                    return Err(Error::DuplicateKey { pool: pool.pool.clone(), index, other_pool, other_index });
                }
                ring.insert(&pool.pool, Arc::new(signer));
            }
        }
        Ok(ring)
    }

    /// Adds a signer of any kind; one that is already there is left where it is.
    pub fn insert(&mut self, pool: &str, signer: Arc<dyn Signer>) {
        if self.by_address.insert(signer.address(), signer.clone()).is_none() {
            self.pools.entry(pool.into()).or_default().push(signer);
        }
    }

    pub fn pools(&self) -> impl Iterator<Item = (&str, &[Arc<dyn Signer>])> {
        self.pools.iter().map(|(name, signers)| (name.as_str(), signers.as_slice()))
    }

    /// In the order of the configuration.
    #[must_use]
    pub fn pool(&self, name: &str) -> &[Arc<dyn Signer>] {
        self.pools.get(name).map_or(&[], Vec::as_slice)
    }

    #[must_use]
    pub fn signer(&self, address: &Address) -> Option<&Arc<dyn Signer>> {
        self.by_address.get(address)
    }

    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.by_address.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PoolKeys, SecretKey32, SignerKeys};
    use futures::FutureExt;

    fn key(last: u8) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[31] = last;
        bytes
    }

    fn keys(pools: &[(&str, &[[u8; 32]])]) -> SignerKeys {
        let pool = |(name, keys): &(&str, &[[u8; 32]])| PoolKeys {
            pool: (*name).into(),
            keys: keys.iter().map(|k| SecretKey32::new(*k)).collect(),
        };
        SignerKeys { pools: pools.iter().map(pool).collect(), ..SignerKeys::default() }
    }

    #[test]
    fn signers_are_found_by_pool_and_by_address() {
        let ring = Keyring::new(&keys(&[("local:relayer", &[key(1), key(2)]), ("local:admin", &[key(3)])])).unwrap();
        assert_eq!(
            ring.pools().map(|(name, signers)| (name, signers.len())).collect::<Vec<_>>(),
            [("local:admin", 1), ("local:relayer", 2)]
        );
        let first: Address = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf".parse().unwrap();
        assert_eq!(ring.pool("local:relayer")[0].address(), first);
        assert_eq!(ring.signer(&first).unwrap().address(), first);
        assert_eq!(ring.addresses().count(), 3);
        assert!(ring.pool("local:other").is_empty());
        assert!(ring.signer(&Address([9; 20])).is_none());
    }

    #[test]
    fn an_invalid_key_is_named_by_its_place_only() {
        for bad in [[0; 32], [0xff; 32]] {
            let error = Keyring::new(&keys(&[("local:a", &[key(1)]), ("local:b", &[key(2), bad])])).err().unwrap();
            assert!(matches!(&error, Error::InvalidKey { pool, index: 1 } if pool == "local:b"));
            let text = format!("{error} {error:?}");
            assert!(!text.contains("ffffff") && !text.contains("000000") && !text.contains("255"), "{text}");
        }
    }

    #[test]
    fn one_account_in_two_places_is_refused() {
        let error = Keyring::new(&keys(&[("local:a", &[key(1)]), ("local:b", &[key(2), key(1)])])).err().unwrap();
        assert!(matches!(error, Error::DuplicateKey { index: 1, other_index: 0, .. }));
    }

    fn order(nonce: u64) -> Unsigned {
        let (tip, cap) = (entity::values::Wei::from(1), entity::values::Wei::from(2));
        let to = Address([3; 20]);
        transaction::Eip1559 {
            chain_id: 1,
            nonce,
            max_priority_fee_per_gas: tip,
            max_fee_per_gas: cap,
            gas_limit: 21_000,
            to,
            value: tip,
            data: Vec::new(),
        }
        .into()
    }

    /// A key far away: it waits, and fails for one digest.
    struct Remote;

    impl Signer for Remote {
        fn address(&self) -> Address {
            Address([7; 20])
        }

        fn sign<'a>(&'a self, transaction: &'a Unsigned) -> BoxFuture<'a, Result<Signature, Error>> {
            async move {
                tokio::task::yield_now().await;
                if transaction.nonce() == 12 { Err(Error::Refused) } else { Ok(Signature::new(false, transaction.sighash().0, [1; 32])?) }
            }
            .boxed()
        }
    }

    /// Both kinds of runtime: actors live in single-threaded ones.
    #[test]
    fn many_signatures_come_back_in_order_and_one_failure_spoils_no_other() {
        for mut runtime in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                for count in [0u8, 1, 7, 8, 9, 100] {
                    let locals: Vec<Arc<dyn Signer>> =
                        (1..=5).map(|n| Arc::new(LocalSigner::new(&key(n)).unwrap()) as Arc<dyn Signer>).collect();
                    let remote: Arc<dyn Signer> = Arc::new(Remote);
                    let digest = |n: u8| order(n.into());
                    let signer = |n: u8| if n.is_multiple_of(3) { remote.clone() } else { locals[usize::from(n % 5)].clone() };
                    let answers = sign_many((0..count).map(|n| (signer(n), digest(n))).collect()).await;
                    assert_eq!(answers.len(), usize::from(count));
                    for (n, answer) in (0..count).zip(answers) {
                        match (answer, signer(n).sign(&digest(n)).await) {
                            (Ok(many), Ok(one)) => assert_eq!(many.s(), one.s()),
                            (Err(Error::Refused), Err(Error::Refused)) => assert_eq!(n, 12),
                            other => panic!("{n}: {other:?}"),
                        }
                    }
                }
            });
        }
    }

    struct Broken;

    impl Signer for Broken {
        fn address(&self) -> Address {
            Address([8; 20])
        }

        fn sign<'a>(&'a self, _: &'a Unsigned) -> BoxFuture<'a, Result<Signature, Error>> {
            panic!("a bug in a signer")
        }
    }

    #[tokio::test]
    async fn a_panic_while_signing_is_an_error_of_that_chunk() {
        let answers = sign_many(vec![(Arc::new(Broken), order(1))]).await;
        assert!(matches!(answers.as_slice(), [Err(Error::Interrupted)]));
    }
}
