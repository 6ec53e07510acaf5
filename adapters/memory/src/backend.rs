//! Opening a store by its URL.

use std::sync::Arc;

use anyqueue::adapter::{Backend, Namespace, OpenFuture, Storage, StorageUrl};

use crate::config::{MemoryConfig, OPTIONS};
use crate::error::NAME;
use crate::storage::MemoryQueue;

/// This backend for a [`Registry`](anyqueue::Registry): `memory:`, with the options `max_messages`,
/// `max_bytes`, `max_message_bytes` and `max_ended`. Each opening creates a new store.
pub fn backend() -> Backend {
    Backend { name: NAME, schemes: &["memory"], options: OPTIONS, namespace: Namespace::Opened, open }
}

fn open(url: StorageUrl) -> OpenFuture {
    Box::pin(async move {
        let config = MemoryConfig::from_url(&url).map_err(|error| error.with_backend(NAME))?;
        Ok(Arc::new(MemoryQueue::with_config(config)) as Arc<dyn Storage>)
    })
}
