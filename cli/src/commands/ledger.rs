//! `anyqueue ledger`: the place that ends of tasks take.

use anyqueue::Queue;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Result;
use crate::open::Create;
use crate::output::Output;
use crate::session::Session;

/// Frees the place of ends of tasks that have lapsed
#[derive(Subcommand)]
pub(crate) enum Ledger {
    Purge(Purge),
}

/// Frees the place of ends that have been kept for as long as they were to be
#[derive(Args)]
#[command(after_help = "\
Examples:
  anyqueue ledger purge
  anyqueue ledger purge --limit 10000 --json

Nobody is shown them any more, purged or not. Workers do this by themselves about once a minute; it is for backends that no
worker of ours serves. To delete what is still shown, see `anyqueue tasks delete`.")]
pub(crate) struct Purge {
    /// How many to free at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    limit: u64,
}

impl Ledger {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let Self::Purge(purge) = self;
        let end = purge.run(&queue, session.output).await;
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }
}

impl Purge {
    async fn run(self, queue: &Queue, output: Output) -> Result {
        let freed = queue.purge_ended(self.limit).await?;
        let more = freed >= self.limit;
        let note = if more { "; there may be more" } else { "" };
        output.result(&format!("freed {freed}{note}"), &json!({ "freed": freed, "more": more }))
    }
}
