//! The names of everything under `{prefix}:jobs:` (the BullMQ layout), and the ids of deliveries.

use entity::ids::JobId;

/// The one queue; job kinds share it because priority, not kind, orders work.
pub const QUEUE: &str = "jobs";
/// The name on every record. What a job is stands in Postgres.
pub const RECORD_NAME: &str = "job";

/// Key names of one deployment. Two prefixes on one Redis never meet.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    /// `{prefix}:jobs:`, what scripts put before a name.
    pub base: String,
}

impl Keys {
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), base: format!("{prefix}:{QUEUE}:") }
    }

    #[must_use]
    pub fn of(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    /// Outside the queue's own names: the tools that clean a queue would take it for a job.
    #[must_use]
    pub fn epoch(&self) -> String {
        format!("{}:delivery:epoch", self.prefix)
    }
}

/// The stable id of one delivery: the same (job, generation) is the same record, however often it is published.
/// It has no ':' and is not a number, both of which BullMQ refuses.
#[must_use]
pub fn delivery_id(job: JobId, generation: i32) -> String {
    format!("{job}.g{generation}")
}

/// The inverse; `None` for ids that somebody else gave.
#[must_use]
pub fn parse_delivery_id(id: &str) -> Option<(JobId, i32)> {
    let (job, generation) = id.split_once(".g")?;
    let (job, generation) = (job.parse().ok()?, generation.parse().ok()?);
    // Only the canonical spelling, else two ids would name one delivery.
    (generation > 0 && delivery_id(job, generation) == id).then_some((job, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn a_delivery_id_names_its_job_and_generation(job: u128, generation in 1..=i32::MAX) {
            let job = JobId(Uuid::from_u128(job));
            let id = delivery_id(job, generation);
            prop_assert!(!id.contains(':'));
            prop_assert_eq!(parse_delivery_id(&id), Some((job, generation)));
        }

        #[test]
        fn a_foreign_id_is_never_taken_for_ours(id in "\\PC{0,60}") {
            if let Some((job, generation)) = parse_delivery_id(&id) {
                prop_assert_eq!(delivery_id(job, generation), id);
            }
        }
    }

    #[test]
    fn other_spellings_of_a_delivery_id_are_refused() {
        let id = delivery_id(JobId(Uuid::from_u128(0xabc)), 7);
        assert!(parse_delivery_id(&id.to_uppercase().replace(".G", ".g")).is_none());
        assert!(parse_delivery_id(&id.replace(".g7", ".g07")).is_none());
        assert!(parse_delivery_id(&id.replace(".g7", ".g+7")).is_none());
        assert!(parse_delivery_id(&id.replace(".g7", ".g0")).is_none());
        assert!(parse_delivery_id(&id.replace(".g7", ".g-7")).is_none());
    }
}
