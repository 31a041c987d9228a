use super::*;
use entity::values::hex_from_bytes;
use std::io::ErrorKind;
use std::time::Instant;
use web3::signing::{Key, SecretKey, SecretKeyRef};

/// The smallest node that the verbs can be tried on.
#[derive(Default)]
struct Node {
    head: u64,
    fork: u64,
    next: u64,
    sent: Vec<Hash>,
    mined: Vec<Hash>,
}

impl Node {
    fn answer(&mut self, call: &Value) -> Value {
        let params = &call["params"];
        let block = |number: u64, fork: u64, hashes: &[Hash]| json!({ "number": hex(number), "hash": format!("{fork}:{number}"), "transactions": hashes.iter().map(|h| json!({ "hash": h })).collect::<Vec<_>>() });
        json!({ "jsonrpc": "2.0", "id": call["id"], "result": match call["method"].as_str().unwrap() {
            "eth_blockNumber" => hex(self.head),
            "eth_getTransactionCount" if params[1] == "pending" => hex(self.next + self.sent.len() as u64),
            "eth_getTransactionCount" if params[1] == "latest" => hex(self.next),
            "eth_getBlockByNumber" => {
                let number = number(&params[0]).unwrap_or(self.head);
                block(number, self.fork, if number == self.head { &self.mined } else { &[] })
            }
            "eth_getTransactionByHash" if self.mined.iter().any(|h| json!(h) == params[0]) => json!({ "blockNumber": hex(self.head) }),
            "eth_getTransactionByHash" if self.sent.iter().any(|h| json!(h) == params[0]) => json!({ "blockNumber": null }),
            "eth_getTransactionReceipt" if self.mined.iter().any(|h| json!(h) == params[0]) => json!({ "blockNumber": hex(self.head) }),
            "eth_getTransactionReceipt" | "eth_getTransactionByHash" => Value::Null,
            "eth_sendRawTransaction" => {
                let hash = Hash(web3::signing::keccak256(&bytes_from_hex(params[0].as_str().unwrap()).unwrap()));
                self.sent.push(hash);
                json!(hash)
            }
            _ => params.clone(),
        } })
    }
}

struct Bench {
    node: Arc<Mutex<Node>>,
    proxy: RpcProxy,
}

async fn bench(node: Node) -> Bench {
    let node = Arc::new(Mutex::new(node));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/key", listener.local_addr().unwrap());
    let shared = Arc::clone(&node);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let node = Arc::clone(&shared);
            tokio::spawn(async move {
                let mut connection = BufReader::new(stream);
                while let Ok(Some(request)) = http_wire::read(&mut connection).await {
                    assert!(request.start.starts_with("POST /key "));
                    let answer = node.lock().unwrap().answer(&serde_json::from_slice(&request.body).unwrap());
                    http_wire::write(&mut connection, "HTTP/1.1 200 OK", answer.to_string().as_bytes()).await.unwrap();
                }
            });
        }
    });
    Bench { node, proxy: RpcProxy::start(&url).await }
}

