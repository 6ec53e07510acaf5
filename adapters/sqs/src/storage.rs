//! The storage: one handle on queues of the service.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, InspectQueueStorage, LedgerQueueStorage,
    PauseQueueStorage, QueueStorage, Storage, StorageUrl, async_trait,
};
use anyqueue::{Error, Health, Operation, Result};

use crate::config::{Config, SqsBuilder};
use crate::error::{ERRORS, NAME};
use crate::server::Requests;
use crate::shared::Inner;

/// How long closing waits for long polls, which are never cancelled. Messages that they receive later are
/// delivered again when their leases end.
const POLLS_END: Duration = Duration::from_millis(1500);

/// Queues of Amazon SQS. Any number of processes may use them at once. Clones share the handle.
#[derive(Clone)]
pub struct SqsQueue {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsQueue").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl SqsBuilder {
    /// Creates the handle, without a request to the server. Must be called within a tokio runtime with time
    /// and I/O enabled.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of bounds.
    pub async fn open(self) -> Result<SqsQueue> {
        let config = self.checked().map_err(|error| error.with_operation(Operation::Open))?;
        Ok(SqsQueue::from_config(config).await)
    }
}

impl SqsQueue {
    /// Opens queues by URL, as in `sqs://eu-central-1/jobs`, with the options of [`backend`](crate::backend).
    /// Sends no request, unlike [`init`](anyqueue::adapter::QueueStorage::init).
    ///
    /// # Errors
    /// `InvalidInput` for an invalid URL or option.
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder(url)?.open().await
    }

    /// Options for opening queues by URL.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid URL, or one of another backend. The error does not show it, since it may
    /// contain a secret.
    pub fn builder(url: &str) -> Result<SqsBuilder> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        SqsBuilder::from_url(&StorageUrl::parse(url).map_err(stamp)?).map_err(stamp)
    }

    /// Returns counts of the requests that this handle has made so far.
    pub fn requests(&self) -> Requests {
        self.inner.server.requests()
    }

    pub(crate) async fn from_config(config: Config) -> Self {
        Self { inner: Arc::new(Inner::new(config).await) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Asks for a queue that does not exist, to find out whether the server answers and accepts the
    /// credentials.
    async fn probe(&self, operation: Operation) -> Result<()> {
        if self.is_closed() {
            return Err(ERRORS.closed(operation));
        }
        let answer = self.inner.server.url(&self.inner.queues.names().nonexistent()).await;
        answer.map(drop).map_err(|error| error.repeatable().with_backend(NAME).with_operation(operation))
    }
}

#[async_trait]
impl QueueStorage for SqsQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// Creates nothing, since queues are created with the first message or the first wait. Checks that the
    /// server answers and accepts the credentials.
    async fn init(&self) -> Result<()> {
        self.probe(Operation::Init).await
    }

    async fn check(&self) -> Result<Health> {
        self.probe(Operation::Check).await.map(|()| Health::default())
    }

    async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.closed.cancel();
        inner.calls.close();
        inner.long_polls.close();
        // Each call ends within its time limit; a long poll may continue for its own.
        let longest = 2 * inner.config.call_timeout + Duration::from_secs(1);
        let _ = tokio::time::timeout(longest, inner.calls.wait()).await;
        // No pull will take these messages any more.
        inner.release(inner.group_backlog.take_all()).await;
        let _ = tokio::time::timeout(POLLS_END, inner.long_polls.wait()).await;
        Ok(())
    }
}

impl Storage for SqsQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        None
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}
