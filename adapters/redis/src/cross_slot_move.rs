//! What a cluster cannot do in one step because it concerns several servers.

use anyqueue::{Operation, PartitionId, Result, SettleOutcome};

use crate::RedisQueue;
use crate::bundle::Ending;
use crate::error::unexpected_reply;
use crate::names::{AMENDED_LAYOUT, COUNTED_LAYOUT, LAYOUT};
use crate::recent_names::RecentNames;
use crate::reply::{bytes, exactly, optional_list};
use crate::script;
use crate::settle::{CrossSlot, settled};

impl RedisQueue {
    /// In a cluster, adds a partition to the list of all partitions before its first message or pause.
    /// Otherwise scripts do that.
    pub(crate) async fn register_partition(&self, partition: &PartitionId) -> Result<()> {
        if !self.inner.config.is_cluster() || self.inner.listed.is_recent(partition.name()) {
            return Ok(());
        }
        let mut list = redis::cmd("ZADD");
        list.arg(self.inner.names.partitions()).arg("GT").arg(LAYOUT).arg(partition.name());
        self.inner.link.command(&list).await?;
        self.inner.listed.add(partition.name());
        Ok(())
    }

    /// In a cluster, marks the partition in that list, if it is there, as having keys that releases before
    /// amendments do not know. Otherwise scripts do that.
    pub(crate) async fn register_amended(&self, partition: &PartitionId) -> Result<()> {
        self.register_layout(partition, AMENDED_LAYOUT, &self.inner.amended).await
    }

    /// Does the same for keys that releases before whole groups do not know.
    pub(crate) async fn register_counted(&self, partition: &PartitionId) -> Result<()> {
        self.register_layout(partition, COUNTED_LAYOUT, &self.inner.counted).await
    }

    async fn register_layout(&self, partition: &PartitionId, layout: u32, known: &RecentNames) -> Result<()> {
        if !self.inner.config.is_cluster() || known.is_recent(partition.name()) {
            return Ok(());
        }
        let mut list = redis::cmd("ZADD");
        list.arg(self.inner.names.partitions()).arg("XX").arg("GT").arg(layout).arg(partition.name());
        self.inner.link.command(&list).await?;
        known.add(partition.name());
        Ok(())
    }

    /// Moves a message to a partition whose slot may be on another server: stores a copy there while the
    /// lease is valid, then removes the message here. If this is interrupted, the message comes back here.
    /// When it is moved again, the copy is recognised by its id.
    pub(crate) async fn move_across_slots(&self, one: &CrossSlot<'_>) -> Result<SettleOutcome> {
        if !self.copy_across_slots(one).await? {
            return Ok(SettleOutcome::Lost);
        }
        let mut remove = self.new_call(&script::SETTLE, one.from, 6, 128);
        remove.arg(b"").int(1).arg(b"D").arg(&one.ending.proof.to_bytes()).arg(b"").arg(b"");
        let digits = bytes(self.run(&remove, Operation::Settle).await?)?;
        digits.first().map(|digit| settled(*digit)).ok_or_else(unexpected_reply)
    }

    /// Stores a copy of a message in its target partition. Returns whether the lease was valid.
    pub(crate) async fn copy_across_slots(&self, one: &CrossSlot<'_>) -> Result<bool> {
        let CrossSlot { from, ending: Ending { proof, headers, .. }, .. } = one;
        let Some(to) = one.target() else { return Ok(false) };
        let mut copy = self.new_call(&script::COPY, from, 2, 64);
        copy.arg(proof.id.as_bytes()).arg(&proof.secret);
        let Some(copied) = optional_list(self.run(&copy, Operation::Settle).await?)? else {
            return Ok(false);
        };
        let [record, kept] = exactly(redis::Value::Array(copied))?;
        let (record, kept) = (bytes(record)?, bytes(kept)?);
        let headers = if headers.is_empty() { &kept } else { headers };
        self.register_partition(to).await?;
        let mut store = self.new_call(&script::STORE_COPY, to, 3, 64 + record.len() + headers.len());
        store.arg(proof.id.as_bytes()).arg(&record).arg(headers);
        self.run(&store, Operation::Settle).await.map(|_| true)
    }
}
