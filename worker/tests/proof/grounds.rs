//! Backends to prove on: each proof gets a queue of its own there.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::{PartitionOptions, Queue};
use anyqueue_testkit::{
    Ministack, Postgres, Program, Provided, Proxy, RabbitMq, Redis, Result, Server, provide,
    start_if_installed,
};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// The lease of every queue of the proofs. Renewed each third of it, it has to outlast what else a busy machine does first.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The partition of most proofs.
pub(crate) const PARTITION: &str = "proof";

/// Kills, one a second; more if the variable is set.
const KILLS: u32 = 5;
const KILLS_VARIABLE: &str = "ANYQUEUE_WORKER_KILLS";

/// How many processes a proof kills.
pub(crate) fn kills() -> u32 {
    std::env::var(KILLS_VARIABLE).ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

/// What a proof needs of a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// Messages can be found by their ids.
    Ids,
    /// Several processes see the same messages.
    Processes,
    /// A server of its own, to be killed, behind a proxy that can cut connections.
    Server,
}

/// The backends that have it.
pub(crate) fn names(needs: Needs) -> Vec<&'static str> {
    match needs {
        Needs::Nothing => vec!["memory", "sqlite", "postgres", "redis", "rabbitmq", "sqs"],
        Needs::Ids => vec!["memory", "sqlite", "postgres", "redis"],
        Needs::Processes => vec!["sqlite", "postgres", "redis", "rabbitmq", "sqs"],
        Needs::Server => vec!["postgres", "redis", "rabbitmq", "sqs"],
    }
}

static POSTGRES: OnceCell<Provided> = OnceCell::const_new();
static REDIS: OnceCell<Provided> = OnceCell::const_new();
static RABBITMQ: OnceCell<Provided> = OnceCell::const_new();
static SQS: OnceCell<Provided> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A server that a proof may kill, and what it is reached through.
pub(crate) struct FaultTarget {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    /// Whether it keeps over a kill what it acknowledged.
    durable: bool,
}

impl FaultTarget {
    /// Ends the server without warning; or, where it could keep nothing then, in order.
    pub(crate) async fn end(&self) -> Result<()> {
        if self.durable { self.server.kill().await } else { self.server.stop().await }
    }

    /// The URL that goes through the proxy.
    async fn start(place: &mut Option<Self>, program: impl Program) -> Option<String> {
        let server = start_if_installed(program).await.unwrap()?;
        let proxy = Proxy::start(server.addr()).unwrap();
        let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
        let durable = server.url().split(':').next() != Some("http"); // the emulator of SQS
        *place = Some(Self { server, proxy, durable });
        Some(url)
    }
}

/// A place for one proof.
pub(crate) struct Ground {
    pub(crate) backend: String,
    pub(crate) url: String,
    pub(crate) target: Option<FaultTarget>,
    _folder: TempDir,
}

impl Ground {
    /// `None` where the server is not installed, which was said.
    pub(crate) async fn prepare(name: &str, needs: Needs) -> Option<Self> {
        let folder = TempDir::with_prefix("anyqueue-worker-").unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let space = format!("worker_{}_{number}", std::process::id());
        let in_schema = |url: &str| format!("{url}?schema={space}");
        let prefixed = |url: &str| format!("{url}?prefix={space}");
        // One level: the emulator is one thread of Python, and each level is a queue of its own.
        let behind =
            |endpoint: &str| format!("sqs://test:test@us-east-1/{space}?endpoint={endpoint}&levels=1");
        let mut target = None;
        let url = match (name, needs) {
            ("memory", _) => "memory:".to_owned(),
            ("sqlite", _) => format!("sqlite:{}", folder.path().join("queue.db").display()),
            ("postgres", Needs::Server) => {
                in_schema(&FaultTarget::start(&mut target, Postgres::new()).await?)
            }
            ("redis", Needs::Server) => {
                let program = Redis::new().setting("appendfsync", "always");
                prefixed(&FaultTarget::start(&mut target, program).await?)
            }
            ("rabbitmq", Needs::Server) => prefixed(&FaultTarget::start(&mut target, RabbitMq::new()).await?),
            ("sqs", Needs::Server) => {
                behind(&FaultTarget::start(&mut target, Ministack::new().persistent()).await?)
            }
            ("postgres", _) => {
                in_schema(POSTGRES.get_or_try_init(|| provide(Postgres::new())).await.unwrap().url()?)
            }
            ("redis", _) => prefixed(REDIS.get_or_try_init(|| provide(Redis::new())).await.unwrap().url()?),
            ("rabbitmq", _) => {
                let url =
                    prefixed(RABBITMQ.get_or_try_init(|| provide(RabbitMq::new())).await.unwrap().url()?);
                format!("{url}&queue_age=0s") // this server is not killed
            }
            ("sqs", _) => behind(SQS.get_or_try_init(|| provide(Ministack::new())).await.unwrap().url()?),
            (other, _) => panic!("there is no ground {other:?}"),
        };
        Some(Self { backend: name.to_owned(), url, target, _folder: folder })
    }

    /// A handle of its own on the queue; on memory, a queue of its own.
    pub(crate) async fn open(&self) -> Queue {
        open(&self.url).await
    }
}

pub(crate) fn options() -> PartitionOptions {
    PartitionOptions::default().with_lease(LEASE)
}

pub(crate) async fn open(url: &str) -> Queue {
    let storage = anyqueue_backends::open(url).await.unwrap();
    let queue = Queue::builder(storage).defaults(options()).build().unwrap();
    queue.init().await.unwrap();
    queue
}
