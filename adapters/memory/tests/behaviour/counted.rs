//! Counts of ends, by the minute.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{LedgerQueueStorage, TaskEnd};
use anyqueue::{EndState, MessageId, Page, SERIES_KEPT};

use crate::fixture::Fixture;

#[tokio::test]
async fn one_purge_frees_all_counts_that_are_no_longer_kept_though_few_ends_have_lapsed() {
    const COUNTERS: usize = 20_000;
    let t = Fixture::new();
    let end = |number: usize| {
        let mut end = TaskEnd::new(EndState::Succeeded).with_keep(Some(Duration::ZERO));
        end.kind = Some(number.to_string().into());
        (MessageId::new(), Arc::new(end))
    };
    let ends: Vec<_> = (0..COUNTERS).map(end).collect();
    assert!(t.queue.record_ended(&t.jobs, &ends).await.iter().all(Result::is_ok));
    let counters = async || t.queue.series(&t.jobs, 0..u64::MAX, Page::of(2 * COUNTERS)).await.unwrap().len();
    assert_eq!(counters().await, COUNTERS);
    t.time.advance(SERIES_KEPT + Duration::from_mins(2));
    assert_eq!(t.queue.purge_ended(5000).await.unwrap(), 0, "counts are no ends");
    assert_eq!(counters().await, 0);
}
