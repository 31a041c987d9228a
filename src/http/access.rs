//! Owns what happens around every request: its id, its metrics, its log line, and problems told under its id.
//! Never looks into a body. Wrapped around both listeners.

use super::problem::{Kind, Problem};
use crate::telemetry::metrics::{HTTP_REQUEST_SECONDS, HTTP_REQUESTS};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest, HttpMessage, HttpRequest};
use std::future::{Ready, ready};
use std::rc::Rc;
use std::time::Instant;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id under which a request is known to its client and to the log.
#[derive(Clone, Debug)]
pub struct RequestId(pub Rc<str>);

impl FromRequest for RequestId {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let id = request.extensions().get::<Self>().cloned();
        ready(id.ok_or_else(|| Problem::internal(&"the access middleware is not wrapped around this route")))
    }
}

/// Takes the id that the client or a proxy gave, when it is fit for a log, and makes one otherwise.
fn id_of(request: &ServiceRequest) -> RequestId {
    let given = request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let fit = given.filter(|id| (1..=64).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c)));
    RequestId(fit.map_or_else(|| uuid::Uuid::now_v7().to_string().into(), Rc::from))
}

/// A method as a label: a closed set, whatever clients send.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// HEAD is GET without a body: every handler of GET answers it, and the connection keeps the body back, since it has read the request
/// before us.
fn as_get(request: &mut ServiceRequest) {
    if request.method() == Method::HEAD {
        request.head_mut().method = Method::GET;
    }
}

/// The middleware.
///
/// # Errors
/// None: every error becomes a response here, so that it is counted and carries the id.
pub async fn around<B: MessageBody + 'static>(mut request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    let id = id_of(&request);
    let method = label(request.method());
    as_get(&mut request);
    request.extensions_mut().insert(id.clone());
    let response = next.call(request).await?.map_into_boxed_body();
    let told = response.response().error().map(told);
    let mut response = match told {
        Some(problem) => response.into_response(problem.response(&id.0)),
        None => response,
    };
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let route = response.request().match_pattern().unwrap_or_else(|| "unmatched".into());
    let status = response.status().as_u16();
    let took = started.elapsed();
    let class = ["1xx", "2xx", "3xx", "4xx", "5xx"][usize::from((status / 100).clamp(1, 5)) - 1];
    HTTP_REQUESTS.add(1, &[&route, method, class]);
    HTTP_REQUEST_SECONDS.record(took.as_secs_f64(), &[&route, method]);
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(event = "http_request", method, route, status, took_ms, request_id = %id.0, "HTTP request failed");
    } else {
        tracing::debug!(event = "http_request", method, route, status, took_ms, request_id = %id.0, "HTTP request");
    }
    Ok(response)
}

/// An error of ours as it is, one of the framework as the nearest problem.
fn told(error: &Error) -> Problem {
    if let Some(problem) = error.as_error::<Problem>() {
        return problem.clone();
    }
    match error.as_response_error().status_code().as_u16() {
        404 => Problem::new(Kind::NotFound, "there is nothing here"),
        413 => Problem::new(Kind::TooLarge, "the request is too large"),
        400..=499 => Problem::new(Kind::InvalidRequest, "the request cannot be read"),
        _ => Problem::internal(&error),
    }
}
