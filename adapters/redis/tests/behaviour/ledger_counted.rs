//! Counts of ends, which the server lets go by itself.

use std::time::Duration;

use anyqueue::adapter::LedgerQueueStorage;
use anyqueue::{Page, SERIES_KEPT};
use redis::Value;

use crate::common::{Bed, messages, part, pull, push};
use crate::ledger::{done, settle_all, with_end};

#[tokio::test]
async fn every_key_of_counts_lapses_soon_after_its_time() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["m", "m"])).await;
    let held = pull(&queue, &p, 2).await;
    let unkept = || done().with_keep(Some(Duration::ZERO));
    settle_all(&queue, &held.iter().map(|held| with_end(held, unkept())).collect::<Vec<_>>()).await;
    let counted = queue.series(&p, 0..u64::MAX, Page::of(9)).await.unwrap();
    assert_eq!(counted.iter().map(|cell| cell.tasks).sum::<u64>(), 2);
    let Value::Array(keys) = bed.run(&format!("KEYS {}:{{p}}:series*", bed.prefix)).await else { panic!() };
    assert_eq!(keys.len(), 2, "the minute, and the list of minutes");
    for key in keys {
        let Value::BulkString(key) = key else { panic!() };
        let left = bed.run(&format!("TTL {}", String::from_utf8(key).unwrap())).await;
        let Value::Int(left) = left else { panic!() };
        let left = Duration::from_secs(u64::try_from(left).unwrap());
        assert!(left > SERIES_KEPT && left < SERIES_KEPT + Duration::from_mins(3), "{left:?}");
    }
}
