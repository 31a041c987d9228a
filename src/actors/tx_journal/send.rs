//! Giving journaled bytes to the chain: by the execution that made them, by an execution that goes on after a crash, and by the
//! settling of a lane. Every answer is noted; none of them moves a nonce.

use super::{Error, Handle, Journaled, ToSign, Work, is_open, replace};
use crate::chain::{RawTx, SendOutcome};
use crate::domain::rpc_verdict::{Class, Verdict, verdict};
use crate::domain::window;
use crate::fail;
use crate::store::journal::{Sent, Stored};
use crate::store::{self};
use crate::telemetry::metrics;
use entity::ids::{ExecutionToken, LaneId, LineageId, WorkerId};
use entity::states::{AttemptPurpose, LineageState};
use std::time::Duration;

/// What became of an execution that had bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The job is submitted; time since acceptance.
    Noted(Duration),
    /// The bytes were given away, and another execution has the job.
    Fenced,
    /// The bytes were given away, and Postgres did not take the note: the settling of the lane finds it.
    Unnoted,
}

impl Handle {
    /// Sends a batch of one lane in the order of its nonces and ends its executions.
    pub async fn send(&self, mut batch: Vec<Journaled>) -> Vec<(ExecutionToken, Submitted)> {
        batch.sort_by_key(|one| one.nonce);
        let Some(chain_id) = batch.first().map(|one| one.chain_id) else { return Vec::new() };
        let raws = batch.iter_mut().map(|one| RawTx { bytes: std::mem::take(&mut one.raw), hash: one.hash }).collect();
        let outcomes = self.work.give(chain_id, raws).await;
        fail::point("lane.sent");
        let sent: Vec<Sent> = batch
            .iter()
            .zip(&outcomes)
            .map(|(one, outcome)| Sent { lineage: one.lineage, job: one.job, token: one.token, answer: outcome.class.as_str() })
            .collect();
        let noted = store::journal::sent(&self.work.db, &sent).await;
        fail::point("lane.noted");
        let label = chain_id.to_string();
        if let Err(error) = &noted {
            tracing::warn!(event = "sent_unnoted", %error, transactions = sent.len(), "the bytes are on their way; the settling of the lane will note it");
        }
        batch
            .iter()
            .map(|one| match &noted {
                Err(_) => (one.token, Submitted::Unnoted),
                Ok(noted) => match noted.get(&one.token) {
                    Some(age) => {
                        metrics::TX_ACCEPT_TO_BROADCAST_SECONDS.record(age.as_secs_f64(), &[&label]);
                        metrics::TX_TRANSITIONS.add(1, &[&label, LineageState::Broadcast.as_str()]);
                        (one.token, Submitted::Noted(*age))
                    }
                    None => {
                        metrics::EXECUTION_FENCED.add(1, &["sent"]);
                        (one.token, Submitted::Fenced)
                    }
                },
            })
            .collect()
    }

    /// Goes on with a job whose nonce was bound by an earlier execution: signs what is unsigned, sends the identical bytes of what
    /// is signed, and sends nothing of what was sent before (the settling of the lane looks for its receipt first).
    ///
    /// # Errors
    /// The nonce stays with the job.
    pub async fn resume(&self, lineage: LineageId, token: ExecutionToken) -> Result<Submitted, Error> {
        let found = store::journal::stored(&self.work.db.reader(), &[lineage]).await?;
        let stored = found.into_iter().next().filter(|stored| is_open(stored.state)).ok_or(Error::Fenced)?;
        if matches!(stored.state, LineageState::Broadcast | LineageState::Replaced) {
            let sent = Sent { lineage, job: stored.job, token, answer: "sent_before" };
            let noted = store::journal::sent(&self.work.db, &[sent]).await?;
            return Ok(noted.get(&token).map_or(Submitted::Fenced, |age| Submitted::Noted(*age)));
        }
        let journaled = match self.work.unseal(&stored)? {
            Some((hash, raw)) => Journaled { lineage, job: stored.job, token, chain_id: stored.chain_id, nonce: stored.nonce, hash, raw },
            None => self.commit(vec![to_sign(&stored, token)]).await.pop().unwrap_or(Err(Error::Lost))?,
        };
        let chain = journaled.chain_id.to_string();
        let sent = self.send(vec![journaled]).await;
        metrics::TX_REBROADCASTS.add(1, &[&chain, "resumed"]);
        Ok(sent.first().map_or(Submitted::Unnoted, |(_, submitted)| *submitted))
    }

