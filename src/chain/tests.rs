//! The pool against endpoints that lie, hang, limit, break off and change chains.

use super::mock_node::{Manner, MockNode, block, error, honest, receipt};
use super::*;
use crate::config;
use crate::domain::fees::TxType;
use crate::domain::quorum::Decision;
use crate::domain::rpc_verdict::{Class, Verdict};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const HASH: Hash = Hash([0xab; 32]);
const ALICE: Address = Address([0xa1; 20]);

/// Three honest readers at height 100 and a write endpoint of its own.
async fn nodes() -> (Vec<MockNode>, MockNode) {
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(MockNode::start(honest(100)).await);
    }
    (readers, MockNode::start(honest(100)).await)
}

fn settings(readers: &[MockNode], writer: &MockNode) -> config::Chain {
    let read_urls = readers.iter().map(|node| SecretString::from(node.url.clone())).collect();
    let (timeout, hedge, circuit_cooldown) = (Duration::from_millis(1000), Duration::from_millis(40), Duration::from_millis(200));
    config::Chain { read_urls, timeout, hedge, circuit_cooldown, ..config::Chain::at(31337, &*writer.url) }
}

async fn connect(readers: &[MockNode], writer: &MockNode) -> Pool {
    Pool::connect(&settings(readers, writer)).await.unwrap()
}

fn with(method: &'static str, answer: Value) -> impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync {
    let rest = honest(100);
    move |asked, params| if asked == method { Ok(answer.clone()) } else { rest(asked, params) }
}

fn failing(method: &'static str, failure: Value) -> impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync {
    let rest = honest(100);
    move |asked, params| if asked == method { Err(failure.clone()) } else { rest(asked, params) }
}

fn raw(n: usize) -> Vec<RawTx> {
    (0..n).map(|i| RawTx { bytes: vec![2, u8::try_from(i).unwrap()], hash: HASH }).collect()
}

fn call(gas: Option<u64>) -> Call {
    Call { from: ALICE, to: Some(ALICE), value: Wei::ZERO, data: vec![1], gas }
}

async fn receipts(pool: &Pool, since: u64) -> Vec<Decision<Option<Receipt>>> {
    pool.receipts(vec![HASH], since).await.into_iter().map(|told| told.decision).collect()
}

/// Polls heads until the circuit of the first reader is in that state.
async fn poll_until(pool: &Pool, wanted: Circuit) {
    let polls = async {
        while circuit(pool, 0) != wanted {
            pool.heads().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), polls).await.expect("the circuit stays as it is");
}

fn circuit(pool: &Pool, at: usize) -> Circuit {
    pool.endpoints()[at].circuit
}

#[tokio::test]
async fn transactions_are_sent_through_the_write_endpoint_alone() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    writer.answer(with("eth_sendRawTransaction", json!(HASH)));
    let sent = pool.send_raw(raw(3)).await;
    assert!(sent.iter().all(|outcome| outcome.class == Class::Ok && outcome.verdict == Verdict::Accepted), "{sent:?}");
    pool.head().await.unwrap();
    pool.heads().await;
    receipts(&pool, 0).await;
    assert!(writer.methods().iter().all(|method| matches!(method.as_str(), "eth_sendRawTransaction" | "eth_chainId")));
    assert!(readers.iter().all(|node| !node.methods().iter().any(|method| method == "eth_sendRawTransaction")));
    use web3::{Transport, api::Namespace};
    let typed = pool.web3();
    assert!(typed.execute("eth_sendRawTransaction", vec![json!("0x02")]).await.is_err(), "nor through the typed transport");
    assert_eq!(web3::api::Eth::new(typed.clone()).chain_id().await.unwrap().as_u64(), 31337);
}

