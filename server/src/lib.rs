//! Work queues over HTTP: any language pushes, pulls and settles, on any backend of anyqueue; people look inside and manage.
//!
//! The service remembers nothing that matters. What it hands out is *sealed*: the delivery that a worker gets holds, signed, all that is needed to settle it,
//! so that any instance over the same backend can, also one that was started since. Only where the backend's leases belong to connections (RabbitMQ) deliveries
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
//! What is where, and what each request and answer looks like: [`openapi`], and `docs/http.md` of the repository.

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
mod desk;
mod ended;
mod error;
mod etag;
mod fate;
mod filter;
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
mod trail;
mod wire;

pub use builder::{Server, ServerBuilder};
pub use error::ServerError;
pub use tls::{ClientCertificates, Tls, fingerprint_of};

/// The description of the service in `OpenAPI` 3.1, as JSON; `/openapi.json` serves the same.
#[must_use]
pub fn openapi() -> String {
    api::description()
}
