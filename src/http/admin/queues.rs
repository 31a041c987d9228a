//! `GET /admin/v1/queues`: the queue in Redis.

use super::State;
use crate::http::problem::Problem;
use actix_web::HttpResponse;
use serde_json::json;

pub async fn list(state: State) -> Result<HttpResponse, Problem> {
    let queue = state.queue.ask(()).await?;
    Ok(HttpResponse::Ok().json(json!({ "items": [queue], "next_cursor": null })))
}
