//! Counts the slots that handlers use, with time that the test turns.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue_worker::testing::Harness;
use anyqueue_worker::{Summary, TaskContext, WorkerBuilder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

pub(crate) fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What has begun and what runs, by kind. Payloads are the milliseconds that a task takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    slots: HashMap<String, usize>,
    in_use: usize,
    most: usize,
    begun: Vec<(String, u64)>,
}

impl Meter {
    /// Adds a handler of a kind whose tasks take so many slots.
    pub(crate) fn handler(&self, worker: WorkerBuilder, kind: &str, slots: usize) -> WorkerBuilder {
        self.0.lock().unwrap().slots.insert(kind.to_owned(), slots);
        let meter = self.clone();
        worker.handler(kind, move |takes: u64, task: TaskContext| {
            let meter = meter.clone();
            async move {
                meter.begins(task.kind(), takes);
                task.clock().sleep(millis(takes)).await;
                meter.ends(task.kind());
                Ok(())
            }
        })
    }

    pub(crate) fn begins(&self, kind: &str, payload: u64) {
        let mut state = self.0.lock().unwrap();
        state.in_use += state.slots[kind];
        state.most = state.most.max(state.in_use);
        state.begun.push((kind.to_owned(), payload));
    }

    pub(crate) fn ends(&self, kind: &str) {
        let mut state = self.0.lock().unwrap();
        state.in_use -= state.slots[kind];
    }

    /// The slots in use.
    pub(crate) fn in_use(&self) -> usize {
        self.0.lock().unwrap().in_use
    }

    /// The most slots that were ever in use, since the last call.
    pub(crate) fn most(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        let now = state.in_use;
        std::mem::replace(&mut state.most, now)
    }

    /// The kinds of the tasks that have begun, in order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.0.lock().unwrap().begun.iter().map(|(kind, _)| kind.clone()).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.payloads(kind).len()
    }

    /// The payloads of the tasks of a kind that have begun, in order.
    pub(crate) fn payloads(&self, kind: &str) -> Vec<u64> {
        let state = self.0.lock().unwrap();
        state.begun.iter().filter(|(begun, _)| begun == kind).map(|(_, payload)| *payload).collect()
    }
}

pub(crate) async fn push(harness: &Harness, partition: &str, kind: &str, takes: u64, count: usize) {
    for _ in 0..count {
        harness.push(partition, kind, &takes).await.unwrap();
    }
}

/// Lets this much time pass in small steps.
pub(crate) async fn pass(harness: &Harness, time: Duration) {
    const STEP: Duration = Duration::from_millis(25);
    let mut left = time;
    while !left.is_zero() {
        harness.advance(STEP.min(left)).await;
        left -= STEP.min(left);
    }
}

/// Runs the worker while the future goes on, and then to its end.
pub(crate) async fn beside(harness: &Harness, watch: impl Future<Output = ()>) -> Summary {
    let watch = async {
        watch.await;
        harness.worker().shutdown();
        harness.advance(Duration::from_mins(1)).await;
    };
    let (summary, ()) = tokio::join!(harness.worker().run_until(std::future::pending()), watch);
    summary.unwrap()
}

/// How many messages were pulled meanwhile: each one more than once if it was released.
pub(crate) fn pulled(work: impl Future<Output = ()>) -> u64 {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // One thread, where the recorder is.
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    let series = snapshotter.snapshot().into_vec().into_iter();
    let pulled = series.filter(|(key, ..)| key.key().name() == "anyqueue_pulled_total");
    let counts = pulled.map(|(.., value)| match value {
        DebugValue::Counter(count) => count,
        _ => 0,
    });
    counts.sum()
}
