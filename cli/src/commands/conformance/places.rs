//! A place for each case of the suite: how the namespaces of each backend are written in its URL.

use std::sync::Arc;

use anyqueue::{Result, Storage, StorageUrl};
use anyqueue_conformance::{Harness, Need, async_trait};

use crate::failure::{Failure, with_causes};
use crate::open::{backend, no_url, registry, with_option};

/// Places on one backend.
pub(crate) struct Places {
    name: &'static str,
    url: String,
    #[cfg(feature = "memory")]
    memory: std::sync::Mutex<std::collections::HashMap<String, anyqueue_memory::MemoryQueue>>,
}

impl Places {
    pub(crate) fn at(url: &str) -> Result<Self, Failure> {
        StorageUrl::parse(url)?;
        let name = backend(url).ok_or_else(no_url)?.name;
        Ok(Self {
            name,
            url: url.to_owned(),
            #[cfg(feature = "memory")]
            memory: std::sync::Mutex::default(),
        })
    }

    /// Whether the backend is there at all.
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
        match self.name {
            "sqlite" => beside(&self.url, &format!(".{namespace}")),
            "sqs" => within(&self.url, namespace),
            "postgres" => with_option(&without_option(&self.url, "schema"), "schema", namespace),
            _ => with_option(&without_option(&self.url, "prefix"), "prefix", namespace),
        }
    }
}

/// The URL with something added to its path.
fn beside(url: &str, suffix: &str) -> String {
    match url.split_once('?') {
        Some((path, options)) => format!("{path}{suffix}?{options}"),
        None => format!("{url}{suffix}"),
    }
}

/// The URL with this path instead of its own.
fn within(url: &str, path: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, ""), |(address, options)| (address, options));
    let start = address.find("://").map_or(0, |at| at + 3);
    let host = address.get(start..).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let scheme = address.get(..start).unwrap_or_default();
    let question = if options.is_empty() { "" } else { "?" };
    format!("{scheme}{host}/{path}{question}{options}")
}

fn without_option(url: &str, name: &str) -> String {
    let Some((address, options)) = url.split_once('?') else { return url.to_owned() };
    let kept: Vec<_> =
        options.split('&').filter(|pair| pair.split('=').next().is_some_and(|found| found != name)).collect();
    if kept.is_empty() { address.to_owned() } else { format!("{address}?{}", kept.join("&")) }
}

#[async_trait]
impl Harness for Places {
    fn name(&self) -> &str {
        self.name
    }

    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>> {
        #[cfg(feature = "memory")]
        if self.name == "memory" {
            let mut spaces = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let space = spaces.entry(namespace.to_owned()).or_insert_with(anyqueue_memory::MemoryQueue::new);
            return Ok(Arc::new(space.client()));
        }
        let storage = registry().open(&self.place(namespace)).await?;
        storage.init().await?;
        Ok(storage)
    }

    /// As the backend's own crate knows it.
    fn rule(&self, need: &Need) -> Option<&'static str> {
        match self.name {
            #[cfg(feature = "sqs")]
            "sqs" => {
                let fifo = StorageUrl::parse(&self.url).and_then(|url| url.option("fifo"));
                anyqueue_sqs::server_rule(fifo.ok().flatten().unwrap_or(false), need.what)
            }
            _ => None,
        }
    }

    /// What cannot be removed is left: the suite's verdict does not depend on it.
    async fn remove(&self, namespace: &str) {
        let place = self.place(namespace);
        match self.name {
            "sqlite" => remove_file(&place),
            "postgres" => drop(remove_schema(&place).await),
            _ => {}
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
    anyqueue::QueueStorage::close(&storage).await?;
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
        let rule = |url: &str, need: &Need| Places::at(url).ok().and_then(|places| places.rule(need));
        let (standard, fifo) = ("sqs://eu-west-1/jobs", "sqs://eu-west-1/jobs?fifo=true");
        assert!(rule(standard, &Need::GROUPS).is_some_and(|rule| rule.contains("FIFO")));
        assert_eq!(rule(fifo, &Need::GROUPS), None);
        for need in [Need::BROWSE, Need::PUSH_ORDER, Need::PAUSE, Need::DEDUP_WHILE_LIVE, Need::UNIQUE_IDS] {
            assert!(rule(standard, &need).is_some() && rule(fifo, &need).is_some(), "{need:?}");
        }
    }

    #[test]
    fn each_namespace_has_a_place_of_its_own() {
        assert_eq!(
            beside("sqlite:/tmp/a.db?synchronous=normal", ".n"),
            "sqlite:/tmp/a.db.n?synchronous=normal"
        );
        assert_eq!(beside("sqlite:a.db", ".n"), "sqlite:a.db.n");
        assert_eq!(
            within("sqs://k:s@eu-west-1/jobs?endpoint=http://h:1/", "n"),
            "sqs://k:s@eu-west-1/n?endpoint=http://h:1/"
        );
        assert_eq!(within("sqs://eu-west-1", "n"), "sqs://eu-west-1/n");
        assert_eq!(without_option("redis://h/?prefix=a&x=1", "prefix"), "redis://h/?x=1");
        assert_eq!(without_option("redis://h/?prefix=a", "prefix"), "redis://h/");
    }
}
