//! Amending messages that wait.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{AmendQueueStorage, Hint, async_trait};
use anyqueue::{
    Amend, AmendOutcome, Bytes, Error, ErrorKind, MessageId, Operation, PartitionId, Regroup, Result,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::error::{ERRORS, NAME};
use crate::inspect::{RETRY_AFTER, uuid};
use crate::pull::read_envelope;
use crate::record::first_lane;
use crate::sql::{get, millis};

/// About this many bytes of stored messages are read, changed and sent back at a time.
const PAGE_BYTES: i64 = 32 * 1024 * 1024;

#[async_trait]
impl AmendQueueStorage for PostgresQueue {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        if partition.is_dead_letters() {
            return vec![Err(stamp(ERRORS.invalid("dead letters cannot be amended"))); ids.len()];
        }
        let mut outcomes = HashMap::with_capacity(ids.len());
        let failed = self.amend_all(partition, ids, change, &mut outcomes).await.err().map(stamp);
        // Without an error each one has an outcome.
        let missing = || failed.clone().map_or(Ok(AmendOutcome::NotFound), Err);
        ids.iter().map(|id| outcomes.get(&uuid(id)).cloned().unwrap_or_else(missing)).collect()
    }
}

impl PostgresQueue {
    /// Amends page by page, and repeats messages that others were using at that moment, until each id has an
    /// outcome. An id that occurs twice is amended once, since the second time would change nothing.
    async fn amend_all(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
        outcomes: &mut HashMap<Uuid, Result<AmendOutcome>>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        let mut left: Vec<Uuid> = ids.iter().map(uuid).filter(|id| seen.insert(*id)).collect();
        let mut progress = Instant::now();
        while !left.is_empty() {
            let page = self.read_page(partition, left, change).await?;
            let before = outcomes.len();
            left = self.amend_page(partition, page, change, outcomes).await?;
            if outcomes.len() > before {
                progress = Instant::now();
            } else if progress.elapsed() >= self.inner.config.call_timeout {
                let text = "others keep the messages locked, or keep changing them";
                return Err(ERRORS.error(ErrorKind::Unavailable, text));
            } else {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
        Ok(())
    }

    /// Returns the next messages to change, encoded anew if the change affects the stored message.
    async fn read_page(&self, partition: &PartitionId, ids: Vec<Uuid>, change: &Amend) -> Result<Page> {
        if change.priority.is_none() && change.group.is_none() {
            return Ok(Page { ids, ..Page::default() });
        }
        let query = self.inner.statements.bodies.query().bind(partition.name().to_owned());
        let rows = self.fetch(query.bind(&ids).bind(PAGE_BYTES), Operation::Amend).await?;
        Page::encode(ids, &rows, change)
    }

    /// Amends a page. Returns the ids that are left.
    async fn amend_page(
        &self,
        partition: &PartitionId,
        page: Page,
        change: &Amend,
        outcomes: &mut HashMap<Uuid, Result<AmendOutcome>>,
    ) -> Result<Vec<Uuid>> {
        let delay = change.delay(SystemTime::UNIX_EPOCH);
        let group = match &change.group {
            Some(Regroup::Join(group)) => Some(group.as_bytes().to_vec()),
            Some(Regroup::Leave) | None => None,
        };
        let Page { ids, bodies, hashes, mut unreadable, mut left } = page;
        let query = self.inner.statements.amend.query().bind(partition.name().to_owned()).bind(&ids);
        let query = query.bind(change.priority.map(first_lane)).bind(delay.map(millis));
        let query = query.bind(change.group.is_some()).bind(group).bind(change.disabled);
        let rows = self.fetch(query.bind(bodies).bind(hashes), Operation::Amend).await?;
        let Some(row) = rows.first() else { return Ok(left) };
        let mut met = HashMap::new();
        // A later column takes precedence: messages that were amended or are held are also listed as
        // existing.
        for (column, meaning) in [
            (2, None),
            (3, Some(AmendOutcome::Dead)),
            (0, Some(AmendOutcome::Amended)),
            (1, Some(AmendOutcome::Leased)),
        ] {
            let listed = get::<Option<Vec<Uuid>>>(row, column)?.unwrap_or_default();
            met.extend(listed.into_iter().map(|id| (id, meaning)));
        }
        for id in ids {
            let outcome = match met.get(&id) {
                Some(Some(outcome)) => Ok(Ok(*outcome)),
                Some(None) => unreadable.remove(&id).map_or(Err(id), |error| Ok(Err(stamp(error)))),
                None => Ok(Ok(AmendOutcome::NotFound)),
            };
            match outcome {
                Ok(outcome) => drop(outcomes.insert(id, outcome)),
                Err(busy) => left.push(busy),
            }
        }
        self.hint_amended(partition, get(row, 4)?, delay);
        Ok(left)
    }

    /// Wakes pulls. The messages may have become ready at positions that pulls have passed already.
    fn hint_amended(&self, partition: &PartitionId, ready: i32, delay: Option<Duration>) {
        self.inner.scan_starts.forget(partition);
        let due = delay.filter(|delay| !delay.is_zero());
        self.send_hint(partition, Hint { ready: usize::try_from(ready).unwrap_or(0), due });
    }
}

/// Messages to be changed in one statement.
#[derive(Default)]
struct Page {
    ids: Vec<Uuid>,
    /// The new body of each message, and the hash of the body that it was made from. Without a new body, a
    /// message keeps what it has.
    bodies: Vec<Option<Vec<u8>>>,
    hashes: Vec<Option<Vec<u8>>>,
    unreadable: HashMap<Uuid, Error>,
    /// Ids that are left for other pages.
    left: Vec<Uuid>,
}

impl Page {
    /// Builds a page from rows that contain, by number, what is stored for some of the ids. A row without a
    /// body stands for a message that is left for another page.
    fn encode(ids: Vec<Uuid>, rows: &[PgRow], change: &Amend) -> Result<Self> {
        let (mut page, mut rows) = (Self::default(), rows.iter().peekable());
        for (number, id) in (1_i32..).zip(ids) {
            let (mut body, mut hash) = (None, None);
            if let Some(row) = rows.peek()
                && get::<i32>(row, 0)? == number
            {
                let Some(stored) = get::<Option<&[u8]>>(row, 1)? else {
                    page.left.push(id);
                    rows.next();
                    continue;
                };
                match amended(&Bytes::copy_from_slice(stored), id, change) {
                    Ok(amended) => (body, hash) = (Some(amended), get(row, 2)?),
                    Err(error) => drop(page.unreadable.insert(id, error)),
                }
                rows.next();
            }
            page.ids.push(id);
            page.bodies.push(body);
            page.hashes.push(hash);
        }
        Ok(page)
    }
}

/// Returns the new body of a message.
fn amended(stored: &Bytes, id: Uuid, change: &Amend) -> Result<Vec<u8>> {
    let mut envelope = read_envelope(stored, id)?;
    envelope.message = change.apply(envelope.message);
    envelope.encode()
}

/// Repeating is safe: a message that is already amended stays as it is.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Amend)
}
