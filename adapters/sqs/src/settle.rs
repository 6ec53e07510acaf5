//! Ending and extending leases.
//!
//! A settlement takes one or two requests: what goes elsewhere, or changes, is first stored anew and then deleted where it was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{Action, Extension, Settlement};
use anyqueue::{Error, ExtendOutcome, Operation, Result, SettleOutcome};

use crate::SqsQueue;
use crate::entries::{Delete, Show};
use crate::error::{NAME, Refused, closed, invalid, repeatable};
use crate::held::{Claim, Known, whole_secs};
use crate::limits::{MAX_DELAY, check_lease};
use crate::names::Place;
use crate::shared::Inner;
use crate::step::{Step, step_elsewhere};

/// One settlement on its way.
struct Job {
    slot: usize,
    place: Place,
    receipt: Arc<str>,
    /// Its number in the ledger and what is known of it; nothing of leases that another handle gave out.
    claim: Option<(u64, Box<Claim>)>,
    step: Step,
}

/// What became of a job.
enum End {
    Settled,
    Lost,
    /// Not known, or not done; the lease goes on.
    Failed(Error),
}

impl SqsQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.is_closed() {
            return settlements.iter().map(|_| Err(closed(Operation::Settle))).collect();
        }
        let mut outcomes: Vec<_> = settlements.iter().map(|_| Ok(SettleOutcome::Lost)).collect();
        let mut jobs = Vec::with_capacity(settlements.len());
        for (slot, settlement) in settlements.iter().enumerate() {
            match self.inner.job(slot, settlement) {
                Ok(job) => jobs.extend(job),
                Err(error) => set(&mut outcomes, slot, Err(stamp(error, Operation::Settle))),
            }
        }
        for (slot, end) in Box::pin(self.inner.work(jobs)).await {
            let outcome = match end {
                End::Settled => Ok(SettleOutcome::Settled),
                End::Lost => Ok(SettleOutcome::Lost),
                End::Failed(error) => Err(stamp(error, Operation::Settle)),
            };
            set(&mut outcomes, slot, outcome);
        }
        outcomes
    }

    pub(crate) async fn extend_all(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if self.is_closed() {
            return extensions.iter().map(|_| Err(closed(Operation::Extend))).collect();
        }
        let mut outcomes: Vec<_> = extensions.iter().map(|_| Ok(ExtendOutcome::Lost)).collect();
        let mut asked = Vec::new();
        for (slot, extension) in extensions.iter().enumerate() {
            let (place, receipt, number) = match self.inner.ledger.look(&extension.lease) {
                Known::Held(number, claim) => (claim.place, claim.receipt, Some(number)),
                Known::Elsewhere(place, receipt) => (place, receipt.into(), None),
                Known::Lost => continue,
            };
            match check_lease(extension.duration) {
                Ok(()) => asked.push((slot, place, receipt, number, extension.duration)),
                Err(error) => set(&mut outcomes, slot, Err(stamp(error, Operation::Extend))),
            }
        }
        let before = Instant::now();
        let shown = asked
            .iter()
            .map(|(_, place, receipt, _, lease)| (place.clone(), Show(receipt.clone(), whole_secs(*lease))));
        let answers = self.inner.request_joined(shown.collect()).await;
        for ((slot, _, _, number, lease), answer) in asked.into_iter().zip(answers) {
            let outcome = match answer {
                Ok(()) => {
                    if let Some(number) = number {
                        self.inner.ledger.prolong(number, before + lease);
                    }
                    Ok(ExtendOutcome::Extended)
                }
                Err(Refused::NotHeld | Refused::NoQueue) => {
                    if let Some(number) = number {
                        self.inner.ledger.end(number);
                    }
                    Ok(ExtendOutcome::Lost)
                }
                Err(Refused::Failed(error)) => Err(stamp(error, Operation::Extend)),
            };
            set(&mut outcomes, slot, outcome);
        }
        outcomes
    }
}

impl Inner {
    /// What a settlement takes; nothing if the lease is lost.
    fn job(&self, slot: usize, settlement: &Settlement) -> Result<Option<Job>> {
        let Settlement { lease, action } = settlement;
        if let Action::Postpone { delay, .. } = action
            && *delay > MAX_DELAY
        {
            return Err(invalid("the delay is longer than the capabilities allow"));
        }
        let (place, receipt, claim) = match self.ledger.reserve(lease) {
            Known::Lost => return Ok(None),
            Known::Elsewhere(place, receipt) => (place, receipt.into(), None),
            Known::Held(number, claim) => (claim.place.clone(), claim.receipt.clone(), Some((number, claim))),
        };
        let step = match &claim {
            Some((number, claim)) => {
                self.step(claim, action).inspect_err(|_| self.ledger.keep(*number, |_| {}))
            }
            None => step_elsewhere(action),
        }?;
        Ok(Some(Job { slot, place, receipt, claim, step }))
    }

