//! Why a command was not done: what happened, why, and what to do next; and the exit code that says so to scripts.

use super::output::Format;
use crate::app;
use crate::config::Faults;
use crate::operator::{self, Meaning};
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Done,
    Internal,
    /// Also for a configuration that cannot be.
    Usage,
    NotFound,
    Refused,
    /// A wait was in vain; what was marked stays marked.
    TimedOut,
    Changed,
    Unavailable,
    /// Checks ran and found something.
    Problems,
    /// What `app` says for a role or a run: 5 (waited in vain) and 8 (partly done) among others.
    Other(u8),
}

impl Code {
    fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::TimedOut => 5,
            Self::Changed => 6,
            Self::Unavailable => 7,
            Self::Problems => 10,
            Self::Other(code) => code,
        }
    }

    /// Of a number that `app` gave.
    pub fn from_app(code: i32) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::Internal,
            2 => Self::Usage,
            3 => Self::NotFound,
            4 => Self::Refused,
            5 => Self::TimedOut,
            6 => Self::Changed,
            7 => Self::Unavailable,
            10 => Self::Problems,
            code => Self::Other(u8::try_from(code).unwrap_or(1)),
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::NotFound => "not-found",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Changed => "changed-concurrently",
            Self::Unavailable => "unavailable",
            Self::Problems => "problems-found",
            Self::Other(8) => "partly-done",
            Self::Other(_) => "failed",
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub what: String,
    pub why: String,
    pub next: Option<String>,
    /// The safety gate that refused.
    pub gate: Option<String>,
}

impl Failure {
    pub fn new(code: Code, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { code, what: what.into(), why: why.into(), next: None, gate: None }
    }

    /// With what to do next.
    pub fn then(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// By a safety gate of this name.
    pub fn by(self, gate: impl Into<String>) -> Self {
        Self { gate: Some(gate.into()), ..self }
    }

    /// To stderr, in the form of the answers.
    pub fn tell(&self, format: Format) {
        let text = match format {
            Format::Text => self.text(),
            Format::Json | Format::Jsonl => self.json().to_string() + "\n",
        };
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }

    fn text(&self) -> String {
        let mut text = format!("holdfast: {}\n", self.what);
        let gate = self.gate.as_ref().map(|gate| ("gate", gate));
        let lines = [Some(("why", &self.why)).filter(|(_, why)| !why.is_empty()), gate, self.next.as_ref().map(|next| ("next", next))];
        for (name, value) in lines.into_iter().flatten() {
            let value = value.trim_end().replace('\n', "\n        ");
            text.push_str(&format!("  {:<6}{value}\n", format!("{name}:")));
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "type": format!("urn:holdfast:problem:{}", self.code.word()),
            "title": self.what,
            "detail": self.why,
            "code": self.code.word(),
            "exit": self.code.number(),
            "gate": self.gate,
            "next": self.next,
        })
    }
}

impl From<operator::Error> for Failure {
    fn from(error: operator::Error) -> Self {
        let (code, what) = match error.meaning() {
            Meaning::Usage => (Code::Usage, "the command cannot be done as it was given"),
            Meaning::NotFound => (Code::NotFound, "not found"),
            Meaning::Refused => (Code::Refused, "refused"),
            Meaning::Changed => (Code::Changed, "something else was changing the same at this moment"),
            Meaning::Unavailable => (Code::Unavailable, "something that is needed is not available"),
            Meaning::Internal => (Code::Internal, "this must not happen"),
        };
        Self { gate: error.gate().map(Into::into), next: error.next().map(Into::into), ..Self::new(code, what, error.to_string()) }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        let what = if faults.0.len() == 1 { "one setting is wrong".into() } else { format!("{} settings are wrong", faults.0.len()) };
        Self::new(Code::Usage, what, faults.to_string())
            .then("set them right in the environment or the file; holdfast doctor checks the rest")
    }
}

impl From<app::Error> for Failure {
    fn from(error: app::Error) -> Self {
        Self {
            next: error.next(),
            gate: error.gate().map(Into::into),
            ..Self::new(Code::from_app(error.exit_code()), "it did not come up or did not end well", error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store;

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let code = |error: operator::Error| Failure::from(error).code.number();
        assert_eq!(code(operator::Error::NoOperator), 2);
        assert_eq!(code(operator::Error::NotFound { what: "job", id: "x".into() }), 3);
        assert_eq!(code(store::Error::Denied("x".into()).into()), 4);
        assert_eq!(code(store::Error::Conflict("x".into()).into()), 6);
        for away in [store::Error::Unavailable("x".into()), store::Error::Timeout, store::Error::PoolExhausted { waiting: 1 }] {
            assert_eq!(code(away.into()), 7);
        }
        assert_eq!(code(store::Error::Answer("x".into()).into()), 1);
        assert_eq!(Code::Problems.number(), 10);
        assert_eq!((Code::from_app(5).number(), Code::from_app(-1).number(), Code::from_app(300).number()), (5, 1, 1));
    }

    #[test]
    fn a_role_that_did_not_start_is_told_by_the_word_of_its_code_and_with_its_gate() {
        let in_use = crate::local::Error::InUse { dir: "/d".into(), pid: 7 };
        let told = Failure::from(app::Error::from(in_use));
        assert_eq!((told.json()["code"].as_str(), told.json()["gate"].as_str()), (Some("refused"), Some("data-folder-in-use")));
        assert!(told.text().contains("\n  gate: data-folder-in-use\n"), "{}", told.text());
        let words: Vec<_> = [1, 2, 5, 7, 8].into_iter().map(|code| Code::from_app(code).word()).collect();
        assert_eq!(words, ["internal", "usage", "timed-out", "unavailable", "partly-done"]);
    }

    #[test]
    fn a_failure_says_what_why_and_what_next() {
        let failure = Failure::new(Code::Refused, "not cancelled", "it owns a nonce").by("nonce-bound").then("holdfast jobs explain 1");
        assert_eq!(
            failure.text(),
            "holdfast: not cancelled\n  why:  it owns a nonce\n  gate: nonce-bound\n  next: holdfast jobs explain 1\n"
        );
        let json = failure.json();
        assert_eq!((json["code"].as_str(), json["exit"].as_u64(), json["gate"].as_str()), (Some("refused"), Some(4), Some("nonce-bound")));
        let lines = Failure::new(Code::Usage, "two", "a: x\nb: y").text();
        assert_eq!(lines, "holdfast: two\n  why:  a: x\n        b: y\n");
    }
}
