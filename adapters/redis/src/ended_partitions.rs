//! The list of partitions with ends that expire, which a purge needs. On one server, scripts maintain it. In
//! a cluster it may be on another server than a partition, so clients maintain it.

use anyqueue::{Operation, PartitionId, Result};

use crate::RedisQueue;
use crate::link::Call;
use crate::reply::{count, exactly, list, text};
use crate::script::{self, Script};

/// How many ends one script reads. It frees most of them.
const LOOKED_AT_PER_CALL: usize = 250;
/// How many partitions one call returns.
const NAMES_PER_CALL: u64 = 100;
/// In a cluster, a partition without ends stays on the list for this long after a handle registered it.
/// Handles rely on a registration for a minute, plus the duration of their calls.
const LISTED_FOR_S: u64 = 600;

/// What one script freed.
struct Freed {
    count: usize,
    /// Whether there are ends that expire later.
    has_more: bool,
}

impl RedisQueue {
    /// In a cluster, registers that ends of this partition expire. Otherwise scripts do that. An error here
    /// must not keep tasks from ending, which concerns another server. A purge may then miss the partition
    /// until more of its tasks end, a minute later.
    pub(crate) async fn enlist(&self, partition: &PartitionId) {
        if !self.inner.config.is_cluster() || self.inner.with_ends.is_recent(partition.name()) {
            return;
        }
        let mut call = self.list_call(&script::ENLIST);
        call.arg(partition.name().as_bytes());
        if let Err(error) = self.run(&call, Operation::Inspect).await {
            tracing::warn!(%error, %partition, "a partition with ends could not be noted for purges; a later end tries again");
        }
        self.inner.with_ends.add(partition.name());
    }

    fn list_call(&self, script: &'static Script) -> Call {
        Call::new(script, &[self.inner.names.ended()], 2, 128)
    }

    pub(crate) async fn purge_ends(&self, limit: usize) -> Result<usize> {
        if self.inner.config.is_cluster() {
            self.purge_listed(limit).await
        } else {
            self.purge_lapsed(limit).await
        }
    }

    /// Purges the partitions in order of their first expiry.
    async fn purge_lapsed(&self, limit: usize) -> Result<usize> {
        let mut purged = 0;
        while purged < limit {
            let mut call = self.list_call(&script::LAPSED_PARTITIONS);
            call.int(NAMES_PER_CALL);
            let names = list(self.run(&call, Operation::Inspect).await?)?;
            if names.is_empty() {
                break;
            }
            for name in names {
                let partition = PartitionId::new(&text(name)?)?;
                purged += self.purge_partition(&partition, limit - purged).await?.count;
            }
        }
        Ok(purged)
    }

    /// Purges all listed partitions. A partition that leaves the list meanwhile may hide another one from
    /// this purge, but not from the next.
    async fn purge_listed(&self, limit: usize) -> Result<usize> {
        let (mut purged, mut first) = (0, 0);
        while purged < limit {
            let mut some = redis::cmd("ZRANGE");
            some.arg(self.inner.names.ended()).arg(first).arg(first + NAMES_PER_CALL - 1);
            let names = list(self.inner.link.command(&some).await?)?;
            if names.is_empty() {
                break;
            }
            first += NAMES_PER_CALL;
            for name in names {
                let partition = PartitionId::new(&text(name)?)?;
                let freed = self.purge_partition(&partition, limit - purged).await?;
                purged += freed.count;
                if !freed.has_more {
                    self.delist(&partition).await?;
                }
            }
        }
        Ok(purged)
    }

    async fn delist(&self, partition: &PartitionId) -> Result<()> {
        let mut call = self.list_call(&script::DELIST);
        call.arg(partition.name().as_bytes()).int(LISTED_FOR_S);
        self.run(&call, Operation::Inspect).await.map(|_| ())
    }

    /// Frees the expired ends of a partition in small steps.
    async fn purge_partition(&self, partition: &PartitionId, limit: usize) -> Result<Freed> {
        let mut freed = Freed { count: 0, has_more: true };
        while freed.count < limit {
            let wanted = LOOKED_AT_PER_CALL.min(limit - freed.count);
            let mut call = self.new_call(&script::PURGE_ENDED, partition, 1, 32);
            call.int(wanted as u64);
            let [some, looked_at, more] = exactly(self.run(&call, Operation::Inspect).await?)?;
            let some = usize::try_from(count(&some)?).unwrap_or(usize::MAX);
            freed = Freed { count: freed.count.saturating_add(some), has_more: count(&more)? > 0 };
            if count(&looked_at)? < wanted as u64 {
                break;
            }
        }
        Ok(freed)
    }
}
