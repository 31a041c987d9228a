//! One start of one process that executes jobs.

use sea_orm::entity::prelude::*;

use crate::ids::WorkerId;
use crate::states::WorkerState;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "workers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: WorkerId,
    #[sea_orm(column_type = "Text")]
    pub instance: String,
    #[sea_orm(column_type = "Text")]
    pub role: String,
    #[sea_orm(column_type = "Text")]
    pub version: String,
    pub state: WorkerState,
    pub processing: i32,
    pub pool_size: i32,
    pub started_at: DateTimeUtc,
    pub heartbeat_at: DateTimeUtc,
    pub stopped_at: Option<DateTimeUtc>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
