//! Owns what a refused request is told (RFC 9457) and the one mapping of errors to statuses.
//! Never shows what an error says of our inside: that goes to the log under the request's id.

use crate::actors::intake;
use crate::domain::submission::parse::FieldError;
use crate::operator;
use crate::store;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use entity::states::JobState;
use serde::Serialize;
use std::fmt;
use utoipa::ToSchema;

/// Every kind of refusal: code, status, title. A client may rely on the code and the status.
macro_rules! kinds {
    ($($name:ident = $code:literal $status:ident $title:literal)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($name),+ }

        impl Kind {
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code),+ }
            }

            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),+ }
            }

            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),+ }
            }
        }
    };
}

kinds! {
    MalformedJson = "malformed-json" BAD_REQUEST "The body is not JSON"
    InvalidRequest = "invalid-request" BAD_REQUEST "The request is not valid"
    KeyMissing = "idempotency-key-missing" BAD_REQUEST "An Idempotency-Key is required"
    KeyInvalid = "idempotency-key-invalid" BAD_REQUEST "The Idempotency-Key is not valid"
    CursorInvalid = "cursor-invalid" BAD_REQUEST "The cursor is not valid"
    Unauthorized = "unauthorized" UNAUTHORIZED "Valid credentials are required"
    Forbidden = "forbidden" FORBIDDEN "Not allowed"
    NotFound = "not-found" NOT_FOUND "Not found"
    MethodNotAllowed = "method-not-allowed" METHOD_NOT_ALLOWED "Method not allowed"
    BodyTimeout = "body-timeout" REQUEST_TIMEOUT "The body did not arrive in time"
    KeyInProgress = "idempotency-in-progress" CONFLICT "The first request under this key is still in progress"
    NotCancellable = "not-cancellable" CONFLICT "The job can no longer be cancelled"
    Conflict = "conflict" CONFLICT "Changed concurrently"
    TooLarge = "body-too-large" PAYLOAD_TOO_LARGE "The body is too large"
    WrongType = "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "Unsupported media type"
    KeyMismatch = "idempotency-key-mismatch" UNPROCESSABLE_ENTITY "The Idempotency-Key was used for another request"
    Internal = "internal" INTERNAL_SERVER_ERROR "Internal error"
    Overloaded = "overloaded" SERVICE_UNAVAILABLE "Too much work waits"
    Unavailable = "unavailable" SERVICE_UNAVAILABLE "Temporarily unavailable"
    Timeout = "timeout" GATEWAY_TIMEOUT "The database took too long"
}

/// Most faults that one answer tells: a body may have thousands, and nobody reads them.
const ERRORS_MAX: usize = 20;

/// Why a request was refused, before it is known under which id.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    /// Of which `errors` are the first; None when they are all.
    errors_total: Option<usize>,
    state: Option<JobState>,
    allow: Vec<Method>,
    bearer: bool,
}

impl Problem {
    #[must_use]
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), errors_total: None, state: None, allow: Vec::new(), bearer: false }
    }

    #[must_use]
    pub fn fields(mut errors: Vec<FieldError>) -> Self {
        let count = errors.len();
        let plural = if count == 1 { "field is" } else { "fields are" };
        let mut detail = format!("{count} {plural} not valid");
        let more = count > ERRORS_MAX;
        if more {
            errors.truncate(ERRORS_MAX);
            detail.push_str(&format!("; these are the first {ERRORS_MAX}"));
        }
        Self { errors, errors_total: more.then_some(count), ..Self::new(Kind::InvalidRequest, detail) }
    }

    #[must_use]
    pub fn not_cancellable(state: JobState) -> Self {
        let detail = format!("the job has ended: it is {state}");
        Self { state: Some(state), ..Self::new(Kind::NotCancellable, detail) }
    }

    #[must_use]
    pub fn method_not_allowed(mut allow: Vec<Method>) -> Self {
        if allow.contains(&Method::GET) {
            allow.push(Method::HEAD);
        }
        Self { allow, ..Self::new(Kind::MethodNotAllowed, "this resource does not take that method") }
    }

    /// 401 that says which scheme is wanted.
    #[must_use]
    pub fn unauthorized(detail: &str) -> Self {
        Self { bearer: true, ..Self::new(Kind::Unauthorized, detail) }
    }

    /// Something broke inside: the cause goes to the log, the client learns only that.
    #[must_use]
    pub fn internal(cause: &dyn fmt::Display) -> Self {
        tracing::error!(event = "http_internal_error", cause = %cause, "A request failed inside");
        Self::new(Kind::Internal, "the service failed; quote the request id to its operator")
    }

    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The body under the id of its request.
    #[must_use]
    pub fn body(&self, request_id: &str) -> ProblemBody {
        ProblemBody {
            kind: format!("urn:holdfast:problem:{}", self.kind.code()),
            title: self.kind.title().into(),
            status: self.kind.status().as_u16(),
            detail: self.detail.clone(),
            code: self.kind.code().into(),
            request_id: request_id.into(),
            errors: self
                .errors
                .iter()
                .map(|error| FieldProblem { pointer: error.pointer.clone(), code: error.code.into(), detail: error.message.clone() })
                .collect(),
            errors_total: self.errors_total,
            state: self.state.map(|state| state.as_str().into()),
        }
    }

    #[must_use]
    pub fn response(&self, request_id: &str) -> HttpResponse {
        let mut response = HttpResponse::build(self.kind.status()).json(self.body(request_id));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.kind.status() == StatusCode::SERVICE_UNAVAILABLE || self.kind == Kind::KeyInProgress {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.bearer {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"holdfast\""));
        }
        let allow = self.allow.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        if let (false, Ok(allow)) = (allow.is_empty(), HeaderValue::from_str(&allow)) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.kind.status()
    }

    /// Without an id: `access` answers again with one.
    fn error_response(&self) -> HttpResponse {
        self.response("")
    }
}