#[tokio::test]
async fn every_answer_to_a_send_gets_its_own_verdict() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    for (message, code, verdict) in [
        ("already known", -32000, Verdict::Accepted),
        ("AlreadyKnown", -32010, Verdict::Accepted),
        ("Known transaction (3b7baba5)", -32603, Verdict::Accepted),
        ("ALREADY_EXISTS: already known", -32603, Verdict::Accepted),
        ("nonce too low", -32603, Verdict::NonceTooLow),
        ("txpool is full", -32003, Verdict::HoldSameBytes),
        ("insufficient funds for gas * price + value", -32003, Verdict::NeedsFunds),
        ("never heard", -32000, Verdict::Ambiguous),
    ] {
        writer.answer(failing("eth_sendRawTransaction", error(code, message)));
        assert_eq!(pool.send_raw(raw(2)).await[1].verdict, verdict, "{message}");
    }
    writer.answer(with("eth_sendRawTransaction", json!(Hash([1; 32]))));
    assert_eq!(pool.send_raw(raw(1)).await[0].class, Class::HashMismatch);
    assert_eq!(circuit(&pool, 3), Circuit::Closed, "answers are no faults");
}

#[tokio::test]
async fn a_send_without_an_answer_is_ambiguous_and_one_that_never_left_is_not() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    for manner in [Manner::Reset, Manner::Hang, Manner::Page(200, String::new()), Manner::Page(503, "<html>nonce too low</html>".into())] {
        let pool = connect(&readers, &writer).await;
        writer.behave(manner.clone());
        let outcomes = pool.send_raw(raw(2)).await;
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Ambiguous), "{manner:?} {outcomes:?}");
        writer.behave(Manner::Answer);
    }
    drop(writer);
    // The port is closed once the listener is gone.
    let outcomes = loop {
        let outcomes = pool.send_raw(raw(1)).await;
        // A connection that is still open ends without an answer; that is ambiguous, and right.
        if outcomes[0].verdict != Verdict::Ambiguous && outcomes[0].class != Class::MethodUnsupported {
            break outcomes;
        }
    };
    assert_eq!((outcomes[0].class, outcomes[0].verdict), (Class::NotSent, Verdict::HoldSameBytes), "{outcomes:?}");
}

#[tokio::test]
async fn one_liar_of_three_changes_no_answer() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    for node in &readers[..2] {
        node.answer(with("eth_getTransactionReceipt", receipt(&HASH.to_string(), 90, 1)));
    }
    readers[2].answer(|method, params| match method {
        "eth_getTransactionReceipt" => Ok(receipt(params[0].as_str().unwrap(), 91, 0)),
        "eth_getTransactionCount" => Ok(json!("0xffffff")),
        "eth_getBlockByNumber" => Ok(block(90, 666)),
        _ => honest(100)(method, params),
    });
    let Decision::Agreed(Some(found), 2) = receipts(&pool, 0).await.remove(0) else { panic!("no receipt") };
    assert_eq!((found.block_number, found.succeeded, found.gas_used), (90, true, 21000));
    assert_eq!(found.effective_gas_price, Some(Wei::from(1_000_000_007)));
    assert_eq!(pool.consumed_nonces(vec![ALICE; 2], BlockTag::Latest).await, vec![Decision::Agreed(7, 3), Decision::Agreed(7, 3)]);
    assert_eq!(pool.consumed_nonces(vec![ALICE], BlockTag::Number(90)).await, [Decision::Agreed(7, 2)]);
    let Decision::Agreed(Some(hash), 2) = pool.block_hashes(vec![90]).await.remove(0) else { panic!("no block hash") };
    assert_eq!(hash.0[31], 90);
}

#[tokio::test]
async fn three_different_receipts_are_no_decision() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    for (node, block) in readers.iter().zip([90, 91, 92]) {
        node.answer(with("eth_getTransactionReceipt", receipt(&HASH.to_string(), block, 1)));
    }
    assert_eq!(receipts(&pool, 0).await, [Decision::Split]);
}

#[tokio::test]
async fn a_null_counts_only_from_endpoints_that_do_not_lag() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    assert_eq!(receipts(&pool, 0).await, [Decision::Agreed(None, 2)], "a majority has none");
    readers[0].answer(honest(50));
    readers[1].answer(failing("eth_getTransactionReceipt", error(-32000, "transaction indexing is in progress")));
    pool.heads().await;
    assert_eq!(receipts(&pool, 0).await, [Decision::Insufficient], "one lags, one cannot say");
}

