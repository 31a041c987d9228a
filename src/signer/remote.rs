//! An account whose key is elsewhere: asks an HTTP signer by `eth_signTransaction` (Web3Signer, clef, a node with its own keys), and takes
//! nothing from it but a signature of exactly what was asked for. Never holds a key, never asks twice. Called through the trait `Signer`.

use super::{Error, Signer, recovered};
use crate::config::RemotePool;
use crate::domain::fees::TxType;
use crate::domain::transaction::{Signature, Unsigned};
use entity::values::{Address, Wei, bytes_from_hex, hex_from_bytes};
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// An answer larger than this is not read to its end: the largest transaction has 128 KiB, in hex twice that, and clef says it twice.
const ANSWER_MAX: usize = 2 * 1024 * 1024;
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Questions in flight to one signer.
const IN_FLIGHT: usize = 32;
/// Characters of a refusal that are kept.
const TOLD: usize = 200;

/// One HTTP signer, shared by the accounts that it holds.
struct Place {
    client: reqwest::Client,
    /// May hold a credential: never shown.
    url: reqwest::Url,
    free: Semaphore,
}

pub struct RemoteSigner {
    place: Arc<Place>,
    address: Address,
}

/// Both shapes in use: the raw bytes alone, or beside what was made of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Raw(String),
    Both { raw: String },
}

#[derive(Deserialize)]
struct Reply {
    result: Option<Answer>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    code: Option<i64>,
    message: Option<String>,
}

fn quantity(value: &Wei) -> String {
    format!("{:#x}", value.0)
}

impl RemoteSigner {
    /// The signers of a pool, in the order of the configuration.
    pub fn of_pool(pool: &RemotePool, timeout: Duration) -> Result<Vec<Self>, Error> {
        let bad = || Error::BadPlace { pool: pool.pool.clone() };
        let url = pool.url.expose_secret().trim().parse().map_err(|_| bad())?;
        // An error here means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .http1_only()
            .connect_timeout(timeout.min(CONNECT_MAX))
            .timeout(timeout)
            // A redirect would carry the credentials of the URL away, and a retry would have something signed twice.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .default_headers(HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]))
            .build()
            .map_err(|_| bad())?;
        let place = Arc::new(Place { client, url, free: Semaphore::new(IN_FLIGHT) });
        Ok(pool.addresses.iter().map(|address| Self { place: place.clone(), address: *address }).collect())
    }

    async fn ask(&self, transaction: &Unsigned) -> Result<Signature, Error> {
        let signer = self.address;
        let raw = self.raw(transaction).await?;
        let (made, signature) = Unsigned::decode(&raw).map_err(|_| Error::Foreign { signer, field: "the form" })?;
        if let Some(field) = difference(transaction, &made) {
            return Err(Error::Foreign { signer, field });
        }
        if recovered(transaction.sighash(), &signature) != Some(signer) {
            return Err(Error::SelfCheck { signer });
        }
        Ok(signature)
    }

    async fn raw(&self, transaction: &Unsigned) -> Result<Vec<u8>, Error> {
        let signer = self.address;
        let silent = |why| move |_| Error::Silent { signer, why };
        let body = serde_json::to_vec(&self.question(transaction)).map_err(silent("the question cannot be written"))?;
        let _turn = self.place.free.acquire().await.map_err(|_| Error::Interrupted)?;
        let sent = self.place.client.post(self.place.url.clone()).body(body).send().await;
        let mut response = sent
            .map_err(|error| Error::Silent { signer, why: if error.is_timeout() { "it took too long" } else { "it is not reachable" } })?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| Error::Silent { signer, why: "its answer broke off" })? {
            if bytes.len() + chunk.len() > ANSWER_MAX {
                return Err(Error::Silent { signer, why: "its answer is too long" });
            }
            bytes.extend_from_slice(&chunk);
        }
        let Ok(reply) = serde_json::from_slice::<Reply>(&bytes) else {
            let why = if (200..300).contains(&status) { "its answer is no JSON-RPC" } else { "it answered with an HTTP error" };
            return Err(Error::Silent { signer, why });
        };
        match reply {
            Reply { result: Some(Answer::Raw(raw) | Answer::Both { raw }), error: None } => {
                bytes_from_hex(&raw).ok_or(Error::Foreign { signer, field: "the form" })
            }
            Reply { error: Some(Refusal { code, message }), .. } => {
                let told = message.unwrap_or_default().chars().filter(|c| !c.is_control()).take(TOLD).collect();
                Err(Error::RemoteRefused { signer, code: code.unwrap_or_default(), told })
            }
            Reply { .. } => Err(Error::Silent { signer, why: "its answer holds nothing" }),
        }
    }

    fn question(&self, transaction: &Unsigned) -> Value {
        let (call, price) = transaction.parts();
        let mut asked = json!({
            "from": self.address.to_string(), "to": call.to.to_string(), "gas": format!("{:#x}", call.gas_limit),
            "value": quantity(&call.value), "nonce": format!("{:#x}", call.nonce), "data": hex_from_bytes(&call.data), "chainId": format!("{:#x}", call.chain_id),
        });
        match transaction.tx_type() {
            TxType::Legacy => asked["gasPrice"] = quantity(&price.max_fee_per_gas).into(),
            TxType::Eip1559 => {
                asked["maxFeePerGas"] = quantity(&price.max_fee_per_gas).into();
                asked["maxPriorityFeePerGas"] = quantity(&price.max_priority_fee_per_gas).into();
            }
        }
        json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_signTransaction", "params": [asked] })
    }
}

