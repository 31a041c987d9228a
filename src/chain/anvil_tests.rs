//! The pool against a real node. Passes over where there is none (`make tools` brings it).

use super::*;
use crate::config;
use crate::domain::quorum::Decision;
use crate::domain::rpc_verdict::{Class, Verdict};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::{Child, Command};
use web3::signing::{Key, SecretKey, SecretKeyRef};
use web3::types::{Bytes, TransactionParameters, U256};

/// The first account that anvil funds.
const KEY: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

struct Anvil {
    url: String,
    _child: Child,
}

fn program() -> Option<PathBuf> {
    let exe = std::fs::read_link("/proc/self/exe").ok()?;
    let starts = [exe.as_path(), Path::new(env!("CARGO_MANIFEST_DIR"))];
    starts.iter().flat_map(|start| start.ancestors()).map(|folder| folder.join(".tools/bin/anvil")).find(|path| path.is_file())
}

/// A node that mines when told to.
async fn anvil() -> Option<(Anvil, Pool)> {
    let program = program()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port_text = port.to_string();
    let arguments = ["--quiet", "--no-mining", "--port", &port_text, "--gas-limit", "1000000000"];
    let child = Command::new(program).args(arguments).kill_on_drop(true).spawn().unwrap();
    let node = Anvil { url: format!("http://127.0.0.1:{port}"), _child: child };
    let pool = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Ok(pool) = Pool::connect(&config::Chain::at(31337, &*node.url)).await {
                break pool;
            }
        }
    });
    let pool = pool.await.expect("anvil does not start");
    Some((node, pool))
}

fn key() -> SecretKey {
    SecretKey::from_slice(&hex::decode(KEY).unwrap()).unwrap()
}

fn sender() -> Address {
    Address(SecretKeyRef::new(&key()).address().0)
}

async fn signed(pool: &Pool, nonce: u64, gwei: u64) -> RawTx {
    let fee = U256::from(gwei * 1_000_000_000);
    let transaction = TransactionParameters {
        nonce: Some(nonce.into()),
        to: Some(web3::types::Address::repeat_byte(0x11)),
        gas: 21_000.into(),
        value: 1.into(),
        data: Bytes::default(),
        chain_id: Some(31337),
        transaction_type: Some(2.into()),
        max_fee_per_gas: Some(fee),
        max_priority_fee_per_gas: Some(fee),
        ..TransactionParameters::default()
    };
    let signed = web3::Web3::new(pool.web3()).accounts().sign_transaction(transaction, &key()).await.unwrap();
    RawTx { bytes: signed.raw_transaction.0, hash: Hash(signed.transaction_hash.0) }
}

async fn mine(pool: &Pool) {
    use web3::Transport;
    pool.web3().execute("evm_mine", vec![]).await.unwrap();
}

#[tokio::test]
async fn a_transaction_goes_from_its_simulation_to_its_receipt() {
    let Some((_node, pool)) = anvil().await else { return };
    let transfer = Call { from: sender(), to: Some(Address([0x11; 20])), value: Wei::from(1), data: vec![], gas: None };
    let reverting = Call { to: None, value: Wei::ZERO, data: vec![0x60, 0, 0x60, 0, 0xfd], ..transfer.clone() };
    let tried = Call { gas: Some(30_000), ..transfer.clone() };
    let outcomes = pool.simulate(vec![transfer, reverting, tried]).await;
    assert_eq!(outcomes[0], Ok(Simulated { gas_estimate: 21_000 }));
    assert!(matches!(outcomes[1], Err(SimulationError::Reverted { .. })), "{:?}", outcomes[1]);
    assert_eq!(outcomes[2], Ok(Simulated { gas_estimate: 30_000 }));

    let fees = pool.fees().await.unwrap();
    assert!(fees.base_fee > Wei::ZERO && fees.priority_fee > Wei::ZERO);
    assert!(pool.balances(vec![sender()]).await.remove(0).unwrap() > Wei::ZERO);

    let transactions = vec![signed(&pool, 0, 3).await, signed(&pool, 1, 3).await, signed(&pool, 2, 3).await];
    let hashes: Vec<Hash> = transactions.iter().map(|raw| raw.hash).collect();
    assert!(pool.send_raw(transactions.clone()).await.iter().all(|outcome| outcome.class == Class::Ok));
    assert!(pool.send_raw(transactions.clone()).await.iter().all(|outcome| outcome.class == Class::AlreadyKnown));
    let cheaper = signed(&pool, 0, 2).await;
    assert_eq!(pool.send_raw(vec![cheaper]).await[0].verdict, Verdict::Reprice);
    assert_eq!(pool.pending_nonce(sender()).await.unwrap(), 3);
    let absent = pool.receipts(hashes.clone(), 0).await;
    assert!(absent.iter().all(|told| told.decision == Decision::Agreed(None, 1)), "{absent:?}");
    assert!(absent.iter().all(|told| told.votes.agreeing == 1 && told.answers[0].1 == "absent"), "a proof of absence: {absent:?}");
    assert_eq!(pool.consumed_nonces(vec![sender()], BlockTag::Latest).await, [Decision::Agreed(0, 1)]);

    mine(&pool).await;
    let head = pool.head().await.unwrap();
    for (hash, decision) in hashes.iter().zip(pool.receipts(hashes.clone(), head.number).await) {
        let Decision::Agreed(Some(receipt), 1) = decision.decision else { panic!("no receipt of {hash}") };
        assert_eq!((receipt.hash, receipt.block_number, receipt.block_hash), (*hash, head.number, head.hash));
        assert!(receipt.succeeded && receipt.gas_used == 21_000 && receipt.effective_gas_price.is_some());
    }
    assert_eq!(pool.consumed_nonces(vec![sender()], BlockTag::Number(head.number)).await, [Decision::Agreed(3, 1)]);
    assert_eq!(pool.consumed_nonces(vec![sender()], BlockTag::Number(head.number + 1)).await, [Decision::Insufficient]);
    // Who is not past a block cannot know that there is none.
    assert_eq!(pool.block_hashes(vec![head.number, head.number + 1]).await, [Decision::Agreed(Some(head.hash), 1), Decision::Insufficient]);
    assert_eq!(pool.heads().await.reached, Some(head.number));
    let again = pool.send_raw(transactions).await;
    assert!(again.iter().all(|outcome| outcome.verdict == Verdict::NonceTooLow), "{again:?}");
    assert_eq!(pool.endpoints()[0].errors, 0);
}
