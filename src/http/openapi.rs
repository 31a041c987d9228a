//! Owns the OpenAPI documents, one a listener, made from the handlers' own descriptions. Tests compare them with the routes, with the
//! parser's fields and with the committed copies in `docs/openapi.json` and `docs/openapi-admin.json`.

use super::{admin, health, jobs, problem, readiness};
use actix_web::HttpResponse;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "Holdfast", description = "A durable transaction coordinator for EVM chains: the public API."),
    paths(
        jobs::submit::submit,
        jobs::batch::batch,
        jobs::get::get,
        jobs::list::list,
        jobs::cancel::cancel,
        document,
    ),
    components(schemas(problem::ProblemBody, problem::FieldProblem)),
    modifiers(&Credentials),
)]
struct Api;

#[derive(OpenApi)]
#[openapi(
    info(title = "Holdfast, admin listener", description = "Health, metrics and the operators' API. Never public."),
    paths(
        admin::overview::overview,
        admin::jobs::list::list,
        admin::jobs::get::get,
        admin::jobs::cancel::cancel,
        admin::jobs::dead::replay,
        admin::jobs::dead::resolve,
        admin::jobs::dead::many,
        admin::transactions::list,
        admin::transactions::get,
        admin::transactions::explain,
        admin::lanes::list,
        admin::lanes::get,
        admin::signers::list,
        admin::drains::signer,
        admin::drains::signer_back,
        admin::retire::signer,
        admin::retire::key,
        admin::retire::pool,
        admin::thaw::thaw,
        admin::workers::list,
        admin::drains::worker,
        admin::drains::worker_back,
        admin::queues::list,
        admin::queues::pause,
        admin::queues::resume,
        admin::queues::rebuild,
        admin::operators::list,
        admin::operators::verify,
        admin::rpc::list,
        admin::actors::list,
        admin_document,
        health::livez::livez,
        health::readyz::readyz,
        health::startupz::startupz,
        health::metrics::metrics,
    ),
    components(schemas(problem::ProblemBody, problem::FieldProblem, readiness::Readiness)),
    modifiers(&Token),
)]
struct AdminApi;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut Document) {
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("ADMIN_TOKEN")).build();
        document.components.get_or_insert_default().add_security_scheme("admin_token", SecurityScheme::Http(token));
    }
}

struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut Document) {
        let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("holdfast_live_…").build();
        document.components.get_or_insert_default().add_security_scheme("api_key", SecurityScheme::Http(key));
    }
}

/// The document of the public listener as text.
///
/// # Errors
/// None that can happen: every part can be written as JSON.
pub fn text() -> Result<String, serde_json::Error> {
    Ok(Api::openapi().to_pretty_json()? + "\n")
}

/// The document of the admin listener as text.
///
/// # Errors
/// As `text`.
pub fn admin_text() -> Result<String, serde_json::Error> {
    Ok(AdminApi::openapi().to_pretty_json()? + "\n")
}

#[utoipa::path(get, path = "/openapi.json", tag = "document", operation_id = "getDocument", responses((status = 200, description = "this document")))]
pub(super) async fn document() -> Result<HttpResponse, problem::Problem> {
    shown(text())
}

#[utoipa::path(get, path = "/openapi.json", tag = "document", operation_id = "getDocument", responses((status = 200, description = "this document")))]
pub(super) async fn admin_document() -> Result<HttpResponse, problem::Problem> {
    shown(admin_text())
}

fn shown(text: Result<String, serde_json::Error>) -> Result<HttpResponse, problem::Problem> {
    let text = text.map_err(|error| problem::Problem::internal(&error))?;
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
        let entries = |table: &[Entry]| -> BTreeSet<_> {
            table.iter().map(|Entry { method, path, .. }| (method.as_str().to_lowercase(), (*path).to_owned())).collect()
        };
        assert_eq!(entries(routes::PUBLIC), described(&shown()));
        let mut on_admin = entries(routes::HEALTH);
        on_admin.extend(admin::ROUTES.iter().map(|(method, path, _)| (method.as_str().to_lowercase(), format!("/admin/v1{path}"))));
        assert_eq!(on_admin, described(&serde_json::from_str(&admin_text().unwrap()).unwrap()));
    }

    /// Methods and paths.
    fn described(document: &serde_json::Value) -> BTreeSet<(String, String)> {
        let paths = document["paths"].as_object().unwrap().iter();
        paths.flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))).collect()
    }

    #[test]
    fn the_document_describes_the_fields_that_the_parser_takes() {
        let document = shown();
        let described: BTreeSet<_> =
            document["components"]["schemas"]["NewJob"]["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(described, parse::FIELDS.iter().map(|field| (*field).to_owned()).collect());
    }

    const AMOUNT: &str = "^(0|[1-9][0-9]{0,77})$";

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
            assert_eq!(schema["pattern"], AMOUNT, "{name}");
        }
        let pattern = regex::Regex::new(AMOUNT).unwrap();
        for text in ["0", "1", "10", "01", "00", "", "-1", "1.0", "1e3", &"9".repeat(78), &"9".repeat(77), &"1".repeat(79)] {
            let taken = text.parse::<entity::values::Wei>().is_ok();
            // What has 78 digits may still be more than 2^256-1, which no pattern says.
            assert_eq!(pattern.is_match(text), taken || text.len() == 78, "{text}");
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
    fn the_committed_documents_are_those_of_the_program() {
        for (name, text) in [("docs/openapi.json", text().unwrap()), ("docs/openapi-admin.json", admin_text().unwrap())] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == text,
                "{name} is not what the program serves: run this test with UPDATE_SNAPSHOTS=1 and look at the difference"
            );
        }
    }
}
