//! Who joined and left which pool; append-only.

use sea_orm::entity::prelude::*;

use crate::values::Address;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "signer_history")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub chain_id: i64,
    #[sea_orm(column_type = "Text")]
    pub pool: String,
    #[sea_orm(column_type = "VarBinary(StringLen::None)")]
    pub signer: Address,
    #[sea_orm(column_type = "Text")]
    pub change: String,
    #[sea_orm(column_type = "Text")]
    pub actor: String,
    pub at: DateTimeUtc,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
