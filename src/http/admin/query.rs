//! Owns reading the parameters of a list: every fault at once, each with its place, in our words. Never knows what a parameter means.

use crate::domain::submission::parse::FieldError;
use crate::http::problem::Problem;
use actix_web::HttpRequest;
use actix_web::web;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Lines of a page unless a limit is given.
const LIMIT: u32 = 50;

/// The parameters of a request, taken out one by one.
pub(super) struct Query {
    given: BTreeMap<String, String>,
    known: Vec<&'static str>,
    faults: Vec<FieldError>,
}

impl Query {
    pub fn of(request: &HttpRequest) -> Self {
        let mut read = Self { given: BTreeMap::new(), known: Vec::new(), faults: Vec::new() };
        let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string()).map(web::Query::into_inner).unwrap_or_default();
        for (name, value) in pairs {
            if read.given.contains_key(&name) {
                read.fault(&name, "not-allowed", "is there twice".into());
            }
            read.given.insert(name, value);
        }
        read
    }

    fn fault(&mut self, name: &str, code: &'static str, message: String) {
        self.faults.push(FieldError { pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")), code, message });
    }

    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.given.remove(name)
    }

    /// What it must be is said when it is not.
    pub fn value<T: FromStr>(&mut self, name: &'static str, must_be: &str) -> Option<T> {
        let text = self.text(name)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.fault(name, "malformed", format!("must be {must_be}"));
        }
        value
    }

    pub fn limit(&mut self, most: u32) -> u32 {
        let Some(text) = self.text("limit") else { return LIMIT };
        text.parse().ok().filter(|limit| (1..=most).contains(limit)).unwrap_or_else(|| {
            self.fault("limit", "out-of-range", format!("must be from 1 to {most}"));
            LIMIT
        })
    }

    /// What was read, or every fault; what is left over is unknown.
    ///
    /// # Errors
    /// A problem with all faults.
    pub fn done<T>(mut self, read: T) -> Result<T, Problem> {
        let known = self.known.join(", ");
        for name in std::mem::take(&mut self.given).into_keys() {
            self.fault(&name, "unknown-field", format!("no such parameter; there are {known}"));
        }
        if self.faults.is_empty() { Ok(read) } else { Err(Problem::fields(self.faults)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use entity::values::Address;

    type Read = (Option<i64>, Option<Address>, u32);

    fn read(query: &str) -> Result<Read, Vec<(String, String)>> {
        let mut asked = Query::of(&TestRequest::with_uri(&format!("/x?{query}")).to_http_request());
        let read = (asked.value("chain", "a number"), asked.value("signer", "an address"), asked.limit(200));
        let told = |problem: Problem| problem.body("").errors.into_iter().map(|error| (error.pointer, error.detail)).collect();
        asked.done(read).map_err(told)
    }

    #[test]
    fn parameters_are_read_and_a_limit_is_bounded() {
        assert_eq!(read("").unwrap(), (None, None, 50));
        assert_eq!(read("limit=200&chain=1").unwrap(), (Some(1), None, 200));
        for limit in ["0", "201", "", "ten", "-1"] {
            assert_eq!(read(&format!("limit={limit}")).unwrap_err(), [("/limit".into(), "must be from 1 to 200".into())], "{limit}");
        }
    }

    #[test]
    fn every_fault_is_told_at_once_and_in_our_words() {
        let told = read("signer=0x12&chain=x&what=1&chain=2").unwrap_err();
        let expected = [
            ("/chain", "is there twice"),
            ("/signer", "must be an address"),
            ("/what", "no such parameter; there are chain, signer, limit"),
        ];
        assert_eq!(told, expected.map(|(pointer, detail)| (pointer.to_owned(), detail.to_owned())));
    }
}