/// The first field in which what was signed is not what was asked for.
fn difference(asked: &Unsigned, made: &Unsigned) -> Option<&'static str> {
    let ((call, price), (made_call, made_price)) = (asked.parts(), made.parts());
    let same = [
        ("the type", asked.tx_type() == made.tx_type()),
        ("the chain id", call.chain_id == made_call.chain_id),
        ("the nonce", call.nonce == made_call.nonce),
        ("the target", call.to == made_call.to),
        ("the value", call.value == made_call.value),
        ("the data", call.data == made_call.data),
        ("the gas limit", call.gas_limit == made_call.gas_limit),
        ("the fee cap", price.max_fee_per_gas == made_price.max_fee_per_gas),
        ("the tip", price.max_priority_fee_per_gas == made_price.max_priority_fee_per_gas),
    ];
    same.into_iter().find(|(_, same)| !same).map(|(field, _)| field)
}

impl Signer for RemoteSigner {
    fn address(&self) -> Address {
        self.address
    }

    fn sign<'a>(&'a self, transaction: &'a Unsigned) -> BoxFuture<'a, Result<Signature, Error>> {
        Box::pin(self.ask(transaction))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LocalSigner;
    use super::*;
    use crate::domain::transaction::Eip1559;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn key(byte: u8) -> LocalSigner {
        LocalSigner::new(&[byte; 32]).unwrap()
    }

    fn asked() -> Eip1559 {
        Eip1559 {
            chain_id: 5,
            nonce: 7,
            max_priority_fee_per_gas: Wei::from(1),
            max_fee_per_gas: Wei::from(9),
            gas_limit: 21_000,
            to: Address([3; 20]),
            value: Wei::from(4),
            data: vec![1, 2],
        }
    }

    async fn signed(signer: &LocalSigner, transaction: &Eip1559) -> String {
        hex_from_bytes(&transaction.signed(&signer.sign(&transaction.clone().into()).await.unwrap()).raw)
    }

    /// A signer that gives one answer to each of `times` questions; the questions come back.
    fn place(status: &str, answer: String, times: usize) -> (RemoteSigner, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://user:password@{}", listener.local_addr().unwrap());
        let status = status.to_owned();
        let served = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..times {
                let (mut stream, _) = listener.accept().unwrap();
                let mut text = Vec::new();
                let mut buffer = [0; 4096];
                loop {
                    let count = stream.read(&mut buffer).unwrap();
                    text.extend_from_slice(&buffer[..count]);
                    let shown = String::from_utf8_lossy(&text);
                    if count == 0 || (shown.contains("\r\n\r\n") && shown.trim_end().ends_with("}]}")) {
                        break;
                    }
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    answer.len()
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                asked.push(String::from_utf8_lossy(&text).into_owned());
            }
            asked
        });
        let pool = RemotePool { pool: "a:b".into(), url: url.into(), addresses: vec![key(1).address()] };
        (RemoteSigner::of_pool(&pool, Duration::from_secs(5)).unwrap().remove(0), served)
    }

    async fn answered(answer: String) -> Result<Signature, Error> {
        let (signer, served) = place("200 OK", answer, 1);
        let result = signer.sign(&asked().into()).await;
        served.join().unwrap();
        result
    }

