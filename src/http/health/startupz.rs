//! Whether the process has done what it does once, before its work.

use crate::http::readiness::ReadinessBoard;
use actix_web::HttpResponse;
use actix_web::web::Data;

#[utoipa::path(get, path = "/startupz", tag = "health", responses(
    (status = 200, description = "the process has started"),
    (status = 503, description = "the process is still starting"),
))]
pub async fn startupz(board: Data<ReadinessBoard>) -> HttpResponse {
    let started = board.has_started();
    let body = serde_json::json!({"started": started});
    if started { HttpResponse::Ok().json(body) } else { HttpResponse::ServiceUnavailable().json(body) }
}
