//! Which Redis data set the deliveries went into.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdfast", table_name = "delivery_epochs")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false, column_type = "Text")]
    pub prefix: String,
    pub epoch: Uuid,
    pub started_at: DateTimeUtc,
    /// The data set that takes its place, while deliveries are published into it.
    pub next_epoch: Option<Uuid>,
    /// What was published earlier was lost.
    pub lost_at: Option<DateTimeUtc>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
