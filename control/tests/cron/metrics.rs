//! The metrics of a scheduler, read as an application's recorder would read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyqueue::adapter::Storage;
use anyqueue::{Queue, RetryPolicy};
use anyqueue_control::cron::Scheduler;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::bed::{Bed, MINUTE, Node, schedule};
use crate::cut::{Cut, How};

/// Counters by their name and the values of their labels.
fn recorded(work: impl Future<Output = ()>) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // One thread, where the recorder is.
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    let counters = snapshotter.snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| {
        let DebugValue::Counter(count) = value else { return None };
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Some((format!("{}{{{}}}", key.key().name(), labels.join(",")), count))
    });
    counters.filter(|(name, _)| name.starts_with("anyqueue_cron_")).collect()
}

#[test]
fn runs_are_counted_by_their_outcome_and_failures_too() {
    let counters = recorded(async {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
        let cut = Cut::at(&bed.memory, 0, How::Fails);
        let queue = Queue::builder(cut as Arc<dyn Storage>).clock(bed.time.clock());
        let queue = queue.retry(RetryPolicy::NEVER).build().unwrap();
        let node = Node::start(Scheduler::new(&queue).unwrap());
        assert_eq!(bed.work_for(2 * MINUTE).await.len(), 2);
        bed.pass(2 * MINUTE).await;
        bed.scheduler.pause("a").await.unwrap();
        bed.pass(MINUTE).await;
        node.stop().await;
    });
    assert_eq!(counters.get("anyqueue_cron_failed_total{}"), Some(&1), "{counters:?}");
    for (series, count) in [("pushed", 3), ("running", 1), ("paused", 1)] {
        let series = format!("anyqueue_cron_runs_total{{outcome={series}}}");
        assert_eq!(counters.get(&series), Some(&count), "{counters:?}");
    }
}
