//! The newest block of a chain that the service has seen.

use sea_orm::entity::prelude::*;

use crate::values::{Hash, Wei};

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "heads")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub chain_id: i64,
    pub number: i64,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub hash: Hash,
    pub seen_at: DateTimeUtc,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))", nullable)]
    pub base_fee: Option<Wei>,
    #[sea_orm(column_type = "Decimal(Some((78, 0)))", nullable)]
    pub priority_fee: Option<Wei>,
    pub tx_type: Option<i16>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
