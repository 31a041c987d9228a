//! An endpoint as a transport of the web3 crate, for its typed calls. Owns the translation only. Called by whoever wants `web3::api::Eth`.

use super::endpoint::Endpoint;
use super::error::Failure;
use super::types::Role;
use super::wire::{Request, SEND_RAW};
use futures::FutureExt;
use futures::future::BoxFuture;
use jsonrpc_core::{Call, Params, Value};
use std::borrow::Cow;
use std::sync::Arc;
use web3::error::{Error, TransportError};
use web3::{BatchTransport, RequestId, Transport, helpers};

#[derive(Clone, Debug)]
pub struct Web3Transport(Arc<Endpoint>);

impl Web3Transport {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self(endpoint)
    }

    fn request(&self, call: Call) -> Result<Request, Error> {
        let Call::MethodCall(call) = call else { return Err(Error::Internal) };
        // Transactions are sent through the write endpoint alone.
        if call.method == SEND_RAW && !matches!(self.0.role, Role::Write | Role::Both) {
            return Err(Error::Transport(TransportError::Message("a read endpoint sends nothing".to_owned())));
        }
        if !call.method.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
            return Err(Error::Internal);
        }
        let params = match call.params {
            Params::None => "[]".to_owned(),
            params => serde_json::to_string(&params)?,
        };
        Ok(Request { method: Cow::Owned(call.method), params })
    }
}

fn error(failure: Failure) -> Error {
    match failure {
        Failure::Rpc(error) => {
            Error::Rpc(jsonrpc_core::Error { code: jsonrpc_core::ErrorCode::from(error.code), message: error.message, data: error.data })
        }
        Failure::Http { status, .. } => Error::Transport(TransportError::Code(status)),
        Failure::Malformed(what) => Error::InvalidResponse(what.to_owned()),
        other => Error::Transport(TransportError::Message(other.to_string())),
    }
}

impl Transport for Web3Transport {
    type Out = BoxFuture<'static, Result<Value, Error>>;

    fn prepare(&self, method: &str, params: Vec<Value>) -> (RequestId, Call) {
        // The endpoint numbers its requests itself.
        (0, helpers::build_request(0, method, params))
    }

    fn send(&self, _id: RequestId, call: Call) -> Self::Out {
        let this = self.clone();
        async move { this.0.ask_one(this.request(call)?).await.map_err(error) }.boxed()
    }
}

impl BatchTransport for Web3Transport {
    type Batch = BoxFuture<'static, Result<Vec<Result<Value, Error>>, Error>>;

    fn send_batch<T: IntoIterator<Item = (RequestId, Call)>>(&self, requests: T) -> Self::Batch {
        let this = self.clone();
        let calls: Result<Vec<_>, _> = requests.into_iter().map(|(_, call)| self.request(call)).collect();
        async move { Ok(this.0.ask_in_order(&calls?).await.into_iter().map(|answer| answer.map_err(error)).collect()) }.boxed()
    }
}
