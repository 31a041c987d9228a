//! What can go wrong when a chain is asked. `Failure` is one call at one endpoint; `Error` is what a caller of `chain` gets.
//! Neither ever carries a URL: endpoints are named by host, and texts of providers are tidied.

use crate::domain::rpc_verdict::Class;
use serde_json::Value;
use std::time::Duration;

/// Why a request never left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    #[error("no connection")]
    NoConnection,
    #[error("its circuit is open")]
    CircuitOpen,
    #[error("it asked for a pause")]
    Pausing,
    #[error("it is on another chain")]
    WrongChain,
    #[error("too many requests are under way")]
    Busy,
    #[error("its budget of requests is used up")]
    Throttled,
    #[error("an earlier part of the batch failed")]
    Skipped,
}

/// A JSON-RPC error, with the class its words have.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i64,
    /// Tidied: no control characters, no addresses, not long.
    pub message: String,
    pub data: Option<Value>,
    pub class: Class,
}

/// One call at one endpoint without a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    #[error("not sent: {0}")]
    NotSent(Unsent),
    #[error("no answer in time")]
    Timeout,
    /// After the request may have been written: the endpoint may have acted on it.
    #[error("the connection broke before the answer")]
    Reset,
    #[error("HTTP status {status}")]
    Http { status: u16, retry_after: Option<Duration> },
    #[error("{} ({}): {}", .0.class, .0.code, .0.message)]
    Rpc(RpcError),
    #[error("no JSON-RPC answer: {0}")]
    Malformed(&'static str),
}

impl Failure {
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::NotSent(_) => Class::NotSent,
            Self::Timeout | Self::Reset => Class::NoAnswer,
            Self::Http { status: 429, .. } => Class::RateLimited,
            Self::Http { status: 401..=403, .. } => Class::QuotaOrAuth,
            Self::Http { .. } => Class::ServiceUnavailable,
            Self::Rpc(error) => error.class,
            Self::Malformed(_) => Class::Malformed,
        }
    }

    /// Whether another endpoint may well answer what this one did not. False for a verdict on the call itself.
    #[must_use]
    pub const fn is_endpoint_fault(&self) -> bool {
        self.class().is_endpoint_fault() || matches!(self.class(), Class::MethodUnsupported | Class::Unknown)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator must change the configuration.
    #[error("endpoint {0} is no http or https URL")]
    BadUrl(usize),
    #[error("no endpoint to read from is configured")]
    NoReaders,
    #[error("the HTTP client cannot be set up")]
    Client,
    /// No majority of the endpoints shows the configured chain: nothing may be concluded from them.
    #[error("chain {configured}: {right} of {endpoints} endpoints show it, {wrong} show another, {silent} are silent")]
    ChainIdentity { configured: u64, endpoints: usize, right: usize, wrong: usize, silent: usize },
    #[error("the write endpoint {endpoint} is on chain {found}, not on {configured}")]
    WriteChain { endpoint: String, configured: u64, found: u64 },
    /// Nobody answered in time. It passes: ask again later.
    #[error("no endpoint answers: {0}")]
    Unavailable(Failure),
    /// An endpoint understood the question and refused it.
    #[error("refused: {0}")]
    Refused(Failure),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        if failure.is_endpoint_fault() { Self::Unavailable(failure) } else { Self::Refused(failure) }
    }
}

const MESSAGE_MAX: usize = 300;

/// A provider's text, fit for logs and rows: on one line, not long, and without addresses, for they may hold a key.
#[must_use]
pub fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len().min(MESSAGE_MAX));
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, address) = rest.split_at(at + 3);
        tidy.push_str(before);
        tidy.push('…');
        let end = address.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '>' | ')')).unwrap_or(address.len());
        rest = &address[end..];
        if tidy.len() > MESSAGE_MAX {
            break;
        }
    }
    tidy.push_str(rest);
    tidy.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_providers_text_loses_addresses_and_line_breaks() {
        let text = "Post \"https://user:pw@rpc.example/v3/KEY\": context deadline exceeded\nretry";
        assert_eq!(tidy(text), "Post \"https://…\": context deadline exceeded retry");
        assert_eq!(tidy("see https://a/k1 and wss://b/k2"), "see https://… and wss://…");
        assert_eq!(tidy(&"é".repeat(1000)).chars().count(), MESSAGE_MAX);
    }

    #[test]
    fn a_verdict_on_the_call_is_not_a_fault_of_the_endpoint() {
        let verdict = |class| Failure::Rpc(RpcError { code: -32603, message: String::new(), data: None, class });
        assert!(!verdict(Class::NonceTooLow).is_endpoint_fault());
        assert!(!verdict(Class::Revert).is_endpoint_fault());
        assert!(verdict(Class::RateLimited).is_endpoint_fault());
        assert!(Failure::Timeout.is_endpoint_fault());
        assert!(Failure::Http { status: 429, retry_after: None }.class() == Class::RateLimited);
    }
}
