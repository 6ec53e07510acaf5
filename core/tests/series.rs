//! Counts of ends, as applications ask for them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::QueueMessageStatus::{Cancelled, Failed, Processed};
use anyqueue::adapter::{
    Capabilities, Forward, LedgerQueueStorage as _, QueueStorage as _, Storage, TaskEnd,
};
use anyqueue::{
    EndState, ErrorKind, Keep, MAX_PAGE, MAX_SERIES_ROWS, MAX_SERIES_STEPS, ManualClock, MessageData,
    MessageId, PartitionId, PartitionOptions, Queue, QueueMessageStatus, SERIES_KEPT, SeriesQuery, SeriesRow,
    SeriesStep, TaskReport, header,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

fn bed(keep: Option<Keep>) -> (Queue, ManualClock) {
    let time = ManualClock::new();
    let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let mut builder = Queue::builder(memory).clock(time.clock());
    if let Some(keep) = keep {
        builder = builder.ledger(keep);
    }
    (builder.build().unwrap(), time)
}

/// Pushes a task of this kind and ends it so after it ran for this long.
async fn end(queue: &Queue, kind: Option<&str>, status: QueueMessageStatus, ran: Duration) {
    let mut message = MessageData::new("m");
    if let Some(kind) = kind {
        message = message.with_header(header::TASK_KIND, kind);
    }
    queue.push("p", message).await.unwrap();
    let mut held = queue.pull("p").await.unwrap().remove(0);
    held.report(TaskReport::new().with_ran(ran)).unwrap();
    held.settle(status).await.unwrap();
}

/// Kinds, states and numbers, in the order of the rows.
fn told(rows: &[SeriesRow]) -> Vec<(Option<&str>, EndState, u64)> {
    rows.iter().map(|row| (row.kind.as_deref(), row.state, row.tasks)).collect()
}

#[tokio::test]
async fn every_end_is_told_by_kind_and_state_with_its_times() {
    let (queue, time) = bed(Some(Keep::all(Some(DAY)).with_succeeded(Some(Duration::ZERO))));
    let begun = time.clock().wall();
    end(&queue, Some("mail"), Processed, Duration::from_micros(700)).await;
    end(&queue, Some("mail"), Processed, Duration::from_micros(900)).await;
    end(&queue, Some("mail"), QueueMessageStatus::poisonous("broken"), Duration::from_micros(5)).await;
    end(&queue, None, Cancelled, Duration::ZERO).await;
    let query = SeriesQuery::since(begun).by(SeriesStep::Day);
    let rows = queue.series("p", &query).await.unwrap();
    let mail = Some("mail");
    let (failed, succeeded) = ((mail, EndState::Failed, 1), (mail, EndState::Succeeded, 2));
    assert_eq!(told(&rows), [(None, EndState::Cancelled, 1), failed, succeeded]);
    assert_eq!(rows[2].ran, Duration::from_micros(1_600));
    assert_eq!(rows[2].ran_histogram.below(50), Some(Duration::from_micros(1_024)));
    assert_eq!(rows[2].ran_histogram.count(), 2);
    let of_kind = queue.series("p", &query.of_kind("mail")).await.unwrap();
    assert_eq!(told(&of_kind), [failed, succeeded]);
    assert_eq!(queue.series("q", &SeriesQuery::since(begun)).await.unwrap(), []);
}

#[tokio::test]
async fn a_failure_that_comes_again_is_no_end_and_a_redriven_one_ends_twice() {
    let (queue, time) = bed(Some(Keep::default()));
    let begun = time.clock().wall();
    queue.push("p", MessageData::new("m")).await.unwrap();
    queue.pull("p").await.unwrap()[0].settle(Failed).await.unwrap();
    let query = SeriesQuery::since(begun);
    assert_eq!(queue.series("p", &query).await.unwrap(), []);
    queue.pull("p").await.unwrap()[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    assert_eq!(told(&queue.series("p", &query).await.unwrap()), [(None, EndState::Failed, 1)]);
    queue.dead_letters("p").unwrap().redrive().await.unwrap();
    queue.pull("p").await.unwrap()[0].settle(Processed).await.unwrap();
    let both = [(None, EndState::Failed, 1), (None, EndState::Succeeded, 1)];
    assert_eq!(told(&queue.series("p", &query).await.unwrap()), both);
}

#[tokio::test]
async fn what_expires_and_what_is_cancelled_while_it_waits_are_counted() {
    let (queue, time) = bed(Some(Keep::all(Some(Duration::ZERO))));
    let begun = time.clock().wall();
    let late = MessageData::new("late").with_expires_at(begun + MINUTE);
    let unwanted = MessageData::new("unwanted").with_delay(DAY);
    let id = unwanted.id();
    queue.push_many("p", vec![late, unwanted]).await.unwrap();
    queue.request_cancel("p", &[id]).await.unwrap();
    time.advance(2 * MINUTE);
    assert!(queue.pull("p").await.unwrap().is_empty());
    let expected = [(None, EndState::Cancelled, 1), (None, EndState::TimedOut, 1)];
    // The settlement of what has expired goes its own way.
    let mut looks = 0;
    loop {
        let rows = queue.series("p", &SeriesQuery::since(begun).by(SeriesStep::Day)).await.unwrap();
        if told(&rows) == expected {
            return;
        }
        looks += 1;
        assert!(looks < 1_000, "{rows:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn steps_begin_at_whole_ones_and_bounds_are_those_of_minutes() {
    let (queue, time) = bed(Some(Keep::default()));
    let since_1970 = time.clock().wall().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let rest = DAY.as_nanos() - since_1970.as_nanos() % DAY.as_nanos();
    time.advance(Duration::from_nanos(u64::try_from(rest).unwrap()));
    let day = time.clock().wall();
    for _ in 0..3 {
        end(&queue, None, Processed, MINUTE).await;
        time.advance(Duration::from_mins(40));
    }
    let at = async |step, since, before| {
        let mut query = SeriesQuery::since(since).by(step);
        query.before = before;
        let rows = queue.series("p", &query).await.unwrap();
        rows.iter()
            .map(|row| (row.at.duration_since(day).unwrap().as_secs() / 60, row.tasks))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(SeriesStep::Minute, day, None).await, [(0, 1), (40, 1), (80, 1)]);
    assert_eq!(at(SeriesStep::Hour, day, None).await, [(0, 2), (60, 1)]);
    assert_eq!(at(SeriesStep::Day, day, None).await, [(0, 3)]);
    let later = day + Duration::from_mins(40);
    assert_eq!(at(SeriesStep::Minute, later + Duration::from_secs(59), None).await, [(40, 1), (80, 1)]);
    assert_eq!(at(SeriesStep::Hour, day, Some(later)).await, [(0, 1)]);
    assert_eq!(at(SeriesStep::Hour, day, Some(later + Duration::from_nanos(1))).await, [(0, 2)]);
}

#[tokio::test]
async fn what_is_no_longer_kept_or_would_be_too_much_is_refused_with_what_to_do() {
    let (queue, time) = bed(Some(Keep::default()));
    let now = time.clock().wall();
    let refused = async |query: SeriesQuery| {
        let error = queue.series("p", &query).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.message().to_owned()
    };
    assert!(
        refused(SeriesQuery::since(now - SERIES_KEPT - 3 * MINUTE)).await.contains("from a later time on")
    );
    let most = MINUTE * u32::try_from(MAX_SERIES_STEPS).unwrap();
    let long = SeriesQuery::since(now - most - 9 * MINUTE).by(SeriesStep::Minute);
    assert!(refused(long.clone()).await.contains("for a longer step"));
    queue.series("p", &long.before(now - 20 * MINUTE)).await.unwrap();
    queue.series("p", &SeriesQuery::since(now - SERIES_KEPT)).await.unwrap();
}

#[tokio::test]
async fn more_counters_than_a_page_has_are_all_told() {
    let (queue, time) = bed(Some(Keep::all(Some(Duration::ZERO))));
    let begun = time.clock().wall();
    for number in 0..1_100 {
        end(&queue, Some(&format!("kind {number}")), Processed, Duration::ZERO).await;
    }
    let rows = queue.series("p", &SeriesQuery::since(begun)).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.tasks).sum::<u64>(), 1_100);
}

#[tokio::test]
async fn more_rows_than_one_answer_holds_are_refused_and_those_of_one_kind_are_told() {
    let memory = MemoryQueue::new();
    let queue = Queue::builder(memory.client()).ledger(Keep::default()).build().unwrap();
    let p = PartitionId::new("p").unwrap();
    let kinds: Vec<usize> = (0..=MAX_SERIES_ROWS).collect();
    for some in kinds.chunks(MAX_PAGE) {
        let end = |number: &usize| {
            let mut end = TaskEnd::new(EndState::Succeeded).with_keep(Some(DAY));
            end.kind = Some(format!("kind {number}").into());
            (MessageId::new(), Arc::new(end))
        };
        let ends: Vec<_> = some.iter().map(end).collect();
        assert!(memory.record_ended(&p, &ends).await.iter().all(Result::is_ok));
    }
    let since = SeriesQuery::since(SystemTime::now() - MINUTE).by(SeriesStep::Day);
    let error = queue.series("p", &since).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("or one kind"), "{error}");
    let last = format!("kind {MAX_SERIES_ROWS}");
    let rows = queue.series("p", &since.of_kind(last.as_str())).await.unwrap();
    assert_eq!(told(&rows), [(Some(last.as_str()), EndState::Succeeded, 1)]);
}

/// A backend that does not count ends.
#[derive(Debug)]
struct Without(MemoryQueue, Capabilities);

impl Forward for Without {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

#[tokio::test]
async fn who_keeps_no_ends_counts_none_and_where_none_are_counted_it_is_refused() {
    let (queue, time) = bed(None);
    let begun = time.clock().wall();
    end(&queue, None, Processed, Duration::ZERO).await;
    end(&queue, None, QueueMessageStatus::poisonous("bad"), Duration::ZERO).await;
    assert_eq!(queue.series("p", &SeriesQuery::since(begun)).await.unwrap(), []);

    let memory = MemoryQueue::new();
    let mut capabilities = memory.capabilities().clone();
    capabilities.series = false;
    let options = PartitionOptions::default();
    let queue = Queue::builder(Without(memory.client(), capabilities)).ledger(Keep::default());
    let queue = queue.partition("p", options).build().unwrap();
    end(&queue, None, QueueMessageStatus::poisonous("bad"), Duration::ZERO).await;
    let since = SeriesQuery::since(SystemTime::now() - MINUTE);
    let error = queue.series("p", &since).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("by the minute"), "{error}");
    let right = Queue::builder(memory).ledger(Keep::default()).build().unwrap();
    assert_eq!(right.series("p", &since).await.unwrap(), [], "it was sent no end that is only to be counted");
}
