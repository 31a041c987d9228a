//! Signed bytes, encrypted. Append-only: bytes, hash and price never change.

use sea_orm::entity::prelude::*;

use crate::ids::LineageId;
use crate::states::AttemptPurpose;
use crate::values::{Hash, Wei};

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "tx_attempts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false, column_type = "VarBinary(StringLen::None)")]
    pub hash: Hash,
    pub lineage_id: LineageId,
    pub ordinal: i32,
    pub purpose: AttemptPurpose,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub max_fee_per_gas: Wei,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))")]
    pub max_priority_fee_per_gas: Wei,
    pub gas_limit: i64,
    #[sea_orm(column_type = "Text")]
    pub key_id: String,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub iv: Vec<u8>,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub ciphertext: Vec<u8>,
    pub created_at: DateTimeUtc,
    /// EIP-2718: 0 legacy, 2 EIP-1559.
    pub tx_type: i16,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
