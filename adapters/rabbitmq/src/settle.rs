//! Settling deliveries.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Action, Envelope, Settlement};
use anyqueue::{Error, Headers, Operation, PartitionId, Result, RetryClass, SettleOutcome};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::RabbitMqQueue;
use crate::batch::{by_partition, put};
use crate::command::{Command, Disposition, Settled};
use crate::delay_queues;
use crate::error::{ERRORS, NAME, timed_out};
use crate::limits::PRIORITY_LEVELS;
use crate::names::LevelQueue;
use crate::publisher::OutgoingMessage;
use crate::record::{Record, headers_to_table};
use crate::token::Tag;

/// A copy to make, and the position of its settlement in the batch.
struct Copy {
    index: usize,
    partition: PartitionId,
    tag: Tag,
    original: Box<Record>,
}

impl RabbitMqQueue {
    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if self.is_closed() {
            return vec![Err(ERRORS.closed(Operation::Settle)); settlements.len()];
        }
        let mut answers: Vec<Result<SettleOutcome>> = vec![Ok(SettleOutcome::Lost); settlements.len()];
        let mut copies = Vec::new();
        let leases = settlements.iter().map(|settlement| &settlement.lease);
        for (partition, indexes) in by_partition(leases) {
            let answered = self.settle_here(settlements, partition, &indexes).await;
            for (index, tag, answer) in answered {
                match answer {
                    Ok(Settled::Done) => put(&mut answers, index, Ok(SettleOutcome::Settled)),
                    Ok(Settled::Lost) => {}
                    Ok(Settled::Copy(original)) => {
                        copies.push(Copy { index, partition: partition.clone(), tag, original });
                    }
                    Err(error) => put(&mut answers, index, Err(error)),
                }
            }
        }
        if !copies.is_empty() {
            for (index, answer) in self.copy_all(settlements, copies).await {
                put(&mut answers, index, answer);
            }
        }
        answers
    }

    async fn settle_here(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        indexes: &[usize],
    ) -> Vec<(usize, Tag, Result<Settled>)> {
        let ours = indexes.iter().filter_map(|index| {
            let settlement = settlements.get(*index)?;
            Some((
                *index,
                settlement.lease.id,
                Tag::of(&settlement.lease.token)?,
                disposition(&settlement.action),
            ))
        });
        let ours: Vec<_> = ours.collect();
        let (reply, answer) = oneshot::channel();
        let items = ours.iter().map(|(_, id, tag, disposition)| (*id, *tag, *disposition)).collect();
        let answers: Vec<Result<Settled>> = if self
            .command_if_running(partition, Command::Settle(items, reply))
            .await
        {
            match tokio::time::timeout(self.inner.shared.config.call_timeout, answer).await {
                Ok(answers) => answers.unwrap_or_default().into_iter().map(Ok).collect(),
                Err(_) => ours.iter().map(|_| Err(stamp(timed_out().with_retry(RetryClass::Safe)))).collect(),
            }
        } else {
            Vec::new() // Nobody has pulled from there, so nothing is held.
        };
        ours.into_iter().zip(answers).map(|((index, _, tag, _), answer)| (index, tag, answer)).collect()
    }

    /// Publishes copies and waits until the broker has confirmed them; only then acknowledges the originals. A crash in between
    /// leaves both. Runs to its end even if the caller goes away.
    async fn copy_all(
        &self,
        settlements: &[Settlement],
        copies: Vec<Copy>,
    ) -> Vec<(usize, Result<SettleOutcome>)> {
        let actions: Vec<Option<Action>> = copies
            .iter()
            .map(|copy| settlements.get(copy.index).map(|settlement| settlement.action.clone()))
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
        let now = self.inner.shared.config.clock.wall();
        let mut ready = Vec::with_capacity(copies.len());
        let mut answers = Vec::with_capacity(copies.len());
        for (copy, action) in copies.into_iter().zip(actions) {
            match action.ok_or_else(timed_out).and_then(|action| outgoing(&copy, action, now)) {
                Ok(outgoing) => ready.push((copy, outgoing)),
                Err(error) => {
                    self.command_if_running(&copy.partition, Command::Copied(copy.tag, false)).await;
                    answers.push((copy.index, Err(stamp(error))));
                }
            }
        }
        let (copies, outgoing): (Vec<Copy>, Vec<OutgoingMessage>) = ready.into_iter().unzip();
        let sent = self.send(outgoing).await;
        let told = copies.into_iter().zip(sent).map(|(copy, sent)| async move {
            self.command_if_running(&copy.partition, Command::Copied(copy.tag, sent.is_ok())).await;
            // A repetition may make a second copy; the declared guarantee of moves allows that.
            let again = |error: Error| {
                if error.retry() == RetryClass::Never { error } else { error.with_retry(RetryClass::Safe) }
            };
            (copy.index, sent.map(|()| SettleOutcome::Settled).map_err(|error| stamp(again(error))))
        });
        answers.extend(join_all(told).await);
        answers
    }
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Settle)
}

fn disposition(action: &Action) -> Disposition {
    match action {
        Action::Remove => Disposition::Ack,
        Action::Release | Action::Retry => Disposition::Requeue,
        Action::Postpone { .. } | Action::Move { .. } => Disposition::Copy,
    }
}

/// Whether this action makes a copy.
pub(crate) fn is_copied(action: &Action) -> bool {
    matches!(disposition(action), Disposition::Copy)
}

/// The copy and its queue.
fn outgoing(copy: &Copy, action: Action, now: SystemTime) -> Result<OutgoingMessage> {
    let record = &copy.original;
    let (to, delay, headers, prior) = match action {
        Action::Postpone { delay, headers } => {
            (copy.partition.clone(), delay, headers, record.deliveries.unwrap_or(0))
        }
        Action::Move { to, headers } => (to, Duration::ZERO, headers, 0),
        Action::Remove | Action::Release | Action::Retry => (copy.partition.clone(), Duration::ZERO, None, 0),
    };
    let message = match headers {
        Some(headers) => record.message.clone().with_headers(Headers::clone(&headers)),
        None => record.message.clone(),
    };
    if let Some(unreadable) = &record.unreadable {
        // Byte for byte, for a client that can read it; headers that core adds become AMQP headers.
        let headers = Some(headers_to_table(message.headers()));
        return Ok(OutgoingMessage {
            level_queue: LevelQueue::new(&to, unreadable.level),
            steps: delay_queues::steps(delay),
            body: unreadable.body.to_vec(),
            headers,
        });
    }
    let level = message.options().priority.min(PRIORITY_LEVELS - 1);
    let mut envelope = Envelope::new(message, record.pushed_at.unwrap_or(now));
    envelope.prior_deliveries = prior;
    let (level_queue, steps) = (LevelQueue::new(&to, level), delay_queues::steps(delay));
    Ok(OutgoingMessage { level_queue, steps, body: envelope.encode()?, headers: None })
}
