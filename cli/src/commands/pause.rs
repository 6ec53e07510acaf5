//! `anyqueue pause` and `anyqueue resume`.

use anyqueue::{PartitionId, Queue};
use clap::Args;
use serde_json::json;

use crate::failure::Result;
use crate::open::Create;
use crate::session::{Session, queue_name};

/// Stops all deliveries from queues until they are resumed
#[derive(Args)]
#[command(after_help = "\
Example: anyqueue pause mail thumbnails

Messages can still be pushed, and those being processed can be settled. The backend keeps the pause, also across restarts.")]
pub(crate) struct Pause {
    /// The queues
    #[arg(value_name = "QUEUE", required = true, value_parser = queue_name)]
    queues: Vec<PartitionId>,
}

/// Lets paused queues deliver again
#[derive(Args)]
#[command(after_help = "Example: anyqueue resume mail")]
pub(crate) struct Resume {
    /// The queues
    #[arg(value_name = "QUEUE", required = true, value_parser = queue_name)]
    queues: Vec<PartitionId>,
}

impl Pause {
    pub(crate) async fn run(self, session: &Session) -> Result {
        set(session, self.queues, true).await
    }
}

impl Resume {
    pub(crate) async fn run(self, session: &Session) -> Result {
        set(session, self.queues, false).await
    }
}

async fn set(session: &Session, names: Vec<PartitionId>, paused: bool) -> Result {
    let queue = session.queue(Create::Never).await?;
    for name in names {
        if paused {
            if !has_messages(&queue, &name).await {
                session
                    .output
                    .note(&format!("{name} has no messages: is the name right? It is paused all the same"));
            }
            queue.pause(&name).await?;
        } else {
            queue.resume(&name).await?;
        }
        let word = if paused { "paused" } else { "resumed" };
        session
            .output
            .result(&format!("{word} {name}"), &json!({ "queue": name.name(), "paused": paused }))?;
    }
    queue.close().await?;
    Ok(())
}

/// Whether the queue has messages; assumed if the backend does not count them.
async fn has_messages(queue: &Queue, name: &PartitionId) -> bool {
    let Ok(counts) = queue.counts(name).await else { return true };
    [counts.ready, counts.delayed, counts.leased, counts.disabled, counts.dead]
        .into_iter()
        .any(|count| count != Some(0))
}
