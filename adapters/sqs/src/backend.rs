//! Opening queues by URL.

use std::sync::Arc;

use anyqueue::Operation;
use anyqueue::adapter::{Backend, Namespace, Storage};

use crate::config::{OPTIONS, SCHEMES, SqsBuilder};
use crate::error::NAME;

/// This backend for an [`anyqueue::Registry`]: `sqs://eu-central-1/jobs?levels=3`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: SCHEMES,
        options: OPTIONS,
        namespace: Namespace::Path,
        open: |url| {
            Box::pin(async move {
                let builder = SqsBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
