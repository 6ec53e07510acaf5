//! Settling deliveries and extending leases.
//!
//! A settlement takes one or two requests. If a message moves or changes, a copy is stored first, and so are
//! successors; then the original is deleted.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{Extension, Settlement};
use anyqueue::{Error, ErrorKind, ExtendOutcome, Operation, Result, RetryClass, SettleOutcome};

use crate::SqsQueue;
use crate::entries::{ChangeVisibility, Delete};
use crate::error::{ERRORS, NAME, Refused};
use crate::in_flight::{Claim, LeaseLookup, whole_secs};
use crate::limits::LEASE;
use crate::settle_job::Job;
use crate::settle_request::SettleRequest;
use crate::shared::Inner;

/// The outcome of a job.
enum Outcome {
    Settled,
    Lost,
    /// The lease was lost after the successors had been stored.
    NotEnded,
    /// The settlement failed, or its result is not known. The lease continues.
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
                Outcome::NotEnded => Err(stamp(not_ended(), Operation::Settle)),
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
                // Extending twice is harmless.
                Err(Refused::Failed(error)) => Err(stamp(error.repeatable(), Operation::Extend)),
            };
            set(&mut outcomes, index, outcome);
        }
        outcomes
    }
}

impl Inner {
    /// Runs all jobs: copies and successors first, then the other requests, in full batches and concurrently.
    async fn run(self: &Arc<Self>, jobs: Vec<Job>) -> Vec<(usize, Outcome)> {
        let mut done = Vec::with_capacity(jobs.len());
        let mut ready = Vec::with_capacity(jobs.len());
        for (job, stored) in self.store(jobs).await {
            match stored {
                Ok(()) if self.may_end(&job) => ready.push(job),
                Ok(()) => done.push((job.index, self.lose(&job))),
                Err(error) => done.push((job.index, self.hold_again(&job, error))),
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

    /// Releases the followers of messages that become visible again, each of which is then the first of its
    /// group again. As that counts as a delivery, messages are received one at a time for a while.
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
            Outcome::Lost | Outcome::NotEnded => {
                let (inner, followers) = (self.clone(), self.group_backlog.take_group(claim));
                if !followers.is_empty() {
                    self.long_polls.spawn(async move { inner.release(followers).await });
                }
            }
            Outcome::Settled | Outcome::Failed(_) => {}
        }
    }

    /// Keeps the lease, because something could not be stored. What was stored is not stored again.
    fn hold_again(&self, job: &Job, error: Error) -> Outcome {
        if let Some((number, claim)) = &job.claim {
            self.in_flight.unreserve(*number, |kept| keep_stored(kept, claim));
        }
        Outcome::Failed(error)
    }

    /// Ends a lease that has expired after the successors were stored. Another consumer may have the message
    /// by now.
    fn lose(self: &Arc<Self>, job: &Job) -> Outcome {
        if let Some((number, _)) = &job.claim {
            self.in_flight.end(*number);
        }
        self.follow(job, &Outcome::NotEnded);
        Outcome::NotEnded
    }

    /// Whether the delivery may be ended. Storing successors may have taken longer than the lease lasts.
    fn may_end(&self, job: &Job) -> bool {
        let number = job.claim.as_ref().map(|(number, _)| *number).filter(|_| job.brings_successors);
        number.is_none_or(|number| self.in_flight.is_held(number))
    }

    /// Evaluates an answer to the last request, and updates the lease.
    fn finish(&self, job: &Job, answer: Result<(), Refused>) -> Outcome {
        let maybe_deleted = job.claim.as_ref().is_some_and(|(_, claim)| claim.maybe_deleted);
        let deletes = matches!(job.request, SettleRequest::Delete);
        let outcome = match answer {
            Ok(()) => Outcome::Settled,
            // An earlier deletion was not answered. Nobody else has had the message since, because the lease
            // is still valid.
            Err(Refused::NotHeld) if maybe_deleted && deletes => Outcome::Settled,
            Err(Refused::NotHeld | Refused::NoQueue) if job.brings_successors => Outcome::NotEnded,
            Err(Refused::NotHeld | Refused::NoQueue) => Outcome::Lost,
            Err(refused) => Outcome::Failed(refused.into_error().repeatable()),
        };
        if let Some((number, claim)) = &job.claim {
            match &outcome {
                Outcome::Settled | Outcome::Lost | Outcome::NotEnded => self.in_flight.end(*number),
                Outcome::Failed(_) => self.in_flight.unreserve(*number, |kept| {
                    keep_stored(kept, claim);
                    kept.maybe_deleted |= deletes;
                }),
            }
        }
        outcome
    }
}

fn keep_stored(kept: &mut Claim, claim: &Claim) {
    kept.is_copied = claim.is_copied;
    kept.stored_successors.clone_from(&claim.stored_successors);
}

fn set<T>(outcomes: &mut [Result<T>], index: usize, outcome: Result<T>) {
    if let Some(outcome_slot) = outcomes.get_mut(index) {
        *outcome_slot = outcome;
    }
}

fn not_ended() -> Error {
    let text = "the successors are stored, but the lease was lost before the delivery could be ended: it comes again";
    ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::MayDuplicate)
}

fn stamp(error: Error, operation: Operation) -> Error {
    error.with_backend(NAME).with_operation(operation)
}
