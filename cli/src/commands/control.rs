//! The place where processes agree on who works, what is due and how many tasks run at once.

use anyqueue::Queue;
use anyqueue::control::ControlStore;
use anyqueue_control::cron::Scheduler;
use clap::Args;

use crate::failure::{Result, with_text};
use crate::open::{Create, queue};
use crate::session::url_argument;

/// Where the control entries are.
#[derive(Args)]
pub(crate) struct ControlArgs {
    /// Where workers, schedules and limits are kept, if not with the queues: a memory, SQLite, PostgreSQL or Redis URL
    #[arg(
        long, global = true, env = "ANYQUEUE_CONTROL_URL", hide_env_values = true, value_name = "URL",
        value_parser = url_argument
    )]
    control_url: Option<String>,
}

/// A control store, and the queue through which it is reached, if that is not the queue itself.
pub(crate) struct Control {
    pub(crate) store: ControlStore,
    own: Option<Queue>,
}

impl ControlArgs {
    /// Opens the store: the one at the URL, or else the queue's own.
    pub(crate) async fn open(&self, of: &Queue, create: Create) -> Result<Control> {
        let Some(url) = &self.control_url else {
            let store =
                of.control().map_err(|error| with_text(&error, "give another store with --control-url"))?;
            return Ok(Control { store, own: None });
        };
        let own = queue(url, create).await?;
        Ok(Control { store: own.control()?, own: Some(own) })
    }
}

impl ControlArgs {
    /// Opens the store, if there is one; `None` on a backend that keeps no such entries.
    pub(crate) async fn open_if_any(&self, of: &Queue) -> Result<Option<Control>> {
        if self.control_url.is_none() && !of.capabilities().control {
            return Ok(None);
        }
        self.open(of, Create::AsUrlSays).await.map(Some)
    }
}

impl Control {
    /// The scheduler for the schedules in this store, with tasks on this queue.
    pub(crate) fn scheduler(&self, queue: &Queue) -> anyqueue::Result<Scheduler> {
        match &self.own {
            Some(own) => Scheduler::beside(queue, own),
            None => Scheduler::new(queue),
        }
    }

    /// Closes the connections of a store that is apart from the queue.
    pub(crate) async fn close(self) -> Result {
        if let Some(own) = self.own {
            own.close().await?;
        }
        Ok(())
    }
}
