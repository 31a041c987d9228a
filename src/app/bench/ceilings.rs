//! The raw node: the same calls, signed beforehand by an account of their own, in JSON-RPC batches, until all are mined.

use super::PATIENCE;
use crate::app::Error;
use crate::app::dev::World;
use crate::chain::dev_node::DevNode;
use crate::chain::{Chain, Pool, RawTx};
use crate::domain::abi;
use crate::domain::encoding::keccak256;
use crate::domain::transaction::Eip1559;
use crate::signer::{LocalSigner, Signer, sign_many};
use entity::values::Wei;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Transactions handed over in one call; the pool splits them into JSON-RPC batches.
const CHUNK: usize = 500;
const GWEI: u64 = 1_000_000_000;

/// How long the node takes for `count` calls of the Recorder, from the first byte to the last receipt.
pub async fn raw_node(world: &World, count: u32) -> Result<Duration, Error> {
    let node = DevNode::new(world.rpc_url.clone())?;
    let key = keccak256(world.dir.display().to_string().as_bytes());
    let signer: Arc<dyn Signer> = Arc::new(LocalSigner::new(&key.0).ok_or_else(|| Error::GaveUp("no key for the bench".into()))?);
    node.pay(&[signer.address()], "1000000000000000000000".parse().unwrap_or_default()).await?;
    let transactions = (0..count).map(|n| {
        let id = keccak256(format!("raw/{n}").as_bytes());
        let data = abi::calldata("record(bytes32)", &[serde_json::json!(id)]).map_err(|error| Error::GaveUp(error.to_string()))?;
        Ok(Eip1559 {
            chain_id: world.chain_id,
            nonce: u64::from(n),
            max_priority_fee_per_gas: Wei::from(GWEI),
            max_fee_per_gas: Wei::from(100 * GWEI),
            gas_limit: 100_000,
            to: world.recorder,
            value: Wei::ZERO,
            data,
        })
    });
    let transactions = transactions.collect::<Result<Vec<_>, Error>>()?;
    let signatures = sign_many(transactions.iter().map(|one| (signer.clone(), one.clone().into())).collect()).await;
    let mut raws = Vec::with_capacity(transactions.len());
    for (transaction, signature) in transactions.iter().zip(signatures) {
        let signed = transaction.signed(&signature?);
        raws.push(RawTx { bytes: signed.raw, hash: signed.hash });
    }
    let settings = crate::config::Chain::at(world.chain_id, secrecy::ExposeSecret::expose_secret(&world.rpc_url));
    let pool = Pool::connect(&settings).await.map_err(|error| Error::GaveUp(error.to_string()))?;
    let began = Instant::now();
    for chunk in raws.chunks(CHUNK) {
        pool.send_raw(chunk.to_vec()).await;
    }
    while node.nonce(signer.address()).await? < u64::from(count) {
        if began.elapsed() > PATIENCE {
            return Err(Error::GaveUp("the raw node did not mine all it was sent".into()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(began.elapsed())
}
