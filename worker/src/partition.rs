//! The partitions that a worker serves, and their settings.

use std::collections::BTreeSet;
use std::time::Duration;

use anyqueue::adapter::Capabilities;
use anyqueue::{IntoPartitionId, PartitionId, Result};

use crate::config::{MAX_SLOTS, PartitionConfig};
use crate::handler::{Kind, Routes};
use crate::kind_partition::kind_partition;
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
    kinds: Option<Vec<String>>,
    weight: u32,
    concurrency: usize,
    reserve: usize,
    timeout: Option<Duration>,
    retry: Option<Retry>,
    lease: Option<Duration>,
    group_members: usize,
}

impl Partition {
    /// The partition of this name, with weight 1 and no limits of its own.
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses a bad name.
    pub fn new(name: impl IntoPartitionId) -> Self {
        Self {
            name: name.into_partition_id(),
            kinds: None,
            weight: 1,
            concurrency: usize::MAX,
            reserve: 0,
            timeout: None,
            retry: None,
            lease: None,
            group_members: 1,
        }
    }

    /// A partition of its own for each kind that the worker has a handler for. With the base `jobs`, tasks of
    /// the kind `send_mail` are in `jobs.send_mail`; push them to [`kind_partition`](crate::kind_partition).
    /// All other settings apply to each of these partitions.
    ///
    /// A kind can then be capped, weighted, counted and paused like any partition, and a backlog of one kind
    /// does not hold up the others. The [`concurrency`](crate::Kind::concurrency) of a kind costs nothing
    /// here: it becomes that of its partition, from which no more is pulled than may run.
    ///
    /// ```
    /// use anyqueue_worker::{Kind, Partition, TaskContext, Worker, kind_partition, task};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// let worker = Worker::builder(queue.clone())
    ///     .partition(Partition::per_kind("jobs"))
    ///     .handler("send_mail", |_to: String, _: TaskContext| async { Ok(()) })
    ///     .handler("render", |_pages: u32, _: TaskContext| async { Ok(()) })
    ///     .kind(Kind::new("render").concurrency(2))
    ///     .build()?;
    /// queue.push(kind_partition("jobs", "render")?, task("render", &7)?).await?;
    /// assert_eq!(worker.run_once().await?.processed, 1);
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses a kind whose name is too long, and an
    /// [`any_handler`](crate::WorkerBuilder::any_handler) unless [`kinds`](Self::kinds) lists the kinds that
    /// it is for. With [`Sharing::Strict`](crate::Sharing::Strict) the kinds come in the order of their
    /// names.
    pub fn per_kind(base: impl IntoPartitionId) -> Self {
        Self { kinds: Some(Vec::new()), ..Self::new(base) }
    }

    /// Adds kinds to those that [`per_kind`](Self::per_kind) serves: those of the [handler for any
    /// kind](crate::WorkerBuilder::any_handler), since the worker cannot know them.
    pub fn kinds<K: Into<String>>(mut self, kinds: impl IntoIterator<Item = K>) -> Self {
        self.kinds.get_or_insert_default().extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Sets the partition's share of the slots while other partitions want them too, relative to their
    /// weights. At least 1. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets how many tasks of the partition run at once in this process, at most. At least 1. Default: no
    /// limit.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks;
        self
    }

    /// Sets how many slots are reserved for the partition: no other partition takes them, even while this one
    /// is empty. Default: 0.
    ///
    /// So a light job starts at once, however many long jobs of other partitions run or wait. The partition
    /// may take more slots than these by its weight. While a worker has [fewer
    /// slots](crate::Worker::set_slots) than all reserves need, nothing is reserved.
    ///
    /// ```
    /// use anyqueue_worker::Partition;
    /// let alerts = Partition::new("alerts").reserve(1);
    /// ```
    ///
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses reserves of more slots than the worker
    /// has, reserves that leave no slot to the other partitions, a reserve larger than the partition's
    /// [`concurrency`](Self::concurrency), and a [heavy kind](crate::Kind::slots) that does not fit into the
    /// remaining slots.
    pub fn reserve(mut self, slots: usize) -> Self {
        self.reserve = slots;
        self
    }

