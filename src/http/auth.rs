//! Owns who asks: the project behind an API key, and whether the operators' token was shown.
//! Never says why credentials were refused, never keeps a secret: only the hash of one. Called through extractors by the handlers.

use super::door::Door;
use super::problem::{Kind, Problem};
use crate::domain::api_key::{self, Parts};
use crate::store;
use crate::store::keys::LiveKey;
use crate::telemetry::metrics::AUTH_FAILURES;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpRequest, web};
use entity::values::Hash;
use futures::future::LocalBoxFuture;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;

/// How long a revoked key may still open.
const KNOWN_FOR: Duration = Duration::from_secs(20);
/// How long a key that was just created may still be refused.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);
const REMEMBERED: usize = 10_000;
const GATES: usize = 16;

/// Looks a live key up by its id.
pub type Lookup = Door<String, Result<Option<LiveKey>, store::Error>>;

/// The API keys, behind a bounded memory: a busy key costs one read in `KNOWN_FOR`, a wrong one in `UNKNOWN_FOR`.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lookup: Lookup,
    memory: RwLock<HashMap<String, Remembered>>,
    /// Who misses waits here for the one that reads, or every request of a busy key would read when its memory expires.
    gates: [Mutex<()>; GATES],
}

#[derive(Clone, Debug)]
struct Remembered {
    key: Option<LiveKey>,
    until: Instant,
}

impl Keys {
    #[must_use]
    pub fn new(lookup: Lookup) -> Self {
        Self(Arc::new(Inner { lookup, memory: RwLock::default(), gates: Default::default() }))
    }

    /// The project of a presented key.
    ///
    /// # Errors
    /// 401 that is the same for an unknown, a revoked and a wrong key; what the database says otherwise.
    pub async fn project(&self, text: &str) -> Result<String, Problem> {
        self.project_at(text, Instant::now()).await
    }

    async fn project_at(&self, text: &str, now: Instant) -> Result<String, Problem> {
        let Some(presented) = api_key::parse(text) else {
            AUTH_FAILURES.add(1, &["malformed"]);
            return Err(refused());
        };
        let key = self.find(&presented, now).await?;
        // The comparison is made for an unknown id too, so that both take the same time.
        let expected = key.as_ref().map_or(Hash([0; 32]), |key| key.secret_hash);
        let same = bool::from(expected.0.ct_eq(&presented.hash().0));
        key.filter(|_| same).map(|key| key.project).ok_or_else(|| {
            AUTH_FAILURES.add(1, &["unknown"]);
            refused()
        })
    }

    async fn find(&self, presented: &Parts<'_>, now: Instant) -> Result<Option<LiveKey>, Problem> {
        if let Some(known) = self.remembered(presented.id(), now) {
            return Ok(known);
        }
        let gate = presented.id().bytes().fold(0, |sum: usize, byte| sum * 31 % 65_521 + usize::from(byte)) % GATES;
        let _gate = self.0.gates[gate].lock().await;
        if let Some(known) = self.remembered(presented.id(), now) {
            return Ok(known);
        }
        let key = self.0.lookup.ask(presented.id().to_owned()).await?;
        self.remember(presented.id().to_owned(), key.clone(), now);
        Ok(key)
    }

    fn remembered(&self, id: &str, now: Instant) -> Option<Option<LiveKey>> {
        let memory = self.0.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.get(id).filter(|known| known.until > now).map(|known| known.key.clone())
    }

    fn remember(&self, id: String, key: Option<LiveKey>, now: Instant) {
        let until = now + if key.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
        let mut memory = self.0.memory.write().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED {
            memory.retain(|_, known| known.until > now);
            // Made-up ids must not push the real ones out.
            if memory.len() >= REMEMBERED {
                memory.retain(|_, known| known.key.is_some());
            }
            if memory.len() >= REMEMBERED {
                memory.clear();
            }
        }
        memory.insert(id, Remembered { key, until });
    }
}

fn refused() -> Problem {
    Problem::unauthorized("the credentials are not valid")
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        AUTH_FAILURES.add(1, &["missing"]);
        return Err(Problem::unauthorized("send Authorization: Bearer KEY"));
    };
    let token = header.to_str().ok().and_then(|text| text.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    token.map(|(_, token)| token.trim()).ok_or_else(|| {
        AUTH_FAILURES.add(1, &["malformed"]);
        refused()
    })
}

/// The caller of a public route.
#[derive(Clone, Debug)]
pub struct Caller {
    pub project: String,
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = LocalBoxFuture<'static, Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let keys = request.app_data::<web::Data<super::Public>>().map(|state| state.keys.clone());
        let token = bearer(request.headers()).map(str::to_owned);
        Box::pin(async move {
            let keys = keys.ok_or_else(|| Problem::internal(&"the public listener has no state"))?;
            Ok(Self { project: keys.project(&token?).await? })
        })
    }
}

/// What opens the operators' API; None keeps it closed.
#[derive(Clone, Debug, Default)]
pub struct AdminToken(Option<Hash>);

impl AdminToken {
    #[must_use]
    pub fn new(token: Option<&SecretString>) -> Self {
        Self(token.map(|token| digest(token.expose_secret())))
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(expected) = &self.0 else {
            AUTH_FAILURES.add(1, &["forbidden"]);
            return Err(Problem::new(Kind::Forbidden, "no ADMIN_TOKEN is configured: the operators' API is closed"));
        };
        // Hashes are compared, so that not even the length of the token shows in the time.
        if bool::from(digest(bearer(headers)?).0.ct_eq(&expected.0)) {
            return Ok(());
        }
        AUTH_FAILURES.add(1, &["unknown"]);
        Err(refused())
    }
}

fn digest(text: &str) -> Hash {
    Hash(Sha256::digest(text.as_bytes()).into())
}

/// The middleware in front of the operators' API.
///
/// # Errors
/// 401 without the token, 403 when none is configured.
pub async fn operators_only<B: MessageBody + 'static>(request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<BoxBody>, Error> {
    let closed = AdminToken::default();
    let token = request.app_data::<web::Data<AdminToken>>().map_or(&closed, |token| token.get_ref());
    match token.check(request.headers()) {
        Ok(()) => Ok(next.call(request).await?.map_into_boxed_body()),
        Err(problem) => Ok(request.error_response(problem)),
    }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
