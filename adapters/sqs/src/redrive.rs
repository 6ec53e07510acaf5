//! Redrive by the server itself.

use anyqueue::{Error, ErrorKind, Operation, PartitionId, Result};

use crate::SqsQueue;
use crate::error::{NAME, Refused, closed, error};
use crate::names::LevelQueue;
use crate::shared::Inner;

impl SqsQueue {
    /// Lets the service put all dead letters of a partition back by itself, with one `StartMessageMoveTask` for each level that has a
    /// queue of dead letters. Returns how many tasks were begun; they go on after this, and cost no request a message.
    ///
    /// [`DeadLetters::redrive`](anyqueue::DeadLetters::redrive) moves message by message instead: it can filter and stop at a limit, takes
    /// the headers about the death off, and works on every server. Use this one for a great many. Both at once do no harm.
    ///
    /// # Errors
    /// `Unsupported` on FIFO queues, whose dead letters have left their groups, and on servers without such tasks. The server's, if it
    /// refuses: it takes only queues that are dead-letter queues of others, as those are which were made here. Tasks that were begun
    /// before an error go on. Dropping the future leaves open whether the task under way was begun.
    pub async fn start_redrive(&self, partition: &PartitionId) -> Result<usize> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Settle);
        if self.is_closed() {
            return Err(closed(Operation::Settle));
        }
        if self.inner.config.fifo {
            let text =
                "dead letters of FIFO queues have left their groups: put them back with DeadLetters::redrive";
            return Err(stamp(error(ErrorKind::Unsupported, text)));
        }
        let mut begun = 0;
        for level in 0..self.inner.config.levels {
            begun += usize::from(self.inner.start_redrive_of(partition, level).await.map_err(stamp)?);
        }
        Ok(begun)
    }
}

impl Inner {
    /// Whether there is a queue to put back from.
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
