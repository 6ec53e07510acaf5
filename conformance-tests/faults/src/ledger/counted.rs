//! Ends that are counted in the wrong way.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, LedgerQueueStorage as _, PullQueueStorage as _, SeriesCell, SeriesKey, Settlement, TaskEnd,
    async_trait, is_of_facts,
};
use anyqueue::{EndState, MAX_PAGE, MessageId, Page, PartitionId, Result, SettleOutcome};
use anyqueue_conformance::Fault;

use super::store::{BREAKS, find, is_settled, with_end};
use crate::quirk::{Client, Entry, Kept, Quirk, Settled, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::SeriesForgotten, BREAKS, || Arc::new(Pages::Nothing)),
    plain(Fault::SeriesMergesKinds, BREAKS, || Arc::new(Told(|cell| changed(cell, |key| key.kind = None)))),
    plain(Fault::SeriesMergesStates, BREAKS, || {
        Arc::new(Told(|cell| changed(cell, |key| key.state = EndState::Succeeded)))
    }),
    plain(Fault::SeriesWrongBucket, BREAKS, || {
        Arc::new(Told(|cell| changed(cell, |key| key.ran_bucket = key.ran_bucket.saturating_sub(1))))
    }),
    plain(Fault::SeriesWrongMinute, BREAKS, || {
        Arc::new(Told(|cell| changed(cell, |key| key.minute = key.minute.saturating_add(1))))
    }),
    subtle(Fault::SeriesInMillis, BREAKS, || Arc::new(Told(in_millis))),
    plain(Fault::SeriesOfFirst, BREAKS, || Arc::new(Counts(of_first))),
    plain(Fault::SeriesForgetsUnkept, BREAKS, || {
        Arc::new(Counts(|all| each(all, |it| it.end.as_ref().is_some_and(|end| end.is_kept()))))
    }),
    plain(Fault::SeriesForgetsDead, BREAKS, || {
        Arc::new(Counts(|all| each(all, |it| it.action == Action::Remove)))
    }),
    plain(Fault::SeriesCountsLost, BREAKS, || Arc::new(CountsLost)),
    plain(Fault::SeriesCountsRepeats, BREAKS, || Arc::new(CountsRepeats)),
    plain(Fault::SeriesCountsFacts, BREAKS, || Arc::new(CountsFacts)),
    subtle(Fault::SeriesRace, BREAKS, || Arc::new(Race::default())),
    plain(Fault::SeriesPagesSkip, BREAKS, || Arc::new(Pages::Skip)),
    plain(Fault::SeriesPagesRepeat, BREAKS, || Arc::new(Pages::Repeat)),
    plain(Fault::SeriesPartitionsShared, BREAKS, || Arc::new(Shared::default())),
    plain(Fault::SeriesIgnoresMinutes, BREAKS, || Arc::new(Pages::AnyMinute)),
    plain(Fault::SeriesDieWithEnds, BREAKS, || Arc::new(DieWithEnds::default())),
];

fn changed(cell: SeriesCell, change: impl FnOnce(&mut SeriesKey)) -> SeriesCell {
    let SeriesCell { mut key, tasks, ran, waited, .. } = cell;
    change(&mut key);
    SeriesCell::new(key, tasks, ran, waited)
}

fn in_millis(cell: SeriesCell) -> SeriesCell {
    let cut = |time: Duration| Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    SeriesCell::new(cell.key, cell.tasks, cut(cell.ran), cut(cell.waited))
}

/// Returns all counters, in order.
async fn all(client: &Client, partition: &PartitionId) -> Result<Vec<SeriesCell>> {
    client.right.series(partition, 0..u64::MAX, Page::of(MAX_PAGE)).await
}

/// Cuts a page from these counters.
fn page_of(cells: impl IntoIterator<Item = SeriesCell>, page: &Page<SeriesKey>) -> Vec<SeriesCell> {
    let mut merged: BTreeMap<SeriesKey, SeriesCell> = BTreeMap::new();
    for cell in cells {
        merged.entry(cell.key.clone()).and_modify(|there| there.add(&cell)).or_insert(cell);
    }
    let later = |key: &SeriesKey| page.after.as_ref().is_none_or(|after| key > after);
    merged.into_values().filter(|cell| later(&cell.key)).take(page.limit).collect()
}

/// Counters that are returned with a change.
#[derive(Debug)]
struct Told(fn(SeriesCell) -> SeriesCell);

#[async_trait]
impl Quirk for Told {
    async fn series(
        &self,
        client: &Client,
        partition: &PartitionId,
        _: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        Ok(page_of(all(client, partition).await?.into_iter().map(self.0), &page))
    }
}

/// Decides which ends of a batch are counted. The others are neither stored nor counted.
#[derive(Debug)]
struct Counts(fn(&[Settlement]) -> Vec<bool>);

fn of_first(settlements: &[Settlement]) -> Vec<bool> {
    (0..settlements.len()).map(|at| at == 0).collect()
}

fn each(settlements: &[Settlement], is_counted: impl Fn(&Settlement) -> bool) -> Vec<bool> {
    settlements.iter().map(is_counted).collect()
}

