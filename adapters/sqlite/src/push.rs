//! Pushing: messages that pass the checks go to the writer in one request.

use anyqueue::adapter::{Envelope, PushQueueStorage, async_trait};
use anyqueue::{Error, ErrorKind, MessageData, Operation, PartitionId, PushOutcome, Result};

use crate::SqliteQueue;
use crate::config::Config;
use crate::error::{ERRORS, NAME};
use crate::job::{Answer, Work};
use crate::new_message::NewMessage;

#[async_trait]
impl PushQueueStorage for SqliteQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        Envelope::max_encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let Config { message_bytes, clock, .. } = &self.inner.config;
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Push);
        let prepare = |message| NewMessage::prepare(message, *message_bytes, clock).map_err(stamp);
        let (verdicts, good) = part_good(messages.iter().map(prepare));
        if good.is_empty() && !self.inner.closed.is_cancelled() {
            return answers(verdicts, Vec::new());
        }
        match self.ask(Work::Push { partition: partition.clone(), messages: good }, Operation::Push).await {
            Ok(Answer::Push(outcomes)) => answers(verdicts, outcomes),
            Ok(_) => answers(verdicts, Vec::new()),
            Err(error) => messages.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// Separates the messages that passed the checks from the errors of the others.
pub(crate) fn part_good(
    prepared: impl Iterator<Item = Result<NewMessage>>,
) -> (Vec<Result<()>>, Vec<NewMessage>) {
    let mut good = Vec::new();
    let verdicts = prepared.map(|message| message.map(|message| good.push(message))).collect();
    (verdicts, good)
}

/// Combines the outcomes of stored messages with the errors of the others, in order.
pub(crate) fn answers(verdicts: Vec<Result<()>>, outcomes: Vec<PushOutcome>) -> Vec<Result<PushOutcome>> {
    let missing = || ERRORS.error(ErrorKind::Internal, "a pushed message got no answer");
    let mut outcomes = outcomes.into_iter();
    verdicts.into_iter().map(|verdict| verdict.and_then(|()| outcomes.next().ok_or_else(missing))).collect()
}
