//! The metrics of the process, in the text format of Prometheus.

use crate::telemetry::metrics::read;
use actix_web::HttpResponse;
use actix_web::web::Data;
use metrics_exporter_prometheus::PrometheusHandle;

#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, description = "metrics in the text format of Prometheus", content_type = "text/plain")))]
pub async fn metrics(handle: Data<PrometheusHandle>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(read(&handle))
}
