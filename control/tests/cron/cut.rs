//! A process that dies, freezes, or loses an answer at one of its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyqueue::adapter::{
    Capabilities, ControlStorage, Extension, Forward, PullRequest, RawDelivery, Settlement, Storage,
    async_trait,
};
use anyqueue::control::{Applied, Change, Entry, Key, Stamped};
use anyqueue::{
    Error, ErrorKind, ExtendOutcome, MessageData, Page, PartitionId, PushOutcome, Result, SettleOutcome,
};
use anyqueue_memory::MemoryQueue;
use tokio_util::sync::CancellationToken;

/// What happens at the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It fails without being made.
    Fails,
    /// It is made, and fails all the same.
    LosesItsAnswer,
    /// It is never made, nor any after it.
    DiesBefore,
    /// It is the last one.
    DiesAfter,
    /// It, and all others, wait until the process is thawed, and are made then.
    Freezes,
}

pub(crate) const ALL: [How; 5] =
    [How::Fails, How::LosesItsAnswer, How::DiesBefore, How::DiesAfter, How::Freezes];

#[derive(Debug)]
pub(crate) struct Cut {
    inner: Arc<dyn Storage>,
    how: How,
    at: usize,
    calls: AtomicUsize,
    is_dead: AtomicBool,
    is_frozen: AtomicBool,
    thawed: CancellationToken,
}

impl Cut {
    /// A client that meets this at its call of this number, from 0.
    pub(crate) fn at(memory: &MemoryQueue, at: usize, how: How) -> Arc<Self> {
        Self::over(Arc::new(memory.client()), at, how)
    }

    /// The same of any backend that keeps control entries.
    pub(crate) fn over(inner: Arc<dyn Storage>, at: usize, how: How) -> Arc<Self> {
        Arc::new(Self {
            inner,
            how,
            at,
            calls: AtomicUsize::new(0),
            is_dead: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            thawed: CancellationToken::new(),
        })
    }

    fn entries(&self) -> &dyn ControlStorage {
        self.inner.control().unwrap()
    }

    /// Whether it has come to that call.
    pub(crate) fn has_met_it(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.at
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Relaxed)
    }

    pub(crate) fn thaw(&self) {
        self.is_frozen.store(false, Ordering::Relaxed);
        self.thawed.cancel();
    }

    /// What the process does by itself all the time, which is no step of anything.
    async fn hold_up(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.is_frozen() {
            self.thawed.cancelled().await;
        }
    }

    async fn call<T>(&self, call: impl Future<Output = T>, failed: impl FnOnce(Error) -> T) -> T {
        let is_it = self.calls.fetch_add(1, Ordering::Relaxed) == self.at;
        if is_it && self.how == How::DiesBefore {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        if is_it && self.how == How::Freezes {
            self.is_frozen.store(true, Ordering::Relaxed);
        }
        self.hold_up().await;
        let broken = || Error::new(ErrorKind::Unavailable, "the connection broke");
        if is_it && self.how == How::Fails {
            return failed(broken());
        }
        let answer = call.await;
        if is_it && self.how == How::DiesAfter {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if is_it && self.how == How::LosesItsAnswer { failed(broken()) } else { answer }
    }
}

fn all<T>(count: usize, error: &Error) -> Vec<Result<T>> {
    (0..count).map(|_| Err(Error::new(error.kind(), error.message().to_owned()))).collect()
}

#[async_trait]
impl Forward for Cut {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner().capabilities()
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.call(self.inner.push(partition, messages), |error| all(messages.len(), &error)).await
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.call(self.inner.pull(partition, request), Err).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.call(self.inner.settle(settlements), |error| all(settlements.len(), &error)).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.hold_up().await;
        self.inner.extend(extensions).await
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}

#[async_trait]
impl ControlStorage for Cut {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        self.call(self.entries().get(keys), Err).await
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        self.call(self.entries().list(prefix, page), Err).await
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        self.call(self.entries().apply(changes), Err).await
    }
}