#[tokio::test]
async fn an_absence_is_agreed_by_those_alone_who_were_at_the_block_before_they_were_asked() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    assert_eq!(receipts(&pool, 101).await, [Decision::Insufficient]);
    assert_eq!(receipts(&pool, 100).await, [Decision::Agreed(None, 2)]);
    readers[0].answer(honest(102));
    pool.heads().await;
    assert_eq!(receipts(&pool, 102).await, [Decision::Insufficient], "one of three is there");
    readers[1].answer(honest(102));
    let told = pool.receipts(vec![HASH], 102).await.remove(0);
    assert_eq!((told.decision, told.votes), (Decision::Agreed(None, 2), Votes { agreeing: 2, differing: 0, abstaining: 1 }));
    let words: Vec<_> = told.answers.iter().map(|(_, word)| word.as_str()).collect();
    assert_eq!(words, ["absent", "absent", "abstains"], "what a proof of the absence keeps");
    assert!(told.answers.iter().zip(&readers).all(|((name, _), node)| node.url.ends_with(name.as_str())));
    // The name that was there yesterday may lead to a node that is not.
    readers[0].answer(honest(101));
    assert_eq!(receipts(&pool, 102).await, [Decision::Insufficient]);
}

#[tokio::test]
async fn an_endpoint_that_is_not_at_the_block_abstains_from_the_nonce() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    readers[0].answer(honest(89));
    assert_eq!(pool.consumed_nonces(vec![ALICE], BlockTag::Number(90)).await, [Decision::Agreed(7, 2)]);
    readers[1].answer(failing("eth_getTransactionCount", error(-32000, "header not found")));
    assert_eq!(pool.consumed_nonces(vec![ALICE], BlockTag::Number(90)).await, [Decision::Insufficient]);
}

#[tokio::test]
async fn a_lagging_endpoint_is_out_of_rotation_until_it_has_caught_up() {
    let (readers, writer) = nodes().await;
    readers[0].answer(honest(90));
    let pool = connect(&readers, &writer).await;
    let heads = pool.heads().await;
    assert_eq!(heads.reached, Some(100));
    let view = &pool.endpoints()[0];
    assert!(view.score == 0.0 && view.lag == 10 && view.circuit == Circuit::Closed, "{view:?}");
    assert_eq!(pool.head().await.unwrap().number, 100);
    readers[0].answer(honest(100));
    pool.heads().await;
    assert!(pool.endpoints()[0].score > 0.5);
}

#[tokio::test]
async fn a_liar_about_the_head_does_not_make_the_others_lag() {
    let (readers, writer) = nodes().await;
    readers[1].answer(honest(1_000_000));
    let pool = connect(&readers, &writer).await;
    assert_eq!(pool.heads().await.reached, Some(100));
    assert!(pool.endpoints().iter().all(|view| view.lag == 0));
}

#[tokio::test]
async fn an_endpoint_that_hangs_holds_up_neither_the_start_nor_a_read() {
    let (readers, writer) = nodes().await;
    readers[0].behave(Manner::Hang);
    let began = Instant::now();
    let pool = connect(&readers, &writer).await;
    pool.head().await.unwrap();
    assert!(receipts(&pool, 0).await[0].is_agreed());
    assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
    poll_until(&pool, Circuit::Open).await;
    let began = Instant::now();
    pool.heads().await;
    assert!(began.elapsed() < Duration::from_millis(500), "an open circuit is not waited for");
}

#[tokio::test]
async fn a_circuit_opens_on_faults_and_closes_after_the_cooldown() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    readers[0].behave(Manner::Page(502, "bad gateway".into()));
    poll_until(&pool, Circuit::Open).await;
    assert!(pool.head().await.is_ok(), "the others answer");
    readers[0].behave(Manner::Answer);
    poll_until(&pool, Circuit::Closed).await;
}

#[tokio::test]
async fn while_many_calls_fail_nothing_that_cannot_be_taken_back_is_decided_and_one_dead_endpoint_is_not_many() {
    let (readers, writer) = nodes().await;
    let pool = Pool::connect(&config::Chain { circuit_cooldown: Duration::from_secs(600), ..settings(&readers, &writer) }).await.unwrap();
    assert!(pool.calm(), "too few calls to say anything");
    for _ in 0..10 {
        pool.heads().await;
    }
    assert!(pool.calm());
    // Every second call of all, so that no circuit opens.
    let mut polls = 0;
    while pool.calm() {
        polls += 1;
        assert!(polls < 20, "it never freezes");
        readers.iter().for_each(|node| node.behave(if polls % 2 == 0 { Manner::Answer } else { Manner::Page(502, String::new()) }));
        pool.heads().await;
    }
    assert!((0..3).all(|at| circuit(&pool, at) == Circuit::Closed));
    readers.iter().for_each(|node| node.behave(Manner::Answer));
    let thawed = async {
        while !pool.calm() {
            pool.consumed_nonces(vec![ALICE], BlockTag::Latest).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), thawed).await.expect("it never thaws");
    for _ in 0..20 {
        pool.heads().await;
    }
    readers[0].behave(Manner::Page(502, String::new()));
    poll_until(&pool, Circuit::Open).await;
    for _ in 0..20 {
        pool.heads().await;
        assert!(pool.calm(), "one of three is out and the others answer");
    }
}

