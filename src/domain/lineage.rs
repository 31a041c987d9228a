//! The life of a lineage: one nonce, one call, every signed attempt at it. Pure; called by `store` writes through [`Arrow`].

use entity::states::LineageState;

/// What happened to the nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The bytes were encrypted and committed. From here on the nonce belongs to this call for ever.
    Journaled,
    /// The bytes were given to an endpoint, whatever it answered: a timeout does not prove rejection.
    Sent,
    /// A second attempt at the same nonce was committed.
    ReplacementJournaled,
    /// A majority showed the receipt of one of the attempts at TX_CONFIRMATIONS.
    ReceiptFinal { succeeded: bool },
    /// A majority proved that the nonce was consumed by a transaction that is none of ours.
    ConsumedByStranger,
    /// The allocation was released from the tail without ever having been signed.
    ReleasedUnsigned,
    /// A reorganisation inside TX_REORG_LOOKBACK_BLOCKS undid the end, be it ours or the stranger's: the bytes are as good as never sent.
    Orphaned,
    /// The same of a stranger's use, where there are no bytes: the job has gone on without this nonce, and nobody owns it any more.
    OrphanedUnsigned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub to: LineageState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lineage that is {from} cannot take {event:?}")]
pub struct Illegal {
    pub from: LineageState,
    pub event: Event,
}

/// The one table of the machine.
///
/// # Errors
/// `Illegal` when the event cannot happen in that state.
pub fn next(from: LineageState, event: Event) -> Result<Transition, Illegal> {
    use Event as E;
    use LineageState as S;
    let to = match (from, event) {
        (S::Allocated, E::Journaled) => S::Signed,
        (S::Allocated, E::ReleasedUnsigned) => S::Abandoned,
        (S::Signed | S::Broadcast, E::Sent) => S::Broadcast,
        (S::Replaced, E::Sent) => S::Replaced,
        (S::Signed | S::Broadcast | S::Replaced, E::ReplacementJournaled) => S::Replaced,
        (S::Signed | S::Broadcast | S::Replaced, E::ReceiptFinal { succeeded: true }) => S::Mined,
        (S::Signed | S::Broadcast | S::Replaced, E::ReceiptFinal { succeeded: false }) => S::Reverted,
        (S::Allocated | S::Signed | S::Broadcast | S::Replaced, E::ConsumedByStranger) => S::Superseded,
        (S::Mined | S::Reverted | S::Superseded, E::Orphaned) => S::Signed,
        (S::Superseded, E::OrphanedUnsigned) => S::Abandoned,
        (from, event) => return Err(Illegal { from, event }),
    };
    Ok(Transition { to })
}

/// The states that can take an event and lead to `to`.
#[must_use]
pub fn sources(event: Event, to: LineageState) -> Vec<LineageState> {
    LineageState::all().into_iter().filter(|from| next(*from, event).is_ok_and(|t| t.to == to)).collect()
}

impl Event {
    pub const ALL: [Self; 9] = [
        Self::Journaled,
        Self::Sent,
        Self::ReplacementJournaled,
        Self::ReceiptFinal { succeeded: true },
        Self::ReceiptFinal { succeeded: false },
        Self::ConsumedByStranger,
        Self::ReleasedUnsigned,
        Self::Orphaned,
        Self::OrphanedUnsigned,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows() -> impl Iterator<Item = (LineageState, Event, Transition)> {
        LineageState::all()
            .into_iter()
            .flat_map(|from| Event::ALL.into_iter().filter_map(move |event| Some((from, event, next(from, event).ok()?))))
    }

    #[test]
    fn a_final_state_has_no_way_out_but_a_reorganisation() {
        let back = [(Event::Orphaned, LineageState::Signed), (Event::OrphanedUnsigned, LineageState::Abandoned)];
        assert!(arrows().all(|(from, event, t)| !from.is_final() || back.contains(&(event, t.to))));
    }

    #[test]
    fn only_an_unsigned_allocation_can_give_its_nonce_back() {
        assert_eq!(sources(Event::ReleasedUnsigned, LineageState::Abandoned), vec![LineageState::Allocated]);
    }

    #[test]
    fn every_state_can_be_reached_and_can_end() {
        let mut reached = vec![LineageState::Allocated];
        while let Some((_, _, t)) = arrows().find(|(from, _, t)| reached.contains(from) && !reached.contains(&t.to)) {
            reached.push(t.to);
        }
        assert_eq!(reached.len(), LineageState::all().len());
        let mut ends: Vec<_> = LineageState::all().into_iter().filter(|s| s.is_final()).collect();
        while let Some((from, ..)) = arrows().find(|(from, _, t)| ends.contains(&t.to) && !ends.contains(from)) {
            ends.push(from);
        }
        assert_eq!(ends.len(), LineageState::all().len());
    }
}
