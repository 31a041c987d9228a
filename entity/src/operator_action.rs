//! What an operator did; append-only.

use sea_orm::entity::prelude::*;

use crate::values::Hash;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "operator_actions")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    #[sea_orm(column_type = "Text")]
    pub operator_id: String,
    #[sea_orm(column_type = "Text")]
    pub login: String,
    #[sea_orm(column_type = "Text")]
    pub action: String,
    #[sea_orm(column_type = "Text")]
    pub target: String,
    #[sea_orm(column_type = "Text")]
    pub reason: String,
    #[sea_orm(column_type = "Text")]
    pub before: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub after: Option<String>,
    pub at: DateTimeUtc,
    #[sea_orm(column_type = "Text")]
    pub client: String,
    /// Its place in the chain.
    pub position: i64,
    pub prev_hash: Hash,
    pub hash: Hash,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
