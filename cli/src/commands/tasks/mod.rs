//! `anyqueue tasks`: the states, results and ends of tasks.

mod count;
mod delete;
mod filter;
mod line;
mod list;
mod retry;
mod show;
mod stats;
mod wait;
mod watch;

use clap::Subcommand;

use crate::failure::{Result, or_read_enough};
use crate::open::Create;
use crate::session::Session;

/// Lists, shows, counts, sums up, waits for or retries tasks, whether they are alive, dead or have ended
#[derive(Subcommand)]
pub(crate) enum Tasks {
    List(list::List),
    Show(show::Show),
    Count(count::Count),
    Stats(stats::Stats),
    Wait(wait::Wait),
    Retry(retry::Retry),
    Delete(delete::Delete),
}

impl Tasks {
    pub(crate) async fn run(self, session: &Session) -> Result {
        let queue = session.queue(Create::Never).await?;
        let output = session.output;
        let end = match self {
            Self::List(command) => or_read_enough(command.run(&queue, output).await),
            Self::Show(command) => or_read_enough(command.run(&queue, output).await),
            Self::Count(command) => or_read_enough(command.run(&queue, output).await),
            Self::Stats(command) => or_read_enough(command.run(&queue, output).await),
            Self::Wait(command) => command.run(&queue, output).await,
            Self::Retry(command) => command.run(&queue, output).await,
            Self::Delete(command) => command.run(&queue, output).await,
        };
        let closed = queue.close().await;
        end?;
        Ok(closed?)
    }
}
