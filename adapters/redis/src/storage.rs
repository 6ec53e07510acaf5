//! The storage: one handle on a queue on a server.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, EndWatches, InspectQueueStorage, LedgerQueueStorage,
    PauseQueueStorage, QueueStorage, Storage, StorageUrl, Waiters, async_trait,
};
use anyqueue::{Error, ErrorKind, Health, Operation, PartitionId, Result};
use redis::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::capabilities::capabilities;
use crate::clock::ServerClock;
use crate::config::{Config, RedisBuilder};
use crate::end_news::Teller;
use crate::error::{ERRORS, NAME};
use crate::link::{Call, Link};
use crate::listener::{Listener, watch};
use crate::names::Names;
use crate::recent_names::RecentNames;
use crate::script::Script;
use crate::server::{Server, check_layout, check_permissions};

/// A queue on a Redis server. Any number of processes may use it at once. Clones share the handle.
#[derive(Clone)]
pub struct RedisQueue {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    capabilities: Capabilities,
    pub(crate) names: Names,
    pub(crate) link: Arc<Link>,
    pub(crate) clock: ServerClock,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) end_watches: Arc<EndWatches>,
    /// The name of this handle in hints, by which it recognises its own.
    pub(crate) caller: String,
    /// Cancelled when a pull waits for the first time.
    pub(crate) listen: CancellationToken,
    pub(crate) closed: CancellationToken,
    /// Partitions that this handle has added to the list of all partitions, in a cluster.
    pub(crate) listed: RecentNames,
    /// Partitions that this handle has marked there as having, perhaps, amended messages or messages that
    /// become urgent.
    pub(crate) amended: RecentNames,
    /// Partitions that it has marked there as having, perhaps, several members of a group in front, or
    /// disabled messages.
    pub(crate) counted: RecentNames,
    /// Partitions that this handle has added to the list of those with ends that expire, in a cluster.
    pub(crate) with_ends: RecentNames,
    /// Partitions that this handle has reported because of missing records.
    pub(crate) reported: RecentNames,
    tasks: TaskTracker,
    calls: TaskTracker,
}

/// The tasks end with the last handle.
impl Drop for Inner {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl std::fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisQueue").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl RedisBuilder {
    /// Connects, and checks the server's settings and the user's permissions. Must be called within a tokio runtime with time and
    /// I/O enabled. The handle ends with that runtime.
    ///
    /// # Errors
    /// - `InvalidInput` for an option out of bounds, or a database or certificate that does not exist.
    /// - `Unavailable` if the server cannot be reached, is a replica, or its certificate is not accepted.
    /// - `AccessDenied` for a wrong password or missing permissions, which are named.
    /// - `Incompatible` for a server that is too old, evicts keys, or unexpectedly belongs to a Redis Cluster, and for keys of
    ///   another layout.
    pub async fn open(self) -> Result<RedisQueue> {
        let config = self.checked().map_err(|error| error.with_operation(Operation::Open))?;
        RedisQueue::from_config(config).await
    }
}

