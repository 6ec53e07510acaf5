//! A separate control store, beside the messages of a correct backend.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage as _, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped, Version};
use anyqueue::{Counts, Page, PartitionId, Result};

use super::rules::{Met, Odd, RIGHT, Row, Rules, Together};
use crate::quirk::{Client, Kept, Quirk};

/// Long enough for other calls to interfere.
const BETWEEN: Duration = Duration::from_millis(1);

/// Entries that are kept by these rules. The store is correct if the rules are.
#[derive(Debug)]
pub(super) struct Model {
    rules: Rules,
    rows: Arc<Kept<Vec<Row>>>,
}

/// Returns a store whose rules are correct except for those that are changed.
pub(super) fn but(change: impl FnOnce(&mut Rules)) -> Arc<dyn Quirk> {
    let mut rules = RIGHT;
    change(&mut rules);
    Arc::new(Model { rules, rows: Arc::default() })
}

/// Returns a correct store whose entries all namespaces share.
pub(super) fn shared() -> Arc<dyn Quirk> {
    static ROWS: LazyLock<Arc<Kept<Vec<Row>>>> = LazyLock::new(Arc::default);
    Arc::new(Model { rules: RIGHT, rows: Arc::clone(&ROWS) })
}

impl Model {
    /// Returns the row under this key, even if it was deleted or has expired.
    fn row(&self, client: &Client, key: &Key) -> Option<Row> {
        let name = (self.rules.name)(key);
        let is_meant =
            |row: &&Row| (self.rules.name)(&row.entry.key) == name && (self.rules.is_seen)(client, row);
        self.rows.lock().iter().find(is_meant).cloned()
    }

    fn write(&self, client: &Client, change: &Change, former: Option<Row>, entry: Option<Entry>) {
        let name = (self.rules.name)(change.key());
        let mut rows = self.rows.lock();
        rows.retain(|row| (self.rules.name)(&row.entry.key) != name || !(self.rules.is_seen)(client, row));
        let mut versions = Vec::new();
        if let Some(former) = &former {
            versions.clone_from(&former.former);
            versions.push(former.entry.version);
        }
        let row = |entry, is_deleted| Row { entry, by: client.number, is_deleted, former: versions };
        match (entry, former) {
            (Some(mut entry), _) => {
                entry.version = Version::from_u64((self.rules.version)(entry.version.get()));
                rows.push(row(entry, false));
            }
            (None, Some(former)) => rows.push(row(former.entry, true)),
            (None, None) => {}
        }
    }

    /// Makes one change if it finds what it expects, in the rows now or as they were when the call began.
    async fn change(
        &self,
        client: &Client,
        change: &Change,
        start: Option<&[(Key, Option<Row>)]>,
        is_dry: bool,
    ) -> Applied {
        let now = (self.rules.now)(client);
        let found = start.and_then(|start| start.iter().find(|(key, _)| key == change.key()));
        let row = found.map_or_else(|| self.row(client, change.key()), |(_, row)| row.clone());
        if self.rules.is(Odd::LooksFirst) {
            tokio::time::sleep(BETWEEN).await;
        }
        let met = Met { change, row: row.as_ref(), now };
        let is_right = (self.rules.expects)(&met);
        let (stored, refused) = ((self.rules.stores)(&met), (self.rules.refuses)(&met));
        if !is_dry && (is_right || self.rules.is(Odd::WritesConflicts)) {
            self.write(client, change, row, stored);
        }
        if is_right { Applied::Done } else { Applied::Conflict(refused) }
    }

    async fn change_all(&self, client: &Client, changes: &[Change], is_dry: bool) -> Vec<Applied> {
        let keys = changes.iter().map(Change::key);
        let start: Vec<_> = keys.map(|key| (key.clone(), self.row(client, key))).collect();
        let start = (self.rules.together == Together::SeeStart).then_some(start.as_slice());
        let (mut results, mut stopped) = (Vec::new(), false);
        for (number, change) in changes.iter().enumerate() {
            let is_lost = self.rules.together == Together::EleventhLost && number == 10;
            let result = self.change(client, change, start, is_dry || is_lost || stopped).await;
            stopped |= self.rules.together == Together::StopAtConflict && !result.is_done();
            results.push(result);
        }
        results
    }
}

#[async_trait]
impl Quirk for Model {
    async fn entries(&self, client: &Client, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        let now = (self.rules.now)(client);
        let find = |key| {
            let row = self.row(client, key).filter(|row| (self.rules.is_found)(row, now));
            row.map(|row| {
                Entry::new(key.clone(), row.entry.version, row.entry.value)
                    .with_expires_at(row.entry.expires_at)
            })
        };
        let found = keys.iter().map(find).collect();
        Ok(Stamped::new((self.rules.stamp)(client), (self.rules.found)(keys, found)))
    }

    async fn list_entries(
        &self,
        client: &Client,
        prefix: &str,
        page: Page<Key>,
    ) -> Result<Stamped<Vec<Entry>>> {
        let (now, Page { after, limit }) = ((self.rules.now)(client), page);
        let mut rows = self.rows.lock().clone();
        rows.retain(|row| !row.is_deleted && (self.rules.is_seen)(client, row));
        let last = after.map(|key| Entry::new(key, Version::from_u64(1), ""));
        let is_lost = |last: &Entry| !rows.iter().any(|row| row.entry.key == last.key);
        if self.rules.is(Odd::NeedsLast) && last.as_ref().is_some_and(is_lost) {
            return Ok(Stamped::new((self.rules.stamp)(client), Vec::new()));
        }
        rows.retain(|row| {
            (self.rules.has_prefix)(row.entry.key.as_str(), prefix)
                && last.as_ref().is_none_or(|last| (self.rules.is_later)(row.entry.key.cmp(&last.key)))
        });
        rows.sort_by(|one, other| (self.rules.order)(&one.entry, &other.entry));
        if self.rules.is(Odd::SkipsFirst) && last.is_some() && !rows.is_empty() {
            rows.remove(0);
        }
        Ok(Stamped::new((self.rules.stamp)(client), (self.rules.page)(rows, limit, now)))
    }

    async fn change_entries(&self, client: &Client, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let is_dry = self.rules.together == Together::AllOrNone
            && !self.change_all(client, changes, true).await.iter().all(Applied::is_done);
        let mut results = self.change_all(client, changes, is_dry).await;
        if self.rules.together == Together::Reversed {
            results.reverse();
        }
        Ok(Stamped::new((self.rules.stamp)(client), results))
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        (self.rules.at_purge)(&mut self.rows.lock());
        client.right.purge(partition, limit).await
    }

    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        let mut counts = client.right.counts(partition).await?;
        if self.rules.is(Odd::AreCounted) {
            counts.ready = counts.ready.map(|ready| ready + self.rows.lock().len() as u64);
        }
        Ok(counts)
    }

    async fn partitions(&self, client: &Client, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let is_first = page.after.is_none();
        let mut partitions = client.right.partitions(page).await?;
        if self.rules.is(Odd::ArePartition) && is_first && !self.rows.lock().is_empty() {
            partitions.insert(0, PartitionId::new("control")?);
        }
        Ok(partitions)
    }

    async fn before_init(&self, client: &Client) {
        (self.rules.at_init)(client, &mut self.rows.lock());
    }

    async fn before_close(&self, client: &Client) {
        (self.rules.at_close)(client, &mut self.rows.lock());
    }
}
