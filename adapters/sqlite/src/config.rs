//! Options of a queue file, in code and as URL parameters.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{StorageUrl, UrlOption};
use anyqueue::{Clock, Error, Result};

use crate::error::ERRORS;
use crate::identity::Identity;
use crate::steps::Steady;

/// The largest encoded message in bytes, by default.
pub(crate) const MESSAGE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_MESSAGE_BYTES: u64 = 32 * 1024 * 1024; // a claim packs sixteen into one row, of at most 10^9 bytes
const MAX_BUSY_TIMEOUT: Duration = Duration::from_hours(1);

/// When SQLite waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Before each commit is acknowledged: acknowledged work survives power loss.
    #[default]
    Full,
    /// At checkpoints only: acknowledged work survives the crash of any process, but a power failure can lose
    /// the last commits. Several times faster for single pushes.
    Normal,
}

impl FromStr for Synchronous {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "full" => Ok(Self::Full),
            "normal" => Ok(Self::Normal),
            _ => Err(ERRORS.invalid("synchronous is full or normal")),
        }
    }
}

/// Everything that can be set when a queue file is opened.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) path: PathBuf,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) create: bool,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) message_bytes: u64,
    pub(crate) clock: Clock,
    /// The clock by which steps of the host's clock are detected; `None` with any other clock.
    pub(crate) steady: Option<Steady>,
    /// The file that was opened, shared by all connections of a handle.
    pub(crate) identity: Arc<Identity>,
}

/// Options of a queue file. Made by [`SqliteQueue::builder`](crate::SqliteQueue::builder).
#[derive(Clone, Debug)]
#[must_use = "call open()"]
pub struct SqliteBuilder(pub(crate) Config);

impl SqliteBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(Config {
            path: path.to_owned(),
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            poll_interval: Duration::from_millis(8),
            create: true,
            max_bytes: None,
            message_bytes: MESSAGE_BYTES,
            clock: Clock::system(),
            steady: Steady::of_host(),
            identity: Arc::default(),
        })
    }

    /// When SQLite waits for the disk. Default: [`Synchronous::Full`]. URL: `synchronous=full|normal`.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.0.synchronous = synchronous;
        self
    }

    /// How long a request waits for the write lock while another process (or the application's own
    /// transaction) holds it, before it fails with `Unavailable`. At most an hour. Default: 5 s. URL:
    /// `busy_timeout=5s`.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.0.busy_timeout = timeout;
        self
    }

    /// How often a waiting pull looks for what other processes committed. What this handle does wakes it at
    /// once. Polling stops while no pull waits, and is half as frequent when nothing has been committed for a
    /// while. From 1 ms to 1 s. Default: 8 ms. URL: `poll_interval=8ms`.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.0.poll_interval = interval;
        self
    }

    /// Whether to create the file and the queue's tables if they are missing. If not, both must exist.
    /// Default: true. URL: `create=true|false`.
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }

    /// The largest size of the database file in bytes, without its write-ahead log. Pushes beyond it return
    /// `Full`. It is rounded down to whole pages, and never lower than the current size of the file. It
    /// applies to this handle, but not to `SqliteQueue::push_in`. Default: none. URL: `max_bytes=1000000000`.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.0.max_bytes = Some(bytes);
        self
    }

    /// The largest encoded message in bytes, at most 32 MiB. Default: 16 MiB. URL: `message_bytes=16777216`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.0.message_bytes = bytes;
        self
    }

    /// The clock for leases and delays. Default: the host's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.0.clock = clock;
        self.0.steady = None;
        self
    }

    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        let mut config = Self::new(Path::new(url.path())).0;
        config.synchronous = url.option("synchronous")?.unwrap_or(config.synchronous);
        config.busy_timeout = url.duration("busy_timeout")?.unwrap_or(config.busy_timeout);
        config.poll_interval = url.duration("poll_interval")?.unwrap_or(config.poll_interval);
        config.create = url.option("create")?.unwrap_or(config.create);
        config.max_bytes = url.option("max_bytes")?;
        config.message_bytes = url.option("message_bytes")?.unwrap_or(config.message_bytes);
        if url.url().has_host() {
            return Err(
                ERRORS.invalid("a sqlite URL names no host: write sqlite:jobs.db or sqlite:///srv/jobs.db")
            );
        }
        if url.url().fragment().is_some() {
            return Err(ERRORS.invalid("in a sqlite URL a # ends the file's name: write it as %23"));
        }
        Ok(Self(config))
    }
}

impl Config {
    pub(crate) fn checked(mut self) -> Result<Self> {
        if self.path.as_os_str().is_empty() || self.path == Path::new(":memory:") {
            return Err(ERRORS
                .invalid("name a file, for example jobs.db (for a queue in memory use anyqueue-memory)"));
        }
        if is_url(&self.path) {
            return Err(ERRORS.invalid(
                "that is a URL, and here goes the path of a file: leave out the scheme, or open it by Registry (a file of such a name: \
                 begin it with ./)",
            ));
        }
        let interval = Duration::from_millis(1)..=Duration::from_secs(1);
        if !interval.contains(&self.poll_interval) {
            return Err(ERRORS.invalid("poll_interval is from 1ms to 1s"));
        }
        if self.busy_timeout > MAX_BUSY_TIMEOUT {
            return Err(ERRORS.invalid("busy_timeout is at most 1h"));
        }
        if !(1024..=MAX_MESSAGE_BYTES).contains(&self.message_bytes) {
            return Err(ERRORS.invalid("message_bytes is from 1024 to 33554432"));
        }
        if self.max_bytes.is_some_and(|bytes| bytes < 256 * 1024) {
            return Err(ERRORS.invalid("max_bytes is at least 262144: an empty queue needs some room too"));
        }
        // Absolute, so that SQLite does not take a name like file:x for a URI.
        self.path = std::path::absolute(&self.path)
            .map_err(|e| ERRORS.invalid("the path is unusable").with_source(e))?;
        self.identity = Arc::default(); // each handle's own, of one builder too
        Ok(self)
    }
}

/// Whether the path looks like a URL. No file with such a name should be created by mistake.
fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| {
        text.starts_with("sqlite:")
            || text
                .split_once("://")
                .is_some_and(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    })
}

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[
    UrlOption::new(
        "synchronous",
        "full",
        "full: acknowledged work survives power loss; normal: only process crashes",
    ),
    UrlOption::new("busy_timeout", "5s", "how long to wait for another process's write lock"),
    UrlOption::new(
        "poll_interval",
        "8ms",
        "how often a waiting pull looks for other processes' work, 1ms to 1s",
    ),
    UrlOption::new("create", "true", "whether to create the file and its tables where missing"),
    UrlOption::new(
        "max_bytes",
        "none",
        "largest size of the database file in bytes; beyond it pushes return Full",
    ),
    UrlOption::new("message_bytes", "16777216", "largest encoded message in bytes"),
];
