//! Redrive by the service itself.

use anyqueue::{Error, ErrorKind, Operation, PartitionId, Result};

use crate::SqsQueue;
use crate::error::{ERRORS, NAME, Refused};
use crate::names::LevelQueue;
use crate::shared::Inner;

impl SqsQueue {
    /// Lets the service move all dead letters of a partition back, with one `StartMessageMoveTask` for each
    /// level that has a dead-letter queue. Returns how many tasks were started. They continue in the
    /// background, and need no request per message.
    ///
    /// In contrast, [`DeadLetters::redrive`](anyqueue::DeadLetters::redrive) moves one message after the
    /// other: it can filter, can stop at a limit, removes the headers about the death, and works on every
    /// server. Use `start_redrive` for very many messages. Using both at the same time is harmless.
    ///
    /// # Errors
    /// `Unsupported` on FIFO queues, whose dead letters have left their groups, and on servers without such
    /// tasks. Otherwise the server's error if it refuses: it accepts only queues that other queues use as
    /// their dead-letter queue. Those that this handle has created are accepted. Tasks that were started
    /// before an error continue. If the future is dropped, the last task may or may not have been started.
    pub async fn start_redrive(&self, partition: &PartitionId) -> Result<usize> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Settle);
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Settle));
        }
        if self.inner.config.fifo {
            let text =
                "dead letters of FIFO queues have left their groups: put them back with DeadLetters::redrive";
            return Err(stamp(ERRORS.error(ErrorKind::Unsupported, text)));
        }
        let mut begun = 0;
        for level in 0..self.inner.config.levels {
            begun += usize::from(self.inner.start_redrive_of(partition, level).await.map_err(stamp)?);
        }
        Ok(begun)
    }
}

impl Inner {
    /// Starts the task for one level. Returns whether there is a dead-letter queue.
    async fn start_redrive_of(&self, partition: &PartitionId, level: u8) -> Result<bool> {
        let (from, to) =
            (LevelQueue::new(&partition.dead_letters(), level), LevelQueue::new(&partition.live(), level));
        let Some(from_url) = self.queues.find(&self.server, &from).await? else { return Ok(false) };
        let to_url = self.queues.find_or_create(&self.server, &to).await?;
        let from_arn = self.queues.arn(&self.server, &from, &from_url).await?;
        let to_arn = self.queues.arn(&self.server, &to, &to_url).await?;
        match self.server.start_move(&from_arn, &to_arn).await {
            Ok(()) => Ok(true),
            Err(Refused::NoQueue) => Ok(false),
            Err(refused) => Err(refused.into_error()),
        }
    }
}
