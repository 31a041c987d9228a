//! `GET /admin/v1/rpc`: the endpoints of the chains, by host.

use super::State;
use crate::http::problem::Problem;
use actix_web::HttpResponse;
use serde_json::json;

pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(json!({ "items": state.endpoints.ask(()).await, "next_cursor": null })))
}
