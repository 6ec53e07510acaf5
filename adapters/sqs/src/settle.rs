//! Settling deliveries and extending leases.
//!
//! A settlement takes one or two requests: a message that moves or changes is first stored as a copy, then the original is
//! deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{Action, Extension, Settlement};
use anyqueue::{Error, ExtendOutcome, Operation, Result, SettleOutcome};

use crate::SqsQueue;
use crate::entries::{ChangeVisibility, Delete};
use crate::error::{ERRORS, NAME, Refused};
use crate::in_flight::{Claim, LeaseLookup, whole_secs};
use crate::limits::{LEASE, MAX_DELAY};
use crate::names::LevelQueue;
use crate::settle_request::{SettleRequest, settle_request_of_other_handle};
use crate::shared::Inner;

/// One settlement under way.
struct Job {
    index: usize,
    level_queue: LevelQueue,
    receipt_handle: Arc<str>,
    /// Its number and claim; `None` for a lease of another handle.
    claim: Option<(u64, Box<Claim>)>,
    request: SettleRequest,
}

/// The outcome of a job.
enum Outcome {
    Settled,
    Lost,
    /// Not done, or not known; the lease continues.
    Failed(Error),
}

impl SqsQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.is_closed() {
            return settlements.iter().map(|_| Err(ERRORS.closed(Operation::Settle))).collect();
        }
        let mut outcomes: Vec<_> = settlements.iter().map(|_| Ok(SettleOutcome::Lost)).collect();
        let mut jobs = Vec::with_capacity(settlements.len());
        for (index, settlement) in settlements.iter().enumerate() {
            match self.inner.job(index, settlement) {
                Ok(job) => jobs.extend(job),
                Err(error) => set(&mut outcomes, index, Err(stamp(error, Operation::Settle))),
            }
        }
        for (index, outcome) in Box::pin(self.inner.run(jobs)).await {
            let outcome = match outcome {
                Outcome::Settled => Ok(SettleOutcome::Settled),
                Outcome::Lost => Ok(SettleOutcome::Lost),
                Outcome::Failed(error) => Err(stamp(error, Operation::Settle)),
            };
            set(&mut outcomes, index, outcome);
        }
        outcomes
    }

    pub(crate) async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if self.is_closed() {
            return extensions.iter().map(|_| Err(ERRORS.closed(Operation::Extend))).collect();
        }
        let mut outcomes: Vec<_> = extensions.iter().map(|_| Ok(ExtendOutcome::Lost)).collect();
        let mut asked = Vec::new();
        for (index, extension) in extensions.iter().enumerate() {
            let (level_queue, receipt_handle, number) = match self.inner.in_flight.look(&extension.lease) {
                LeaseLookup::Held(number, claim) => (claim.level_queue, claim.receipt_handle, Some(number)),
                LeaseLookup::OtherHandle(level_queue, receipt_handle) => {
                    (level_queue, receipt_handle.into(), None)
                }
                LeaseLookup::Lost => continue,
            };
            match LEASE.check(extension.duration) {
                Ok(()) => asked.push((index, level_queue, receipt_handle, number, extension.duration)),
                Err(error) => set(&mut outcomes, index, Err(stamp(error, Operation::Extend))),
            }
        }
        let before = Instant::now();
        let changes = asked.iter().map(|(_, level_queue, receipt_handle, _, lease)| {
            (level_queue.clone(), ChangeVisibility(receipt_handle.clone(), whole_secs(*lease)))
        });
        let answers = self.inner.request_joined(changes.collect()).await;
        for ((index, _, _, number, lease), answer) in asked.into_iter().zip(answers) {
            let outcome = match answer {
                Ok(()) => {
                    if let Some(number) = number {
                        self.inner.in_flight.extend(number, before + lease);
                    }
                    Ok(ExtendOutcome::Extended)
                }
                Err(Refused::NotHeld | Refused::NoQueue) => {
                    if let Some(number) = number {
                        self.inner.in_flight.end(number);
                    }
                    Ok(ExtendOutcome::Lost)
                }
                Err(Refused::Failed(error)) => Err(stamp(error, Operation::Extend)),
            };
            set(&mut outcomes, index, outcome);
        }
        outcomes
    }
}

impl Inner {
    /// Prepares a settlement; `None` if the lease is lost.
    fn job(&self, index: usize, settlement: &Settlement) -> Result<Option<Job>> {
        let Settlement { lease, action, .. } = settlement;
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
        let request = match &claim {
            Some((number, claim)) => {
                self.settle_request(claim, action).inspect_err(|_| self.in_flight.unreserve(*number, |_| {}))
            }
            None => settle_request_of_other_handle(action),
        }?;
        Ok(Some(Job { index, level_queue, receipt_handle, claim, request }))
    }

