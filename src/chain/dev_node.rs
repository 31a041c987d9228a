//! What only a development node can do: pay and deploy from accounts it holds unlocked, and show every event of a contract.
//! Called by `app` for `dev`, `demo` and `bench`; no part of the service itself asks a node for any of it.

use entity::values::{Address, Hash, Wei, bytes_from_hex, hex_from_bytes};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the development node does not answer {method}")]
    Unavailable { method: &'static str },
    #[error("the development node refuses {method}: {message}")]
    Refused { method: &'static str, message: String },
    #[error("the transaction was not mined within 60 s")]
    NotMined,
}

/// A development node.
#[derive(Clone)]
pub struct DevNode {
    http: reqwest::Client,
    url: SecretString,
}

const MINED_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

impl DevNode {
    /// # Errors
    /// `Unavailable` when no client can be made.
    pub fn new(url: SecretString) -> Result<Self, Error> {
        let http =
            reqwest::Client::builder().timeout(Duration::from_secs(20)).build().map_err(|_| Error::Unavailable { method: "start" })?;
        Ok(Self { http, url })
    }

    /// One call, its result as it came.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn call(&self, method: &'static str, params: Value) -> Result<Value, Error> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = self.http.post(self.url.expose_secret()).json(&body).send().await.map_err(|_| Error::Unavailable { method })?;
        let mut answer: Value = answer.json().await.map_err(|_| Error::Unavailable { method })?;
        match answer.get("error").filter(|error| !error.is_null()) {
            Some(error) => Err(Error::Refused { method, message: error["message"].as_str().unwrap_or("no message").to_owned() }),
            None => Ok(answer["result"].take()),
        }
    }

    /// # Errors
    /// See [`Error`].
    pub async fn chain_id(&self) -> Result<u64, Error> {
        quantity("eth_chainId", &self.call("eth_chainId", json!([])).await?)
    }

    /// The first account that the node holds unlocked.
    ///
    /// # Errors
    /// `Refused` when it holds none: then it is no development node.
    pub async fn account(&self) -> Result<Address, Error> {
        let accounts = self.call("eth_accounts", json!([])).await?;
        let first = accounts[0].as_str().and_then(|text| text.parse().ok());
        first.ok_or(Error::Refused { method: "eth_accounts", message: "the node holds no unlocked account".into() })
    }

    async fn mined(&self, transaction: Value) -> Result<Value, Error> {
        let hash = self.call("eth_sendTransaction", json!([transaction])).await?;
        self.receipt(&hash).await
    }

    async fn receipt(&self, hash: &Value) -> Result<Value, Error> {
        let waited = tokio::time::timeout(MINED_WITHIN, async {
            loop {
                let receipt = self.call("eth_getTransactionReceipt", json!([hash])).await?;
                if !receipt.is_null() {
                    return Ok(receipt);
                }
                tokio::time::sleep(POLL).await;
            }
        });
        waited.await.map_err(|_| Error::NotMined)?
    }

    /// Pays from the node's own account and waits until all of it is mined. Sent one after the other: the node picks the nonces.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn pay(&self, to: &[Address], value: Wei) -> Result<(), Error> {
        if to.is_empty() {
            return Ok(());
        }
        let from = self.account().await?;
        let mut sent = Vec::with_capacity(to.len());
        for to in to {
            sent.push(self.call("eth_sendTransaction", json!([{"from": from, "to": to, "value": format!("{:#x}", value.0)}])).await?);
        }
        for hash in sent {
            self.receipt(&hash).await?;
        }
        Ok(())
    }

    /// # Errors
    /// See [`Error`].
    pub async fn balance(&self, of: Address) -> Result<Wei, Error> {
        let text = self.call("eth_getBalance", json!([of, "latest"])).await?;
        let digits = text.as_str().and_then(|text| text.strip_prefix("0x")).unwrap_or_default();
        primitive_types::U256::from_str_radix(digits, 16).map(Wei).map_err(|_| Error::Unavailable { method: "eth_getBalance" })
    }

    /// # Errors
    /// See [`Error`].
    pub async fn nonce(&self, of: Address) -> Result<u64, Error> {
        quantity("eth_getTransactionCount", &self.call("eth_getTransactionCount", json!([of, "latest"])).await?)
    }

    /// Deploys a contract from the node's own account.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn deploy(&self, bytecode: &str) -> Result<Address, Error> {
        let from = self.account().await?;
        let receipt = self.mined(json!({"from": from, "data": bytecode})).await?;
        let address = receipt["contractAddress"].as_str().and_then(|text| text.parse().ok());
        address.ok_or(Error::Refused { method: "eth_sendTransaction", message: "the receipt names no contract".into() })
    }

    /// # Errors
    /// See [`Error`].
    pub async fn has_code(&self, at: Address) -> Result<bool, Error> {
        let code = self.call("eth_getCode", json!([at, "latest"])).await?;
        Ok(code.as_str().and_then(bytes_from_hex).is_some_and(|code| !code.is_empty()))
    }

    /// The second topic of every event of `contract` whose first topic is `event`, oldest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, contract: Address, event: Hash) -> Result<Vec<Hash>, Error> {
        let filter = json!([{"address": contract, "fromBlock": "0x0", "toBlock": "latest", "topics": [event]}]);
        let logs = self.call("eth_getLogs", filter).await?;
        let logs = logs.as_array().ok_or(Error::Unavailable { method: "eth_getLogs" })?;
        Ok(logs.iter().filter_map(|log| log["topics"][1].as_str()?.parse().ok()).collect())
    }
}

fn quantity(method: &'static str, value: &Value) -> Result<u64, Error> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(Error::Unavailable { method })
}

/// The creation code of a compiled contract, from its artefact.
#[must_use]
pub fn bytecode(artefact: &str) -> Option<String> {
    let artefact: Value = serde_json::from_str(artefact).ok()?;
    let code = artefact["bytecode"].as_str()?;
    bytes_from_hex(code).map(|bytes| hex_from_bytes(&bytes))
}
