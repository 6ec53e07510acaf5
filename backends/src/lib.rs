//! Every backend of [anyqueue](https://docs.rs/anyqueue) behind one URL.
//!
//! Each backend is a feature: `memory`, `sqlite`, `postgres`, `redis`, `rabbitmq`, `sqs`, or `all` of them. A
//! program that reads its URL from a setting only selects the features that it is built with:
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use anyqueue::{MessageData, Queue};
//!
//! let url = std::env::var("QUEUE_URL").unwrap_or_else(|_| "memory:".to_owned());
//! let queue = Queue::new(anyqueue_backends::open(&url).await?)?;
//! queue.init().await?;
//! queue.push("thumbnails", MessageData::new("cat.png")).await?;
//! # Ok::<(), anyqueue::Error>(()) }).unwrap();
//! ```
//!
//! An application that only ever uses one backend needs only the crate of that backend.

use std::sync::Arc;

use anyqueue::adapter::{Backend, Storage};
use anyqueue::{Registry, Result};

/// Returns the backends that this build has. A program adds its own with one call to
/// [`with`](Registry::with).
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "memory")]
    let registry = registry.with(anyqueue_memory::backend());
    #[cfg(feature = "sqlite")]
    let registry = registry.with(anyqueue_sqlite::backend());
    #[cfg(feature = "postgres")]
    let registry = registry.with(anyqueue_postgres::backend());
    #[cfg(feature = "redis")]
    let registry = registry.with(anyqueue_redis::backend());
    #[cfg(feature = "rabbitmq")]
    let registry = registry.with(anyqueue_rabbitmq::backend());
    #[cfg(feature = "sqs")]
    let registry = registry.with(anyqueue_sqs::backend());
    registry
}

/// Opens the storage that the URL names, without [initialising](anyqueue::adapter::QueueStorage::init) it.
///
/// # Errors
/// As [`Registry::open`]: the error for an unknown scheme lists the schemes that this build has.
///
/// # Cancellation
/// Dropping the future leaves nothing open.
pub async fn open(url: &str) -> Result<Arc<dyn Storage>> {
    registry().open(url).await
}

/// Returns the backend for the scheme of this URL, if this build has it.
#[must_use]
pub fn backend(url: &str) -> Option<Backend> {
    let scheme = url.split_once(':')?.0.to_ascii_lowercase();
    registry().backends().iter().find(|backend| backend.schemes.contains(&scheme.as_str())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_brings_its_backend() {
        let mut wanted = Vec::new();
        for (has, name) in [
            (cfg!(feature = "sqs"), "sqs"),
            (cfg!(feature = "rabbitmq"), "rabbitmq"),
            (cfg!(feature = "redis"), "redis"),
            (cfg!(feature = "postgres"), "postgres"),
            (cfg!(feature = "sqlite"), "sqlite"),
            (cfg!(feature = "memory"), "memory"),
        ] {
            wanted.extend(has.then_some(name));
        }
        let registry = registry();
        let names: Vec<_> = registry.backends().iter().map(|backend| backend.name).collect();
        assert_eq!(names, wanted);
    }

    #[test]
    fn the_scheme_names_the_backend() {
        let has = cfg!(feature = "memory");
        assert_eq!(backend("MEMORY:").map(|backend| backend.name), has.then_some("memory"));
        for none in ["carrier-pigeon://roof", "memory", ""] {
            assert!(backend(none).is_none(), "{none}");
        }
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_what_there_is() {
        let error = open("carrier-pigeon://roof").await.unwrap_err().to_string();
        assert!(error.contains("unknown scheme"), "{error}");
        assert_eq!(error.contains("memory:"), cfg!(feature = "memory"), "{error}");
    }
}
