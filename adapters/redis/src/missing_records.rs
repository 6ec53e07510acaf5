//! Ids that are ready but have no record, for instance because a cluster lost a part of its keys. Scripts put
//! them aside, and put them back once the record exists again. Operators are warned.

use anyqueue::{PartitionId, Result};

use crate::RedisQueue;
use crate::names::{partition, word};
use crate::reply;

/// The most partitions that one check warns about.
const MAX_WARNINGS: usize = 8;

impl RedisQueue {
    /// Records that this partition has ids without records. An error must not fail the pull that found them.
    pub(crate) async fn report_missing_records(&self, partition: &PartitionId) {
        let word = word(partition);
        if self.inner.reported.is_recent(&word) {
            return;
        }
        tracing::warn!(%partition, "messages without records were put aside: see the warnings of a check");
        let mut add = redis::cmd("SADD");
        add.arg(self.inner.names.astray()).arg(&word);
        match self.inner.link.command(&add).await {
            Ok(_) => self.inner.reported.add(&word),
            Err(error) => {
                tracing::debug!(%error, %partition, "missing records could not be reported; a later pull tries again");
            }
        }
    }

    /// Returns warnings about such ids, for a few partitions.
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
                "{count} messages of {partition} were put aside because their records are missing: in a cluster, look for slots that are \
                 open or keys on the wrong server (redis-cli --cluster check); those that come back are delivered, and a purge removes the rest"
            ));
        }
        Ok(warnings)
    }
}
