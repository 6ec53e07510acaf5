//! Ending deliveries.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Action, Envelope, Settlement};
use anyqueue::{Error, Headers, Operation, PartitionId, Result, RetryClass, SettleOutcome};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::RabbitMqQueue;
use crate::command::{Command, Settled, Verb};
use crate::error::{NAME, closed, silent};
use crate::ladder;
use crate::limits::PRIORITY_LEVELS;
use crate::names::Line;
use crate::places::{by_partition, put};
use crate::publisher::Addressed;
use crate::stored::{Stored, put_beside};
use crate::token::Tag;

/// A copy to be made, and the place of its settlement in the batch.
struct Copy {
    place: usize,
    partition: PartitionId,
    tag: Tag,
    original: Box<Stored>,
}

impl RabbitMqQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.is_closed() {
            return vec![Err(closed(Operation::Settle)); settlements.len()];
        }
        let mut answers: Vec<Result<SettleOutcome>> = vec![Ok(SettleOutcome::Lost); settlements.len()];
        let mut copies = Vec::new();
        let leases = settlements.iter().map(|settlement| &settlement.lease);
        for (partition, places) in by_partition(leases) {
            let answered = self.settle_here(settlements, partition, &places).await;
            for (place, tag, answer) in answered {
                match answer {
                    Ok(Settled::Done) => put(&mut answers, place, Ok(SettleOutcome::Settled)),
                    Ok(Settled::Lost) => {}
                    Ok(Settled::Copy(original)) => {
                        copies.push(Copy { place, partition: partition.clone(), tag, original });
                    }
                    Err(error) => put(&mut answers, place, Err(error)),
                }
            }
        }
        if !copies.is_empty() {
            for (place, answer) in self.copy_all(settlements, copies).await {
                put(&mut answers, place, answer);
            }
        }
        answers
    }

    async fn settle_here(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        places: &[usize],
    ) -> Vec<(usize, Tag, Result<Settled>)> {
        let ours = places.iter().filter_map(|place| {
            let settlement = settlements.get(*place)?;
            Some((*place, settlement.lease.id, Tag::of(&settlement.lease.token)?, verb(&settlement.action)))
        });
        let ours: Vec<_> = ours.collect();
        let (reply, answer) = oneshot::channel();
        let items = ours.iter().map(|(_, id, tag, verb)| (*id, *tag, *verb)).collect();
        let answers: Vec<Result<Settled>> = if self.tell(partition, Command::Settle(items, reply)).await {
            match tokio::time::timeout(self.inner.tools.config.call_timeout, answer).await {
                Ok(answers) => answers.unwrap_or_default().into_iter().map(Ok).collect(),
                Err(_) => ours.iter().map(|_| Err(stamp(silent().with_retry(RetryClass::Safe)))).collect(),
            }
        } else {
            Vec::new() // Nobody pulls from there, so nobody holds anything.
        };
        ours.into_iter().zip(answers).map(|((place, _, tag, _), answer)| (place, tag, answer)).collect()
    }

    /// Copies messages to where they go and awaits the broker's word; only then the originals are removed. A crash in between
    /// leaves both. Carried through though the caller may go away.
    async fn copy_all(
        &self,
        settlements: &[Settlement],
        copies: Vec<Copy>,
    ) -> Vec<(usize, Result<SettleOutcome>)> {
        let actions: Vec<Option<Action>> = copies
            .iter()
            .map(|copy| settlements.get(copy.place).map(|settlement| settlement.action.clone()))
            .collect();
        let queue = self.clone();
        let copying = self.inner.calls.spawn(async move { queue.copy(copies, actions).await });
        copying.await.unwrap_or_default()
    }

    async fn copy(
        &self,
        copies: Vec<Copy>,
        actions: Vec<Option<Action>>,
    ) -> Vec<(usize, Result<SettleOutcome>)> {
        let now = self.inner.tools.config.clock.wall();
        let mut ready = Vec::with_capacity(copies.len());
        let mut answers = Vec::with_capacity(copies.len());
        for (copy, action) in copies.into_iter().zip(actions) {
            match action.ok_or_else(silent).and_then(|action| address(&copy, action, now)) {
                Ok(addressed) => ready.push((copy, addressed)),
                Err(error) => {
                    self.tell(&copy.partition, Command::Copied(copy.tag, false)).await;
                    answers.push((copy.place, Err(stamp(error))));
                }
            }
        }
        let (copies, addressed): (Vec<Copy>, Vec<Addressed>) = ready.into_iter().unzip();
        let sent = self.send(addressed).await;
        let told = copies.into_iter().zip(sent).map(|(copy, sent)| async move {
            self.tell(&copy.partition, Command::Copied(copy.tag, sent.is_ok())).await;
            // A copy too many is what a repetition may make; the declared guarantee of moves allows it.
            let again = |error: Error| {
                if error.retry() == RetryClass::Never { error } else { error.with_retry(RetryClass::Safe) }
            };
            (copy.place, sent.map(|()| SettleOutcome::Settled).map_err(|error| stamp(again(error))))
        });
        answers.extend(join_all(told).await);
        answers
    }
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Settle)
}

fn verb(action: &Action) -> Verb {
    match action {
        Action::Remove => Verb::Remove,
        Action::Release | Action::Retry => Verb::Return,
        Action::Postpone { .. } | Action::Move { .. } => Verb::Copy,
    }
}

/// Whether a copy is made of what is settled so.
pub(crate) fn is_copied(action: &Action) -> bool {
    matches!(verb(action), Verb::Copy)
}

/// The copy and where it goes.
fn address(copy: &Copy, action: Action, now: SystemTime) -> Result<Addressed> {
    let stored = &copy.original;
    let (to, delay, headers, prior) = match action {
        Action::Postpone { delay, headers } => {
            (copy.partition.clone(), delay, headers, stored.deliveries.unwrap_or(0))
        }
        Action::Move { to, headers } => (to, Duration::ZERO, headers, 0),
        Action::Remove | Action::Release | Action::Retry => (copy.partition.clone(), Duration::ZERO, None, 0),
    };
    let message = match headers {
        Some(headers) => stored.message.clone().with_headers(Headers::clone(&headers)),
        None => stored.message.clone(),
    };
    if let Some(raw) = &stored.raw {
        // Byte for byte, for whoever can read it; what core writes to it stands beside it.
        let headers = Some(put_beside(message.headers()));
        return Ok(Addressed {
            line: Line::new(&to, raw.level),
            steps: ladder::steps(delay),
            body: raw.body.to_vec(),
            headers,
        });
    }
    let level = message.options().priority.min(PRIORITY_LEVELS - 1);
    let mut envelope = Envelope::new(message, stored.pushed_at.unwrap_or(now));
    envelope.prior_deliveries = prior;
    let (line, steps) = (Line::new(&to, level), ladder::steps(delay));
    Ok(Addressed { line, steps, body: envelope.encode()?, headers: None })
}
