//! The storage: one handle on queues of the service.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{
    Capabilities, Delivery, Error, ExtendOutcome, Extension, Health, InspectQueueStorage, MessageData,
    Operation, PartitionId, PauseQueueStorage, PullQueueStorage, PullRequest, PushOutcome, PushQueueStorage,
    QueueStorage, Result, SettleOutcome, Settlement, Storage, StorageUrl, async_trait,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::behind::Behind;
use crate::capabilities::capabilities;
use crate::config::{Config, SqsBuilder};
use crate::error::{NAME, closed, repeatable};
use crate::give_backs::GiveBacks;
use crate::held::Ledger;
use crate::hidden::Hidden;
use crate::join::AllJoins;
use crate::lines::Lines;
use crate::queues::Queues;
use crate::server::{Requests, Server};
use crate::wire;

/// Long polls under way at once. Each takes a connection.
const MAX_POLLS: usize = 512;
/// Pulls that ask the server at once; others wait for their turn.
const MAX_SWEEPS: usize = 32;
/// How long closing waits for polls, which are never cancelled: what they select after that comes back when its lease ends.
const POLLS_END: Duration = Duration::from_millis(1500);

/// Queues of Amazon SQS, which any number of processes may use at once. Cloning shares the handle.
#[derive(Clone)]
pub struct SqsQueue {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) capabilities: Capabilities,
    pub(crate) server: Server,
    pub(crate) queues: Queues,
    pub(crate) ledger: Ledger,
    pub(crate) lines: Lines,
    pub(crate) given_back: GiveBacks,
    pub(crate) behind: Behind,
    pub(crate) hidden: Hidden,
    pub(crate) poll_room: Semaphore,
    pub(crate) sweeps: Semaphore,
    pub(crate) polls: TaskTracker,
    pub(crate) closed: CancellationToken,
    pub(crate) joins: AllJoins,
    pub(crate) calls: TaskTracker,
}

impl std::fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsQueue").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl SqsQueue {
    /// Opens by URL, as in `sqs://eu-central-1/jobs`, with the options of [`backend`](crate::backend). Nothing is asked of the server
    /// yet: [`init`](anyqueue::QueueStorage::init) does.
    ///
    /// # Errors
    /// `InvalidInput` for a URL or an option that cannot be used.
    pub async fn open(url: &str) -> Result<Self> {
        Self::from_url(url)?.open().await
    }

    /// Options by URL.
    ///
    /// # Errors
    /// `InvalidInput` for a URL that cannot be read. It is not repeated, for it may hold a secret.
    pub fn from_url(url: &str) -> Result<SqsBuilder> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        SqsBuilder::from_url(&StorageUrl::parse(url).map_err(stamp)?).map_err(stamp)
    }

    /// What this handle has asked of the service so far.
    pub fn requests(&self) -> Requests {
        self.inner.server.requests()
    }

    pub(crate) async fn from_config(config: Config) -> Self {
        let inner = Inner {
            capabilities: capabilities(&config),
            server: Server::new(&config).await,
            queues: Queues::new(&config),
            ledger: Ledger::default(),
            lines: Lines::default(),
            given_back: GiveBacks::default(),
            behind: Behind::default(),
            hidden: Hidden::default(),
            poll_room: Semaphore::new(MAX_POLLS),
            sweeps: Semaphore::new(MAX_SWEEPS),
            polls: TaskTracker::new(),
            closed: CancellationToken::new(),
            joins: AllJoins::default(),
            calls: TaskTracker::new(),
            config,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Asks for a queue that is not there: whoever may ask gets an answer.
    async fn ask(&self, operation: Operation) -> Result<()> {
        if self.is_closed() {
            return Err(closed(operation));
        }
        let answer = self.inner.server.url(&self.inner.queues.names().nobodys()).await;
        answer.map(drop).map_err(|error| repeatable(error).with_backend(NAME).with_operation(operation))
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

    /// Creates nothing: queues come with the first message or the first wait. Checks that the server answers, and the credentials.
    async fn init(&self) -> Result<()> {
        self.ask(Operation::Init).await
    }

    async fn check(&self) -> Result<Health> {
        self.ask(Operation::Check).await.map(|()| Health::default())
    }

    async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.closed.cancel();
        inner.calls.close();
        inner.polls.close();
        // Each call ends within its time; a poll may go on for its own.
        let longest = 2 * inner.config.call_timeout + Duration::from_secs(1);
        let _ = tokio::time::timeout(longest, inner.calls.wait()).await;
        // Nobody will ask for these any more.
        inner.let_go(inner.behind.take_all()).await;
        let _ = tokio::time::timeout(POLLS_END, inner.polls.wait()).await;
        Ok(())
    }
}

#[async_trait]
impl PushQueueStorage for SqsQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        wire::max_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let _call = self.inner.calls.token();
        self.push_all(partition, messages).await
    }
}

#[async_trait]
impl PullQueueStorage for SqsQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<Delivery>> {
        let _call = self.inner.calls.token();
        self.pull_messages(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let _call = self.inner.calls.token();
        self.settle_all(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let _call = self.inner.calls.token();
        self.extend_all(extensions).await
    }

    /// One after the other: the service has no request for both.
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<Delivery>>) {
        let settled = self.settle(settlements).await;
        (settled, self.pull(partition, request).await)
    }
}

impl Storage for SqsQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        None
    }
}
