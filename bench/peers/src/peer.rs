//! What a library must do to be measured.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use anyqueue_testkit::{Postgres, RabbitMq, Redis, Server};
use tokio::sync::mpsc;

/// Any failure, of a library or of a check.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T> = std::result::Result<T, BoxError>;
pub(crate) type Job<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A library on one backend, configured in one way.
pub(crate) struct Peer {
    pub(crate) product: &'static str,
    pub(crate) backend: Backend,
    /// In a word or two.
    pub(crate) settings: &'static str,
    /// In a sentence.
    pub(crate) configured: &'static str,
    /// What it keeps when something dies, in a sentence.
    pub(crate) guarantee: &'static str,
    /// Messages of one round that are pushed one at a time, and in batches.
    pub(crate) sizes: (usize, usize),
    /// Messages of one round of `latency`.
    pub(crate) pings: usize,
    pub(crate) open: fn(Place) -> Job<'static, Opened>,
}

impl Peer {
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.product, self.backend.name(), self.settings)
    }
}

/// Both ends of a new queue.
pub(crate) struct Opened {
    pub(crate) producer: Box<dyn Producer>,
    pub(crate) consumer: Consumer,
}

/// Pushes.
pub(crate) trait Producer: Send {
    /// One message, answered as the library returns it.
    fn push(&mut self, payload: String) -> Job<'_, ()>;
    /// Several, by the library's own call for that.
    fn push_batch(&mut self, payloads: Vec<String>) -> Job<'_, ()>;
}

/// Consumes until it is dropped, and tells each message that it handled.
pub(crate) type Consumer = Box<dyn FnOnce(Handled) -> Job<'static, ()> + Send>;

/// Where handlers tell that they began.
#[derive(Clone, Debug)]
pub(crate) struct Handled(mpsc::Sender<(String, Instant)>);

impl Handled {
    /// More would only wait for the one who counts.
    const AHEAD: usize = 1 << 16;

    pub(crate) fn new() -> (Self, mpsc::Receiver<(String, Instant)>) {
        let (sender, receiver) = mpsc::channel(Self::AHEAD);
        (Self(sender), receiver)
    }

    /// Nobody listens any more once a round is over.
    pub(crate) async fn told(&self, payload: String, begun: Instant) {
        let _ = self.0.send((payload, begun)).await;
    }
}

/// What is below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite,
    Postgres,
    Redis,
    RabbitMq,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::RabbitMq => "rabbitmq",
        }
    }

    /// A private server with the settings of anyqueue's own bench.
    pub(crate) async fn server(self) -> Result<Option<Server>> {
        Ok(match self {
            Self::Memory | Self::Sqlite => None,
            Self::Postgres => {
                let server = Postgres::new().setting("shared_buffers", "1GB").setting("max_wal_size", "8GB");
                Some(Server::start(server).await?)
            }
            Self::Redis => Some(Server::start(Redis::new()).await?),
            Self::RabbitMq => Some(Server::start(RabbitMq::new()).await?),
        })
    }
}

/// Where a queue of its own is to be.
#[derive(Clone)]
pub(crate) struct Place {
    /// Of the server, or of a folder.
    pub(crate) url: String,
    /// Nobody else's name.
    pub(crate) queue: String,
}
