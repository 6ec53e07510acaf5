//! Counts of ends, which the server lets go by itself.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::LedgerQueueStorage;
use anyqueue::{MessageId, Page, SERIES_KEPT};
use redis::Value;

use crate::common::{Bed, messages, part, pull, push};
use crate::ledger::{done, find, record, settle_all, with_end};

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

#[tokio::test]
async fn a_minute_of_more_kinds_than_there_is_room_for_counts_the_rest_without_theirs() {
    // More than are counted in two minutes, should the first end meanwhile.
    const KINDS: usize = 6000;
    const MOST_FIELDS: i64 = 6000;
    const FIELDS: i64 = 3;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let end = |number: usize| {
        let mut end = done().with_keep(Some(Duration::ZERO));
        end.kind = Some(number.to_string().into());
        (MessageId::new(), Arc::new(end))
    };
    let ends: Vec<_> = (0..KINDS).map(end).collect();
    for some in ends.chunks(1000) {
        assert!(queue.record_ended(&p, some).await.iter().all(Result::is_ok));
    }
    let cells = queue.series(&p, 0..u64::MAX, Page::of(2 * KINDS)).await.unwrap();
    assert_eq!(cells.iter().map(|cell| cell.tasks).sum::<u64>(), KINDS as u64, "every end counts");
    let unnamed: u64 = cells.iter().filter(|cell| cell.key.kind.is_none()).map(|cell| cell.tasks).sum();
    assert!((1..KINDS as u64).contains(&unnamed), "{unnamed} without their kinds");
    let Value::Array(minutes) = bed.run(&format!("KEYS {}:{{p}}:series:*", bed.prefix)).await else {
        panic!()
    };
    for minute in minutes {
        let Value::BulkString(key) = minute else { panic!() };
        let fields = bed.run(&format!("HLEN {}", String::from_utf8(key).unwrap())).await;
        let Value::Int(fields) = fields else { panic!() };
        // One call brings up to a thousand.
        assert!(fields <= MOST_FIELDS + 1001 * FIELDS, "{fields} fields");
    }
}

#[tokio::test]
async fn facts_of_tasks_that_go_on_are_kept_and_not_counted() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, id) = (bed.open().await, part("p.-live"), MessageId::new());
    record(&queue, &p, &[id], &done()).await;
    assert!(find(&queue, &p, id).await.is_some());
    assert_eq!(queue.series(&p, 0..u64::MAX, Page::of(9)).await.unwrap(), []);
}
