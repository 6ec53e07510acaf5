//! How up to ten entries of a kind are sent in one request.

use std::future::Future;

use crate::entries::{ChangeVisibility, Delete, Entries, Outgoing};
use crate::server::Server;

/// An entry of a batch request.
pub(crate) trait Entry: Send + Sync + Sized {
    /// Whether a missing queue is created for the entry.
    const CREATES: bool = false;

    /// The part of the request's size that the entry takes.
    fn bytes(&self) -> u64 {
        0
    }

    /// The group, if there is one. Entries of the same group keep their order, even in different requests.
    fn group(&self) -> Option<&str> {
        None
    }

    /// Sends one request.
    fn request(server: &Server, url: &str, entries: &[Self]) -> impl Future<Output = Entries> + Send;
}

impl Entry for Outgoing {
    const CREATES: bool = true;

    fn bytes(&self) -> u64 {
        self.body.len() as u64
    }

    fn group(&self) -> Option<&str> {
        self.fifo_ids.as_ref().map(|fifo_ids| fifo_ids.group.as_str())
    }

    async fn request(server: &Server, url: &str, entries: &[Self]) -> Entries {
        // Boxed, because the types of the futures are deeply nested.
        Box::pin(server.send(url, entries)).await
    }
}

impl Entry for ChangeVisibility {
    async fn request(server: &Server, url: &str, entries: &[Self]) -> Entries {
        server.change_visibility(url, entries).await
    }
}

impl Entry for Delete {
    async fn request(server: &Server, url: &str, entries: &[Self]) -> Entries {
        server.delete(url, entries).await
    }
}
