//! What a partition's task does besides serving pulls: it declares removed queues again, and declares
//! dead-letter queues before the server may need them.

use std::time::Instant;

use anyqueue::{Error, Result};

use super::Actor;
use crate::config::QueueType;
use crate::error::is_missing;
use crate::limits::PRIORITY_LEVELS;
use crate::names::LevelQueue;

impl Actor {
    /// Serves all waiting pulls, even if somebody has removed the queue of some or all levels.
    pub(super) async fn serve_and_redeclare(&mut self) -> Result<()> {
        for _ in 0..PRIORITY_LEVELS {
            match self.serve().await {
                Err(error) if is_missing(&error) && self.redeclare(&error).await => {}
                served => return served,
            }
        }
        self.serve().await
    }

    /// Declares a queue that the server does not have any more. If that fails, its level counts as empty.
    /// Returns whether it was a queue of this partition.
    async fn redeclare(&mut self, error: &Error) -> bool {
        let names = &self.shared.names;
        let is_it = |level: &&u8| {
            let queue = names.queue(&LevelQueue::new(&self.partition, **level));
            error.message().contains(&format!("'{queue}'"))
        };
        let Some(level) = self.levels.iter().find(is_it).copied() else { return false };
        self.channel = None; // The server closed the channel over the missing queue.
        self.kept.clear();
        let publisher = &self.shared.publisher;
        let level_queue = LevelQueue::new(&self.partition, level);
        if publisher.is_blocked().await || publisher.redeclare(&level_queue).await.is_err() {
            self.levels.remove(&level);
            self.missing.insert(level, Instant::now());
        }
        true
    }

    /// Starts to declare dead-letter queues that may be needed, without waiting for the result.
    pub(super) fn declare_dead_letters(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        let may_dead_letter = std::mem::take(&mut channel.may_dead_letter);
        if self.shared.config.queue_type == QueueType::Classic {
            return; // It has no delivery limit.
        }
        for level in may_dead_letter {
            if self.dead_letters_declared.insert(level) {
                let (shared, level_queue) =
                    (self.shared.clone(), LevelQueue::new(&self.partition, level).dead_letter_queue());
                tokio::spawn(async move {
                    let made =
                        shared.closed.run_until_cancelled(shared.publisher.declare(&level_queue)).await;
                    if let Some(Err(error)) = made {
                        tracing::debug!(%error, partition = %level_queue.partition, "a dead-letter queue could not be declared");
                    }
                });
            }
        }
    }
}
