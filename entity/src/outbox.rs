//! The delivery of a job that is due to be published or checked.

use sea_orm::entity::prelude::*;

use crate::ids::JobId;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "outbox")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub job_id: JobId,
    pub generation: i32,
    pub priority: i16,
    pub deliver_at: DateTimeUtc,
    pub next_at: Option<DateTimeUtc>,
    pub published_at: Option<DateTimeUtc>,
    pub failures: i32,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
