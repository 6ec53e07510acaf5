//! The list of partitions with ends that lapse, for a purge. One server's scripts keep it; in a cluster it may be on another server than a
//! partition, and clients keep it.

use anyqueue::{Operation, PartitionId, Result};

use crate::RedisQueue;
use crate::link::Call;
use crate::reply::{count, exactly, list, text};
use crate::script::{self, Script};

/// How many ends one script looks at, most of which it frees.
const LOOKED_AT_PER_CALL: usize = 250;
/// How many partitions one call names.
const NAMES_PER_CALL: u64 = 100;
/// A partition without ends stays on a cluster's list for so long since a handle noted it. Handles rely on it for a minute, and for as long
/// as their calls take.
const LISTED_FOR_S: u64 = 600;

/// What one script freed.
struct Freed {
    count: usize,
    /// Whether there are ends that lapse later.
    has_more: bool,
}

impl RedisQueue {
    /// In a cluster, notes that ends of this partition will lapse. Elsewhere scripts do that. An error must not keep tasks from ending, which
    /// need another server: then a purge may not find the partition until more of it ends, a minute later.
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

    /// Those partitions first in which the first one has lapsed.
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

    /// All that are listed. A partition that goes from the list meanwhile may hide another one from this purge, not from the next one.
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

    /// Frees what has lapsed in a partition, in small steps.
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
