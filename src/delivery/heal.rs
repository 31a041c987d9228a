//! Removes the leftover of a delivery. For the queue reconciler alone; a publisher never removes anything.

use super::{
    error::Error,
    keys::{Keys, delivery_id},
    pool::Pool,
    scripts::{self, Invocation},
};
use entity::ids::JobId;

/// True when a record that was in no list is gone, so that publishing the id works again. Any other record is left alone.
pub async fn heal_orphan(pool: &Pool, keys: &Keys, job: JobId, generation: i32) -> Result<bool, Error> {
    let id = delivery_id(job, generation);
    let call = Invocation::default().key(keys.of(&id)).arg(keys.base.clone()).arg(id);
    let reply = scripts::run_one(pool, "heal_orphan", &scripts::HEAL, call).await?;
    Ok(scripts::read::<i64>("heal_orphan", reply)? == 1)
}