#[tokio::test]
async fn one_stale_transaction_opens_no_circuit() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    writer.answer(failing("eth_sendRawTransaction", error(-32603, "INTERNAL_ERROR: nonce too low")));
    for _ in 0..10 {
        assert_eq!(pool.send_raw(raw(1)).await[0].verdict, Verdict::NonceTooLow);
    }
    let view = &pool.endpoints()[3];
    assert_eq!((view.circuit, view.errors), (Circuit::Closed, 0));
}

#[tokio::test]
async fn a_rate_limit_pauses_the_endpoint_as_long_as_it_asks_and_another_answers() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    readers[0].behave(Manner::Limit(60));
    pool.heads().await;
    let before = readers[0].posts();
    for _ in 0..5 {
        pool.head().await.unwrap();
        assert!(receipts(&pool, 0).await[0].is_agreed());
    }
    assert_eq!(readers[0].posts(), before);
    assert_eq!(circuit(&pool, 0), Circuit::Closed);
}

#[tokio::test]
async fn strange_answers_are_faults_and_never_a_revert() {
    let (readers, writer) = nodes().await;
    let limited = |code| json!({"error": {"code": code, "message": ""}}).to_string();
    for manner in [
        Manner::Page(200, limited(429)),
        Manner::Page(200, limited(-32005)),
        Manner::Page(200, limited(-32029)),
        Manner::Limit(3),
        Manner::Page(200, "<html>execution reverted</html>".into()),
        Manner::Page(503, "x".repeat(100_000)),
        Manner::Page(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"resu".into()),
        Manner::Page(200, String::new()),
    ] {
        let pool = connect(&readers, &writer).await;
        readers.iter().for_each(|node| node.behave(manner.clone()));
        assert_eq!(pool.simulate(vec![call(None)]).await, [Err(SimulationError::Unavailable)], "{manner:?}");
        readers.iter().for_each(|node| node.behave(Manner::Answer));
        let pool = connect(&readers, &writer).await;
        readers[..2].iter().for_each(|node| node.behave(manner.clone()));
        assert_eq!(pool.simulate(vec![call(None)]).await, [Ok(Simulated { gas_estimate: 21000 })], "{manner:?}");
        readers.iter().for_each(|node| node.behave(Manner::Answer));
    }
}

#[tokio::test]
async fn an_endpoint_on_another_chain_is_not_used_and_comes_back_when_it_is_right() {
    let (readers, writer) = nodes().await;
    readers[0].answer(with("eth_chainId", json!("0x1")));
    let pool = connect(&readers, &writer).await;
    assert_eq!(pool.endpoints()[0].chain_id_ok, Some(false));
    for _ in 0..5 {
        pool.head().await.unwrap();
        assert!(receipts(&pool, 0).await[0].is_agreed());
    }
    assert!(readers[0].methods().iter().all(|method| method == "eth_chainId"));
    readers[1].answer(with("eth_chainId", json!("0x1")));
    readers[1].behave(Manner::Reset);
    pool.heads().await;
    readers[1].behave(Manner::Answer);
    pool.heads().await;
    assert_eq!(pool.endpoints()[1].chain_id_ok, Some(false), "found out after the connection broke");
    assert_eq!(receipts(&pool, 0).await, [Decision::Insufficient], "no majority of the configured is left");
}

