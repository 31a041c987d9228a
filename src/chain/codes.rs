//! Whether accounts have delegated themselves (EIP-7702). Owns the rule that one endpoint that shows it is enough, and that its absence
//! needs a majority: a window that is too narrow costs time, one that is too wide costs transactions. Called through the trait `Chain`.

use super::error::Failure;
use super::pool::{Ask, Pool};
use super::wire::{Request, address_params};
use crate::domain::quorum::{Decision, Vote, decide};
use crate::domain::window;
use entity::values::{Address, bytes_from_hex};
use std::time::Duration;

/// A designator is 23 bytes; what is longer is a contract and is not read on.
const PREFIX_DIGITS: usize = 8;

fn vote(answer: Result<String, Failure>) -> Vote<bool> {
    let Ok(code) = answer else { return Vote::Abstains };
    let start = code.get(..PREFIX_DIGITS).unwrap_or(&code);
    bytes_from_hex(start).map_or(Vote::Abstains, |start| Vote::Says(window::is_delegation(&start)))
}

impl Pool {
    pub(super) async fn ask_delegated(&self, addresses: &[Address]) -> Vec<Option<bool>> {
        let calls: Vec<_> = addresses.iter().map(|at| Request::new("eth_getCode", address_params(*at, "latest"))).collect();
        let configured = self.configured();
        let ballots = self.ballot(
            Ask { what: "code", questions: addresses.len(), calls: &calls, since: None, grace: Duration::ZERO },
            |_, _, answers: Vec<Result<String, Failure>>| answers.into_iter().map(vote).collect(),
            |votes| match votes.iter().filter(|vote| **vote == Vote::Says(true)).count() {
                0 => decide(configured, votes),
                shown => Decision::Agreed(true, shown),
            },
        );
        ballots.await.into_iter().map(|(decision, _)| decision.agreed()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_by_its_start_and_no_code_is_an_answer() {
        let said = |text: &str| vote(Ok(text.to_owned()));
        assert_eq!(said(&format!("0xef0100{}", "7a".repeat(20))), Vote::Says(true));
        assert_eq!(said("0x"), Vote::Says(false));
        assert_eq!(said("0x6080604052600436"), Vote::Says(false));
        assert_eq!(said("nonsense"), Vote::Abstains);
        assert_eq!(vote(Err(Failure::Timeout)), Vote::Abstains);
    }
}
