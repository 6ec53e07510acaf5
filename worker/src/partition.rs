//! Which partition a worker serves, and how.

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
    /// The partition of this name, with weight 1 and no limits of its own. [`WorkerBuilder::build`](crate::WorkerBuilder::build)
    /// refuses a bad name.
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

    /// A partition for each kind that the worker has a handler for: tasks of the kind `send_mail` are in `jobs.send_mail`, where
    /// [`kind_partition`](crate::kind_partition) has them pushed to. Everything else that is set here applies to each of them.
    ///
    /// So a kind can be capped, weighted, counted and paused like any partition, and a backlog of one kind holds up no other. The
    /// [`concurrency`](crate::Kind::concurrency) of a kind costs nothing here: it is that of its partition, from which no more is pulled than
    /// may run.
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
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses it beside an [`any_handler`](crate::WorkerBuilder::any_handler) while
    /// [`kinds`](Self::kinds) does not say what kinds that is for, and for a kind whose name is too long. With
    /// [`Sharing::Strict`](crate::Sharing::Strict) the kinds come in the order of their names.
    pub fn per_kind(base: impl IntoPartitionId) -> Self {
        Self { kinds: Some(Vec::new()), ..Self::new(base) }
    }

    /// Further kinds that [`per_kind`](Self::per_kind) serves: those of the [handler for any kind](crate::WorkerBuilder::any_handler), of
    /// which nobody knows what others there are.
    pub fn kinds<K: Into<String>>(mut self, kinds: impl IntoIterator<Item = K>) -> Self {
        self.kinds.get_or_insert_default().extend(kinds.into_iter().map(Into::into));
        self
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

    /// How many slots are reserved for it: no other partition takes them, also while this one is empty. Default: 0.
    ///
    /// So a light job starts at once, however many long ones of other partitions run or wait. It may take more slots than these by its
    /// weight. While a worker has [fewer slots](crate::Worker::set_slots) than that takes, nothing is reserved.
    ///
    /// ```
    /// use anyqueue_worker::Partition;
    /// let alerts = Partition::new("alerts").reserve(1);
    /// ```
    ///
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses more than the worker's slots in all, so many that none is left for the other partitions, more than the partition's
    /// [`concurrency`](Self::concurrency), and a [heavy kind](crate::Kind::slots) that the rest of the slots cannot hold.
    pub fn reserve(mut self, slots: usize) -> Self {
        self.reserve = slots;
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

    /// Pulls groups as a whole, up to so many members of each, for a [batch handler](crate::WorkerBuilder::batch_handler). Default: 1, the
    /// first of each group alone.
    ///
    /// To find a group whole the worker asks for as many messages even while fewer slots are free. Groups that come beyond the slots wait for
    /// one like what is [prefetched](crate::WorkerBuilder::prefetch), for up to [`prefetch_ttl`](crate::WorkerBuilder::prefetch_ttl). So keep
    /// messages without a group in a partition of their own. A group can be cut by [`max_held`](anyqueue::QueueBuilder::max_held); its other
    /// members come next.
    ///
    /// [`WorkerBuilder::build`](crate::WorkerBuilder::build) refuses it for 0, for dead letters, without a batch handler, with
    /// [retries as new messages](crate::Retry::as_new_message), which would leave the group's order, and where the backend does not declare
    /// [whole groups](anyqueue::adapter::Capabilities::whole_groups).
    pub fn whole_groups(mut self, max_members: usize) -> Self {
        self.group_members = max_members;
        self
    }

    /// Parts it into those of its kinds, if each has one of its own.
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

    /// Checks it, and adds what is wrong to the problems.
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
