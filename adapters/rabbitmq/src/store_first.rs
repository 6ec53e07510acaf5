//! Settlements that store something: a copy, successors, or both. The broker confirms everything before the
//! delivery ends, so a crash in between leaves both.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{Action, Envelope, Settlement};
use anyqueue::{Error, ErrorKind, Headers, PartitionId, Result, RetryClass, SettleOutcome};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::RabbitMqQueue;
use crate::command::{Command, Ending};
use crate::delay_queues;
use crate::error::{ERRORS, uncertain};
use crate::limits::PRIORITY_LEVELS;
use crate::names::LevelQueue;
use crate::publisher::OutgoingMessage;
use crate::record::{Record, headers_to_table};
use crate::token::Tag;

/// A delivery that is kept until everything that its settlement stores is published.
pub(crate) struct Kept {
    /// The index of its settlement in the batch.
    pub(crate) index: usize,
    pub(crate) partition: PartitionId,
    pub(crate) tag: Tag,
    /// What was delivered, if a copy of it is stored.
    pub(crate) original: Option<Box<Record>>,
}

/// What is left to do for a settlement.
struct Step {
    kept: Kept,
    /// The messages that it stores, in order; an error if they cannot be encoded.
    messages: Result<Vec<OutgoingMessage>>,
    brings_successors: bool,
    ending: Ending,
}

impl RabbitMqQueue {
    /// Publishes, then ends the deliveries.
    pub(crate) async fn store_first(
        &self,
        settlements: &[Settlement],
        kept: Vec<Kept>,
    ) -> Vec<(usize, Result<SettleOutcome>)> {
        let step = |kept: Kept| Some(self.step(settlements.get(kept.index)?, kept));
        let steps: Vec<Step> = kept.into_iter().filter_map(step).collect();
        self.take_steps(steps).await
    }

    fn step(&self, settlement: &Settlement, kept: Kept) -> Step {
        let now = self.inner.shared.config.clock.wall();
        let copy = kept.original.as_ref().map(|original| copy_of(original, &kept, &settlement.action, now));
        let successors = settlement.then.iter().map(|next| self.publication(&next.partition, &next.message));
        Step {
            messages: copy.into_iter().chain(successors).collect(),
            brings_successors: !settlement.then.is_empty(),
            ending: match settlement.action {
                Action::Release | Action::Retry => Ending::Requeue,
                Action::Remove | Action::Postpone { .. } | Action::Move { .. } => Ending::Ack,
            },
            kept,
        }
    }

    async fn take_steps(&self, mut steps: Vec<Step>) -> Vec<(usize, Result<SettleOutcome>)> {
        let mut outgoing = Vec::new();
        let mut counts = Vec::with_capacity(steps.len());
        for step in &mut steps {
            let messages = step.messages.as_mut().map(std::mem::take).unwrap_or_default();
            counts.push(messages.len());
            outgoing.extend(messages);
        }
        let mut sent = self.send_in_parts(outgoing).await.into_iter();
        let stored: Vec<Vec<Result<()>>> =
            counts.into_iter().map(|count| sent.by_ref().take(count).collect()).collect();
        let ends = steps.into_iter().zip(stored).map(|(step, stored)| async {
            let index = step.kept.index;
            (index, self.end(step, stored).await)
        });
        join_all(ends).await
    }

