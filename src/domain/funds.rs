//! Whether a signer can pay: for all that it has open at the highest price tried, for the next dearer attempt at its head, and for more
//! work. Pure; called by the lane's settling once a block. What is admitted is decided again, plan by plan, where nonces are given out.

use super::fees;
use entity::values::Wei;
use primitive_types::U256;

/// The gas of the cheapest transaction there is.
const LEAST_GAS: u64 = 21_000;
const WEI_DIGITS: usize = 18;
const GWEI_DIGITS: usize = 9;

/// The dearest open nonce that the chain has not taken is not the head; the head is what gets the next dearer attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub gas_limit: u64,
    /// The highest that was tried for it, in wei per gas.
    pub max_fee_per_gas: Wei,
}

/// What is known of a signer's money.
#[derive(Clone, Copy, Debug)]
pub struct Money {
    pub balance: Wei,
    /// Over all open nonces that the chain has not taken: gas limit times highest price, and the value.
    pub committed: Wei,
    pub head: Option<Head>,
    /// What a transaction would offer now, in wei per gas.
    pub max_fee_per_gas: Wei,
    /// TX_SIGNER_BALANCE_FLOOR_WEI.
    pub floor: Wei,
    /// TX_FEE_BUMP_BASIS_POINTS and TX_MAX_FEE_PER_GAS_WEI.
    pub bump_bps: u32,
    pub limit: Wei,
    /// A node has refused the head for lack of money, whatever we count: some chains charge more than gas.
    pub refused: bool,
}

/// What becomes of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Stays,
    /// With words for an operator.
    Pause(String),
    Resume,
}

fn times(a: Wei, b: U256) -> U256 {
    a.0.saturating_mul(b)
}

/// What the next dearer attempt at the head may cost on top.
#[must_use]
pub fn headroom(head: Head, bump_bps: u32, limit: Wei) -> Wei {
    let next = fees::bumped(head.max_fee_per_gas, bump_bps).min(limit.max(head.max_fee_per_gas));
    Wei(times(Wei(next.0 - head.max_fee_per_gas.0), head.gas_limit.into()))
}

impl Money {
    /// What has to be there for what is open.
    #[must_use]
    pub fn required(&self) -> Wei {
        let headroom = self.head.map_or(Wei::ZERO, |head| headroom(head, self.bump_bps, self.limit));
        Wei(self.committed.0.saturating_add(headroom.0))
    }

    /// The least that any further transaction costs.
    #[must_use]
    pub fn cheapest(&self) -> Wei {
        Wei(times(self.max_fee_per_gas, LEAST_GAS.into()))
    }

    /// Below this a lane takes no work: the operator's floor, what is open, and one cheapest transaction.
    #[must_use]
    pub fn effective_floor(&self) -> Wei {
        self.floor.max(self.required()).max(self.cheapest())
    }

    /// `paused`: the lane is paused for lack of money. It goes on with a margin, so that it does not flap around its floor.
    #[must_use]
    pub fn judge(&self, paused: bool) -> Verdict {
        if !paused {
            return self.why().map_or(Verdict::Stays, Verdict::Pause);
        }
        if !self.refused && self.balance >= self.resumes_at() { Verdict::Resume } else { Verdict::Stays }
    }

    /// The balance at which a lane that is paused for lack of money goes on.
    #[must_use]
    pub fn resumes_at(&self) -> Wei {
        let margin = Wei(self.floor.max(self.cheapest()).0.saturating_mul(6.into()) / 5);
        margin.max(Wei(self.required().0.saturating_add(self.cheapest().0)))
    }

    fn why(&self) -> Option<String> {
        let holds = native(self.balance);
        if self.balance < self.required() {
            return Some(format!("it holds {holds} and what is open may cost {} with the next dearer attempt", native(self.required())));
        }
        if self.balance < self.floor {
            return Some(format!("it holds {holds}, below TX_SIGNER_BALANCE_FLOOR_WEI of {}", native(self.floor)));
        }
        if self.balance < self.cheapest() {
            return Some(format!("it holds {holds} and the cheapest transaction costs {} now", native(self.cheapest())));
        }
        self.refused.then(|| format!("it holds {holds}, and a node refuses its lowest open nonce for lack of money"))
    }
}

/// An amount in native currency with all digits that matter, for people.
#[must_use]
pub fn native(amount: Wei) -> String {
    in_units(amount, WEI_DIGITS)
}

/// A price of gas in gwei with all digits that matter, for people.
#[must_use]
pub fn gwei(price: Wei) -> String {
    in_units(price, GWEI_DIGITS)
}

