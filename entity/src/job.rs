//! A unit of accepted work.

use sea_orm::entity::prelude::*;

use crate::ids::{ExecutionToken, JobId, LineageId, WorkerId};
use crate::states::{JobKind, JobState};
use crate::values::{Address, Wei};

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "jobs")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: JobId,
    #[sea_orm(column_type = "Text")]
    pub project: String,
    pub kind: JobKind,
    pub state: JobState,
    pub version: i32,
    pub chain_id: i64,
    #[sea_orm(column_type = "Text")]
    pub pool: String,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub to_address: Address,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub value: Wei,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub data: Vec<u8>,
    pub gas_limit: Option<i64>,
    pub priority: i16,
    pub run_at: DateTimeUtc,
    #[sea_orm(column_type = "JsonBinary")]
    pub metadata: Option<Json>,
    pub attempts: i32,
    pub attempts_budget: i32,
    pub execution_token: Option<ExecutionToken>,
    pub worker_id: Option<WorkerId>,
    pub processing_since: Option<DateTimeUtc>,
    pub cancel_asked_at: Option<DateTimeUtc>,
    #[sea_orm(column_type = "Text")]
    pub error_type: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub error_title: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub error_detail: Option<String>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub finished_at: Option<DateTimeUtc>,
    pub lineage_id: Option<LineageId>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
