//! The metrics core reports, read as an application's recorder would read them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::QueueStorage as _;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use support::{Script, spy};

/// Runs on this thread alone, where the recorder is.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// `name{label=value,…}` and the value; of histograms, how many were recorded.
fn recorded(work: impl Future<Output = ()>) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || block_on(work));
    let series = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let labels: BTreeSet<_> = key.key().labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        let labels = labels.into_iter().collect::<Vec<_>>().join(",");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(level) => level.into_inner() as u64,
            DebugValue::Histogram(samples) => samples.len() as u64,
        };
        (format!("{}{{{labels}}}", key.key().name()), value)
    });
    series.collect()
}

#[test]
fn no_more_partitions_are_told_apart_than_allowed() {
    let metrics = recorded(async {
        let queue = Queue::builder(spy()).metric_partitions(2).build().unwrap();
        for name in ["a", "b", "c", "d", "a"] {
            queue.push(name, MessageData::new("x")).await.unwrap();
        }
    });
    let pushed = |partition: &str| {
        metrics.get(&format!("anyqueue_pushed_total{{backend=spy,partition={partition}}}")).copied()
    };
    assert_eq!((pushed("a"), pushed("b"), pushed("(other)")), (Some(2), Some(1), Some(2)), "{metrics:#?}");
    assert_eq!((pushed("c"), pushed("d")), (None, None));
}

/// A task ends while the ledger beside its queue is closed.
async fn settle_without_its_ledger() {
    let ledger = MemoryQueue::new();
    ledger.close().await.unwrap();
    let storage = Beside::new(MemoryQueue::new(), ledger).unwrap().when_down(LedgerDown::Drop);
    let queue = Queue::builder(storage).ledger(Keep::default()).build().unwrap();
    queue.push("p", MessageData::new("x")).await.unwrap();
    assert_eq!(queue.pull("p").await.unwrap()[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[test]
fn every_documented_metric_is_recorded_with_its_labels() {
    let metrics = recorded(async {
        let spy = spy();
        let queue = Queue::new(spy.clone()).unwrap();
        let twice = MessageData::new("twice");
        queue.push("p", twice.clone()).await.unwrap();
        queue.push("p", twice).await.unwrap();
        queue.push("p", MessageData::new("other")).await.unwrap();
        spy.push.script([Script::Fail(Error::new(ErrorKind::Corrupt, "as the script says"))]);
        queue.push("p", MessageData::new("refused")).await.unwrap_err();
        for version in ["old", "new"] {
            let keyed = MessageData::new(version).with_dedup_key("k").with_on_duplicate(OnDuplicate::Replace);
            queue.push("keyed", keyed).await.unwrap();
        }
        let mut held = queue.pull("p").max(2).await.unwrap();
        let then = Successors::new().then("next", MessageData::new("next")).unwrap();
        assert_eq!(held[0].settle_with(Processed, then).await.unwrap(), SettleOutcome::Settled);
        let lease = std::time::Duration::from_secs(30);
        spy.extend.script([Script::Fail(Error::new(ErrorKind::Corrupt, "as the script says")), Script::Lost]);
        held[1].extend(lease).await.unwrap_err();
        assert_eq!(held[1].extend(lease).await.unwrap(), ExtendOutcome::Lost);
        // The gauge counts handlers that live.
        std::mem::forget(held);
        settle_without_its_ledger().await;
    });
    let expected = [
        ("anyqueue_pushed_total{backend=spy,partition=p}", 2),
        ("anyqueue_duplicates_total{backend=spy,partition=p}", 1),
        ("anyqueue_replaced_total{backend=spy,partition=keyed}", 1),
        ("anyqueue_successors_total{backend=spy}", 1),
        ("anyqueue_pulled_total{backend=spy,partition=p}", 2),
        ("anyqueue_settled_total{backend=spy}", 1),
        ("anyqueue_lost_total{backend=spy}", 1),
        ("anyqueue_errors_total{backend=spy,kind=corrupt,operation=push}", 1),
        ("anyqueue_call_seconds{backend=spy,operation=push}", 6),
        ("anyqueue_batch_items{backend=spy,operation=push}", 6),
        ("anyqueue_call_seconds{backend=spy,operation=settle}", 1),
        ("anyqueue_call_seconds{backend=spy,operation=extend}", 2),
        ("anyqueue_errors_total{backend=spy,kind=corrupt,operation=extend}", 1),
        ("anyqueue_held{backend=spy}", 2),
        ("anyqueue_ledger_dropped_total{backend=memory}", 1),
    ];
    for (series, value) in expected {
        assert_eq!(metrics.get(series), Some(&value), "{series} in {metrics:#?}");
    }
    let documented = include_str!("../src/telemetry.rs");
    for series in metrics.keys() {
        let name = series.split('{').next().unwrap();
        assert!(documented.contains(&format!("//! | `{name}`")), "{name} is not in the table");
    }
    let rows = documented.lines().filter(|line| line.starts_with("//! | `anyqueue_"));
    for name in rows.map(|row| row.split('`').nth(1).unwrap()) {
        assert!(metrics.keys().any(|series| series.starts_with(name)), "{name} was never recorded");
    }
}