impl Bench {
    /// Each over a connection of its own, so that nothing is tried twice.
    async fn post(&self, body: Value) -> std::io::Result<Value> {
        let answer = Client::new(&self.proxy.url).post(body.to_string().as_bytes()).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    async fn call(&self, method: &str, params: Value) -> std::io::Result<Value> {
        self.post(json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await
    }

    async fn send(&self, raw: &[u8]) -> std::io::Result<Value> {
        self.call(SEND, json!([hex_from_bytes(raw)])).await
    }

    fn node_sent(&self) -> usize {
        self.node.lock().unwrap().sent.len()
    }
}

fn key_of_tests() -> SecretKey {
    SecretKey::from_slice(&[7; 32]).unwrap()
}

fn signed(nonce: u64, tip: u128, cap: u128) -> Vec<u8> {
    let fields = |list: &mut rlp::RlpStream| {
        list.append(&31337_u64).append(&nonce).append(&tip).append(&cap).append(&21000_u64);
        list.append(&vec![9_u8; 20]).append(&0_u64).append(&vec![1_u8, 2]).begin_list(0);
    };
    let mut unsigned = rlp::RlpStream::new_list(9);
    fields(&mut unsigned);
    let hash = web3::signing::keccak256(&[&[2], unsigned.out().as_ref()].concat());
    let secret = key_of_tests();
    let signature = SecretKeyRef::new(&secret).sign_message(&hash).unwrap();
    let number = |h: web3::types::H256| h.0.iter().copied().skip_while(|b| *b == 0).collect::<Vec<u8>>();
    let mut whole = rlp::RlpStream::new_list(12);
    fields(&mut whole);
    whole.append(&signature.v).append(&number(signature.r)).append(&number(signature.s));
    [&[2], whole.out().as_ref()].concat()
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_raw_transaction_is_read_as_it_was_signed() {
    let raw = signed(5, 2, 300);
    let read = raw_transaction::decode(&raw).unwrap();
    let secret = key_of_tests();
    assert_eq!(read.from.0, SecretKeyRef::new(&secret).address().0);
    assert_eq!((read.chain_id, read.nonce, read.tip, read.cap, read.gas), (31337, 5, 2, 300, 21000));
    assert_eq!((read.to, read.data, read.hash.0), (Some(Address([9; 20])), vec![1, 2], web3::signing::keccak256(&raw)));
    assert_eq!(raw_transaction::decode(&raw[..raw.len() - 1]), None);
    assert_eq!(raw_transaction::decode(&[]), None);
}

#[tokio::test]
async fn without_a_verb_calls_and_batches_pass_over_one_kept_connection() {
    let bench = bench(Node { head: 20, ..Node::default() }).await;
    let client = Client::new(&bench.proxy.url);
    for _ in 0..3 {
        let body = json!([{ "id": 1, "method": "eth_blockNumber", "params": [] }, { "id": "b", "method": "echo", "params": [3] }]);
        let answer: Value = serde_json::from_slice(&client.post(body.to_string().as_bytes()).await.unwrap()).unwrap();
        assert_eq!(answer, json!([{ "jsonrpc": "2.0", "id": 1, "result": "0x14" }, { "jsonrpc": "2.0", "id": "b", "result": [3] }]));
    }
    assert_eq!((bench.proxy.requests(), bench.proxy.calls("echo"), bench.proxy.calls("eth_blockNumber")), (3, 3, 3));
}

#[tokio::test]
async fn a_dropped_answer_was_forwarded_and_a_reset_call_was_not() {
    let bench = bench(Node::default()).await;
    let dropped = bench.proxy.accept_then_drop(SEND).times(1);
    assert_eq!(bench.send(&signed(0, 1, 1)).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(bench.send(&signed(1, 1, 1)).await.unwrap()["result"].is_string(), "once is once");
    assert_eq!((bench.node_sent(), dropped.applied()), (2, 1));

    let reset = bench.proxy.reset(SEND).every(2);
    assert!(bench.send(&signed(2, 1, 1)).await.is_ok());
    assert_eq!(bench.send(&signed(3, 1, 1)).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    reset.lift();
    assert!(bench.send(&signed(3, 1, 1)).await.is_ok());
    let sent = bench.proxy.sent();
    let told: Vec<_> = sent.iter().map(|s| (s.transaction.nonce, s.forwarded, s.answer.is_some())).collect();
    assert_eq!(told, [(0, true, true), (1, true, true), (2, true, true), (3, false, false), (3, true, true)]);
    assert_eq!(sent[0].answer, Some(Ok(sent[0].transaction.hash)));
}

#[tokio::test]
async fn a_verb_meets_its_call_inside_a_batch() {
    let bench = bench(Node::default()).await;
    bench.proxy.reply("b", json!({ "error": { "code": -32005, "message": "limit" } }));
    let calls = |methods: &[&str]| methods.iter().map(|m| json!({ "id": m, "method": m, "params": [] })).collect::<Value>();
    let answer = bench.post(calls(&["a", "b"])).await.unwrap();
    assert_eq!((&answer[0]["result"], &answer[1]["id"], message(&answer[1])), (&json!([]), &json!("b"), "limit"));
    bench.proxy.status("c", 503);
    assert_eq!(bench.post(calls(&["a", "c"])).await.unwrap(), Value::Null);
    bench.proxy.reset("*").times(1);
    assert!(bench.post(calls(&["a"])).await.is_err());
    bench.proxy.heal();
    assert_eq!(bench.post(calls(&["b", "c"])).await.unwrap()[0]["result"], json!([]));
}

#[tokio::test]
async fn a_hanging_call_is_forwarded_late_and_hooks_see_both_sides_of_it() {
    let bench = bench(Node::default()).await;
    let (node, seen) = (Arc::clone(&bench.node), Arc::new(Mutex::new(Vec::new())));
    let hook = |seen: &Arc<Mutex<Vec<usize>>>| {
        let (node, seen) = (Arc::clone(&node), Arc::clone(seen));
        Arc::new(move |_: &Value| seen.lock().unwrap().push(node.lock().unwrap().sent.len())) as Hook
    };
    bench.proxy.crash_before(SEND, hook(&seen));
    bench.proxy.crash_after(SEND, hook(&seen));
    bench.proxy.hang(SEND, Duration::from_millis(30));
    let began = Instant::now();
    assert!(bench.send(&signed(0, 1, 1)).await.is_ok());
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert_eq!(*seen.lock().unwrap(), [0, 1]);
}

#[tokio::test]
async fn nonces_and_tips_are_judged_as_strict_nodes_judge_them() {
    let bench = bench(Node { next: 5, ..Node::default() }).await;
    let strict = bench.proxy.strict_nonce();
    assert!(message(&bench.send(&signed(6, 1, 1)).await.unwrap()).starts_with("nonce too high"));
    assert!(bench.send(&signed(5, 1, 1)).await.unwrap()["result"].is_string());
    assert!(bench.send(&signed(6, 1, 1)).await.unwrap()["result"].is_string());
    strict.lift();
    bench.proxy.max_slots(3);
    let lost = bench.send(&signed(8, 1, 1)).await.unwrap();
    assert!(lost["result"].is_string());
    assert!(bench.send(&signed(7, 1, 1)).await.unwrap()["result"].is_string());
    assert_eq!(bench.node_sent(), 3);
    assert_eq!(bench.proxy.sent().iter().filter(|s| !s.forwarded).count(), 2);
    bench.proxy.min_tip(10);
    assert!(message(&bench.send(&signed(7, 9, 99)).await.unwrap()).contains("underpriced"));
}

#[tokio::test]
async fn a_replacement_pays_what_geth_and_reth_ask() {
    for (reth, tip, cap, taken) in [
        (false, 110, 1100, true),
        (false, 109, 1100, false),
        (false, 110, 1099, false),
        (true, 110, 1100, false),
        (true, 111, 1101, true),
        (true, 111, 1100, false),
    ] {
        let bench = bench(Node::default()).await;
        if reth {
            bench.proxy.reth_rule()
        } else {
            bench.proxy.geth_rule()
        };
        let first = signed(0, 100, 1000);
        assert!(bench.send(&first).await.unwrap()["result"].is_string());
        assert!(bench.send(&first).await.unwrap()["result"].is_string(), "the same bytes are no replacement");
        let answer = bench.send(&signed(0, tip, cap)).await.unwrap();
        assert_eq!(answer["result"].is_string(), taken, "reth {reth} {tip} {cap}: {answer}");
        // What is no longer pending binds nobody.
        bench.node.lock().unwrap().sent.clear();
        assert!(bench.send(&signed(0, 1, 1)).await.unwrap()["result"].is_string());
    }
}

#[tokio::test]
async fn a_provider_behind_sees_no_later_block_state_or_receipt() {
    let mined = Hash([3; 32]);
    let bench = bench(Node { head: 20, mined: vec![mined], ..Node::default() }).await;
    let result = async |method: &str, params: Value| bench.call(method, params).await.unwrap()["result"].clone();
    assert!(result("eth_getTransactionReceipt", json!([mined])).await.is_object());
    bench.proxy.lag(2);
    assert_eq!(result("eth_blockNumber", json!([])).await, hex(18));
    assert_eq!(result("eth_getTransactionReceipt", json!([mined])).await, Value::Null);
    assert_eq!(result("eth_getTransactionByHash", json!([mined])).await["blockNumber"], Value::Null);
    assert_eq!(result("eth_getBlockByNumber", json!(["latest", false])).await["number"], hex(18));
    assert_eq!(result("eth_getBlockByNumber", json!([hex(19), false])).await, Value::Null);
    assert_eq!(result("eth_getBalance", json!(["0x1", "pending"])).await, json!(["0x1", hex(18)]));
    assert_eq!(result("eth_call", json!([{}])).await, json!([{}, hex(18)]));
    assert_eq!(message(&bench.call("eth_call", json!([{}, hex(19)])).await.unwrap()), "header not found");
    assert_eq!(result("eth_getLogs", json!([{ "fromBlock": "0x1" }])).await, json!([{ "fromBlock": "0x1", "toBlock": hex(18) }]));
    bench.proxy.freeze_head().await;
    bench.node.lock().unwrap().head = 30;
    assert_eq!(result("eth_blockNumber", json!([])).await, hex(20));
    bench.proxy.unfreeze();
    assert_eq!(result("eth_blockNumber", json!([])).await, hex(30));
}

#[tokio::test]
async fn a_frozen_view_stays_on_the_fork_it_knew() {
    let mined = Hash([3; 32]);
    let bench = bench(Node { head: 20, fork: 1, mined: vec![mined], ..Node::default() }).await;
    bench.proxy.freeze_view().await;
    *bench.node.lock().unwrap() = Node { head: 22, fork: 2, ..Node::default() };
    let result = async |method: &str, params: Value| bench.call(method, params).await.unwrap()["result"].clone();
    assert_eq!(result("eth_blockNumber", json!([])).await, hex(20));
    assert_eq!(result("eth_getTransactionReceipt", json!([mined])).await["blockNumber"], hex(20));
    assert_eq!(result("eth_getBlockByNumber", json!([hex(20), false])).await["transactions"], json!([mined]));
    assert_eq!(result("eth_getBlockByHash", json!(["1:19", false])).await["number"], hex(19));
    assert_eq!(result("eth_getBlockByNumber", json!(["latest", false])).await["hash"], json!("1:20"));
    bench.proxy.heal();
    assert_eq!(result("eth_getBlockByNumber", json!([hex(20), false])).await["hash"], json!("2:20"));
}
