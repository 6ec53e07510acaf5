//! Pushing messages.

use std::time::SystemTime;

use anyqueue::adapter::{Envelope, PushQueueStorage, async_trait};
use anyqueue::{Error, MessageData, Operation, PartitionId, PushOutcome, Result};

use crate::SqsQueue;
use crate::delays::delays;
use crate::entries::Outgoing;
use crate::error::{ERRORS, NAME};
use crate::fifo::FifoIds;
use crate::limits::MAX_DELAY;
use crate::names::LevelQueue;
use crate::record;
use crate::shared::Inner;

#[async_trait]
impl PushQueueStorage for SqsQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        record::max_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let _call = self.inner.calls.token();
        self.push_all(partition, messages).await
    }
}

impl SqsQueue {
    async fn push_all(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if self.is_closed() {
            return messages.iter().map(|_| Err(ERRORS.closed(Operation::Push))).collect();
        }
        let mut sent = Vec::with_capacity(messages.len());
        let checked: Vec<Result<()>> = messages
            .iter()
            .map(|message| {
                let level_queue = LevelQueue::new(partition, message.options().priority);
                self.inner.outgoing(message).map(|outgoing| sent.push((level_queue, outgoing)))
            })
            .collect();
        let mut answers = self.inner.request_joined(sent).await.into_iter();
        let stored = |(message, checked): (&MessageData, Result<()>)| {
            checked?;
            match answers.next() {
                Some(Ok(())) => Ok(PushOutcome::Stored(message.id())),
                Some(Err(refused)) => Err(refused.into_error()),
                None => Err(ERRORS.error(anyqueue::ErrorKind::Internal, "a message was not answered")),
            }
        };
        let answered = messages.iter().zip(checked).map(stored);
        answered.map(|answer| answer.map_err(stamp)).collect()
    }
}

impl Inner {
    /// Checks and encodes a message.
    pub(crate) fn outgoing(&self, message: &MessageData) -> Result<Outgoing> {
        let config = &self.config;
        let priority = message.options().priority;
        if priority >= config.levels {
            return Err(
                ERRORS.invalid(format!("priority {priority} is out of range: 0 to {}", config.levels - 1))
            );
        }
        let (bytes, most) = (record::max_len(message), self.capabilities.limits.message_bytes);
        if bytes > most {
            let text = format!("the encoded message has {bytes} bytes: at most {most} are allowed");
            return Err(ERRORS.error(anyqueue::ErrorKind::TooLarge, text));
        }
        let delay = message.delay(config.clock.wall());
        if config.fifo && !delay.is_zero() {
            return Err(
                Error::unsupported("a FIFO queue supports no delay of a single message").with_backend(NAME)
            );
        }
        if delay > MAX_DELAY {
            return Err(ERRORS.invalid("the delay is longer than the capabilities allow"));
        }
        let mut envelope = Envelope::new(message.clone(), SystemTime::UNIX_EPOCH);
        // The server knows when a message was sent. Only copies must store it.
        envelope.pushed_at = None;
        let (delay_secs, due_after_secs) = delays(delay);
        let fifo_ids = config.fifo.then(|| FifoIds::of_push(message));
        Ok(Outgoing { body: record::encode(&envelope, due_after_secs)?, delay_secs, fifo_ids })
    }
}

fn stamp(error: Error) -> Error {
    error.with_backend(NAME).with_operation(Operation::Push)
}
