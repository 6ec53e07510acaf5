//! Ids in line that have no record, as where a cluster lost sight of a part of its keys. Scripts put them aside, and back when the
//! record is there again; operators are told.

use anyqueue::{PartitionId, Result};

use crate::RedisQueue;
use crate::names::{partition, word};
use crate::reply;

/// Partitions that one check tells of.
const MAX_WARNINGS: usize = 8;

impl RedisQueue {
    /// Notes for all that ids of this partition are aside. That this fails must not fail the pull that found them.
    pub(crate) async fn report_missing_records(&self, partition: &PartitionId) {
        let word = word(partition);
        if self.inner.reported.is_recent(&word) {
            return;
        }
        tracing::warn!(%partition, "messages whose records are missing were put aside: see the warnings of a check");
        let mut add = redis::cmd("SADD");
        add.arg(self.inner.names.astray()).arg(&word);
        match self.inner.link.command(&add).await {
            Ok(_) => self.inner.reported.add(&word),
            Err(error) => tracing::debug!(%error, %partition, "noted by a later pull"),
        }
    }

    /// Warnings of what is aside, of a few partitions.
    pub(crate) async fn missing_record_warnings(&self) -> Result<Vec<String>> {
        let (names, link) = (&self.inner.names, &self.inner.link);
        let mut some = redis::cmd("SRANDMEMBER");
        some.arg(names.astray()).arg(MAX_WARNINGS);
        let mut warnings = Vec::new();
        for word in reply::list(link.command(&some).await?)? {
            let word = reply::text(word)?;
            let Some(partition) = partition(&word) else { continue };
            let mut count = redis::cmd("HGET");
            count.arg(names.state(&partition)).arg("astray");
            let count = reply::optional_bytes(link.command(&count).await?)?.unwrap_or_default();
            if count.is_empty() || count == b"0" {
                let mut forget = redis::cmd("SREM");
                link.command(forget.arg(names.astray()).arg(&word)).await?;
                continue;
            }
            let count = String::from_utf8_lossy(&count);
            warnings.push(format!(
                "{count} messages of {partition} are kept aside, for their records are not there: in a cluster, look for slots that are \
                 open or keys on the wrong server (redis-cli --cluster check); what comes back is delivered, and a purge forgets the rest"
            ));
        }
        Ok(warnings)
    }
}
