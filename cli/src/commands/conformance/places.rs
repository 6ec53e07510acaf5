//! Gives each case of the suite a place on the user's backend.

use std::sync::Arc;

use anyqueue::Result;
use anyqueue::adapter::{Backend, Storage, StorageUrl};
use anyqueue_conformance::{Harness, Need, async_trait};
use indicatif::ProgressBar;

use crate::failure::{Failure, with_causes};
use crate::open::{self, Create};

/// Places on one backend.
pub(crate) struct Places {
    backend: Backend,
    url: String,
    /// Counts the places that are finished with.
    done: Option<ProgressBar>,
    #[cfg(feature = "memory")]
    memory: std::sync::Mutex<std::collections::HashMap<String, anyqueue_memory::MemoryQueue>>,
}

impl Places {
    pub(crate) fn at(url: &str) -> Result<Self, Failure> {
        StorageUrl::parse(url)?;
        let backend = anyqueue_backends::backend(url).ok_or_else(open::no_url)?;
        Ok(Self {
            backend,
            url: url.to_owned(),
            done: None,
            #[cfg(feature = "memory")]
            memory: std::sync::Mutex::default(),
        })
    }

    /// The same places, counting each case that is finished with its place.
    pub(crate) fn counting(self, bar: ProgressBar) -> Self {
        Self { done: Some(bar), ..self }
    }

    /// Checks whether the backend can be reached.
    pub(crate) async fn probe(&self) -> Result<(), Failure> {
        let probe = "anyqueue_probe";
        let opened = self.open(probe).await;
        let end = match opened {
            Ok(storage) => storage.close().await.map_err(Failure::from),
            Err(error) => Err(Failure::Failed(with_causes(&error))),
        };
        self.remove(probe).await;
        end
    }

    /// The URL of a place.
    fn place(&self, namespace: &str) -> String {
        self.backend.url_in(&self.url, namespace)
    }
}

#[async_trait]
impl Harness for Places {
    fn name(&self) -> &str {
        self.backend.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        #[cfg(feature = "memory")]
        if self.backend.name == "memory" {
            let mut spaces = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let space = spaces.entry(namespace.to_owned()).or_insert_with(anyqueue_memory::MemoryQueue::new);
            return Ok(Arc::new(space.client()));
        }
        let storage = open::storage(&self.place(namespace), Create::AsUrlSays).await?;
        storage.init().await?;
        Ok(storage)
    }

    /// The rule as the backend's own crate states it.
    fn rule(&self, need: Need) -> Option<&'static str> {
        match self.backend.name {
            #[cfg(feature = "sqs")]
            "sqs" => {
                let fifo = StorageUrl::parse(&self.url).and_then(|url| url.option("fifo"));
                anyqueue_sqs::server_rule(fifo.ok().flatten().unwrap_or(false), need.what())
            }
            _ => None,
        }
    }

    /// What cannot be removed stays: the suite's verdict does not depend on it.
    async fn remove(&self, namespace: &str) {
        let place = self.place(namespace);
        match self.backend.name {
            "sqlite" => remove_file(&place),
            "postgres" => drop(remove_schema(&place).await),
            _ => {}
        }
        if let Some(bar) = &self.done {
            bar.inc(1);
        }
    }
}

fn remove_file(url: &str) {
    let Ok(url) = StorageUrl::parse(url) else { return };
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", url.path()));
    }
}

#[cfg(feature = "postgres")]
async fn remove_schema(url: &str) -> Result<()> {
    let storage = anyqueue_postgres::PostgresQueue::open(url).await?;
    let dropped = storage.drop_schema().await;
    anyqueue::adapter::QueueStorage::close(&storage).await?;
    dropped
}

#[cfg(not(feature = "postgres"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
async fn remove_schema(_: &str) -> Result<()> {
    Err(anyqueue::Error::unsupported("this build has no PostgreSQL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "sqs")]
    #[test]
    fn what_sqs_does_not_offer_is_explained_by_the_services_rule() {
        let rule = |url: &str, need: Need| Places::at(url).ok().and_then(|places| places.rule(need));
        let (standard, fifo) = ("sqs://eu-west-1/jobs", "sqs://eu-west-1/jobs?fifo=true");
        assert!(rule(standard, Need::Groups).is_some_and(|rule| rule.contains("FIFO")));
        assert_eq!(rule(fifo, Need::Groups), None);
        for need in [Need::Browse, Need::PushOrder, Need::Pause, Need::DedupWhileLive, Need::UniqueIds] {
            assert!(rule(standard, need).is_some() && rule(fifo, need).is_some(), "{need:?}");
        }
    }
}
