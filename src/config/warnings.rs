//! Owns what may be configured and is most likely not meant. Never refuses anything and never shows a value: a fault would.
//! Made by `Config::load`; told by `app` when a service starts, and by `operator::doctor`.

use super::http::Http;
use super::service::Role;
use std::fmt;

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

pub(super) fn of(role: Role, has_keys: bool, http: &Http) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn = |name: &str, text: String| found.push(Warning { name: name.into(), text });
    if role.may_hold_keys() && !has_keys {
        warn("SIGNER_KEYS", format!("is not set: this process of role {role} opens no lane and sends nothing"));
    }
    if http.admin_token.is_none() && !http.admin_listen.ip().is_loopback() {
        let text = "is not set while ADMIN_LISTEN is no loopback address: health and metrics are open there, the operators' API is closed";
        warn("ADMIN_TOKEN", text.into());
    }
    found
}
