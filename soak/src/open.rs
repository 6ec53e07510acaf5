//! Opening the queue of a run, in whichever process.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Beside, Keep, PartitionOptions, Queue, RetryPolicy};
use anyqueue_control::cron::Scheduler;
use clap::Args;

use crate::backends::Result;

/// How long a delivery is held by a pull that does not say otherwise.
const LEASE: Duration = Duration::from_secs(5);
/// How long messages that are drained at the end are held.
const LEASE_OF_LOOKS: Duration = Duration::from_mins(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of calls at the end: counting what a long run has left takes longer.
const LOOK_TIMEOUT: Duration = Duration::from_mins(1);

/// Where everything is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Places {
    /// The queue
    #[arg(long)]
    pub(crate) url: String,
    /// What keeps ends and control entries, if the queue does not
    #[arg(long)]
    pub(crate) store_url: Option<String>,
    /// Keeps the ends of tasks
    #[arg(long)]
    pub(crate) ledger: bool,
}

impl Places {
    /// Opens the queue for the time of the faults. Nothing is repeated unseen: a push that is repeated after
    /// its message came and went stores a second one, and the account has to know.
    pub(crate) async fn open(&self) -> Result<Queue> {
        self.open_with(LEASE, CALL_TIMEOUT, RetryPolicy::NEVER).await
    }

    /// Opens the queue for workers: failed calls are retried as usual.
    pub(crate) async fn open_to_work(&self) -> Result<Queue> {
        self.open_with(LEASE, CALL_TIMEOUT, RetryPolicy::default()).await
    }

    /// Opens the queue for looking at the end.
    pub(crate) async fn open_to_look(&self) -> Result<Queue> {
        self.open_with(LEASE_OF_LOOKS, LOOK_TIMEOUT, RetryPolicy::default()).await
    }

    async fn open_with(&self, lease: Duration, timeout: Duration, retry: RetryPolicy) -> Result<Queue> {
        let mut storage = anyqueue_backends::open(&self.url).await?;
        if let Some(store) = self.store_url.as_deref().filter(|_| self.ledger) {
            storage = Arc::new(Beside::new(storage, anyqueue_backends::open(store).await?)?);
        }
        let defaults = PartitionOptions::default().with_lease(lease).with_max_deliveries(None);
        let mut builder = Queue::builder(storage).defaults(defaults).call_timeout(timeout).retry(retry);
        if self.ledger {
            builder = builder.ledger(Keep::all(None));
        }
        Ok(builder.build()?)
    }

    /// Returns the queue through which control entries are reached: its own handle on the store, if the queue
    /// itself has none.
    pub(crate) async fn open_control(&self, queue: &Queue) -> Result<Queue> {
        match &self.store_url {
            Some(store) => Ok(Queue::new(anyqueue_backends::open(store).await?)?),
            None => Ok(queue.clone()),
        }
    }

    /// Returns the scheduler of the schedules that are kept in `home`, for tasks on this queue.
    pub(crate) fn scheduler(&self, queue: &Queue, home: &Queue) -> Result<Scheduler> {
        Ok(if self.store_url.is_some() { Scheduler::beside(queue, home)? } else { Scheduler::new(queue)? })
    }

    /// Returns all this as arguments of a command.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--url".to_owned(), self.url.clone()];
        if let Some(store) = &self.store_url {
            arguments.extend(["--store-url".to_owned(), store.clone()]);
        }
        if self.ledger {
            arguments.push("--ledger".to_owned());
        }
        arguments
    }
}
