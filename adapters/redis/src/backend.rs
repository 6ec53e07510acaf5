//! Opening a queue by URL.

use std::sync::Arc;

use anyqueue::Operation;
use anyqueue::adapter::{Backend, Namespace, Storage};

use crate::config::RedisBuilder;
use crate::error::NAME;
use crate::url::{OPTIONS, SCHEMES};

/// This backend for an [`anyqueue::Registry`]: `redis://user@host/0?prefix=jobs`, or `rediss://` with TLS,
/// both also with `-cluster` or `-sentinel`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: SCHEMES,
        options: OPTIONS,
        namespace: Namespace::Option("prefix"),
        open: |url| {
            Box::pin(async move {
                let builder = RedisBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