    /// The call of a nonce that has no bytes yet, to be tried again before it gets any; None where it is signed or a no-op is wanted.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn unsigned(&self, lineage: LineageId) -> Result<Option<Stored>, Error> {
        let found = store::journal::stored(&self.work.db.reader(), &[lineage]).await?;
        Ok(found.into_iter().next().filter(|stored| stored.state == LineageState::Allocated && stored.noop.is_none()))
    }

    /// Ends an unsigned nonce whose call reverts now: given back from the tail of its lane, otherwise to be used up by a no-op. True: it
    /// was given back and its job has ended.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn abandon(&self, lineage: LineageId, token: ExecutionToken, reason: &str) -> Result<bool, Error> {
        if store::lanes::release(&self.work.db, lineage, token, reason).await? {
            return Ok(true);
        }
        store::journal::refuse(&self.work.db, lineage, token, reason).await?;
        Ok(false)
    }

    /// Sends the identical newest bytes of lineages again, lowest nonce first; for the settling of a lane, under its lease.
    ///
    /// # Errors
    /// See [`store::Error`].
    pub async fn resend(
        &self,
        lane: LaneId,
        holder: WorkerId,
        lineages: &[LineageId],
        reason: &'static str,
    ) -> Result<Vec<SendOutcome>, Error> {
        let stored = store::journal::stored(&self.work.db.reader(), lineages).await?;
        let (mut ids, mut raws, mut chain_id) = (Vec::new(), Vec::new(), 0);
        for one in stored.iter().filter(|one| is_open(one.state)) {
            if let Some((hash, bytes)) = self.work.unseal(one)? {
                chain_id = one.chain_id;
                ids.push(one.lineage);
                raws.push(RawTx { bytes, hash });
            }
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        metrics::TX_REBROADCASTS.add(u64::try_from(ids.len()).unwrap_or(0), &[&chain_id.to_string(), reason]);
        let outcomes = self.work.give(chain_id, raws).await;
        let noted: Vec<_> = ids.into_iter().zip(outcomes.iter().map(|outcome| outcome.class.as_str())).collect();
        store::journal::resent(&self.work.db, lane, holder, &noted).await?;
        Ok(outcomes)
    }
}

/// The first bytes of a nonce: the call, or a no-op where that is wanted already.
fn to_sign(stored: &Stored, token: ExecutionToken) -> ToSign {
    let purpose = if stored.noop.is_some() { AttemptPurpose::Noop } else { AttemptPurpose::Call };
    let (to, value, data) = replace::content(stored, purpose);
    ToSign {
        lineage: stored.lineage,
        job: stored.job,
        token,
        chain_id: stored.chain_id,
        signer: stored.signer,
        nonce: stored.nonce,
        to,
        value,
        data,
        gas_limit: replace::gas(stored, purpose),
        purpose,
    }
}

impl Work {
    pub(super) async fn give(&self, chain_id: i64, raws: Vec<RawTx>) -> Vec<SendOutcome> {
        let Some(desk) = self.chains.desk(chain_id) else { return Vec::new() };
        if !window::strict_order(desk.settings.profile) {
            return desk.chain.send_raw(raws).await;
        }
        let mut outcomes: Vec<SendOutcome> = Vec::with_capacity(raws.len());
        for raw in raws {
            // What comes before its turn is not kept there: it stays with us until the one before it was taken.
            let in_turn = outcomes.last().is_none_or(|before| matches!(before.verdict, Verdict::Accepted | Verdict::NonceTooLow));
            match in_turn {
                true => outcomes.extend(desk.chain.send_raw(vec![raw]).await),
                false => {
                    let endpoint = outcomes.last().map(|before| before.endpoint.clone()).unwrap_or_default();
                    outcomes.push(SendOutcome { class: Class::NotSent, verdict: verdict(Class::NotSent), endpoint, message: None });
                }
            }
        }
        outcomes
    }
}