/// RFC 9457, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// Stable; the last part of `type`.
    pub code: String,
    pub request_id: String,
    /// The first 20 faults of the request.
    pub errors: Vec<FieldProblem>,
    /// How many there are in all, when there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_total: Option<usize>,
    /// Of the job, where the refusal depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// One fault of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer into the request.
    pub pointer: String,
    pub code: String,
    pub detail: String,
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::PoolExhausted { .. } => Self::new(Kind::Overloaded, "too many requests wait for the database"),
            store::Error::NoConnection => Self::new(Kind::Overloaded, "no connection to the database became free in time"),
            store::Error::Unavailable(cause) => {
                tracing::warn!(event = "http_database_unavailable", cause, "Postgres was not reachable for a request");
                Self::new(Kind::Unavailable, "the database is not reachable")
            }
            store::Error::Timeout => Self::new(Kind::Timeout, "the database did not answer within its time limit"),
            store::Error::Conflict(cause) => {
                tracing::warn!(event = "http_database_conflict", cause, "A request met a concurrent change");
                Self::new(Kind::Unavailable, "the request met a concurrent change: try again")
            }
            store::Error::Schema { .. } => Self::new(Kind::Unavailable, "the schema of the database is not the one of this program"),
            store::Error::Refused(_) | store::Error::Denied(_) | store::Error::Answer(_) => Self::internal(&error),
        }
    }
}

impl From<intake::Error> for Problem {
    fn from(error: intake::Error) -> Self {
        match error {
            intake::Error::Busy => Self::new(Kind::Overloaded, "too many submissions wait: try again"),
            intake::Error::InProgress => Self::new(Kind::KeyInProgress, "ask again for the result"),
            intake::Error::Lost => {
                Self::new(Kind::Unavailable, "it is not known whether the work was accepted: the same request under the same key is safe")
            }
            intake::Error::Store(error) => error.into(),
        }
    }
}

impl From<operator::Error> for Problem {
    fn from(error: operator::Error) -> Self {
        use operator::Meaning;
        let meaning = error.meaning();
        match (error, meaning) {
            (operator::Error::Store(error), _) => error.into(),
            (error, Meaning::Usage) => Self::new(Kind::InvalidRequest, error.to_string()),
            (error, Meaning::NotFound) => Self::new(Kind::NotFound, error.to_string()),
            (error, Meaning::Refused | Meaning::Changed) => Self::new(Kind::Conflict, error.to_string()),
            (error, Meaning::Unavailable) => {
                tracing::warn!(event = "http_dependency_unavailable", cause = %error, "A dependency was not reachable for a request");
                Self::new(Kind::Unavailable, "a dependency of the service is not reachable")
            }
            (error, Meaning::Internal) => Self::internal(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::MessageBody;

    fn shown(problem: &Problem) -> serde_json::Value {
        serde_json::from_slice(&problem.response("r1").into_body().try_into_bytes().unwrap()).unwrap()
    }

    #[test]
    fn a_problem_has_the_promised_members() {
        let fault = FieldError { pointer: "/to".into(), code: "malformed", message: "no".into() };
        let problem = Problem::fields(vec![fault]);
        let response = problem.response("r1");
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers().get(CONTENT_TYPE).unwrap(), "application/problem+json");
        assert_eq!(
            shown(&problem),
            serde_json::json!({
                "type": "urn:holdfast:problem:invalid-request", "title": "The request is not valid", "status": 400,
                "detail": "1 field is not valid", "code": "invalid-request", "request_id": "r1",
                "errors": [{"pointer": "/to", "code": "malformed", "detail": "no"}],
            })
        );
    }

    #[test]
    fn errors_of_the_database_get_the_promised_statuses() {
        let status = |error: store::Error| Problem::from(error).response("r").status().as_u16();
        assert_eq!(status(store::Error::PoolExhausted { waiting: 50 }), 503);
        assert_eq!(status(store::Error::NoConnection), 503);
        assert_eq!(status(store::Error::Unavailable("x".into())), 503);
        assert_eq!(status(store::Error::Timeout), 504);
        assert_eq!(status(store::Error::Conflict("x".into())), 503);
        assert_eq!(status(store::Error::Schema { found: 1, expected: 2 }), 503);
        for error in [store::Error::Refused("x".into()), store::Error::Denied("x".into()), store::Error::Answer("x".into())] {
            assert_eq!(status(error), 500);
        }
    }

    #[test]
    fn every_503_says_when_to_come_back() {
        for problem in [intake::Error::Busy.into(), intake::Error::Lost.into(), Problem::from(store::Error::PoolExhausted { waiting: 1 })] {
            let response = problem.response("r");
            assert_eq!((response.status().as_u16(), response.headers().get(RETRY_AFTER).unwrap().as_bytes()), (503, b"1".as_slice()));
        }
    }

    #[test]
    fn what_broke_inside_is_not_shown() {
        let problem = Problem::from(store::Error::Refused("secret column".into()));
        assert!(!shown(&problem).to_string().contains("secret"));
    }

    #[test]
    fn a_refused_cancellation_names_the_state() {
        let shown = shown(&Problem::not_cancellable(JobState::Completed));
        assert_eq!((shown["status"].as_u64(), shown["state"].as_str()), (Some(409), Some("completed")));
    }
}
