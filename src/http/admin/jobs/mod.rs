//! Jobs of every project, as operators see them.

pub mod cancel;
pub mod dead;
pub mod get;
pub mod list;

use crate::http::problem::{Kind, Problem};
use entity::ids::JobId;

fn id_of(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|_| Problem::new(Kind::NotFound, "a job is named by its UUID"))
}
