//! That the death of a job is dealt with, and how; append-only.

use sea_orm::entity::prelude::*;

use crate::ids::JobId;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "job_resolutions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub job_id: JobId,
    #[sea_orm(primary_key, auto_increment = false)]
    pub finished_at: DateTimeUtc,
    #[sea_orm(column_type = "Text")]
    pub operator_id: String,
    #[sea_orm(column_type = "Text")]
    pub reason: String,
    pub at: DateTimeUtc,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
