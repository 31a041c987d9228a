//! `holdfast jobs signer-retire-check`, `key-retire-check` and `signer-pool-rotate`.

use super::failure::{Code, Failure};
use super::output::answer;
use super::page::{Page, Tone, cell, maybe, time, toned};
use super::{Global, session};
use crate::operator::age;
use crate::operator::retire::{self, Chains, KEY_RUNBOOK, Proof, SIGNER_RUNBOOK, Subject};
use crate::operator::rotate::{Ask, PROOF_AGE, rotate};
use clap::Args;
use entity::values::Address;

/// Faults that are told on the terminal; the kept proof has more.
const TOLD: usize = 20;

pub fn signer(global: &Global, signer: Address) -> Result<Code, Failure> {
    check(global, "jobs.signer-retire-check", &Subject::Signer(signer), SIGNER_RUNBOOK)
}

pub fn key(global: &Global, id: &str) -> Result<Code, Failure> {
    check(global, "jobs.key-retire-check", &Subject::JournalKey(id.to_owned()), KEY_RUNBOOK)
}

fn check(global: &Global, name: &str, subject: &Subject, runbook: &str) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let proof = session::at_desk_of(global, &config, async |config, desk| {
        let active = config.journal.as_ref().map(|journal| journal.active.as_str());
        let chains = Chains::Configured(&config.chains);
        retire::check(desk, subject, &chains, &config.retirement, active, (operator, &global.reason)).await
    })?;
    if !proof.passed {
        return Err(not_proven(&proof, runbook));
    }
    answer(global, name, &proof, |page| show(page, &proof, matches!(subject, Subject::Signer(_))))?;
    Ok(Code::Done)
}

fn not_proven(proof: &Proof, runbook: &str) -> Failure {
    let mut why: Vec<String> = proof.faults.iter().take(TOLD).map(|fault| format!("{}: {}", fault.gate, fault.detail)).collect();
    let more = proof.fault_count.saturating_sub(why.len() as u64);
    if more > 0 {
        why.push(format!("and {more} more"));
    }
    let gate = proof.faults.first().map_or("retirement", |fault| fault.gate);
    let what =
        format!("{} may not go: {} faults in {} lineages, kept as proof {}", proof.subject, proof.fault_count, proof.lineages, proof.id);
    Failure::new(Code::Refused, what, why.join("\n")).by(gate).then(format!("runbook: {runbook}"))
}

fn show(page: &mut Page, proof: &Proof, signer: bool) {
    page.toned_line(format!("{} may go: everything that needed it has ended and will stay so", proof.subject), Tone::Good);
    page.fields(&[
        ("proof", cell(proof.id)),
        ("at", cell(time(proof.at))),
        ("lineages", cell(proof.lineages)),
        ("unused for", maybe(proof.unused_seconds.map(age))),
        ("kept for", cell(age(proof.window_seconds))),
    ]);
    let rows: Vec<_> = proof
        .chains
        .iter()
        .map(|chain| {
            let heads: Vec<String> =
                chain.endpoints.iter().map(|(name, head)| format!("{name} {}", head.map_or("-".into(), |head| head.to_string()))).collect();
            vec![
                cell(chain.chain_id),
                maybe(chain.head),
                cell(chain.lookback),
                cell(chain.receipts),
                cell(chain.blocks),
                maybe(chain.highest_block),
                toned(heads.join(", "), Tone::Plain),
            ]
        })
        .collect();
    page.table(&["CHAIN", "HEAD", "LOOKBACK", "RECEIPTS", "BLOCKS", "HIGHEST", "VOTERS"], &rows, "no chain had to be asked");
    if signer {
        page.line(format!("holdfast jobs signer-pool-rotate takes this proof for {}", age(PROOF_AGE.as_secs())));
    }
}

#[derive(Args)]
pub struct Rotate {
    #[arg(value_name = "CHAIN")]
    chain: i64,
    #[arg(value_name = "ENVIRONMENT:ROLE")]
    pool: String,
    #[arg(value_name = "OLD")]
    old: Address,
    #[arg(value_name = "NEW")]
    new: Address,
    /// No process holds the key of NEW yet; its lane waits until one does
    #[arg(long)]
    unloaded: bool,
}

pub fn pool(global: &Global, args: &Rotate) -> Result<Code, Failure> {
    let config = session::config_for_postgres(global)?;
    let operator = session::operator(&config)?;
    let done = session::at_desk_of(global, &config, async |config, desk| {
        let ask = Ask { chain_id: args.chain, pool: &args.pool, old: args.old, new: args.new, unloaded: args.unloaded };
        rotate(desk, ask, &Chains::Configured(&config.chains), (operator, &global.reason)).await
    })?;
    answer(global, "jobs.signer-pool-rotate", &done, |page| {
        page.line(format!("pool {} of chain {}: {} has left, {} has its place", done.pool, done.chain_id, done.left, done.joined));
        page.fields(&[
            ("proof", maybe(done.proof)),
            ("first nonce", maybe(done.fence)),
            ("held by", cell(format!("{} live processes", done.workers))),
        ]);
        page.line("now take the old key out of SIGNER_KEYS, one process after the other");
    })?;
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::retire::Fault;

    #[test]
    fn drn_08_what_is_not_proven_is_refused_with_its_list_and_the_name_of_the_gate() {
        let faults = (0..30).map(|n| Fault { gate: "active-lineages", detail: format!("lineage {n}") }).collect();
        let proof = Proof {
            id: 4,
            at: chrono::DateTime::UNIX_EPOCH,
            subject: "k1".into(),
            passed: false,
            lineages: 30,
            window_seconds: 604_800,
            unused_seconds: Some(1),
            chains: Vec::new(),
            faults,
            fault_count: 30,
        };
        let failure = not_proven(&proof, KEY_RUNBOOK);
        assert_eq!((failure.code, failure.gate.as_deref()), (Code::Refused, Some("active-lineages")));
        assert!(failure.why.contains("lineage 19") && failure.why.ends_with("and 10 more"), "{}", failure.why);
        assert!(failure.next.unwrap().ends_with("#rotate-a-journal-key"));
    }
}