    /// Runs all jobs: copies first, then the other requests, in full batches and concurrently.
    async fn run(self: &Arc<Self>, jobs: Vec<Job>) -> Vec<(usize, Outcome)> {
        let mut done = Vec::with_capacity(jobs.len());
        let mut ready = Vec::with_capacity(jobs.len());
        for (mut job, is_copied) in self.copy(jobs).await {
            match is_copied {
                Ok(()) => {
                    if matches!(job.request, SettleRequest::SendCopy(..)) {
                        job.request = SettleRequest::Delete;
                        job.mark(|claim| claim.is_copied = true);
                    }
                    ready.push(job);
                }
                Err(refused) => done.push((job.index, self.finish(&job, Err(refused)))),
            }
        }
        let (changes, deleted): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|job| matches!(job.request, SettleRequest::ChangeVisibility(_)));
        let change = changes.iter().map(|job| {
            let secs = if let SettleRequest::ChangeVisibility(secs) = job.request { secs } else { 0 };
            (job.level_queue.clone(), ChangeVisibility(job.receipt_handle.clone(), secs))
        });
        let delete = deleted.iter().map(|job| (job.level_queue.clone(), Delete(job.receipt_handle.clone())));
        let (change, delete) = (self.request_joined(change.collect()), self.request_joined(delete.collect()));
        let (change, delete, ()) =
            futures_util::join!(change, delete, self.release_followers_of_visible(&changes));
        let answered = changes.into_iter().zip(change).chain(deleted.into_iter().zip(delete));
        for (job, answer) in answered {
            let outcome = self.finish(&job, answer);
            self.follow(&job, &outcome);
            done.push((job.index, outcome));
        }
        done
    }

    /// A message that becomes visible again is the first of its group again. Its followers are released; as that counts as a
    /// delivery, messages are received one at a time for a while.
    async fn release_followers_of_visible(&self, changes: &[Job]) {
        let claims = changes.iter().filter_map(|job| job.claim.as_ref().map(|(_, claim)| claim));
        let mut followers = Vec::new();
        for claim in claims {
            let released = self.group_backlog.take_group(claim);
            if !released.is_empty() {
                self.poll_states.of(&claim.level_queue.partition, self.config.levels).receive_one_at_a_time();
            }
            followers.extend(released);
        }
        if !followers.is_empty() {
            self.release(followers).await;
        }
    }

    /// Delivers the follower of a message that is gone.
    fn follow(self: &Arc<Self>, job: &Job, outcome: &Outcome) {
        let Some((_, claim)) = job.claim.as_ref().filter(|(_, claim)| claim.group.is_some()) else { return };
        match outcome {
            Outcome::Settled if matches!(job.request, SettleRequest::Delete) => {
                let after = self.group_backlog.next_after(claim);
                self.unseen_receives.note_all(&after.expired);
                let poll_state = self.poll_states.of(&claim.level_queue.partition, self.config.levels);
                self.buffer(&poll_state, after.next.into_iter().collect());
            }
            Outcome::Lost => {
                let (inner, followers) = (self.clone(), self.group_backlog.take_group(claim));
                if !followers.is_empty() {
                    self.long_polls.spawn(async move { inner.release(followers).await });
                }
            }
            Outcome::Settled | Outcome::Failed(_) => {}
        }
    }

    /// Stores the copies of those jobs that need one.
    async fn copy(self: &Arc<Self>, jobs: Vec<Job>) -> Vec<(Job, Result<(), Refused>)> {
        let copies = jobs.iter().enumerate().filter_map(|(index, job)| match &job.request {
            SettleRequest::SendCopy(level_queue, message) => {
                Some((index, level_queue.clone(), message.clone()))
            }
            SettleRequest::Delete | SettleRequest::ChangeVisibility(_) => None,
        });
        let (copy_indexes, copies): (Vec<_>, Vec<_>) =
            copies.map(|(index, level_queue, message)| (index, (level_queue, message))).unzip();
        let mut answers: HashMap<usize, _> =
            copy_indexes.into_iter().zip(self.request_joined(copies).await).collect();
        let answer = |(index, job)| (job, answers.remove(&index).map_or(Ok(()), |answer| answer));
        jobs.into_iter().enumerate().map(answer).collect()
    }

    /// Evaluates an answer, and updates the lease.
    fn finish(&self, job: &Job, answer: Result<(), Refused>) -> Outcome {
        let maybe_deleted = job.claim.as_ref().is_some_and(|(_, claim)| claim.maybe_deleted);
        let outcome = match answer {
            Ok(()) => Outcome::Settled,
            // An earlier deletion was not answered. Nobody else has had the message since, because the lease still holds.
            Err(Refused::NotHeld) if maybe_deleted && matches!(job.request, SettleRequest::Delete) => {
                Outcome::Settled
            }
            Err(Refused::NotHeld | Refused::NoQueue)
                if !matches!(job.request, SettleRequest::SendCopy(..)) =>
            {
                Outcome::Lost
            }
            Err(refused) => Outcome::Failed(refused.into_error()),
        };
        if let Some((number, claim)) = &job.claim {
            match &outcome {
                Outcome::Settled | Outcome::Lost => self.in_flight.end(*number),
                Outcome::Failed(_) => self.in_flight.unreserve(*number, |kept| {
                    kept.is_copied = claim.is_copied;
                    kept.maybe_deleted |= matches!(job.request, SettleRequest::Delete);
                }),
            }
        }
        outcome
    }
}

impl Job {
    fn mark(&mut self, change: impl FnOnce(&mut Claim)) {
        if let Some((_, claim)) = &mut self.claim {
            change(claim);
        }
    }
}

fn set<T>(outcomes: &mut [Result<T>], index: usize, outcome: Result<T>) {
    if let Some(outcome_slot) = outcomes.get_mut(index) {
        *outcome_slot = outcome;
    }
}

/// Settling or extending twice is harmless.
fn stamp(error: Error, operation: Operation) -> Error {
    error.repeatable().with_backend(NAME).with_operation(operation)
}