fn in_units(amount: Wei, digits_below: usize) -> String {
    let digits = format!("{:0>width$}", amount.to_string(), width = digits_below + 1);
    let (whole, part) = digits.split_at(digits.len() - digits_below);
    let part = part.trim_end_matches('0');
    if part.is_empty() { whole.to_owned() } else { format!("{whole}.{part}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wei(value: u64) -> Wei {
        Wei::from(value)
    }

    /// Ten nonces of 100,000 gas at 10 wei are open.
    fn money() -> Money {
        Money {
            balance: wei(100_000_000),
            committed: wei(10_000_000),
            head: Some(Head { gas_limit: 100_000, max_fee_per_gas: wei(10) }),
            max_fee_per_gas: wei(10),
            floor: Wei::ZERO,
            bump_bps: 1_000,
            limit: wei(1_000),
            refused: false,
        }
    }

    #[test]
    fn what_is_open_and_the_next_bump_of_the_head_have_to_be_covered() {
        let money = money();
        // floor(10 * 1.1) + 1 is 12.
        assert_eq!(money.required(), wei(10_000_000 + 2 * 100_000));
        assert_eq!(money.judge(false), Verdict::Stays);
        let short = Money { balance: wei(10_199_999), ..money };
        let Verdict::Pause(why) = short.judge(false) else { panic!("not paused") };
        assert_eq!(why, "it holds 0.000000000010199999 and what is open may cost 0.0000000000102 with the next dearer attempt");
        assert_eq!(short.judge(true), Verdict::Stays);
        assert_eq!(headroom(Head { gas_limit: 10, max_fee_per_gas: wei(100) }, 1_000, wei(105)), wei(50), "no further than the limit");
        assert_eq!(headroom(Head { gas_limit: 10, max_fee_per_gas: wei(100) }, 1_000, wei(90)), Wei::ZERO);
    }

    #[test]
    fn a_lane_goes_on_with_a_margin_over_its_floor_and_room_for_one_more() {
        let idle = Money { committed: Wei::ZERO, head: None, floor: wei(1_000_000), ..money() };
        let at = |balance: u64| Money { balance: wei(balance), ..idle };
        assert!(matches!(at(999_999).judge(false), Verdict::Pause(why) if why.contains("TX_SIGNER_BALANCE_FLOOR_WEI of 0.000000000001")));
        assert_eq!(at(1_000_000).judge(false), Verdict::Stays);
        assert_eq!(at(1_199_999).judge(true), Verdict::Stays);
        assert_eq!(at(1_200_000).judge(true), Verdict::Resume);
    }

    #[test]
    fn an_empty_signer_is_paused_without_a_floor_and_a_nodes_refusal_counts() {
        let empty = Money { balance: Wei::ZERO, committed: Wei::ZERO, head: None, ..money() };
        assert!(
            matches!(empty.judge(false), Verdict::Pause(why) if why == "it holds 0 and the cheapest transaction costs 0.00000000000021 now")
        );
        assert_eq!(Money { balance: wei(251_999), ..empty }.judge(true), Verdict::Stays);
        assert_eq!(Money { balance: wei(252_000), ..empty }.judge(true), Verdict::Resume);
        let refused = Money { refused: true, ..money() };
        assert!(matches!(refused.judge(false), Verdict::Pause(why) if why.contains("a node refuses")));
        assert_eq!(refused.judge(true), Verdict::Stays);
    }

    #[test]
    fn amounts_are_shown_in_native_currency_without_loss() {
        let shown =
            ["0", "1", "1000000000000000000", "1234500000000000000000", "100000000000000000"].map(|text| native(text.parse().unwrap()));
        assert_eq!(shown, ["0", "0.000000000000000001", "1", "1234.5", "0.1"]);
        assert_eq!(["0", "1", "2000000007"].map(|text| gwei(text.parse().unwrap())), ["0", "0.000000001", "2.000000007"]);
    }

    proptest! {
        #[test]
        fn a_lane_never_flaps_on_one_balance(balance: u64, committed: u64, gas in 21_000_u64..1 << 24, tried in 1_u64..1 << 40, price in 1_u64..1 << 40, floor: u64, refused: bool) {
            let head = Some(Head { gas_limit: gas, max_fee_per_gas: wei(tried) });
            let money = Money { balance: wei(balance), committed: wei(committed), head, max_fee_per_gas: wei(price), floor: wei(floor), bump_bps: 1_250, limit: wei(1 << 42), refused };
            let pauses = matches!(money.judge(false), Verdict::Pause(_));
            let resumes = money.judge(true) == Verdict::Resume;
            prop_assert!(!(pauses && resumes));
            prop_assert_eq!(pauses, money.balance < money.effective_floor() || refused);
        }
    }
}
