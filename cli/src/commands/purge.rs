//! `anyqueue purge`: deletes the messages of a queue.

use anyqueue::{PartitionId, Queue};
use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::open::Create;
use crate::output::count;
use crate::session::{Session, queue_name};

/// Deletes all messages of a queue, except those being processed
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue purge mail          shows what would be deleted
  anyqueue purge mail --yes

Dead letters stay: see `anyqueue dead purge`.")]
pub(crate) struct Purge {
    /// The queue
    #[arg(value_parser = queue_name)]
    queue: PartitionId,
    /// Confirms the deletion
    #[arg(long)]
    yes: bool,
}

impl Purge {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let end = self.purge(session, &queue).await;
        queue.close().await?;
        end
    }

    async fn purge(&self, session: &Session, queue: &Queue) -> Result {
        if !self.yes {
            let counts = queue.counts(&self.queue).await?;
            return Err(Failure::Usage(format!(
                "this would delete {} ready and {} delayed messages of {} forever: add --yes to confirm",
                count(counts.ready),
                count(counts.delayed),
                self.queue
            )));
        }
        let deleted = queue.purge(&self.queue).await?;
        session.output.result(
            &format!("deleted {deleted} messages of {}", self.queue),
            &json!({ "queue": self.queue.name(), "deleted": deleted }),
        )
    }
}
