//! The life of a job: which event may follow which state. Pure; called by `store` writes (through [`Arrow`]) and by whoever explains a job.

use entity::states::JobState;

/// What happened. Past tense: an event is a fact, never a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker took the delivery and wrote its execution token. Taking over from a lost worker is the same event.
    Delivered,
    /// Signed bytes were given to the chain.
    Sent,
    /// Revalidation said that there is nothing to do.
    NothingToDo,
    /// The attempt failed and may be tried again.
    AttemptFailed,
    /// The attempt was given back unharmed: no lane was free, the worker drains, the delivery came early.
    GivenBack,
    /// The attempt failed and was the last one. Never for a job that owns a nonce.
    BudgetSpent,
    /// Somebody asked for cancellation while no nonce was bound.
    CancelAsked,
    /// A majority showed the receipt at TX_CONFIRMATIONS.
    ReceiptFinal { succeeded: bool },
    /// The same for the no-op that used its nonce up: somebody had asked for cancellation, or its bytes were refused for good.
    NoopFinal { cancelled: bool },
    /// A majority proved that its nonce was used up by a transaction that is none of ours.
    Superseded,
    /// The same while nothing was signed: it may have another nonce.
    NonceLost,
    /// A reorganisation undid the end of its transaction.
    Orphaned,
    /// An operator wants it done again, from its revalidation on.
    Replayed,
}

/// What clients are told, and what the history says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub to: JobState,
    /// Whether a delivery must exist afterwards.
    pub deliver: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {from} cannot take {event:?}")]
pub struct Illegal {
    pub from: JobState,
    pub event: Event,
}

/// The one table of the machine.
///
/// # Errors
/// `Illegal` when the event cannot happen in that state.
pub fn next(from: JobState, event: Event) -> Result<Transition, Illegal> {
    use Event as E;
    use JobState as S;
    let to = match (from, event) {
        (S::Queued | S::Retry | S::Processing, E::Delivered) => S::Processing,
        (S::Processing, E::Sent) => S::Submitted,
        (S::Processing, E::NothingToDo) => S::NotActionable,
        (S::Processing, E::AttemptFailed | E::GivenBack) => S::Retry,
        (S::Processing, E::BudgetSpent) => S::Dead,
        (S::Queued | S::Retry | S::Processing, E::CancelAsked) => S::Cancelled,
        // The chain decides, wherever the execution stands: a worker may have died between sending and saying so.
        (S::Queued | S::Processing | S::Retry | S::Submitted, E::ReceiptFinal { succeeded: true }) => S::Completed,
        (S::Queued | S::Processing | S::Retry | S::Submitted, E::ReceiptFinal { succeeded: false }) => S::Reverted,
        (S::Queued | S::Processing | S::Retry | S::Submitted, E::NoopFinal { cancelled: true }) => S::Cancelled,
        (S::Queued | S::Processing | S::Retry | S::Submitted, E::NoopFinal { cancelled: false } | E::Superseded) => S::Dead,
        (S::Queued | S::Processing | S::Retry | S::Submitted, E::NonceLost) => S::Retry,
        (S::Completed | S::Reverted | S::Cancelled | S::Dead, E::Orphaned) => S::Retry,
        (S::Dead, E::Replayed) => S::Queued,
        (from, event) => return Err(Illegal { from, event }),
    };
    Ok(Transition { to, deliver: matches!(to, S::Queued | S::Retry | S::Processing) })
}

/// One event over all the states that can take it, for statements that move many rows at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    pub event: Event,
    pub from: Vec<JobState>,
    pub to: JobState,
}

/// The arrow of an event. Every event of this machine leads to one state only, whatever it starts from.
///
/// # Errors
/// `Illegal` (from the first state) when no state can take the event.
pub fn arrow(event: Event) -> Result<Arrow, Illegal> {
    let mut from = Vec::new();
    let mut target = None;
    for state in JobState::all() {
        if let Ok(transition) = next(state, event) {
            from.push(state);
            target = Some(transition.to);
        }
    }
    target.map(|to| Arrow { event, from, to }).ok_or(Illegal { from: JobState::PendingBatch, event })
}

impl Event {
    pub const ALL: [Self; 15] = [
        Self::Delivered,
        Self::Sent,
        Self::NothingToDo,
        Self::AttemptFailed,
        Self::GivenBack,
        Self::BudgetSpent,
        Self::CancelAsked,
        Self::ReceiptFinal { succeeded: true },
        Self::ReceiptFinal { succeeded: false },
        Self::NoopFinal { cancelled: true },
        Self::NoopFinal { cancelled: false },
        Self::Superseded,
        Self::NonceLost,
        Self::Orphaned,
        Self::Replayed,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States that batching and quarantine will enter; nothing leads there yet.
    const NOT_ENTERED_YET: [JobState; 3] = [JobState::PendingBatch, JobState::Batched, JobState::Quarantined];

    fn arrows() -> impl Iterator<Item = (JobState, Event, Transition)> {
        JobState::all()
            .into_iter()
            .flat_map(|from| Event::ALL.into_iter().filter_map(move |event| Some((from, event, next(from, event).ok()?))))
    }

    #[test]
    fn a_final_state_has_no_way_out_but_a_reorganisation_and_an_operator() {
        assert!(arrows().all(|(from, event, _)| !from.is_final() || matches!(event, Event::Orphaned | Event::Replayed)));
    }

    #[test]
    fn every_open_state_leaves_a_delivery_or_a_lineage_behind() {
        for (from, event, transition) in arrows() {
            let cared_for = transition.deliver || transition.to.is_final() || transition.to == JobState::Submitted;
            assert!(cared_for, "{from} on {event:?} would be forgotten");
        }
    }

    #[test]
    fn every_state_can_be_reached_and_can_end() {
        let mut reached = vec![JobState::Queued];
        while let Some((_, _, t)) = arrows().find(|(from, _, t)| reached.contains(from) && !reached.contains(&t.to)) {
            reached.push(t.to);
        }
        for state in JobState::all() {
            assert_eq!(reached.contains(&state), !NOT_ENTERED_YET.contains(&state), "{state}");
        }
        let mut ends: Vec<_> = JobState::all().into_iter().filter(|s| s.is_final()).collect();
        while let Some((from, ..)) = arrows().find(|(from, _, t)| ends.contains(&t.to) && !ends.contains(from)) {
            ends.push(from);
        }
        assert!(reached.iter().all(|state| ends.contains(state)));
    }

    #[test]
    fn an_event_leads_to_one_state_whatever_it_starts_from() {
        for event in Event::ALL {
            let arrow = arrow(event).unwrap();
            for from in &arrow.from {
                assert_eq!(next(*from, event).unwrap().to, arrow.to);
            }
        }
    }
}