    /// Sets how long one attempt may take. A limit of the kind or the message overrides it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets when failed tasks are retried. A policy of the kind overrides it.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets the length of the partition's leases, instead of the queue's default. The heartbeat renews a
    /// lease after a third of that time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Pulls whole groups, up to `max_members` members of each, for a [batch
    /// handler](crate::WorkerBuilder::batch_handler). Default: 1, only the first member of each group.
    ///
    /// To get a group whole, the worker asks for `max_members` messages even while fewer slots are free.
    /// Groups beyond the free slots wait for a slot like [prefetched](crate::WorkerBuilder::prefetch)
    /// messages, for up to [`prefetch_ttl`](crate::WorkerBuilder::prefetch_ttl). So keep messages without a
    /// group in a partition of their own. [`max_held`](anyqueue::QueueBuilder::max_held) can cut a group; its
    /// other members come next.
    ///
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses this for 0 members, for dead letters,
    /// without a batch handler, with [retries as new messages](crate::Retry::as_new_message), which would
    /// break the order of the group, and if the backend does not declare [whole
    /// groups](anyqueue::adapter::Capabilities::whole_groups).
    pub fn whole_groups(mut self, max_members: usize) -> Self {
        self.group_members = max_members;
        self
    }

    /// Splits it into the partitions of its kinds, if each kind has one of its own.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name.
    pub(crate) fn into_parts(
        mut self,
        routes: &Routes,
        limits: &[Kind],
        problems: &mut Vec<String>,
    ) -> Result<Vec<Self>> {
        let Some(named) = self.kinds.take() else { return Ok(vec![self]) };
        let base = self.name.clone()?;
        if routes.have_any() && named.is_empty() {
            problems.push(format!(
                "each kind has a partition of its own in {base}, and a handler for any kind does not say what kinds there are: name them by kinds()"
            ));
        }
        let kinds: BTreeSet<&str> = routes.kinds().chain(named.iter().map(String::as_str)).collect();
        let part = |kind: &str| {
            if !routes.handle(kind) {
                problems.push(format!("the kind {kind:?} of {base} has no handler: register one"));
            }
            let limit = limits.iter().find(|limit| limit.name == kind);
            let most = limit.map_or(usize::MAX, |limit| limit.concurrency);
            let name = Ok(kind_partition(&base, kind)?);
            let concurrency = self.concurrency.min(most);
            Ok(Self { name, kinds: None, concurrency, retry: self.retry, ..self })
        };
        kinds.into_iter().map(part).collect()
    }

    /// Checks the partition, and adds what is wrong to the problems.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name.
    pub(crate) fn check(
        self,
        capabilities: &Capabilities,
        problems: &mut Vec<String>,
    ) -> Result<PartitionConfig> {
        let Self { name, kinds: _, weight, concurrency, reserve, timeout, retry, lease, group_members } =
            self;
        let id = name?;
        if concurrency == 0 || weight == 0 {
            problems.push(format!("the partition {id} has weight or concurrency 0: leave it out instead"));
        }
        if reserve > concurrency {
            problems.push(format!(
                "the partition {id} reserves {reserve} slots, and may run only {concurrency} tasks: reserve no more than that"
            ));
        }
        let declared = capabilities.lease;
        if lease.is_some_and(|lease| lease < declared.min || lease > declared.max) {
            problems.push(format!(
                "the lease of the partition {id} is out of range: {} to {} are allowed",
                humantime::format_duration(declared.min),
                humantime::format_duration(declared.max)
            ));
        }
        check_groups(&id, group_members, capabilities, problems);
        Ok(PartitionConfig { id, weight, concurrency, reserve, timeout, retry, lease, group_members })
    }
}

fn check_groups(id: &PartitionId, members: usize, capabilities: &Capabilities, problems: &mut Vec<String>) {
    let problem = match members {
        0 => "groups of 0 members can hold nothing: set at least 1",
        1 => return,
        _ if members > MAX_SLOTS => "that many members are too many for one batch: set at most 1000000",
        _ if id.is_dead_letters() => "dead letters know no groups: leave out whole_groups()",
        _ if !capabilities.whole_groups => {
            "this backend cannot pull groups whole (whole_groups): leave out whole_groups()"
        }
        _ => return,
    };
    problems.push(format!("the partition {id} is to be pulled in whole groups, but {problem}"));
}
