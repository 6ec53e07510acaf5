//! Backends to prove on: each proof gets a queue of its own there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::{PartitionOptions, Queue, Registry};
use anyqueue_testkit::{Postgres, Provided, Server, provide, start_if_installed};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The lease of every queue of the proofs.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The partition of most proofs.
pub(crate) const PARTITION: &str = "proof";

/// What a proof needs of a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Several processes see the same messages.
    Processes,
    /// A server of its own, to be killed.
    Server,
}

/// The backends that have it.
pub(crate) fn names(needs: Needs) -> Vec<&'static str> {
    match needs {
        Needs::Nothing => vec!["memory", "sqlite", "postgres"],
        Needs::Processes => vec!["sqlite", "postgres"],
        Needs::Server => vec!["postgres"],
    }
}

static POSTGRES: OnceCell<Provided> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A place for one proof.
pub(crate) struct Ground {
    pub(crate) url: String,
    pub(crate) server: Option<Arc<Server>>,
    _folder: TempDir,
}

impl Ground {
    /// `None` where the server is not installed, which was said.
    pub(crate) async fn prepare(name: &str, needs: Needs) -> Option<Self> {
        let folder = TempDir::with_prefix("anyqueue-worker-").unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let in_schema = |url: &str| format!("{url}?schema=worker_{}_{number}", std::process::id());
        let mut server = None;
        let url = match name {
            "memory" => "memory:".to_owned(),
            "sqlite" => format!("sqlite:{}", folder.path().join("queue.db").display()),
            "postgres" if needs == Needs::Server => {
                let own = Arc::new(start_if_installed(Postgres::new()).await.unwrap()?);
                in_schema(server.insert(own).url())
            }
            "postgres" => {
                in_schema(POSTGRES.get_or_try_init(|| provide(Postgres::new())).await.unwrap().url()?)
            }
            other => panic!("there is no ground {other:?}"),
        };
        Some(Self { url, server, _folder: folder })
    }

    /// A handle of its own on the queue; on memory, a queue of its own.
    pub(crate) async fn open(&self) -> Queue {
        open(&self.url).await
    }
}

pub(crate) fn registry() -> Registry {
    let registry = Registry::new().with(anyqueue_memory::backend());
    registry.with(anyqueue_sqlite::backend()).with(anyqueue_postgres::backend())
}

pub(crate) fn options() -> PartitionOptions {
    PartitionOptions::default().with_lease(LEASE)
}

pub(crate) async fn open(url: &str) -> Queue {
    let storage = registry().open(url).await.unwrap();
    let queue = Queue::builder(storage).defaults(options()).build().unwrap();
    queue.init().await.unwrap();
    queue
}
