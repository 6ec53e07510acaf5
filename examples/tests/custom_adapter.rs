//! The conformance suite for the example's adapter. This is everything that the author of an adapter has to
//! write.

#[path = "../src/bin/custom_adapter/adapter.rs"]
mod adapter;
#[path = "../src/bin/custom_adapter/capabilities.rs"]
mod capabilities;

use std::collections::HashMap;
use std::sync::Arc;

use adapter::ListQueue;
use anyqueue::Result;
use anyqueue::adapter::Storage;
use anyqueue_conformance::{Harness, async_trait};
use tokio::sync::Mutex;

/// A list for each namespace. The harness of a server would open connections to it instead.
#[derive(Default)]
struct Lists(Mutex<HashMap<String, ListQueue>>);

#[async_trait]
impl Harness for Lists {
    fn name(&self) -> &'static str {
        "list (example)"
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        let mut lists = self.0.lock().await;
        Ok(Arc::new(lists.entry(namespace.to_owned()).or_insert_with(ListQueue::new).client()))
    }

    async fn remove(&self, namespace: &str) {
        self.0.lock().await.remove(namespace);
    }
}

anyqueue_conformance::suite!(Lists::default());
