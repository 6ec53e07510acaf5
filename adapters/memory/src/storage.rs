//! The handle and its life cycle.

use std::fmt;
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, InspectQueueStorage, LedgerQueueStorage,
    PauseQueueStorage, QueueStorage, Storage, async_trait,
};
use anyqueue::{Error, Health, Operation, Result};
use tokio_util::sync::CancellationToken;

use crate::capabilities::capabilities;
use crate::config::MemoryConfig;
use crate::error::NAME;
use crate::state::Store;

/// A client of an in-memory store. See the [crate page](crate) for its guarantees.
///
/// Messages live as long as any client of their store. Every call completes when it is first polled, except a
/// pull that has to wait.
pub struct MemoryQueue {
    pub(crate) store: Arc<Store>,
    pub(crate) capabilities: Arc<Capabilities>,
    /// Cancelled when this client is closed.
    pub(crate) closed: CancellationToken,
}

impl MemoryQueue {
    /// Creates an empty store with default settings, and returns its first client.
    #[allow(clippy::new_without_default, reason = "each is a store of its own, made on purpose")]
    pub fn new() -> Self {
        Self::with_config(MemoryConfig::default())
    }

    /// Creates an empty store, and returns its first client.
    pub fn with_config(config: MemoryConfig) -> Self {
        let capabilities = Arc::new(capabilities(config.max_message_bytes));
        Self { store: Arc::new(Store::new(config)), capabilities, closed: CancellationToken::new() }
    }

    /// Returns another client of the same store, as another process would have it: it is open, and stays open
    /// when this one is closed.
    #[must_use]
    pub fn client(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            capabilities: Arc::clone(&self.capabilities),
            closed: CancellationToken::new(),
        }
    }

    pub(crate) fn ensure_open(&self, operation: Operation) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(Error::closed().with_backend(NAME).with_operation(operation));
        }
        Ok(())
    }

    pub(crate) fn max_message_bytes(&self) -> u64 {
        self.capabilities.limits.message_bytes
    }
}

/// Shows no messages.
impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue").field("closed", &self.closed.is_cancelled()).finish_non_exhaustive()
    }
}

#[async_trait]
impl QueueStorage for MemoryQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn init(&self) -> Result<()> {
        self.ensure_open(Operation::Init)
    }

    async fn check(&self) -> Result<Health> {
        self.ensure_open(Operation::Check)?;
        Ok(Health::of_version(env!("CARGO_PKG_VERSION")))
    }

    async fn close(&self) -> Result<()> {
        self.closed.cancel();
        Ok(())
    }
}

impl Storage for MemoryQueue {
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
