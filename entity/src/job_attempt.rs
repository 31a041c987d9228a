//! One execution of a job.

use sea_orm::entity::prelude::*;

use crate::ids::{ExecutionToken, JobId, WorkerId};
use crate::states::AttemptOutcome;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "job_attempts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub job_id: JobId,
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i32,
    pub token: ExecutionToken,
    pub worker_id: WorkerId,
    pub generation: i32,
    pub started_at: DateTimeUtc,
    pub finished_at: Option<DateTimeUtc>,
    pub outcome: Option<AttemptOutcome>,
    #[sea_orm(column_type = "Text")]
    pub error_type: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub detail: Option<String>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
