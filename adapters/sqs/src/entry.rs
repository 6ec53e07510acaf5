//! How ten entries of a kind are asked for in one request.

use std::future::Future;

use crate::entries::{ChangeVisibility, Delete, Entries, Outgoing};
use crate::server::Server;

/// Something that requests carry ten of.
pub(crate) trait Entry: Send + Sync + Sized {
    /// Whether a queue that is not there is made for it.
    const CREATES: bool = false;

    /// What counts against the size of a request.
    fn bytes(&self) -> u64 {
        0
    }

    /// Entries of one group keep their order, also if they are in different requests.
    fn group(&self) -> Option<&str> {
        None
    }

    /// One request.
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
        // Boxed, for the types of what it awaits are nested deeply.
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
