//! Opening a queue file by URL.

use std::sync::Arc;

use anyqueue::Operation;
use anyqueue::adapter::{Backend, Namespace, Storage};

use crate::config::{OPTIONS, SqliteBuilder};
use crate::error::NAME;

/// This backend for an [`anyqueue::Registry`]: `sqlite:jobs.db?synchronous=normal`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: &["sqlite"],
        options: OPTIONS,
        namespace: Namespace::File,
        open: |url| {
            Box::pin(async move {
                let builder = SqliteBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
