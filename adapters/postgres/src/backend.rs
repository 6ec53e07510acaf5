//! Opening a queue by URL.

use std::sync::Arc;

use anyqueue::Operation;
use anyqueue::adapter::{Backend, Namespace, Storage};

use crate::config::{OPTIONS, PostgresBuilder, SCHEMES};
use crate::error::NAME;

/// This backend for an [`anyqueue::Registry`]: `postgres://user@host/database?schema=jobs`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: SCHEMES,
        options: OPTIONS,
        namespace: Namespace::Option("schema"),
        open: |url| {
            Box::pin(async move {
                let builder = PostgresBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