impl RedisQueue {
    /// Connects by URL, as in `redis://user:password@host:6379/0?prefix=jobs`, with the options of [`backend`](crate::backend),
    /// and checks the server's settings and the user's permissions.
    ///
    /// # Errors
    /// Those of [`RedisBuilder::open`].
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder(url)?.open().await
    }

    /// Options for connecting by URL.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid URL, or one of another backend. The error does not show it, since it may
    /// contain a password.
    pub fn builder(url: &str) -> Result<RedisBuilder> {
        let stamp = |error: Error| error.with_backend(NAME).with_operation(Operation::Open);
        RedisBuilder::from_url(&StorageUrl::parse(url).map_err(stamp)?).map_err(stamp)
    }

    pub(crate) async fn from_config(config: Config) -> Result<Self> {
        let opening = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Open);
        let link = Arc::new(Link::new(&config).await.map_err(opening)?);
        let names = Names::new(&config.prefix);
        let server = Server::ask(&link, &config.topology).await.map_err(opening)?;
        check_permissions(&link, &names).await.map_err(opening)?;
        check_layout(&link, &names).await.map_err(opening)?;
        let inner = Inner {
            capabilities: capabilities(&config, server.durability),
            names,
            link,
            clock: ServerClock::default(),
            waiters: Arc::default(),
            end_watches: Arc::default(),
            caller: uuid::Uuid::new_v4().simple().to_string(),
            listen: CancellationToken::new(),
            closed: CancellationToken::new(),
            listed: RecentNames::default(),
            amended: RecentNames::default(),
            counted: RecentNames::default(),
            with_ends: RecentNames::default(),
            reported: RecentNames::default(),
            tasks: TaskTracker::new(),
            calls: TaskTracker::new(),
            config,
        };
        inner.start();
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Creates a call for this partition. `bytes` is the approximate size of its arguments.
    pub(crate) fn new_call(
        &self,
        script: &'static Script,
        partition: &PartitionId,
        args: usize,
        bytes: usize,
    ) -> Call {
        Call::new(script, &self.first_keys(partition), args, bytes)
    }

    /// Creates a call for this partition and others, whose states are keys too. In a cluster they must share
    /// its slot.
    pub(crate) fn new_call_beyond<'p>(
        &self,
        script: &'static Script,
        partition: &PartitionId,
        others: impl Iterator<Item = &'p PartitionId>,
        args: usize,
        bytes: usize,
    ) -> Call {
        let names = &self.inner.names;
        let mut keys = self.first_keys(partition).to_vec();
        keys.extend(others.map(|other| names.state(other)));
        Call::new(script, &keys, args, bytes + 64 * keys.len())
    }

    /// The first keys of every script.
    fn first_keys(&self, partition: &PartitionId) -> [String; 2] {
        let names = &self.inner.names;
        // In a cluster, the list of partitions may be on another server.
        let is_cluster = self.inner.config.is_cluster();
        let second = if is_cluster { names.absent(partition) } else { names.partitions() };
        [names.state(partition), second]
    }

    /// Runs a script, which the server executes atomically.
    pub(crate) async fn run(&self, call: &Call, operation: Operation) -> Result<Value> {
        let _counted = self.inner.calls.token();
        if self.is_closed() {
            return Err(ERRORS.closed(operation));
        }
        let answer = self.inner.link.call(call).await;
        answer.map_err(|error| error.with_backend(NAME).with_operation(operation))
    }
}

impl Inner {
    fn start(&self) {
        let interval = self.config.poll_interval;
        self.tasks.spawn(watch(Arc::clone(&self.waiters), interval, self.closed.clone()));
        let listener = Listener {
            waiters: Arc::clone(&self.waiters),
            end_watches: Arc::clone(&self.end_watches),
            link: Arc::clone(&self.link),
            channel: self.names.channel(),
            caller: self.caller.clone(),
            begin: self.listen.clone(),
        };
        self.tasks.spawn(listener.serve(self.closed.clone()));
        let teller = Teller {
            end_watches: Arc::clone(&self.end_watches),
            link: Arc::clone(&self.link),
            channel: self.names.channel(),
            caller: self.caller.clone(),
        };
        self.tasks.spawn(teller.serve(self.closed.clone()));
        self.tasks.close();
        self.calls.close();
    }
}

#[async_trait]
impl QueueStorage for RedisQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    /// Creates nothing, since keys are created with the first message. Checks what [`RedisBuilder::open`]
    /// checks.
    async fn init(&self) -> Result<()> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Init));
        }
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Init);
        let server = Server::ask(&self.inner.link, &self.inner.config.topology).await.map_err(stamp)?;
        let declared = self.inner.capabilities.durability.push;
        if server.durability < declared {
            let text = "the server is less durable than when this handle was opened: see its appendonly and appendfsync, or open the queue again";
            return Err(stamp(ERRORS.error(ErrorKind::Incompatible, text)));
        }
        check_permissions(&self.inner.link, &self.inner.names).await.map_err(stamp)?;
        check_layout(&self.inner.link, &self.inner.names).await.map_err(stamp)
    }

    async fn check(&self) -> Result<Health> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Check));
        }
        let stamp = |error: Error| error.repeatable().with_backend(NAME).with_operation(Operation::Check);
        let server = Server::ask(&self.inner.link, &self.inner.config.topology).await.map_err(stamp)?;
        let mut health = Health::of_version(server.version);
        health.server_time = server.time;
        health.warnings = server.warnings;
        health.warnings.append(&mut self.missing_record_warnings().await.map_err(stamp)?);
        Ok(health)
    }

    async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.tasks.wait().await;
        // Each call ends within its time limit, and the connection is kept no longer than that.
        let longest = self.inner.config.call_timeout + Duration::from_secs(1);
        let _ = tokio::time::timeout(longest, self.inner.calls.wait()).await;
        self.inner.link.close();
        Ok(())
    }
}

impl Storage for RedisQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        Some(self)
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        Some(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        Some(self)
    }
}
