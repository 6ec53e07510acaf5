//! What a partition's task does beside pulls: queues that somebody has removed are made anew, and dead letters are there when the
//! server may need them.

use std::time::Instant;

use anyqueue::{Error, Result};

use super::Actor;
use crate::config::QueueType;
use crate::error::is_missing;
use crate::limits::PRIORITY_LEVELS;
use crate::names::Line;

impl Actor {
    /// Serves all who wait, though somebody may have removed the queue of a level, or of all.
    pub(super) async fn serve_and_heal(&mut self) -> Result<()> {
        for _ in 0..PRIORITY_LEVELS {
            match self.serve().await {
                Err(error) if is_missing(&error) && self.heal(&error).await => {}
                served => return served,
            }
        }
        self.serve().await
    }

    /// Makes the queue anew that the server does not have. Where that cannot be, its level has no messages. Returns whether it was one
    /// of this partition's.
    async fn heal(&mut self, error: &Error) -> bool {
        let names = &self.tools.names;
        let is_it = |level: &&u8| {
            let queue = names.queue(&Line::new(&self.partition, **level));
            error.message().contains(&format!("'{queue}'"))
        };
        let Some(level) = self.levels.iter().find(is_it).copied() else { return false };
        self.desk = None; // The question has ended the channel.
        self.copying.clear();
        let publisher = &self.tools.publisher;
        let line = Line::new(&self.partition, level);
        if publisher.is_blocked().await || publisher.renew(&line).await.is_err() {
            self.levels.remove(&level);
            self.missing.insert(level, Instant::now());
        }
        true
    }

    /// Starts what nobody waits for.
    pub(super) fn care(&mut self) {
        let Some(desk) = &mut self.desk else { return };
        let at_risk = std::mem::take(&mut desk.at_risk);
        if self.tools.config.queue_type == QueueType::Classic {
            return; // It has no limit of deliveries.
        }
        for level in at_risk {
            if self.guarded.insert(level) {
                let (tools, line) = (self.tools.clone(), Line::new(&self.partition, level).dead_line());
                tokio::spawn(async move {
                    let made = tools.closed.run_until_cancelled(tools.publisher.make(&line)).await;
                    if let Some(Err(error)) = made {
                        tracing::debug!(%error, partition = %line.partition, "dead letters could not be seen to");
                    }
                });
            }
        }
    }
}
