//! Owns the third node of the tests: an execution client with nobody to tell it which block is next, and the part of a consensus client that does so
//! through its Engine API. Blocks are built on demand on any parent, so a reorganisation here is one of true siblings.

use super::http_wire::Client;
use super::process::{Process, free_port, remove_at_the_end};
use super::wait::eventually;
use entity::values::Address;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;

const ZERO: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";

/// Decides the fork.
pub struct Engine {
    client: Client,
    /// The canonical blocks, genesis first: hash and time.
    chain: Mutex<Vec<(String, u64)>>,
    built: std::sync::atomic::AtomicU64,
}

/// A genesis in which the signers have money and the Recorder stands.
fn genesis(chain_id: u64, funded: &[Address], code: (Address, &str)) -> Value {
    let mut alloc: BTreeMap<String, Value> =
        funded.iter().map(|who| (who.to_string().to_lowercase(), json!({"balance": "0x21e19e0c9bab2400000"}))).collect();
    alloc.insert(code.0.to_string().to_lowercase(), json!({"balance": "0x0", "code": code.1}));
    let forks = [
        "homestead",
        "eip150",
        "eip155",
        "eip158",
        "byzantium",
        "constantinople",
        "petersburg",
        "istanbul",
        "berlin",
        "london",
        "mergeFork",
    ];
    let mut config = json!({"chainId": chain_id, "terminalTotalDifficulty": 0, "terminalTotalDifficultyPassed": true, "shanghaiTime": 0});
    for fork in forks {
        config[format!("{fork}Block")] = 0.into();
    }
    json!({
        "config": config, "alloc": alloc, "nonce": "0x0", "timestamp": "0x0", "extraData": "0x", "gasLimit": "0x3938700", "difficulty": "0x0",
        "mixHash": ZERO, "coinbase": format!("0x{}", "00".repeat(20)), "number": "0x0", "gasUsed": "0x0", "parentHash": ZERO, "baseFeePerGas": "0x3b9aca00"
    })
}

/// Starts the client on a chain of its own; its process, its URL and who decides its fork.
pub async fn start(tools: &Path, chain_id: u64, funded: &[Address], code: (Address, &str)) -> (Process, String, Engine) {
    let (port, engine, peers) = (free_port(), free_port(), free_port());
    let scratch = std::env::temp_dir().join(format!("ethereumjs-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a folder");
    remove_at_the_end(&scratch);
    std::fs::write(scratch.join("genesis.json"), genesis(chain_id, funded, code).to_string()).expect("a genesis");
    let run = format!(
        "cd '{}' && exec '{}/ethereumjs/node_modules/.bin/ethereumjs' --gethGenesis genesis.json --dataDir data --rpc --rpcPort {port} --rpcAddr 127.0.0.1 \
         --rpcEngine --rpcEnginePort {engine} --rpcEngineAddr 127.0.0.1 --rpcEngineAuth=false --extIP=127.0.0.1 --port {peers} --maxPeers=0 --discV4=false \
         --discDns=false --isSingleNode --sync none --saveReceipts --logFile false --logLevel warn",
        scratch.display(),
        tools.display()
    );
    let home = BTreeMap::from([("HOME".to_owned(), scratch.display().to_string())]);
    let process = Process::spawn("ethereumjs", "/bin/sh", ["-c", &run], &home);
    for port in [port, engine] {
        eventually("the client takes connections", Duration::from_secs(60), async || {
            assert!(process.is_alive(), "the client ended: is it there? make test fetches it\n{}", process.tail());
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
    }
    let url = format!("http://127.0.0.1:{port}");
    let first = ask(&Client::new(&url), "eth_getBlockByNumber", json!(["0x0", false])).await;
    let hash = first["hash"].as_str().expect("a genesis").to_owned();
    let engine = Engine {
        client: Client::new(&format!("http://127.0.0.1:{engine}")),
        chain: Mutex::new(vec![(hash, 0)]),
        built: std::sync::atomic::AtomicU64::new(0),
    };
    (process, url, engine)
}

async fn ask(client: &Client, method: &str, params: Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let answer = client.post(call.as_bytes()).await.unwrap_or_else(|error| panic!("{method}: {error}"));
    let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
    answer["result"].take()
}

impl Engine {
    async fn choose(&self, chain: &[(String, u64)], attributes: Value) -> Value {
        let safe = &chain[chain.len().saturating_sub(3)].0;
        let head = &chain.last().expect("a genesis").0;
        let state = json!({"headBlockHash": head, "safeBlockHash": safe, "finalizedBlockHash": chain[0].0});
        let answer = ask(&self.client, "engine_forkchoiceUpdatedV2", json!([state, attributes])).await;
        assert_eq!(answer["payloadStatus"]["status"], "VALID", "{answer}");
        answer
    }

    async fn extend(&self, chain: &mut Vec<(String, u64)>) {
        let built = self.built.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let time = chain.last().map_or(0, |(_, time)| *time) + 12;
        // Another number for each block, so that none is its sibling's twin.
        let attributes = json!({
            "timestamp": format!("{time:#x}"), "prevRandao": format!("0x{built:064x}"), "suggestedFeeRecipient": format!("0x{}", "00".repeat(20)), "withdrawals": []
        });
        let answer = self.choose(chain, attributes).await;
        let payload = ask(&self.client, "engine_getPayloadV2", json!([answer["payloadId"]])).await["executionPayload"].take();
        let verdict = ask(&self.client, "engine_newPayloadV2", json!([payload])).await;
        assert_eq!(verdict["status"], "VALID", "{verdict}");
        chain.push((payload["blockHash"].as_str().expect("a hash").to_owned(), time));
        self.choose(chain, Value::Null).await;
    }

    /// So many blocks with whatever the pool has.
    pub async fn mine(&self, blocks: u64) {
        let mut chain = self.chain.lock().await;
        for _ in 0..blocks {
            self.extend(&mut chain).await;
        }
    }

    /// Leaves the newest `depth` blocks for a fork that is one block longer. What was mined in them is in no pool.
    pub async fn reorg(&self, depth: usize) {
        let mut chain = self.chain.lock().await;
        let keep = chain.len() - depth;
        chain.truncate(keep);
        for _ in 0..=depth {
            self.extend(&mut chain).await;
        }
    }
}
