//! Filters that no index knows, where more tasks have ended than can be read while somebody waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, Forward, LedgerQueueStorage, SeriesCell, SeriesKey,
    Storage, TaskEnd, async_trait,
};
use anyqueue::{CancelOutcome, ManualClock, MessageId, Page, PartitionId, Result};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_testkit::ends::{PARTITION, RARE_KIND, end};

use crate::bed::{Bed, over};
use crate::pages::page;

/// Each takes its own millisecond.
const ENDED: u64 = 5000;
/// How long one read takes: no more than a dozen are made for one answer.
const READ: Duration = Duration::from_millis(10);

/// Reads slowly, as from a disk.
#[derive(Debug)]
struct Slow(MemoryQueue);

impl Forward for Slow {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }
}

#[async_trait]
impl LedgerQueueStorage for Slow {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        self.0.record_ended(partition, ends).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        tokio::time::sleep(READ).await;
        self.0.ended(partition, query, page).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.0.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        self.0.find_ended(partition, ids).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        self.0.delete_ended(partition, ids).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.0.purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: std::ops::Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.0.series(partition, minutes, page).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        self.0.cancel(partition, tasks).await
    }
}

async fn bed() -> Bed {
    let time = ManualClock::new();
    let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let partition = PartitionId::new(PARTITION).unwrap();
    for number in 0..ENDED {
        time.advance(Duration::from_millis(1));
        for stored in memory.record_ended(&partition, &[(MessageId::new(), Arc::new(end(number)))]).await {
            stored.unwrap();
        }
    }
    Bed::over(over(Arc::new(Slow(memory)))).await
}

#[tokio::test]
async fn a_list_that_scans_ends_in_time_and_says_where_to_go_on() {
    let bed = bed().await;
    let path = format!("/v1/tasks?partition={PARTITION}&state=succeeded&kind={RARE_KIND}");
    let (mut found, mut looks, mut before) = (HashSet::new(), 0, String::new());
    loop {
        let answer = bed.client.get(&format!("{path}{before}")).await.ok();
        for task in answer["tasks"].as_array().unwrap() {
            found.insert(task["id"].as_str().unwrap().to_owned());
        }
        looks += 1;
        if answer["unfinished"] == false {
            assert_eq!(answer["look_before"], serde_json::Value::Null);
            break;
        }
        let next = format!("&before={}", answer["look_before"].as_str().unwrap());
        assert!(before.is_empty() || next < before, "{next} after {before}");
        before = next;
    }
    assert_eq!(found.len() as u64, ENDED / 100);
    assert!(looks > 1, "all was read in one look");
    let all = bed.client.get(&format!("/v1/tasks?partition={PARTITION}&state=failed")).await.ok();
    assert_eq!((&all["unfinished"], &all["more"]), (&false.into(), &true.into()), "an index knows it");
}

#[tokio::test]
async fn a_page_that_scans_is_there_in_time_and_leads_further_back() {
    let bed = bed().await;
    let shown = page(&bed, &format!("/tasks?partition={PARTITION}&kind=nothing")).await;
    assert!(shown.contains("0 found so far") && shown.contains("No task matches so far."), "{shown}");
    let link = shown.split("<a href=\"").find(|rest| rest.contains(">Look further back<")).unwrap();
    let link = link.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    assert!(link.contains("kind=nothing") && link.contains("&before="), "{link}");
    assert!(page(&bed, &link).await.contains("No task matches"), "{link}");
}
