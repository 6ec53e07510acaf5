//! The metrics a worker reports, read as an application's recorder would read them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyqueue::PartitionId;
use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Partition, TaskContext, TaskError};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

/// `name{label=value,…}` and the value; of histograms, how many were recorded.
fn recorded(work: impl Future<Output = ()>) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // One thread, where the recorder is.
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
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
    series.filter(|(name, _)| name.starts_with("anyqueue_worker_")).collect()
}

#[test]
fn every_documented_metric_is_recorded_with_its_labels() {
    let metrics = recorded(async {
        let harness = Harness::new(|worker| {
            let worker = worker.partition(Partition::new("p")).handler("good", |_: u32, _| async { Ok(()) });
            worker.handler("bad", |_: u32, task: anyqueue_worker::TaskContext| async move {
                if task.attempt() == 1 {
                    Err(TaskError::retry("no"))
                } else {
                    Err(TaskError::permanent("never"))
                }
            })
        })
        .unwrap();
        for kind in ["good", "good", "bad", "unknown"] {
            harness.push("p", kind, &1).await.unwrap();
        }
        harness.run().await.unwrap();
        harness.advance(Duration::from_secs(25)).await;
        harness.run().await.unwrap();
        harness.queue().close().await.unwrap();
        harness.run().await.unwrap_err();
    });
    let expected = [
        ("anyqueue_worker_started_total{kind=good,partition=p}", 2),
        ("anyqueue_worker_started_total{kind=bad,partition=p}", 2),
        ("anyqueue_worker_ended_total{kind=good,outcome=processed,partition=p}", 2),
        ("anyqueue_worker_ended_total{kind=bad,outcome=retried,partition=p}", 1),
        ("anyqueue_worker_ended_total{kind=bad,outcome=dead,partition=p}", 1),
        ("anyqueue_worker_ended_total{kind=other,outcome=deferred,partition=p}", 1),
        ("anyqueue_worker_wait_seconds{kind=bad,partition=p}", 1),
        ("anyqueue_worker_run_seconds{kind=bad,partition=p}", 2),
        ("anyqueue_worker_attempts{kind=bad,partition=p}", 1),
        ("anyqueue_worker_pull_errors_total{partition=p}", 1),
        ("anyqueue_worker_throttled{}", 0),
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

#[test]
fn a_partition_and_its_dead_letters_are_told_apart() {
    let metrics = recorded(async {
        let partition = PartitionId::new("p").unwrap();
        let harness = Harness::new(|worker| {
            let worker =
                worker.partition(Partition::new("p")).partition(Partition::new(partition.dead_letters()));
            worker.handler("k", |(): (), task: TaskContext| async move {
                if task.partition().is_dead_letters() { Ok(()) } else { Err(TaskError::permanent("no")) }
            })
        })
        .unwrap();
        harness.push("p", "k", &()).await.unwrap();
        harness.run().await.unwrap();
    });
    for partition in ["p", "p (dead letters)"] {
        let series = format!("anyqueue_worker_started_total{{kind=k,partition={partition}}}");
        assert_eq!(metrics.get(&series), Some(&1), "{series} in {metrics:#?}");
    }
}
