//! Owns what may be configured and is most likely not meant. Never refuses anything and never shows a value: a fault would.
//! Made by `Config::load`; told by `app` when a service starts, and by `operator::doctor`.

use super::http::Http;
use super::service::Role;
use std::fmt;
use std::time::Duration;

/// One thing that somebody should look at, under the name of the variable that changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub name: String,
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.text)
    }
}

pub(super) fn of(role: Role, has_keys: bool, http: &Http, lock: Option<Duration>, rpc_timeout: Option<Duration>) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn = |name: &str, text: String| found.push(Warning { name: name.into(), text });
    if role.may_hold_keys() && !has_keys {
        warn("SIGNER_KEYS", format!("is not set: this process of role {role} opens no lane and sends nothing"));
    }
    if http.admin_token.is_none() && !http.admin_listen.ip().is_loopback() {
        let text = "is not set while ADMIN_LISTEN is no loopback address: health and metrics are open there, the operators' API is closed";
        warn("ADMIN_TOKEN", text.into());
    }
    // A burst of slow endpoints must not look like a dead process.
    if let (Some(lock), Some(timeout)) = (lock, rpc_timeout)
        && lock < timeout * 2
    {
        let text =
            format!("of {} s is less than twice RPC_TIMEOUT_MILLISECONDS: slow endpoints may cost deliveries their locks", lock.as_secs());
        warn("QUEUE_LOCK_SECONDS", text);
    }
    found
}