    fn result(raw: &str) -> String {
        json!({ "jsonrpc": "2.0", "id": 1, "result": raw }).to_string()
    }

    #[tokio::test]
    async fn both_shapes_of_an_answer_give_the_signature_and_the_question_holds_the_whole_transaction() {
        let raw = signed(&key(1), &asked()).await;
        let (signer, served) = place("200 OK", result(&raw), 1);
        let signature = signer.sign(&asked().into()).await.unwrap();
        assert_eq!(hex_from_bytes(&asked().signed(&signature).raw), raw);
        let question = served.join().unwrap().remove(0);
        let body: Value = serde_json::from_str(question.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["method"], "eth_signTransaction");
        let wanted = json!({
            "from": key(1).address().to_string(), "to": Address([3; 20]).to_string(), "gas": "0x5208", "maxFeePerGas": "0x9",
            "maxPriorityFeePerGas": "0x1", "value": "0x4", "nonce": "0x7", "data": "0x0102", "chainId": "0x5",
        });
        assert_eq!(body["params"], json!([wanted]));
        let both = json!({ "jsonrpc": "2.0", "id": 1, "result": { "raw": raw, "tx": {} } }).to_string();
        assert!(answered(both).await.is_ok());
    }

    #[tokio::test]
    async fn what_was_not_asked_for_is_refused_whatever_field_differs() {
        type Change = fn(&mut Eip1559);
        let changes: [(&str, Change); 8] = [
            ("the chain id", |t| t.chain_id += 1),
            ("the nonce", |t| t.nonce += 1),
            ("the target", |t| t.to = Address([4; 20])),
            ("the value", |t| t.value = Wei::ZERO),
            ("the data", |t| t.data.clear()),
            ("the gas limit", |t| t.gas_limit += 1),
            ("the fee cap", |t| t.max_fee_per_gas = Wei::from(8)),
            ("the tip", |t| t.max_priority_fee_per_gas = Wei::ZERO),
        ];
        for (name, change) in changes {
            let mut other = asked();
            change(&mut other);
            let error = answered(result(&signed(&key(1), &other).await)).await.unwrap_err();
            assert!(matches!(&error, Error::Foreign { field, .. } if *field == name), "{name}: {error}");
        }
        let stranger = answered(result(&signed(&key(2), &asked()).await)).await.unwrap_err();
        assert!(matches!(stranger, Error::SelfCheck { .. }), "another account's signature");
        for raw in ["0x", "0x02", "zz", "0xf8"] {
            assert!(matches!(answered(result(raw)).await, Err(Error::Foreign { field: "the form", .. })), "{raw}");
        }
    }

    #[tokio::test]
    async fn a_legacy_transaction_is_asked_for_by_its_one_price_and_another_type_is_refused() {
        let (call, price) = Unsigned::from(asked()).parts();
        let legacy = call.priced(TxType::Legacy, price);
        let raw = hex_from_bytes(&legacy.signed(&key(1).sign(&legacy).await.unwrap()).raw);
        let (signer, served) = place("200 OK", result(&raw), 1);
        assert!(signer.sign(&legacy).await.is_ok());
        let question = served.join().unwrap().remove(0);
        assert!(question.contains("\"gasPrice\":\"0x9\"") && !question.contains("maxFeePerGas"), "{question}");
        assert!(matches!(answered(result(&raw)).await, Err(Error::Foreign { field: "the type", .. })));
    }

    #[tokio::test]
    async fn a_refusal_and_a_fault_are_told_apart_and_show_no_url() {
        let refused =
            answered(json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32000, "message": "locked\u{1b}[2J" } }).to_string()).await;
        let error = refused.unwrap_err();
        assert!(matches!(&error, Error::RemoteRefused { code: -32000, told, .. } if told == "locked[2J"), "{error}");
        for answer in ["", "[]", "{}", "<html>", r#"{"result":null}"#] {
            let error = answered(answer.to_owned()).await.unwrap_err();
            assert!(matches!(error, Error::Silent { .. }), "{answer}: {error}");
            assert!(!format!("{error} {error:?}").contains("password"));
        }
        let pool = RemotePool { pool: "a:b".into(), url: "http://127.0.0.1:1".into(), addresses: vec![Address([1; 20])] };
        let signer = RemoteSigner::of_pool(&pool, Duration::from_secs(5)).unwrap().remove(0);
        assert!(matches!(signer.sign(&asked().into()).await, Err(Error::Silent { why: "it is not reachable", .. })));
    }
}
