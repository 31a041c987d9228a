//! Owns which method of which path goes to which handler, in one table that the OpenAPI document is compared with.

use super::problem::Problem;
use super::{health, jobs, openapi};
use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, Route};

/// A line of the table.
pub struct Entry {
    pub method: Method,
    pub path: &'static str,
    route: fn() -> Route,
}

pub const PUBLIC: &[Entry] = &[
    Entry { method: Method::POST, path: "/v1/jobs", route: || web::post().to(jobs::submit::submit) },
    Entry { method: Method::GET, path: "/v1/jobs", route: || web::get().to(jobs::list::list) },
    Entry { method: Method::POST, path: "/v1/jobs/batch", route: || web::post().to(jobs::batch::batch) },
    Entry { method: Method::GET, path: "/v1/jobs/{id}", route: || web::get().to(jobs::get::get) },
    Entry { method: Method::POST, path: "/v1/jobs/{id}/cancel", route: || web::post().to(jobs::cancel::cancel) },
    Entry { method: Method::GET, path: "/openapi.json", route: || web::get().to(openapi::document) },
];

/// Of the admin listener, without credentials.
pub const HEALTH: &[Entry] = &[
    Entry { method: Method::GET, path: "/livez", route: || web::get().to(health::livez::livez) },
    Entry { method: Method::GET, path: "/readyz", route: || web::get().to(health::readyz::readyz) },
    Entry { method: Method::GET, path: "/startupz", route: || web::get().to(health::startupz::startupz) },
    Entry { method: Method::GET, path: "/metrics", route: || web::get().to(health::metrics::metrics) },
    Entry { method: Method::GET, path: "/openapi.json", route: || web::get().to(openapi::admin_document) },
];

pub(super) fn public(to: &mut ServiceConfig) {
    register(to, PUBLIC);
}

pub(super) fn health(to: &mut ServiceConfig) {
    register(to, HEALTH);
}

/// Registers a table: a path answers any method that it does not have with 405.
pub fn register(to: &mut ServiceConfig, table: &[Entry]) {
    let mut done: Vec<&str> = Vec::new();
    for Entry { path, .. } in table {
        if done.contains(path) {
            continue;
        }
        done.push(path);
        let (mut resource, mut allow) = (web::resource(*path), Vec::new());
        for entry in table.iter().filter(|entry| entry.path == *path) {
            resource = resource.route((entry.route)());
            allow.push(entry.method.clone());
        }
        to.service(resource.default_service(web::to(move || {
            let refused: Result<HttpResponse, Problem> = Err(Problem::method_not_allowed(allow.clone()));
            std::future::ready(refused)
        })));
    }
}
