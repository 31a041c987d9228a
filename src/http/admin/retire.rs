//! `POST /admin/v1/signers/{signer}/retire-check`, `/journal-keys/{id}/retire-check` and `/pools/rotate`. A check that does not pass is an
//! answer (`passed` is false); a hand-over that a gate refuses is a conflict.

use super::drains::signer_of;
use super::jobs::cancel::reason;
use super::{State, operator_of};
use crate::http::Json;
use crate::http::problem::{Kind, Problem};
use crate::operator::retire::Subject;
use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use entity::values::Address;
use serde::Deserialize;

/// Something to be proven, the operator, and why.
pub type CheckAsked = (Subject, String, String);

/// The body of a hand-over.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateAsked {
    pub chain_id: i64,
    pub pool: String,
    pub old: Address,
    pub new: Address,
    #[serde(default)]
    pub unloaded: bool,
    pub reason: String,
}

pub async fn signer(state: State, signer: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (subject, operator) = (Subject::Signer(signer_of(&signer)?), operator_of(&request)?);
    Ok(HttpResponse::Ok().json(state.retire.ask((subject, operator, reason(&body.0)?.to_owned())).await?))
}

pub async fn key(state: State, id: Path<String>, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let (subject, operator) = (Subject::JournalKey(id.into_inner()), operator_of(&request)?);
    Ok(HttpResponse::Ok().json(state.retire.ask((subject, operator, reason(&body.0)?.to_owned())).await?))
}

pub async fn pool(state: State, request: HttpRequest, body: Json) -> Result<HttpResponse, Problem> {
    let operator = operator_of(&request)?;
    let asked: RotateAsked =
        serde_json::from_value(body.0).map_err(|error| Problem::new(Kind::InvalidRequest, format!("the body cannot be read: {error}")))?;
    if asked.reason.trim().is_empty() {
        return Err(Problem::new(Kind::InvalidRequest, "reason must say why"));
    }
    Ok(HttpResponse::Ok().json(state.rotate.ask((asked, operator)).await?))
}
