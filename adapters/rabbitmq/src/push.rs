//! Pushing messages.

use anyqueue::adapter::{Envelope, PushQueueStorage, async_trait};
use anyqueue::{ErrorKind, MessageData, Operation, PartitionId, PushOutcome, Result};

use crate::RabbitMqQueue;
use crate::command::Command;
use crate::delay_queues;
use crate::error::{ERRORS, NAME};
use crate::limits::PRIORITY_LEVELS;
use crate::names::LevelQueue;
use crate::publisher::OutgoingMessage;

#[async_trait]
impl PushQueueStorage for RabbitMqQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        Envelope::max_encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.push_all(partition, messages).await
    }
}

impl RabbitMqQueue {
    async fn push_all(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let stamp = |error: anyqueue::Error| error.with_backend(NAME).with_operation(Operation::Push);
        if self.is_closed() {
            return vec![Err(ERRORS.closed(Operation::Push)); messages.len()];
        }
        let mut answers: Vec<Result<PushOutcome>> = Vec::with_capacity(messages.len());
        let mut publications = Vec::with_capacity(messages.len());
        for message in messages {
            match self.publication(partition, message) {
                Ok(publication) => {
                    publications.push(publication);
                    answers.push(Ok(PushOutcome::Stored(message.id())));
                }
                Err(error) => answers.push(Err(stamp(error))),
            }
        }
        let sent = self.send(publications).await;
        let mut sent = sent.into_iter();
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            if let Some(Err(error)) = sent.next() {
                *answer = Err(stamp(error));
            }
        }
        answers
    }

    /// Checks and encodes a message.
    pub(crate) fn publication(
        &self,
        partition: &PartitionId,
        message: &MessageData,
    ) -> Result<OutgoingMessage> {
        if message.options().priority >= PRIORITY_LEVELS {
            return Err(ERRORS.invalid(format!("a priority must be from 0 to {}", PRIORITY_LEVELS - 1)));
        }
        if Envelope::max_encoded_len(message) > self.inner.shared.config.message_bytes {
            return Err(ERRORS.error(ErrorKind::TooLarge, "the encoded message is larger than message_bytes"));
        }
        let now = self.inner.shared.config.clock.wall();
        let steps = delay_queues::steps(message.delay(now));
        let level_queue = LevelQueue::new(partition, message.options().priority);
        Ok(OutgoingMessage {
            level_queue,
            steps,
            body: Envelope::new(message.clone(), now).encode()?,
            headers: None,
        })
    }

    /// Publishes to queues, which are declared first if necessary.
    pub(crate) async fn send(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<()>> {
        let (answers, made) = self.inner.shared.publisher.send(messages).await;
        for level_queue in made {
            // The consumers of this handle do not have to wait for the announcement.
            self.command_if_running(&level_queue.partition, Command::Level(level_queue.level)).await;
        }
        answers
    }
}