    /// Does all jobs: copies first, then what is left, each by full batches side by side.
    async fn work(self: &Arc<Self>, jobs: Vec<Job>) -> Vec<(usize, End)> {
        let mut ends = Vec::with_capacity(jobs.len());
        let mut ready = Vec::with_capacity(jobs.len());
        for (mut job, copied) in self.copy(jobs).await {
            match copied {
                Ok(()) => {
                    if matches!(job.step, Step::Copy(..)) {
                        job.step = Step::Delete;
                        job.mark(|claim| claim.copied = true);
                    }
                    ready.push(job);
                }
                Err(refused) => ends.push((job.slot, self.finish(&job, Err(refused)))),
            }
        }
        let (shown, deleted): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|job| matches!(job.step, Step::Reveal(_)));
        let show = shown.iter().map(|job| {
            let secs = if let Step::Reveal(secs) = job.step { secs } else { 0 };
            (job.place.clone(), Show(job.receipt.clone(), secs))
        });
        let delete = deleted.iter().map(|job| (job.place.clone(), Delete(job.receipt.clone())));
        let (show, delete) = (self.request_joined(show.collect()), self.request_joined(delete.collect()));
        let (show, delete, ()) = futures_util::join!(show, delete, self.let_go_behind_shown(&shown));
        let answered = shown.into_iter().zip(show).chain(deleted.into_iter().zip(delete));
        for (job, answer) in answered {
            let end = self.finish(&job, answer);
            self.follow(&job, &end);
            ends.push((job.slot, end));
        }
        ends
    }

    /// A message that comes again is the first of its group again. What is held behind it goes back; and as that counts, messages are
    /// asked for one by one for a while.
    async fn let_go_behind_shown(&self, shown: &[Job]) {
        let claims = shown.iter().filter_map(|job| job.claim.as_ref().map(|(_, claim)| claim));
        let mut behind = Vec::new();
        for claim in claims {
            let after = self.behind.take(claim);
            if !after.is_empty() {
                self.lines.of(&claim.place.partition, self.config.levels).saw_groups();
            }
            behind.extend(after);
        }
        if !behind.is_empty() {
            self.let_go(behind).await;
        }
    }

    /// Hands out what was held behind a message that is gone.
    fn follow(self: &Arc<Self>, job: &Job, end: &End) {
        let Some((_, claim)) = job.claim.as_ref().filter(|(_, claim)| claim.group.is_some()) else { return };
        match end {
            End::Settled if matches!(job.step, Step::Delete) => {
                let following = self.behind.follow(claim);
                self.given_back.note_all(&following.ended);
                let line = self.lines.of(&claim.place.partition, self.config.levels);
                self.keep(&line, following.next.into_iter().collect());
            }
            End::Lost => {
                let (inner, behind) = (self.clone(), self.behind.take(claim));
                if !behind.is_empty() {
                    self.polls.spawn(async move { inner.let_go(behind).await });
                }
            }
            End::Settled | End::Failed(_) => {}
        }
    }

    /// Stores the copies of those jobs that take one.
    async fn copy(self: &Arc<Self>, jobs: Vec<Job>) -> Vec<(Job, Result<(), Refused>)> {
        let copies = jobs.iter().enumerate().filter_map(|(index, job)| match &job.step {
            Step::Copy(place, message) => Some((index, place.clone(), message.clone())),
            Step::Delete | Step::Reveal(_) => None,
        });
        let (indices, copies): (Vec<_>, Vec<_>) =
            copies.map(|(index, place, message)| (index, (place, message))).unzip();
        let mut answers: HashMap<usize, _> =
            indices.into_iter().zip(self.request_joined(copies).await).collect();
        let answer = |(index, job)| (job, answers.remove(&index).map_or(Ok(()), |answer| answer));
        jobs.into_iter().enumerate().map(answer).collect()
    }

    /// What an answer means for the job, and for the lease.
    fn finish(&self, job: &Job, answer: Result<(), Refused>) -> End {
        let doubtful = job.claim.as_ref().is_some_and(|(_, claim)| claim.doubtful);
        let end = match answer {
            Ok(()) => End::Settled,
            // An earlier deletion was not answered; nobody else has had the message since, for the lease still holds.
            Err(Refused::NotHeld) if doubtful && matches!(job.step, Step::Delete) => End::Settled,
            Err(Refused::NotHeld | Refused::NoQueue) if !matches!(job.step, Step::Copy(..)) => End::Lost,
            Err(refused) => End::Failed(refused.into_error()),
        };
        if let Some((number, claim)) = &job.claim {
            match &end {
                End::Settled | End::Lost => self.ledger.end(*number),
                End::Failed(_) => self.ledger.keep(*number, |kept| {
                    kept.copied = claim.copied;
                    kept.doubtful |= matches!(job.step, Step::Delete);
                }),
            }
        }
        end
    }
}

impl Job {
    fn mark(&mut self, change: impl FnOnce(&mut Claim)) {
        if let Some((_, claim)) = &mut self.claim {
            change(claim);
        }
    }
}

fn set<T>(outcomes: &mut [Result<T>], slot: usize, outcome: Result<T>) {
    if let Some(place) = outcomes.get_mut(slot) {
        *place = outcome;
    }
}

/// Settling or extending twice is harmless.
fn stamp(error: Error, operation: Operation) -> Error {
    repeatable(error).with_backend(NAME).with_operation(operation)
}
