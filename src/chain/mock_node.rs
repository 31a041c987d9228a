//! A JSON-RPC endpoint for tests: answers from a table, or misbehaves in the ways endpoints do. Only tests call it.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How a request is met.
#[derive(Clone, Debug, PartialEq)]
pub enum Manner {
    Answer,
    /// Takes the request and says nothing.
    Hang,
    /// Reads the request, then cuts the connection.
    Reset,
    /// This status and body, whatever was asked.
    Page(u16, String),
    /// With a Retry-After in seconds.
    Limit(u64),
    /// Answers single calls, refuses arrays.
    RefuseBatches,
    /// Refuses arrays of more.
    BatchesUpTo(usize),
    /// Refuses bodies of more bytes.
    BytesUpTo(usize),
    /// Leaves the last answer of a batch out and reverses the rest.
    LoseLast,
}

type Answers = dyn Fn(&str, &Value) -> Result<Value, Value> + Send + Sync;

pub struct MockNode {
    pub url: String,
    state: Arc<State>,
    server: tokio::task::JoinHandle<()>,
}

struct State {
    manner: Mutex<Manner>,
    answers: Mutex<Box<Answers>>,
    /// Every method that was asked, in order.
    methods: Mutex<Vec<String>>,
    posts: Mutex<usize>,
    /// Callers that hung up before the answer.
    left: AtomicUsize,
}

/// The answers of an honest node of chain 31337 at a height.
pub fn honest(height: u64) -> impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync {
    move |method, params| match method {
        "eth_chainId" => Ok(json!("0x7a69")),
        "eth_blockNumber" => Ok(json!(format!("{height:#x}"))),
        "eth_getBlockByNumber" => {
            let wanted = params[0].as_str().unwrap_or_default();
            let number = u64::from_str_radix(wanted.trim_start_matches("0x"), 16).unwrap_or(height);
            Ok(if number > height { Value::Null } else { block(number, number) })
        }
        "eth_getTransactionCount" => Ok(json!("0x7")),
        "eth_getBalance" => Ok(json!("0xde0b6b3a7640000")),
        "eth_getTransactionReceipt" => Ok(Value::Null),
        "eth_estimateGas" => Ok(json!("0x5208")),
        "eth_call" => Ok(json!("0x")),
        _ => Err(error(-32601, "the method does not exist/is not available")),
    }
}

pub fn block(number: u64, hash: u64) -> Value {
    json!({"number": format!("{number:#x}"), "hash": format!("{hash:#066x}"), "gasLimit": "0x1c9c380", "timestamp": "0x1", "baseFeePerGas": "0x7"})
}

pub fn receipt(hash: &str, block: u64, status: u64) -> Value {
    json!({"transactionHash": hash, "blockNumber": format!("{block:#x}"), "blockHash": format!("{block:#066x}"),
        "status": format!("{status:#x}"), "gasUsed": "0x5208", "effectiveGasPrice": "0x3b9aca07", "logs": [], "logsBloom": "0x00"})
}

pub fn error(code: i64, message: &str) -> Value {
    json!({"code": code, "message": message})
}

impl MockNode {
    pub async fn start(answers: impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State {
            manner: Mutex::new(Manner::Answer),
            answers: Mutex::new(Box::new(answers)),
            methods: Mutex::default(),
            posts: Mutex::default(),
            left: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state, server }
    }

    pub fn behave(&self, manner: Manner) {
        *self.state.manner.lock().expect("lock") = manner;
    }

    pub fn answer(&self, answers: impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync + 'static) {
        *self.state.answers.lock().expect("lock") = Box::new(answers);
    }

    pub fn methods(&self) -> Vec<String> {
        self.state.methods.lock().expect("lock").clone()
    }

    pub fn left(&self) -> usize {
        self.state.left.load(Relaxed)
    }

    pub fn posts(&self) -> usize {
        *self.state.posts.lock().expect("lock")
    }
}

impl Drop for MockNode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let mut buffer = Vec::new();
    while let Some(body) = read_request(&mut stream, &mut buffer).await {
        let Ok(request) = serde_json::from_slice::<Value>(&body) else { return };
        let calls = request.as_array().cloned().unwrap_or_else(|| vec![request.clone()]);
        let named = calls.iter().map(|call| call["method"].as_str().unwrap_or_default().to_owned());
        state.methods.lock().expect("lock").extend(named);
        *state.posts.lock().expect("lock") += 1;
        let manner = state.manner.lock().expect("lock").clone();
        let (status, extra, text) = match manner {
            Manner::Hang => {
                // Until the caller hangs up.
                let _ = stream.read_buf(&mut buffer).await;
                state.left.fetch_add(1, Relaxed);
                return;
            }
            Manner::Reset => return,
            Manner::Page(status, text) => (status, String::new(), text),
            Manner::Limit(seconds) => (429, format!("Retry-After: {seconds}\r\n"), "slow down".to_owned()),
            Manner::RefuseBatches if request.is_array() => {
                (200, String::new(), json!({"jsonrpc": "2.0", "id": null, "error": error(-32600, "Invalid Request")}).to_string())
            }
            Manner::BatchesUpTo(most) if request.is_array() && calls.len() > most => {
                (200, String::new(), json!({"jsonrpc": "2.0", "id": null, "error": error(-32600, "batch too large")}).to_string())
            }
            Manner::BytesUpTo(most) if body.len() > most => (413, String::new(), "request entity too large".to_owned()),
            Manner::Answer | Manner::RefuseBatches | Manner::LoseLast | Manner::BatchesUpTo(_) | Manner::BytesUpTo(_) => {
                let mut answers: Vec<Value> = calls.iter().map(|call| answer(call, &state)).collect();
                if manner == Manner::LoseLast {
                    answers.pop();
                    answers.reverse();
                }
                let body = if request.is_array() { Value::Array(answers) } else { answers.pop().unwrap_or_default() };
                (200, String::new(), body.to_string())
            }
        };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{extra}Content-Length: {}\r\n\r\n", text.len());
        if stream.write_all(format!("{head}{text}").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(call: &Value, state: &State) -> Value {
    let answers = state.answers.lock().expect("lock");
    match answers(call["method"].as_str().unwrap_or_default(), &call["params"]) {
        Ok(result) => json!({"jsonrpc": "2.0", "id": call["id"], "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": call["id"], "error": error}),
    }
}

/// The body of the next request on a connection that is kept open.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|at| at == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Some(body);
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
