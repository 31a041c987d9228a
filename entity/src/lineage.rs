//! One use of one nonce for one call, over all its signed attempts.

use sea_orm::entity::prelude::*;

use crate::ids::{JobId, LaneId, LineageId};
use crate::states::{LineageState, NoopReason};
use crate::values::{Address, Hash, Wei};

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "lineages")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: LineageId,
    pub job_id: JobId,
    pub lane_id: LaneId,
    pub chain_id: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub signer: Address,
    pub nonce: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub call_hash: Hash,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub to_address: Address,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub value: Wei,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub data: Vec<u8>,
    pub gas_limit: i64,
    pub state: LineageState,
    pub sends: i32,
    pub last_sent_at: Option<DateTimeUtc>,
    #[sea_orm(column_type = "Text")]
    pub last_answer: Option<String>,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub mined_hash: Option<Hash>,
    pub block_number: Option<i64>,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub block_hash: Option<Hash>,
    pub gas_used: Option<i64>,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub effective_gas_price: Option<Wei>,
    #[sea_orm(column_type = "JsonBinary")]
    pub proof: Option<Json>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub ended_at: Option<DateTimeUtc>,
    pub replacements: i32,
    pub noops: i32,
    pub priced_block: Option<i64>,
    pub priced_at: Option<DateTimeUtc>,
    pub noop_reason: Option<NoopReason>,
    #[sea_orm(column_type = "Text")]
    pub noop_detail: Option<String>,
    pub capped_at: Option<DateTimeUtc>,
    pub revivals: i32,
    pub finalized_at: Option<DateTimeUtc>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
