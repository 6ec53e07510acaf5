//! What a partition's task does beside pulls: queues that somebody has removed are made anew, and dead letters are there when the
//! server may need them.

use std::time::Instant;

use anyqueue::{Error, Result};

use super::Actor;
use crate::config::QueueType;
use crate::error::is_missing;
use crate::limits::PRIORITY_LEVELS;
use crate::names::LevelQueue;

impl Actor {
    /// Serves all who wait, though somebody may have removed the queue of a level, or of all.
    pub(super) async fn serve_and_redeclare(&mut self) -> Result<()> {
        for _ in 0..PRIORITY_LEVELS {
            match self.serve().await {
                Err(error) if is_missing(&error) && self.redeclare(&error).await => {}
                served => return served,
            }
        }
        self.serve().await
    }

    /// Makes the queue anew that the server does not have. Where that cannot be, its level has no messages. Returns whether it was one
    /// of this partition's.
    async fn redeclare(&mut self, error: &Error) -> bool {
        let names = &self.shared.names;
        let is_it = |level: &&u8| {
            let queue = names.queue(&LevelQueue::new(&self.partition, **level));
            error.message().contains(&format!("'{queue}'"))
        };
        let Some(level) = self.levels.iter().find(is_it).copied() else { return false };
        self.channel = None; // The question has ended the channel.
        self.copying.clear();
        let publisher = &self.shared.publisher;
        let level_queue = LevelQueue::new(&self.partition, level);
        if publisher.is_blocked().await || publisher.redeclare(&level_queue).await.is_err() {
            self.levels.remove(&level);
            self.missing.insert(level, Instant::now());
        }
        true
    }

    /// Starts what nobody waits for.
    pub(super) fn declare_dead_letters(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        let may_dead_letter = std::mem::take(&mut channel.may_dead_letter);
        if self.shared.config.queue_type == QueueType::Classic {
            return; // It has no limit of deliveries.
        }
        for level in may_dead_letter {
            if self.dead_letters_declared.insert(level) {
                let (shared, level_queue) =
                    (self.shared.clone(), LevelQueue::new(&self.partition, level).dead_letter_queue());
                tokio::spawn(async move {
                    let made =
                        shared.closed.run_until_cancelled(shared.publisher.declare(&level_queue)).await;
                    if let Some(Err(error)) = made {
                        tracing::debug!(%error, partition = %level_queue.partition, "dead letters could not be seen to");
                    }
                });
            }
        }
    }
}
