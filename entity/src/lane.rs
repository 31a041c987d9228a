//! A signer on a chain: its nonce fence and who settles it.

use sea_orm::entity::prelude::*;

use crate::ids::{LaneId, WorkerId};
use crate::states::LaneState;
use crate::values::{Address, Wei};

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "lanes")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: LaneId,
    pub chain_id: i64,
    #[sea_orm(column_type = "Text")]
    pub pool: String,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub signer: Address,
    pub state: LaneState,
    #[sea_orm(column_type = "Text")]
    pub reason: Option<String>,
    pub next_nonce: i64,
    pub latest_nonce: i64,
    pub settled_nonce: i64,
    pub width: i32,
    pub lease_holder: Option<WorkerId>,
    pub lease_until: Option<DateTimeUtc>,
    pub created_at: DateTimeUtc,
    pub updated_at: DateTimeUtc,
    pub head_since: DateTimeUtc,
    pub pending_nonce: Option<i64>,
    pub observed_block: Option<i64>,
    pub observed_at: Option<DateTimeUtc>,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub balance: Option<Wei>,
    pub balance_at: Option<DateTimeUtc>,
    pub delegated: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
