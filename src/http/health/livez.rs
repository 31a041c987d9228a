//! Whether the process answers at all. Looks at nothing: a dependency that is away is no reason to kill the process.

use actix_web::HttpResponse;

#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "the process answers")))]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(serde_json::json!({"status": "alive"}))
}