#[async_trait]
impl Quirk for Counts {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let counted = (self.0)(settlements).into_iter().zip(settlements);
        let without =
            |(counted, it): (bool, &Settlement)| if counted { it.clone() } else { with_end(it, None) };
        client.right.settle(&counted.map(without).collect::<Vec<_>>()).await
    }
}

/// Counts an end once more, for a task that does not exist.
async fn count_once_more(client: &Client, partition: &PartitionId, end: &TaskEnd) {
    let unkept = Arc::new(end.clone().with_keep(Some(Duration::ZERO)));
    client.right.record_ended(partition, &[(MessageId::new(), unkept)]).await;
}

#[derive(Debug)]
struct CountsLost;

#[async_trait]
impl Quirk for CountsLost {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            let lost = matches!(answer, Ok(SettleOutcome::Lost));
            if let Some(end) = settlement.end.as_ref().filter(|_| lost) {
                count_once_more(client, &settlement.lease.partition, end).await;
            }
        }
        answers
    }
}

#[derive(Debug)]
struct CountsRepeats;

#[async_trait]
impl Quirk for CountsRepeats {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        for (id, end) in ends {
            if find(client, partition, *id).await.is_some() {
                count_once_more(client, partition, end).await;
            }
        }
        client.right.record_ended(partition, ends).await
    }
}

/// Counts facts about tasks that go on, in a partition that no case uses.
#[derive(Debug)]
struct CountsFacts;

fn counted_in(partition: &PartitionId) -> PartitionId {
    let other = PartitionId::new("counted-facts").ok().filter(|_| is_of_facts(partition));
    other.unwrap_or_else(|| partition.clone())
}

#[async_trait]
impl Quirk for CountsFacts {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        for (_, end) in ends.iter().filter(|_| is_of_facts(partition)) {
            count_once_more(client, &counted_in(partition), end).await;
        }
        client.right.record_ended(partition, ends).await
    }

    async fn series(
        &self,
        client: &Client,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        client.right.series(&counted_in(partition), minutes, page).await
    }
}

/// Reads, then writes, with other calls in between.
#[derive(Debug, Default)]
struct Race(Kept<BTreeMap<(PartitionId, SeriesKey), SeriesCell>>);

#[async_trait]
impl Quirk for Race {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        let now = client.server.wall();
        for (settlement, _) in settlements.iter().zip(&answers).filter(|(_, answer)| is_settled(answer)) {
            let Some(end) = settlement.counted_end() else { continue };
            let mut cell = SeriesCell::of(end, now);
            let place = (settlement.lease.partition.clone(), cell.key.clone());
            let there = self.0.lock().get(&place).cloned();
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Some(there) = there {
                cell.add(&there);
            }
            self.0.lock().insert(place, cell);
        }
        answers
    }

    async fn series(
        &self,
        _: &Client,
        partition: &PartitionId,
        _: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let cells = self.0.lock().clone();
        Ok(page_of(cells.into_iter().filter(|((of, _), _)| of == partition).map(|(_, cell)| cell), &page))
    }
}

/// Pages that are cut in the wrong place.
#[derive(Debug)]
enum Pages {
    Nothing,
    Skip,
    Repeat,
    AnyMinute,
}

#[async_trait]
impl Quirk for Pages {
    async fn series(
        &self,
        client: &Client,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let Page { after, limit } = page;
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::AnyMinute => {
                client.right.series(partition, 0..u64::MAX, Page::of(limit).after(after)).await
            }
            Self::Skip => {
                let is_later = after.is_some();
                let page = client.right.series(partition, minutes, Page::of(limit + 1).after(after)).await?;
                Ok(page.into_iter().skip(usize::from(is_later)).take(limit).collect())
            }
            Self::Repeat => {
                let mut page = client.right.series(partition, minutes, Page::of(MAX_PAGE)).await?;
                if let Some(after) = after {
                    page.retain(|cell| cell.key >= after);
                }
                page.truncate(limit);
                Ok(page)
            }
        }
    }
}

/// The partitions in which ends were counted.
#[derive(Debug, Default)]
struct Shared(Kept<Vec<PartitionId>>);

#[async_trait]
impl Quirk for Shared {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        for settlement in settlements {
            let partition = &settlement.lease.partition;
            if !self.0.lock().contains(partition) {
                self.0.lock().push(partition.clone());
            }
        }
        client.right.settle(settlements).await
    }

    async fn series(
        &self,
        client: &Client,
        _: &PartitionId,
        _: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        let partitions = self.0.lock().clone();
        let mut cells = Vec::new();
        for partition in partitions {
            cells.extend(all(client, &partition).await?);
        }
        Ok(page_of(cells, &page))
    }
}

/// Counts only ends that are still stored.
#[derive(Debug, Default)]
struct DieWithEnds(Kept<Vec<PartitionId>>);

#[async_trait]
impl Quirk for DieWithEnds {
    async fn delete_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<bool>> {
        self.0.lock().push(partition.clone());
        client.right.delete_ended(partition, ids).await
    }

    async fn series(
        &self,
        client: &Client,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        if self.0.lock().contains(partition) {
            return Ok(Vec::new());
        }
        let Page { after, limit } = page;
        client.right.series(partition, minutes, Page::of(limit).after(after)).await
    }
}
