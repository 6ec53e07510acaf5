//! Backends to prove on: each proof gets a queue of its own there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{Beside, Keep, PartitionOptions, Queue};
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
    /// A ledger beside the queue.
    LedgerBeside,
    /// A ledger, inside or beside, and servers of its own that are killed.
    LedgerOnServers,
}

impl Needs {
    const fn own_servers(self) -> bool {
        matches!(self, Self::Server | Self::LedgerOnServers)
    }
}

/// The backends that have it. Where there are two, the second keeps the ledger.
pub(crate) fn names(needs: Needs) -> Vec<&'static str> {
    match needs {
        Needs::Nothing => vec!["memory", "sqlite", "postgres", "redis", "rabbitmq", "sqs"],
        Needs::Ids => vec!["memory", "sqlite", "postgres", "redis"],
        Needs::Processes => vec!["sqlite", "postgres", "redis", "rabbitmq", "sqs"],
        Needs::Server => vec!["postgres", "redis", "rabbitmq", "sqs"],
        Needs::LedgerBeside => vec!["rabbitmq+sqlite", "rabbitmq+postgres", "rabbitmq+redis"],
        Needs::LedgerOnServers => vec!["postgres", "redis", "rabbitmq+postgres"],
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

/// Where a queue or a ledger of one proof is.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) target: Option<FaultTarget>,
}

impl Place {
    /// `None` where the server is not installed, which was said.
    async fn prepare(name: &str, needs: Needs, folder: &Path) -> Option<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let space = format!("worker_{}_{number}", std::process::id());
        let in_schema = |url: &str| format!("{url}?schema={space}");
        let prefixed = |url: &str| format!("{url}?prefix={space}");
        // One level: the emulator is one thread of Python, and each level is a queue of its own.
        let behind =
            |endpoint: &str| format!("sqs://test:test@us-east-1/{space}?endpoint={endpoint}&levels=1");
        let mut target = None;
        let url = match (name, needs.own_servers()) {
            ("memory", _) => "memory:".to_owned(),
            ("sqlite", _) => format!("sqlite:{}", folder.join("queue.db").display()),
            ("postgres", true) => in_schema(&FaultTarget::start(&mut target, Postgres::new()).await?),
            ("redis", true) => {
                let program = Redis::new().setting("appendfsync", "always");
                prefixed(&FaultTarget::start(&mut target, program).await?)
            }
            ("rabbitmq", true) => prefixed(&FaultTarget::start(&mut target, RabbitMq::new()).await?),
            ("sqs", true) => behind(&FaultTarget::start(&mut target, Ministack::new().persistent()).await?),
            ("postgres", false) => {
                in_schema(POSTGRES.get_or_try_init(|| provide(Postgres::new())).await.unwrap().url()?)
            }
            ("redis", false) => {
                prefixed(REDIS.get_or_try_init(|| provide(Redis::new())).await.unwrap().url()?)
            }
            ("rabbitmq", false) => {
                let url =
                    prefixed(RABBITMQ.get_or_try_init(|| provide(RabbitMq::new())).await.unwrap().url()?);
                format!("{url}&queue_age=0s") // this server is not killed
            }
            ("sqs", false) => behind(SQS.get_or_try_init(|| provide(Ministack::new())).await.unwrap().url()?),
            (other, _) => panic!("there is no ground {other:?}"),
        };
        Some(Self { url, target })
    }
}

/// A place for one proof.
pub(crate) struct Ground {
    pub(crate) backend: String,
    pub(crate) url: String,
    pub(crate) target: Option<FaultTarget>,
    /// Where a ledger is kept beside the queue.
    pub(crate) ledger: Option<Place>,
    _folder: TempDir,
}

impl Ground {
    /// `None` where a server is not installed, which was said.
    pub(crate) async fn prepare(name: &str, needs: Needs) -> Option<Self> {
        let folder = TempDir::with_prefix("anyqueue-worker-").unwrap();
        let (queue, ledger) = name.split_once('+').map_or((name, None), |(queue, at)| (queue, Some(at)));
        let Place { url, target } = Place::prepare(queue, needs, folder.path()).await?;
        let ledger = match ledger {
            Some(ledger) => Some(Place::prepare(ledger, needs, folder.path()).await?),
            None => None,
        };
        Some(Self { backend: name.to_owned(), url, target, ledger, _folder: folder })
    }

    /// A handle of its own on the queue; on memory, a queue of its own.
    pub(crate) async fn open(&self) -> Queue {
        open(&self.url).await
    }

    /// Where the ledger is, if that is not in the queue.
    pub(crate) fn ledger_url(&self) -> Option<&str> {
        self.ledger.as_ref().map(|ledger| &*ledger.url)
    }

    /// A handle of its own on the queue, with its ledger.
    pub(crate) async fn open_with_ledger(&self) -> Queue {
        let storage = anyqueue_backends::open(&self.url).await.unwrap();
        let ledger = match self.ledger_url() {
            Some(url) => Some(anyqueue_backends::open(url).await.unwrap()),
            None => None,
        };
        with_ledger(storage, ledger).await
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

/// A queue that keeps each end forever: in another storage, or inside. Nothing dies of being delivered often.
pub(crate) async fn with_ledger(storage: Arc<dyn Storage>, ledger: Option<Arc<dyn Storage>>) -> Queue {
    let storage: Arc<dyn Storage> = match ledger {
        Some(ledger) => Arc::new(Beside::new(storage, ledger).unwrap()),
        None => storage,
    };
    let builder = Queue::builder(storage).ledger(Keep::all(None));
    let queue = builder.defaults(options().with_max_deliveries(None)).build().unwrap();
    queue.init().await.unwrap();
    queue
}
