//! Which partition a worker serves, and how.

use std::time::Duration;

use anyqueue::adapter::Capabilities;
use anyqueue::{IntoPartitionId, PartitionId, Result};

use crate::config::PartitionConfig;
use crate::retry::Retry;

/// A partition that a worker serves, and its limits.
///
/// ```
/// use anyqueue_worker::{Partition, Retry};
/// use std::time::Duration;
/// let reports = Partition::new("reports").weight(3).concurrency(4).timeout(Duration::from_mins(10)).retry(Retry::never());
/// ```
#[derive(Debug)]
#[must_use = "give it to WorkerBuilder::partition"]
pub struct Partition {
    name: Result<PartitionId>,
    weight: u32,
    concurrency: usize,
    timeout: Option<Duration>,
    retry: Option<Retry>,
    lease: Option<Duration>,
}

impl Partition {
    /// The partition of this name, with weight 1 and no limits of its own. [`WorkerBuilder::build`](crate::WorkerBuilder::build)
    /// refuses a bad name.
    pub fn new(name: impl IntoPartitionId) -> Self {
        Self {
            name: name.into_partition_id(),
            weight: 1,
            concurrency: usize::MAX,
            timeout: None,
            retry: None,
            lease: None,
        }
    }

    /// Its share of the slots while other partitions want them too, relative to their weights. At least 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// How many of its tasks run at once in this process, at most. At least 1.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// How long one attempt may take. A limit of the kind or the message overrides it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When failed tasks are retried. A policy of the kind overrides it.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long its leases are, instead of the queue's default. The heartbeat renews them after a third of that time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Checks it, and adds what is wrong to the problems.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name.
    pub(crate) fn check(
        self,
        capabilities: &Capabilities,
        problems: &mut Vec<String>,
    ) -> Result<PartitionConfig> {
        let Self { name, weight, concurrency, timeout, retry, lease } = self;
        let id = name?;
        if concurrency == 0 || weight == 0 {
            problems.push(format!("the partition {id} has weight or concurrency 0: leave it out instead"));
        }
        let declared = capabilities.lease;
        if lease.is_some_and(|lease| lease < declared.min || lease > declared.max) {
            problems.push(format!(
                "the lease of the partition {id} is out of range: {} to {} are allowed",
                humantime::format_duration(declared.min),
                humantime::format_duration(declared.max)
            ));
        }
        Ok(PartitionConfig { id, weight, concurrency, timeout, retry, lease })
    }
}
