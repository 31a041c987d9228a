//! `holdfast version`.

use super::Global;
use super::failure::{Code, Failure};
use super::output::answer;
use serde_json::json;

pub fn run(global: &Global) -> Result<Code, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    answer(global, "version", &json!({ "version": version, "schema": migration::EXPECTED }), |page| {
        page.line(format!("holdfast {version}, schema {}", migration::EXPECTED));
    })?;
    Ok(Code::Done)
}
