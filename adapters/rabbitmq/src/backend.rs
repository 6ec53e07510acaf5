//! Opening a queue by URL.

use std::sync::Arc;

use anyqueue::Operation;
use anyqueue::adapter::{Backend, Namespace, Storage};

use crate::config::RabbitMqBuilder;
use crate::error::NAME;
use crate::url::OPTIONS;

/// This backend for an [`anyqueue::Registry`]: `amqp://user@host/vhost?prefix=jobs`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: &["amqp", "amqps"],
        options: OPTIONS,
        namespace: Namespace::Option("prefix"),
        open: |url| {
            Box::pin(async move {
                let builder = RabbitMqBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
