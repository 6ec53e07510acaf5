//! Work queues over HTTP: a program in any language can push, pull and settle tasks on any of anyqueue's
//! backends, and people can inspect and manage the queues.
//!
//! The service keeps no state that matters. The deliveries that it hands out are *sealed*: each contains,
//! signed, everything that is needed to settle it, so that any instance over the same backend can do so, even
//! one that was started later. Only where the backend's leases cannot be handed on (RabbitMQ, SQS) do deliveries
//! stay with the instance that handed them out.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use anyqueue::{CancellationToken, Queue};
//! use anyqueue_server::Server;
//!
//! let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
//! let server = Server::builder(queue).build().await?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7780").await?;
//! server.serve(listener, CancellationToken::new()).await?;
//! # Ok(()) }
//! ```
//!
//! For the endpoints, and the format of each request and response, see [`openapi`], and `docs/http.md` in the
//! repository.

mod access;
mod admission;
mod api;
mod app;
mod arriving;
mod body;
mod builder;
mod bulk;
mod checked;
mod connections;
mod ended;
mod error;
mod etag;
mod fate;
mod filter;
mod first_bytes;
mod followed;
mod guard;
mod handed;
mod held;
mod history;
mod janitor;
mod keys;
mod manage;
mod measure;
mod noted;
mod overdue;
mod pages;
mod peer;
mod pins;
mod places;
mod problem;
mod pull_coalescer;
mod queues;
mod reasons;
mod sampler;
mod seal;
mod sessions;
mod shown;
mod span;
mod stall;
mod table;
mod timely;
mod tls;
mod trace;
mod trail;
mod wire;

pub use builder::{Server, ServerBuilder};
pub use error::ServerError;
pub use tls::{ClientCertificates, Tls, fingerprint_of};

/// Returns the `OpenAPI` 3.1 description of the service as JSON, as it is served at `/openapi.json`.
#[must_use]
pub fn openapi() -> String {
    api::description()
}
