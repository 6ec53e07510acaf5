//! The storage: one handle on the queues of a prefix.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, InspectQueueStorage, LedgerQueueStorage,
    PauseQueueStorage, QueueStorage, Storage, StorageUrl, async_trait,
};
use anyqueue::{Error, Health, Operation, PartitionId, Result};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::Actor;
use crate::capabilities::capabilities;
use crate::command::Command;
use crate::config::{Config, RabbitMqBuilder};
use crate::consumer_connection::ConsumerConnection;
use crate::error::{ERRORS, NAME};
use crate::handshake::Handshake;
use crate::names::{LevelQueue, Names};
use crate::publisher::Publisher;
use crate::shared::Shared;

/// How many announcements may be queued for forwarding.
const MAX_ANNOUNCEMENTS: usize = 1024;

type Actors = Arc<Mutex<HashMap<PartitionId, mpsc::Sender<Command>>>>;

/// A queue on a broker. Any number of processes may use it at once. Clones share the handle.
#[derive(Clone)]
pub struct RabbitMqQueue {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) capabilities: Capabilities,
    actors: Actors,
    pub(crate) calls: TaskTracker,
    tasks: TaskTracker,
}

/// The tasks end with the last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.closed.cancel();
    }
}

impl std::fmt::Debug for RabbitMqQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqQueue").field("config", &self.inner.shared.config).finish_non_exhaustive()
    }
}

impl RabbitMqBuilder {
    /// Connects. Must be called within a tokio runtime with time and I/O enabled, multi-threaded or not. The handle ends with
    /// that runtime.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of bounds, `Unavailable` if the server cannot be reached, `AccessDenied` for a refused
    /// login or virtual host.
    pub async fn open(self) -> Result<RabbitMqQueue> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        let config = self.checked().map_err(stamp)?;
        RabbitMqQueue::from_config(config).await.map_err(stamp)
    }
}

impl RabbitMqQueue {
    /// Connects by URL, as in `amqp://user:password@host:5672/vhost?prefix=jobs`, with the options of
    /// [`backend`](crate::backend).
    ///
    /// # Errors
    /// Those of [`RabbitMqBuilder::open`].
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder(url)?.open().await
    }

    /// Options for connecting by URL.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid URL, or one of another backend. The error does not show it, since it may
    /// contain a password.
    pub fn builder(url: &str) -> Result<RabbitMqBuilder> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        RabbitMqBuilder::from_url(&StorageUrl::parse(url).map_err(stamp)?).map_err(stamp)
    }

    pub(crate) async fn from_config(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let names = Names::new(&config.prefix);
        let (announcements, announced) = mpsc::channel(MAX_ANNOUNCEMENTS);
        let shared = Arc::new(Shared {
            consumers: ConsumerConnection::new(&config, &names, announcements),
            publisher: Publisher::new(&config, &names),
            closed: CancellationToken::new(),
            unseen: Arc::default(),
            names,
            config,
        });
        shared.publisher.connect().await?;
        let inner = Inner {
            capabilities: capabilities(&shared.config),
            actors: Actors::default(),
            calls: TaskTracker::new(),
            tasks: TaskTracker::new(),
            shared,
        };
        inner.tasks.spawn(forward_announcements(
            announced,
            Arc::clone(&inner.actors),
            inner.shared.closed.clone(),
        ));
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.shared.closed.is_cancelled()
    }

    /// Sends a command to a partition's task, if there is one.
    pub(crate) async fn command_if_running(&self, partition: &PartitionId, command: Command) -> bool {
        let actor = self.inner.actors().get(partition).cloned();
        match actor {
            Some(actor) => actor.send(command).await.is_ok(),
            None => false,
        }
    }

    /// Sends a command to a partition's task. Starts the task if there is none.
    pub(crate) async fn command(&self, partition: &PartitionId, command: Command) -> bool {
        let actor = {
            let mut actors = self.inner.actors();
            actors.get(partition).cloned().unwrap_or_else(|| {
                let (sender, task) = Actor::start(&self.inner.shared, partition);
                self.inner.tasks.spawn(task);
                actors.insert(partition.clone(), sender.clone());
                sender
            })
        };
        actor.send(command).await.is_ok()
    }
}

impl Inner {
    fn actors(&self) -> std::sync::MutexGuard<'_, HashMap<PartitionId, mpsc::Sender<Command>>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards announcements of queues to the tasks of their partitions.
async fn forward_announcements(
    mut announced: mpsc::Receiver<LevelQueue>,
    actors: Actors,
    closed: CancellationToken,
) {
    while let Some(Some(level_queue)) = closed.run_until_cancelled(announced.recv()).await {
        let actor =
            actors.lock().unwrap_or_else(PoisonError::into_inner).get(&level_queue.partition).cloned();
        if let Some(actor) = actor {
            let _ = actor.send(Command::Level(level_queue.level)).await;
        }
    }
}

#[async_trait]
impl QueueStorage for RabbitMqQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// Checks the server's version and declares the exchanges that all partitions share. Queues are declared with the first
    /// message of each level.
    async fn init(&self) -> Result<()> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Init));
        }
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Init);
        let handshake = self.inner.shared.publisher.handshake().await.map_err(stamp)?;
        if let Some(warning) = handshake.check_version().map_err(stamp)? {
            tracing::warn!("{warning}");
        }
        self.inner.shared.publisher.ask().await.map_err(stamp)
    }

    async fn check(&self) -> Result<Health> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Check));
        }
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Check);
        self.inner.shared.publisher.ask().await.map_err(stamp)?;
        self.inner.shared.publisher.probe().await.map_err(stamp)?;
        // So far everything works. Product and version come from a second connection, which may be refused.
        let handshake = self.inner.shared.publisher.handshake().await.ok();
        let mut health =
            handshake.map_or_else(|| Ok(Health::default()), Handshake::into_health).map_err(stamp)?;
        health.warnings.extend(self.inner.shared.publisher.warnings().await);
        Ok(health)
    }

    async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.calls.close();
        let longest = inner.shared.config.call_timeout + Duration::from_secs(1);
        // Copies in progress need their partitions' tasks.
        let _ = tokio::time::timeout(longest, inner.calls.wait()).await;
        inner.shared.closed.cancel();
        inner.tasks.close();
        let _ = tokio::time::timeout(longest, inner.tasks.wait()).await;
        inner.shared.consumers.close(longest).await;
        inner.shared.publisher.close(longest).await;
        Ok(())
    }
}

impl Storage for RabbitMqQueue {
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
