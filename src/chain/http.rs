//! One HTTP connection pool to one endpoint. Owns the URL with its credentials and the limits of an exchange; knows nothing of JSON-RPC.
//! Called by `endpoint` only. The URL never leaves this file.

use super::error::{Error, Failure, Unsent};
use crate::clock::{Clock as _, SystemClock};
use chrono::{DateTime, Utc};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use std::time::Duration;

/// An answer larger than this is not read to its end.
const ANSWER_MAX: usize = 16 * 1024 * 1024;
const CONNECT_MAX: Duration = Duration::from_secs(2);

pub struct Http {
    client: reqwest::Client,
    url: reqwest::Url,
    name: String,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http").field(&self.name).finish()
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub bytes: Vec<u8>,
}

impl Http {
    /// `index` names the URL in an error, for the URL itself may hold a secret.
    pub fn new(url: &SecretString, index: usize, timeout: Duration) -> Result<Self, Error> {
        let url: reqwest::Url = url.expose_secret().trim().parse().map_err(|_| Error::BadUrl(index))?;
        let (true, Some(host)) = (matches!(url.scheme(), "http" | "https"), url.host_str()) else { return Err(Error::BadUrl(index)) };
        let name = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        // An error here means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .http1_only()
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .connect_timeout(timeout.min(CONNECT_MAX))
            .timeout(timeout)
            .pool_idle_timeout(Duration::from_secs(60))
            // A redirect would carry the credentials of the URL to another host; a retry would hide what happened to a send.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .default_headers(HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]))
            .build()
            .map_err(|_| Error::Client)?;
        Ok(Self { client, url, name })
    }

    /// Host and port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One exchange. `NotSent` is certain; every other failure may have reached the endpoint.
    pub async fn post(&self, body: Vec<u8>) -> Result<Reply, Failure> {
        let mut response = self.client.post(self.url.clone()).body(body).send().await.map_err(|error| failure(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| pause(value.to_str().ok()?, SystemClock.now()));
        let expected = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(expected.min(ANSWER_MAX));
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if bytes.len() + chunk.len() > ANSWER_MAX {
                return Err(Failure::Malformed("an answer over 16 MiB"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Reply { status, retry_after, bytes })
    }
}

/// What a Retry-After asks for: seconds, or a date.
fn pause(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = DateTime::parse_from_rfc2822(text).ok()?.with_timezone(&Utc);
    Some((until - now).to_std().unwrap_or_default())
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_connect() {
        Failure::NotSent(Unsent::NoConnection)
    } else if error.is_timeout() {
        Failure::Timeout
    } else {
        Failure::Reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_debug_form_hold_no_secret() {
        let url = SecretString::from("https://user:password@rpc.example:8545/v3/KEY?token=SECRET");
        let http = Http::new(&url, 0, Duration::from_secs(1)).unwrap();
        assert_eq!(http.name(), "rpc.example:8545");
        assert_eq!(format!("{http:?}"), "Http(\"rpc.example:8545\")");
    }

    #[test]
    fn a_pause_is_asked_for_in_seconds_or_until_a_date() {
        let now = DateTime::parse_from_rfc2822("Tue, 01 Dec 2026 10:00:00 GMT").unwrap().with_timezone(&Utc);
        assert_eq!(pause(" 3 ", now), Some(Duration::from_secs(3)));
        assert_eq!(pause("Tue, 01 Dec 2026 10:00:07 GMT", now), Some(Duration::from_secs(7)));
        assert_eq!(pause("Tue, 01 Dec 2026 09:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(pause("soon", now), None);
    }

    #[test]
    fn only_http_urls_are_taken_and_a_bad_one_is_named_by_its_place() {
        for url in ["", "KEY", "ftp://host", "ws://host", "http://"] {
            let error = Http::new(&SecretString::from(url), 2, Duration::from_secs(1)).unwrap_err();
            assert_eq!(error.to_string(), "endpoint 2 is no http or https URL");
        }
    }
}
