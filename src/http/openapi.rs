//! Owns the OpenAPI document, made from the handlers' own descriptions. A test compares it with the routes, with the parser's fields
//! and with the committed copy in `docs/openapi.json`.

use super::{health, jobs, problem, readiness};
use actix_web::HttpResponse;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "Holdfast", description = "A durable transaction coordinator for EVM chains. The paths tagged `health` are on the admin listener."),
    paths(
        jobs::submit::submit,
        jobs::batch::batch,
        jobs::get::get,
        jobs::list::list,
        jobs::cancel::cancel,
        document,
        health::livez::livez,
        health::readyz::readyz,
        health::startupz::startupz,
        health::metrics::metrics,
    ),
    components(schemas(problem::ProblemBody, problem::FieldProblem, readiness::Readiness)),
    modifiers(&Credentials),
)]
struct Api;

struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut Document) {
        let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("holdfast_live_…").build();
        document.components.get_or_insert_default().add_security_scheme("api_key", SecurityScheme::Http(key));
    }
}

/// The document as text.
///
/// # Errors
/// None that can happen: every part can be written as JSON.
pub fn text() -> Result<String, serde_json::Error> {
    let mut text = Api::openapi().to_pretty_json()?;
    text.push('\n');
    Ok(text)
}

#[utoipa::path(get, path = "/openapi.json", tag = "document", operation_id = "getDocument", responses((status = 200, description = "this document")))]
pub(super) async fn document() -> Result<HttpResponse, problem::Problem> {
    let text = text().map_err(|error| problem::Problem::internal(&error))?;
    Ok(HttpResponse::Ok().content_type("application/json").body(text))
}

#[cfg(test)]
mod tests {
    use super::super::routes::{self, Entry};
    use super::*;
    use crate::domain::submission::parse;
    use std::collections::BTreeSet;

    fn shown() -> serde_json::Value {
        serde_json::from_str(&text().unwrap()).unwrap()
    }

    #[test]
    fn the_document_has_exactly_the_registered_routes() {
        let registered: BTreeSet<_> = routes::PUBLIC
            .iter()
            .chain(routes::HEALTH)
            .map(|Entry { method, path, .. }| (method.as_str().to_lowercase(), (*path).to_owned()))
            .collect();
        let document = shown();
        let described: BTreeSet<_> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone())))
            .collect();
        assert_eq!(registered, described);
    }

    #[test]
    fn the_document_describes_the_fields_that_the_parser_takes() {
        let document = shown();
        let described: BTreeSet<_> =
            document["components"]["schemas"]["NewJob"]["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(described, parse::FIELDS.iter().map(|field| (*field).to_owned()).collect());
    }

    /// Schemas that an answer or a request may be, of every property: its name and what it says.
    fn properties(schema: &serde_json::Value, found: &mut Vec<(String, serde_json::Value)>) {
        match schema {
            serde_json::Value::Object(members) => {
                let own = members.get("properties").and_then(serde_json::Value::as_object);
                found.extend(own.into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone())));
                members.values().for_each(|member| properties(member, found));
            }
            serde_json::Value::Array(members) => members.iter().for_each(|member| properties(member, found)),
            _ => {}
        }
    }

    #[test]
    fn dec_03_every_amount_of_the_document_is_a_decimal_string_and_a_number_is_refused() {
        let mut all = Vec::new();
        properties(&shown(), &mut all);
        // Wei and gas; a count, a nonce and a block number are no amounts.
        let amounts: Vec<_> =
            all.iter().filter(|(name, _)| ["value", "gas", "fee", "price", "balance"].iter().any(|word| name.contains(word))).collect();
        let names: BTreeSet<&str> = amounts.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["effective_gas_price", "gas_limit", "gas_used", "max_fee_per_gas", "max_priority_fee_per_gas", "value"];
        assert_eq!(names, BTreeSet::from(expected));
        for (name, schema) in amounts {
            let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
            assert!(kinds.iter().all(|kind| kind == "string" || kind == "null"), "{name}: {schema}");
            assert_eq!(schema["pattern"], "^[0-9]+$", "{name}");
        }
        let (pools, now) = ([(1, "local:relayer".to_owned())], chrono::DateTime::UNIX_EPOCH);
        let rules = parse::Rules { chains: &[1], pools: &pools, now };
        let job = |name: &str, amount: serde_json::Value| {
            let mut job = serde_json::json!({
                "kind": "transfer", "chain_id": 1, "pool": "local:relayer", "to": format!("0x{}", "11".repeat(20)), "value": "1",
            });
            job[name] = amount;
            parse::parse(&job, &rules, "")
        };
        for name in ["value", "gas_limit"] {
            assert!(job(name, "21000".into()).is_ok(), "{name}");
            for number in [serde_json::json!(21000), serde_json::json!(21000.0), serde_json::json!(0)] {
                let faults = job(name, number.clone()).unwrap_err();
                assert!(faults.len() == 1 && faults[0].pointer == format!("/{name}"), "{name} {number}: {faults:?}");
            }
        }
    }

    #[test]
    fn the_committed_document_is_the_one_of_the_program() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
        let text = text().unwrap();
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "docs/openapi.json is not what the program serves: run this test with UPDATE_SNAPSHOTS=1 and look at the difference"
        );
    }
}
