//! What a contract answers with yes or no, by a majority. An answer that is no word, as of an address without code, is no answer.

use super::error::Failure;
use super::pool::{Ask, Pool};
use super::wire::Request;
use crate::domain::quorum::{Decision, Vote, decide};
use entity::values::{Address, bytes_from_hex, hex_from_bytes};
use std::time::Duration;

const WORD: usize = 32;

fn vote(answer: Result<String, Failure>) -> Vote<bool> {
    let word = answer.ok().and_then(|text| bytes_from_hex(&text)).filter(|word| word.len() == WORD);
    word.map_or(Vote::Abstains, |word| Vote::Says(word.iter().any(|byte| *byte != 0)))
}

impl Pool {
    pub(super) async fn ask_flag(&self, contract: Address, data: &[u8]) -> Decision<bool> {
        let call = Request::new("eth_call", format!("[{{\"to\":\"{contract}\",\"data\":\"{}\"}},\"latest\"]", hex_from_bytes(data)));
        let configured = self.configured();
        let ballots = self.ballot(
            Ask { what: "flag", questions: 1, calls: std::slice::from_ref(&call), since: None, grace: Duration::ZERO },
            |_, _, answers: Vec<Result<String, Failure>>| answers.into_iter().map(vote).collect(),
            |votes| decide(configured, votes),
        );
        ballots.await.pop().map_or(Decision::Insufficient, |(decision, _)| decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_a_whole_word_and_nothing_else_is_a_no() {
        let word = |last: &str| Ok(format!("0x{}{last}", "00".repeat(31)));
        assert_eq!([vote(word("01")), vote(word("00"))], [Vote::Says(true), Vote::Says(false)]);
        for none in ["0x", "0x01", "nonsense"] {
            assert_eq!(vote(Ok(none.to_owned())), Vote::Abstains, "{none}");
        }
        assert_eq!(vote(Err(Failure::Timeout)), Vote::Abstains);
    }
}