#[tokio::test]
async fn without_a_majority_on_the_configured_chain_there_is_no_start() {
    let (readers, writer) = nodes().await;
    readers[0].answer(with("eth_chainId", json!("0x1")));
    readers[1].behave(Manner::Page(500, String::new()));
    let error = Pool::connect(&settings(&readers, &writer)).await.unwrap_err();
    assert!(matches!(error, Error::ChainIdentity { right: 1, wrong: 1, silent: 1, .. }), "{error}");
    readers.iter().for_each(|node| node.answer(honest(100)));
    readers[1].behave(Manner::Answer);
    writer.answer(with("eth_chainId", json!("0x1")));
    let error = Pool::connect(&settings(&readers, &writer)).await.unwrap_err();
    assert!(matches!(error, Error::WriteChain { found: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_node_that_takes_no_batches_is_asked_one_by_one_from_then_on() {
    let (readers, writer) = nodes().await;
    writer.answer(with("eth_sendRawTransaction", json!(HASH)));
    writer.behave(Manner::RefuseBatches);
    let pool = connect(&readers, &writer).await;
    let before = writer.posts();
    assert!(pool.send_raw(raw(5)).await.iter().all(|outcome| outcome.class == Class::Ok));
    assert_eq!(writer.posts() - before, 6, "one refused batch and five calls");
    pool.send_raw(raw(5)).await;
    assert_eq!(writer.posts() - before, 11, "it is remembered");
    assert_eq!(pool.endpoints()[3].errors, 0);
}

#[tokio::test]
async fn answers_out_of_order_and_a_lost_one_are_told_apart_by_id() {
    let node = MockNode::start(|method, params| match method {
        "eth_getBalance" => Ok(json!(format!("0x{}", &params[0].as_str().unwrap()[40..]))),
        _ => honest(100)(method, params),
    })
    .await;
    let pool = Pool::connect(&config::Chain::at(31337, &*node.url)).await.unwrap();
    node.behave(Manner::LoseLast);
    let balances = pool.balances((1..=4).map(|i| Address([i; 20])).collect()).await;
    let shown: Vec<_> = balances.iter().map(|balance| balance.as_ref().ok().copied()).collect();
    assert_eq!(shown, [Some(Wei::from(1)), Some(Wei::from(2)), Some(Wei::from(3)), None]);
    assert!(matches!(balances[3], Err(Error::Unavailable(Failure::Malformed(_)))));
    assert_eq!(pool.endpoints().len(), 1, "one endpoint for everything");
}

#[tokio::test]
async fn a_revert_counts_when_a_second_endpoint_says_so_too_whatever_its_words() {
    let (readers, writer) = nodes().await;
    let data = "0x08c379a0000000000000000000000000000000000000000000000000000000000000002000000000000000000000000000000000000000000000000000000000000000036e6f210000000000000000000000000000000000000000000000000000000000";
    let words = [(3, "execution reverted"), (-32000, "strange"), (-32015, "VM execution error.")];
    for (node, (code, message)) in readers.iter().zip(words) {
        node.answer(failing("eth_estimateGas", json!({"code": code, "message": message, "data": data})));
    }
    let pool = connect(&readers, &writer).await;
    let Err(SimulationError::Reverted { reason, data }) = pool.simulate(vec![call(None)]).await.remove(0) else { panic!("no revert") };
    assert_eq!((reason.as_str(), data.len()), ("no!", 100));
    assert!(pool.endpoints().iter().all(|view| view.errors == 0), "no endpoint is blamed");
}

#[tokio::test]
async fn a_revert_that_a_second_endpoint_does_not_see_is_not_believed() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    let asked = Arc::new(AtomicUsize::new(0));
    for node in &readers {
        let (asked, reverting, rest) = (Arc::clone(&asked), failing("eth_estimateGas", error(3, "execution reverted")), honest(100));
        node.answer(move |method, params| {
            let first = method == "eth_estimateGas" && asked.fetch_add(1, Relaxed) == 0;
            if first { reverting(method, params) } else { rest(method, params) }
        });
    }
    assert_eq!(pool.simulate(vec![call(None)]).await, [Err(SimulationError::Unavailable)]);
    assert_eq!(asked.load(Relaxed), 2);
    assert_eq!(pool.simulate(vec![call(None)]).await, [Ok(Simulated { gas_estimate: 21000 })]);
}

#[tokio::test]
async fn a_call_with_gas_is_tried_and_one_without_is_estimated() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    let tried = pool.simulate(vec![call(Some(50_000)), call(None)]).await;
    assert_eq!(tried, [Ok(Simulated { gas_estimate: 50_000 }), Ok(Simulated { gas_estimate: 21_000 })]);
    readers.iter().for_each(|node| node.answer(failing("eth_estimateGas", error(-32000, "insufficient funds for transfer"))));
    assert_eq!(pool.simulate(vec![call(None)]).await, [Err(SimulationError::InsufficientFunds)]);
}

#[tokio::test]
async fn fees_fall_back_step_by_step_and_an_error_is_never_a_price() {
    let node = MockNode::start(honest(100)).await;
    let chain = config::Chain { min_priority_fee: Wei::from(5), ..config::Chain::at(31337, &*node.url) };
    let pool = Pool::connect(&chain).await.unwrap();
    let quote = |base: u64, priority: u64| FeeQuote { base_fee: base.into(), priority_fee: priority.into(), tx_type: TxType::Eip1559 };
    for (history, expected) in [
        (json!({"baseFeePerGas": ["0x1", "0x9"], "reward": [["0x10"], ["0x30"], ["0x20"]]}), quote(9, 0x20)),
        (json!({"baseFeePerGas": ["0x1", "0x9"], "reward": [["0x0"], ["0x0"]]}), quote(9, 0x77)),
        (json!({"baseFeePerGas": ["0x1", "0x9"], "reward": null}), quote(9, 0x77)),
        (json!({"baseFeePerGas": ["0x9", null], "reward": [null, [], ["0x1"]]}), quote(9, 5)),
        (json!({"baseFeePerGas": null}), quote(7, 0x77)),
    ] {
        let tip = with("eth_maxPriorityFeePerGas", json!("0x77"));
        let shown = history.clone();
        node.answer(move |method, params| if method == "eth_feeHistory" { Ok(shown.clone()) } else { tip(method, params) });
        assert_eq!(pool.fees().await.unwrap(), expected, "{history}");
    }
    node.answer(with("eth_feeHistory", json!({"baseFeePerGas": ["0x9"], "reward": []})));
    assert_eq!(pool.fees().await.unwrap(), quote(9, 5), "the floor, where nobody suggests anything");
    node.answer(failing("eth_feeHistory", error(-32603, "Internal error")));
    assert!(matches!(pool.fees().await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn no_error_and_no_view_shows_the_url() {
    let (readers, writer) = nodes().await;
    let mut chain = settings(&readers, &writer);
    chain.read_urls[0] = SecretString::from(readers[0].url.replace("http://", "http://user:hunter2@") + "/v3/SECRETKEY");
    let pool = Pool::connect(&chain).await.unwrap();
    readers.iter().for_each(|node| node.behave(Manner::Page(500, "no".into())));
    let shown = format!("{:?} {:?} {:?} {:?}", pool, pool.endpoints(), pool.head().await, pool.heads().await);
    assert!(!shown.contains("hunter2") && !shown.contains("SECRETKEY"), "{shown}");
}

#[tokio::test]
async fn what_an_endpoint_can_do_is_found_out_at_start_and_after_a_new_connection() {
    let (readers, writer) = nodes().await;
    readers[0].answer(with("eth_getBlockReceipts", json!([])));
    readers[1].behave(Manner::BatchesUpTo(12));
    readers[2].behave(Manner::BytesUpTo(130 * 1024));
    let pool = Pool::connect(&config::Chain { batch_requests: 50, ..settings(&readers, &writer) }).await.unwrap();
    let able = |at: usize| pool.endpoints()[at].capabilities;
    assert_eq!(able(0), Capabilities::default(), "nothing is known before it was asked");
    pool.probe().await;
    let whole = Some(512 * 1024);
    let shown = Capabilities { finalized_tag: Some(true), block_receipts: Some(true), batch_requests: Some(50), request_bytes: whole };
    assert_eq!(able(0), shown);
    assert_eq!(able(1), Capabilities { block_receipts: Some(false), batch_requests: Some(12), ..shown });
    assert_eq!(able(2), Capabilities { block_receipts: Some(false), request_bytes: Some(128 * 1024), ..shown });
    assert_eq!(able(3), Capabilities { batch_requests: Some(50), request_bytes: whole, ..Capabilities::default() }, "it is not read from");
    assert!(pool.endpoints().iter().all(|view| view.errors == 0), "no refusal counts against an endpoint");
    let before = readers[0].posts();
    pool.probe().await;
    assert_eq!(readers[0].posts(), before, "once is enough");
    // Another node answers behind the name after the connection broke.
    readers[0].answer(with("eth_getBlockByNumber", Value::Null));
    readers[0].behave(Manner::Reset);
    pool.heads().await;
    readers[0].behave(Manner::RefuseBatches);
    pool.heads().await;
    pool.probe().await;
    assert_eq!((able(0).finalized_tag, able(0).block_receipts, able(0).batch_requests), (Some(false), Some(false), Some(1)));
}

#[tokio::test]
async fn a_refused_batch_is_halved_until_it_is_taken() {
    let (readers, writer) = nodes().await;
    writer.answer(with("eth_sendRawTransaction", json!(HASH)));
    writer.behave(Manner::BatchesUpTo(12));
    let pool = connect(&readers, &writer).await;
    let before = writer.posts();
    assert!(pool.send_raw(raw(50)).await.iter().all(|outcome| outcome.class == Class::Ok));
    assert_eq!(writer.posts() - before, 7, "50 and 25 are refused, then come four of twelve and two");
    assert_eq!(pool.endpoints()[3].errors, 0);
}

#[tokio::test]
async fn no_endpoint_gets_more_calls_a_second_than_its_budget() {
    let (readers, writer) = nodes().await;
    writer.answer(with("eth_sendRawTransaction", json!(HASH)));
    let chain = config::Chain { requests_per_second: 20, timeout: Duration::from_secs(5), ..settings(&readers, &writer) };
    let pool = Pool::connect(&chain).await.unwrap();
    let began = Instant::now();
    for _ in 0..2 {
        assert!(pool.send_raw(raw(20)).await.iter().all(|outcome| outcome.class == Class::Ok));
    }
    let took = began.elapsed();
    assert!(took > Duration::from_millis(900), "forty calls and one for the chain at twenty a second: {took:?}");
    assert_eq!(pool.endpoints()[3].errors, 0, "our own budget is no fault of the endpoint");
    let impatient = Pool::connect(&config::Chain { requests_per_second: 1, ..settings(&readers, &writer) }).await.unwrap();
    let unsent = impatient.send_raw(raw(9)).await;
    assert!(unsent.iter().any(|outcome| outcome.verdict == Verdict::HoldSameBytes), "what cannot leave in time is not sent: {unsent:?}");
}

#[tokio::test]
async fn a_hedge_that_lost_is_hung_up() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    // The one that is asked first.
    let first = pool.ranked()[0].name().to_owned();
    let slow = readers.iter().find(|reader| reader.url.contains(&first)).unwrap_or(&readers[0]);
    let before = slow.posts();
    slow.behave(Manner::Hang);
    for _ in 0..20 {
        pool.head().await.unwrap();
    }
    let hung = slow.posts() - before;
    assert!(hung > 0, "it was never asked");
    let all_left = async {
        while slow.left() < hung {
            tokio::task::yield_now().await;
        }
    };
    // Long before the time limit of the call.
    tokio::time::timeout(Duration::from_millis(500), all_left).await.expect("a call that lost is kept open");
}

#[tokio::test]
async fn extra_endpoints_get_every_transaction_and_the_first_acceptance_suffices() {
    let (readers, writer) = nodes().await;
    let extra = MockNode::start(with("eth_sendRawTransaction", json!(HASH))).await;
    let chain = settings(&readers, &writer);
    let chain = config::Chain { broadcast_urls: vec![SecretString::from(extra.url.clone())], ..chain };
    let pool = Pool::connect(&chain).await.unwrap();
    writer.answer(failing("eth_sendRawTransaction", error(-32000, "invalid sender")));
    let sent = pool.send_raw(raw(2)).await;
    assert!(sent.iter().all(|outcome| outcome.verdict == Verdict::Accepted && outcome.endpoint.ends_with("+send")), "{sent:?}");
    writer.behave(Manner::Hang);
    let began = Instant::now();
    assert!(pool.send_raw(raw(1)).await.iter().all(|outcome| outcome.verdict == Verdict::Accepted));
    assert!(began.elapsed() < Duration::from_millis(900), "nobody waits for who hangs: {:?}", began.elapsed());
    writer.behave(Manner::Answer);
    extra.behave(Manner::Reset);
    assert_eq!(pool.send_raw(raw(1)).await[0].verdict, Verdict::Ambiguous, "one may have taken it");
    extra.behave(Manner::Answer);
    extra.answer(failing("eth_sendRawTransaction", error(-32000, "oversized data")));
    let pool = Pool::connect(&chain).await.unwrap();
    assert_eq!(pool.send_raw(raw(1)).await[0].verdict, Verdict::Refused { stateless: true }, "all refuse it for good");
    assert!(readers.iter().all(|node| !node.methods().iter().any(|method| method == "eth_sendRawTransaction")));
    pool.heads().await;
    assert!(
        extra.methods().iter().all(|method| matches!(method.as_str(), "eth_sendRawTransaction" | "eth_chainId")),
        "it is not read from"
    );
}

#[tokio::test]
async fn a_broken_fee_history_is_asked_of_another_endpoint_and_a_zero_is_none() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    let sound = || with("eth_feeHistory", json!({"baseFeePerGas": ["0x9"], "reward": [["0x77359400"]]}));
    readers.iter().for_each(|node| node.answer(sound()));
    let expected = FeeQuote { base_fee: 9.into(), priority_fee: 2_000_000_000.into(), tx_type: TxType::Eip1559 };
    for broken in [json!(null), json!("0x1"), json!({"baseFeePerGas": "0x9"})] {
        readers[0].answer(with("eth_feeHistory", broken.clone()));
        assert_eq!(pool.fees().await.unwrap(), expected, "{broken}");
        readers.iter().for_each(|node| node.answer(with("eth_feeHistory", broken.clone())));
        assert!(pool.fees().await.is_err(), "{broken}");
        readers.iter().for_each(|node| node.answer(sound()));
    }
    readers
        .iter()
        .for_each(|node| node.answer(with("eth_feeHistory", json!({"baseFeePerGas": ["0x0", "0x0"], "reward": [["0x77359400"]]}))));
    assert_eq!(pool.fees().await.unwrap().base_fee, Wei::from(7), "no less than the head");
}

#[tokio::test]
async fn a_chain_without_a_base_fee_wants_legacy_transactions_at_its_gas_price() {
    let node = MockNode::start(honest(100)).await;
    let chain = config::Chain { min_priority_fee: Wei::from(5), ..config::Chain::at(31337, &*node.url) };
    let pool = Pool::connect(&chain).await.unwrap();
    let answers = |price: Value| {
        move |method: &str, params: &Value| match method {
            "eth_gasPrice" => Ok(price.clone()),
            "eth_getBlockByNumber" => {
                let mut block = honest(100)(method, params)?;
                block.as_object_mut().unwrap().remove("baseFeePerGas");
                Ok(block)
            }
            _ => honest(100)(method, params),
        }
    };
    for (price, expected) in [("0x20", 0x20), ("0x0", 5)] {
        node.answer(answers(json!(price)));
        let quote = FeeQuote { base_fee: Wei::ZERO, priority_fee: Wei::from(expected), tx_type: TxType::Legacy };
        assert_eq!(pool.fees().await.unwrap(), quote);
    }
    node.answer(answers(Value::Null));
    assert!(pool.fees().await.is_err(), "no price is not a price of zero");
}

#[tokio::test]
async fn one_endpoint_that_shows_a_delegation_is_enough_and_none_needs_a_majority() {
    let (readers, writer) = nodes().await;
    let pool = connect(&readers, &writer).await;
    let signer = vec![Address([9; 20])];
    assert_eq!(pool.delegated(signer.clone()).await, [None], "nobody answers");
    readers.iter().take(2).for_each(|node| node.answer(with("eth_getCode", json!("0x"))));
    assert_eq!(pool.delegated(signer.clone()).await, [Some(false)]);
    readers.iter().for_each(|node| node.answer(with("eth_getCode", json!("0x"))));
    assert_eq!(pool.delegated(signer.clone()).await, [Some(false)]);
    readers.iter().for_each(|node| node.answer(with("eth_getCode", json!(format!("0xef0100{}", "ab".repeat(20))))));
    assert_eq!(pool.delegated(signer).await, [Some(true)]);
}
