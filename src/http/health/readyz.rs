//! Whether the process may get work, with the name of each check that fails.

use crate::http::readiness::{Readiness, ReadinessBoard};
use actix_web::HttpResponse;
use actix_web::web::Data;

#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "every check passes", body = Readiness),
    (status = 503, description = "a check fails, or the process stops", body = Readiness),
))]
pub async fn readyz(board: Data<ReadinessBoard>) -> HttpResponse {
    let seen = board.read();
    if seen.ready { HttpResponse::Ok().json(seen) } else { HttpResponse::ServiceUnavailable().json(seen) }
}
