//! A settlement in progress, and what it stores before the delivery ends: a copy, successors, or both.

use std::sync::Arc;

use anyqueue::adapter::{Action, Settlement};
use anyqueue::{Error, ErrorKind, MessageId, Result, RetryClass};

use crate::entries::Outgoing;
use crate::error::{ERRORS, Refused};
use crate::fifo::FifoIds;
use crate::in_flight::{Claim, LeaseLookup};
use crate::limits::MAX_DELAY;
use crate::names::LevelQueue;
use crate::settle_request::{SettleRequest, settle_request_of_other_handle};
use crate::shared::Inner;

/// A settlement in progress.
pub(crate) struct Job {
    pub(crate) index: usize,
    pub(crate) level_queue: LevelQueue,
    pub(crate) receipt_handle: Arc<str>,
    /// The number and the claim of the lease; `None` for a lease of another handle.
    pub(crate) claim: Option<(u64, Box<Claim>)>,
    pub(crate) request: SettleRequest,
    pub(crate) brings_successors: bool,
    /// The successors that are not known to be stored.
    successors: Vec<(MessageId, LevelQueue, Outgoing)>,
}

impl Inner {
    /// Prepares a settlement. Returns `None` if the lease is lost.
    pub(crate) fn job(&self, index: usize, settlement: &Settlement) -> Result<Option<Job>> {
        let Settlement { lease, action, then, .. } = settlement;
        if let Action::Postpone { delay, .. } = action
            && *delay > MAX_DELAY
        {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        let (level_queue, receipt_handle, claim) = match self.in_flight.reserve(lease) {
            LeaseLookup::Lost => return Ok(None),
            LeaseLookup::OtherHandle(level_queue, receipt_handle) => {
                (level_queue, receipt_handle.into(), None)
            }
            LeaseLookup::Held(number, claim) => {
                (claim.level_queue.clone(), claim.receipt_handle.clone(), Some((number, claim)))
            }
        };
        let (request, successors) = match &claim {
            Some((number, claim)) => {
                let successors = self.successors(claim, settlement);
                successors
                    .and_then(|successors| Ok((self.settle_request(claim, action)?, successors)))
                    .inspect_err(|_| self.in_flight.unreserve(*number, |_| {}))
            }
            None if !then.is_empty() => {
                Err(ERRORS.invalid("only the handle that pulled a message can bring successors with its end"))
            }
            None => settle_request_of_other_handle(action).map(|request| (request, Vec::new())),
        }?;
        let brings_successors = !then.is_empty();
        Ok(Some(Job { index, level_queue, receipt_handle, claim, request, brings_successors, successors }))
    }

    /// Returns the successors that no earlier settlement of the same delivery has stored.
    fn successors(
        &self,
        claim: &Claim,
        settlement: &Settlement,
    ) -> Result<Vec<(MessageId, LevelQueue, Outgoing)>> {
        let is_left = |id: MessageId| !claim.stored_successors.contains(&id);
        let left = settlement.then.iter().filter(|successor| is_left(successor.message.id()));
        left.map(|successor| {
            let message = &successor.message;
            let mut outgoing = self.outgoing(message)?;
            outgoing.fifo_ids =
                self.config.fifo.then(|| FifoIds::of_successor(message, &claim.receipt_handle));
            let level_queue = LevelQueue::new(&successor.partition, message.options().priority);
            Ok((message.id(), level_queue, outgoing))
        })
        .collect()
    }

    /// Stores the copies and successors of the jobs that have any, each in order.
    pub(crate) async fn store(self: &Arc<Self>, mut jobs: Vec<Job>) -> Vec<(Job, Result<()>)> {
        let mut messages = Vec::new();
        for job in &mut jobs {
            if let SettleRequest::SendCopy(level_queue, copy) = &job.request {
                messages.push((level_queue.clone(), copy.clone()));
            }
            let successors = job.successors.iter_mut();
            messages.extend(successors.map(|(_, to, outgoing)| (to.clone(), std::mem::take(outgoing))));
        }
        let mut answers = self.request_joined(messages).await.into_iter();
        let fifo = self.config.fifo;
        jobs.into_iter()
            .map(|mut job| {
                let stored = job.note_stored(&mut answers, fifo);
                (job, stored)
            })
            .collect()
    }
}

impl Job {
    /// Takes the answers for this job, and remembers what was stored, so that it is not stored again if the
    /// delivery is settled again.
    fn note_stored(
        &mut self,
        answers: &mut impl Iterator<Item = Result<(), Refused>>,
        fifo: bool,
    ) -> Result<()> {
        let unanswered = || Err(ERRORS.error(ErrorKind::Internal, "a message was not answered").into());
        let mut answer = || answers.next().unwrap_or_else(unanswered);
        let mut failed = None;
        if let SettleRequest::SendCopy(..) = self.request {
            match answer() {
                Ok(()) => {
                    self.request = SettleRequest::Delete;
                    self.mark(|claim| claim.is_copied = true);
                }
                Err(refused) => failed = Some(refused.into_error().repeatable()),
            }
        }
        for (id, ..) in std::mem::take(&mut self.successors) {
            match answer() {
                Ok(()) => self.mark(|claim| claim.stored_successors.push(id)),
                Err(refused) => {
                    let error = refused.into_error();
                    // A FIFO queue recognises a successor that is sent again.
                    let error = if fifo { error.repeatable() } else { error };
                    failed = Some(failed.map_or_else(|| error.clone(), |first| worse(first, &error)));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn mark(&mut self, change: impl FnOnce(&mut Claim)) {
        if let Some((_, claim)) = &mut self.claim {
            change(claim);
        }
    }
}

/// Returns the error that says more about a repetition: that it cannot help, or that it may store a second
/// message. Of two equal ones, returns the first.
fn worse(first: Error, second: &Error) -> Error {
    let weight = |error: &Error| match error.retry() {
        RetryClass::Safe => 0,
        RetryClass::MayDuplicate => 1,
        RetryClass::Never => 2,
    };
    if weight(second) > weight(&first) { second.clone() } else { first }
}