    /// Sends messages in parts, since one settlement may bring more bytes than one call pushes.
    async fn send_in_parts(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<()>> {
        let most = self.inner.capabilities.limits.push_batch_bytes;
        let mut answers = Vec::with_capacity(messages.len());
        for part in parts(messages, most) {
            answers.extend(self.send(part).await);
        }
        answers
    }

    /// Ends a delivery after these messages were published, or holds it again if that failed.
    async fn end(&self, step: Step, stored: Vec<Result<()>>) -> Result<SettleOutcome> {
        let Step { kept, messages, brings_successors, ending } = step;
        let stored = messages.and_then(|_| all_stored(stored, brings_successors));
        let ending = if stored.is_ok() { ending } else { Ending::Hold };
        let (reply, ended) = oneshot::channel();
        self.command_if_running(&kept.partition, Command::End(kept.tag, ending, reply)).await;
        stored?;
        if !brings_successors {
            return Ok(SettleOutcome::Settled); // The copy counts, even if the original comes again.
        }
        match tokio::time::timeout(self.inner.shared.config.call_timeout, ended).await {
            Ok(Ok(true)) => Ok(SettleOutcome::Settled),
            _ => Err(not_ended()),
        }
    }
}

/// Checks that all messages of a settlement are stored. If not, returns the error that says most about a
/// repetition.
fn all_stored(stored: Vec<Result<()>>, brings_successors: bool) -> Result<()> {
    let some = stored.iter().any(Result::is_ok);
    let worst = stored.into_iter().filter_map(Result::err).reduce(worse);
    let Some(error) = worst else { return Ok(()) };
    Err(match (brings_successors, some) {
        // A repetition may make a second copy; the declared guarantee of moves allows that.
        (false, _) => error.repeatable(),
        (true, true) => uncertain(error),
        (true, false) => error,
    })
}

/// Returns the error after which a repetition helps less or may do more harm; the first of two equal ones.
fn worse(first: Error, second: Error) -> Error {
    let weight = |error: &Error| match error.retry() {
        RetryClass::Safe => 0,
        RetryClass::MayDuplicate => 1,
        RetryClass::Never => 2,
    };
    if weight(&second) > weight(&first) { second } else { first }
}

fn not_ended() -> Error {
    let text =
        "the successors are stored, but the delivery was lost before it could be ended: it comes again";
    uncertain(ERRORS.error(ErrorKind::Unavailable, text))
}

/// Splits messages into parts of at most this many bytes, or of one message.
fn parts(messages: Vec<OutgoingMessage>, most: u64) -> Vec<Vec<OutgoingMessage>> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for message in messages {
        let more = message.body.len() as u64;
        bytes += more;
        match parts.last_mut() {
            Some(part) if bytes <= most => Vec::push(part, message),
            _ => {
                parts.push(vec![message]);
                bytes = more;
            }
        }
    }
    parts
}

/// Returns the copy that an action stores, with its queue.
fn copy_of(record: &Record, kept: &Kept, action: &Action, now: SystemTime) -> Result<OutgoingMessage> {
    let (to, delay, headers, prior) = match action {
        Action::Postpone { delay, headers } => {
            (&kept.partition, *delay, headers.as_ref(), record.deliveries.unwrap_or(0))
        }
        Action::Move { to, headers } => (to, Duration::ZERO, headers.as_ref(), 0),
        Action::Remove | Action::Release | Action::Retry => (&kept.partition, Duration::ZERO, None, 0),
    };
    let message = match headers {
        Some(headers) => record.message.clone().with_headers(Headers::clone(headers)),
        None => record.message.clone(),
    };
    let steps = delay_queues::steps(delay);
    if let Some(unreadable) = &record.unreadable {
        // It is stored byte for byte, for a client that can read it. Headers that core adds become AMQP
        // headers.
        let headers = Some(headers_to_table(message.headers()));
        let level_queue = LevelQueue::new(to, unreadable.level);
        return Ok(OutgoingMessage { level_queue, steps, body: unreadable.body.to_vec(), headers });
    }
    let level_queue = LevelQueue::new(to, message.options().priority.min(PRIORITY_LEVELS - 1));
    let mut envelope = Envelope::new(message, record.pushed_at.unwrap_or(now));
    envelope.prior_deliveries = prior;
    Ok(OutgoingMessage { level_queue, steps, body: envelope.encode()?, headers: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_the_order_and_are_within_the_bytes_unless_one_message_is_not() {
        let message = |bytes: usize| OutgoingMessage {
            level_queue: LevelQueue::new(&PartitionId::new("p").unwrap(), 0),
            steps: 0,
            body: vec![0; bytes],
            headers: None,
        };
        let sizes = |bytes: &[usize]| {
            let parts = parts(bytes.iter().map(|bytes| message(*bytes)).collect(), 100);
            let sizes = |part: &Vec<OutgoingMessage>| part.iter().map(|message| message.body.len()).collect();
            parts.iter().map(sizes).collect::<Vec<Vec<usize>>>()
        };
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&[60, 40, 1, 200, 99, 1]), [vec![60, 40], vec![1], vec![200], vec![99, 1]]);
    }

    #[test]
    fn what_may_be_stored_already_is_not_repeated_unasked() {
        let error = |retry| Err(ERRORS.error(ErrorKind::Unavailable, "x").with_retry(retry));
        let class = |stored: Vec<Result<()>>, then| all_stored(stored, then).err().map(|error| error.retry());
        let (safe, may, never) = (RetryClass::Safe, RetryClass::MayDuplicate, RetryClass::Never);
        assert_eq!(class(vec![Ok(()), Ok(())], true), None);
        assert_eq!(class(vec![error(safe), error(safe)], true), Some(safe), "nothing is stored");
        assert_eq!(class(vec![Ok(()), error(safe)], true), Some(may));
        assert_eq!(class(vec![error(safe), error(may)], true), Some(may));
        assert_eq!(class(vec![error(may), error(never), Ok(())], true), Some(never));
        assert_eq!(class(vec![error(may)], false), Some(safe), "a move may leave a second copy");
    }
}
