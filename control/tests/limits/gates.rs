//! Limits of a kind, while many tasks of several processes ask at once and the store takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anyqueue::adapter::{ControlStorage, Forward, Storage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{Page, Result};
use anyqueue_control::limits::{Limit, LimitPermits, Limits};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Admission, Permits, task};
use tokio::task::JoinSet;

use crate::bed::{Bed, millis, store_over};

const CAP: usize = 5;
const SEEDS: u64 = 60;
const TASKS: usize = 8;
const ROUNDS: usize = 25;

/// A store between whose calls and answers others come to their turn.
#[derive(Debug)]
struct Slow(MemoryQueue);

impl Forward for Slow {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Slow {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        pause(6).await;
        let found = self.0.get(keys).await;
        pause(6).await;
        found
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.0.list(prefix, page).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        pause(6).await;
        let applied = self.0.apply(changes).await;
        pause(6).await;
        applied
    }
}

async fn pause(turns: usize) {
    for _ in 0..fastrand::usize(0..=turns) {
        tokio::task::yield_now().await;
    }
}

/// Tasks of one process: each asks, runs for a while, and asks again.
async fn ask_and_run(permits: Arc<LimitPermits>, running: Arc<AtomicUsize>, seed: u64) {
    let message = task("send", &1).unwrap();
    for _ in 0..ROUNDS {
        match permits.admit(&message).await {
            Admission::Open(tickets) => {
                let now = running.fetch_add(1, SeqCst) + 1;
                assert!(now <= CAP, "{now} run at once under a cap of {CAP}, seed {seed}");
                pause(30).await;
                running.fetch_sub(1, SeqCst);
                drop(tickets);
            }
            _ => pause(40).await,
        }
    }
}

#[tokio::test]
async fn a_cap_holds_however_calls_and_answers_interleave() {
    for seed in 0..SEEDS {
        fastrand::seed(seed);
        let bed = Bed::new();
        let limits = || Limits::new(store_over(Arc::new(Slow(bed.memory.client())), &bed.time));
        limits().put("l", &Limit::kind("send").unwrap().cap(CAP as u64)).await.unwrap();
        let (running, mut tasks, mut processes) = (Arc::new(AtomicUsize::new(0)), JoinSet::new(), Vec::new());
        for who in ["a", "b", "c"] {
            let process = bed.process_over(&limits(), who).await;
            for _ in 0..TASKS {
                tasks.spawn(ask_and_run(process.permits.clone(), running.clone(), seed));
            }
            processes.push(process);
        }
        while !tasks.is_empty() {
            bed.time.advance(millis(10));
            pause(10).await;
            while let Some(ended) = tasks.try_join_next() {
                ended.unwrap();
            }
        }
    }
}
