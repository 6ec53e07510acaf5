//! Options of a queue on a server, typed and as URL parameters.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Backend, Operation, Result, Storage, StorageUrl, UrlOption};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::RedisQueue;
use crate::error::{NAME, invalid};

const MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_TIMEOUT: Duration = Duration::from_hours(1);
const MAX_PREFIX_BYTES: usize = 64;

/// Everything that can be set when a queue is opened.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) connect: ConnectionInfo,
    pub(crate) prefix: String,
    pub(crate) poll_interval: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) message_bytes: u64,
}

/// Options of a queue on a server. Made by [`new`](Self::new) or [`RedisQueue::from_url`].
#[derive(Clone)]
#[must_use = "call open()"]
pub struct RedisBuilder(Config);

impl RedisBuilder {
    /// Options for connecting to the server that `connect` describes, user and password included.
    pub fn new(connect: ConnectionInfo) -> Self {
        // Calls are sent without waiting for the answers of earlier ones: small packets must not wait either.
        let tcp = TcpSettings::default().set_nodelay(true);
        Self(Config {
            connect: connect.set_tcp_settings(tcp),
            prefix: "anyqueue".to_owned(),
            poll_interval: Duration::from_millis(900),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            message_bytes: 16 * 1024 * 1024,
        })
    }

    /// What all keys and channels begin with: 1 to 64 of `A-Z a-z 0-9 . _ : -`. Queues with different prefixes know nothing of
    /// each other. Default: `anyqueue`. URL: `prefix=anyqueue`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.0.prefix = prefix.into();
        self
    }

    /// How often waiting pulls look without being told, about, in case a hint got lost. Nothing polls while nobody waits. From
    /// 1 ms to 60 s. Default: 900 ms. URL: `poll_interval=900ms`.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.0.poll_interval = interval;
        self
    }

    /// How long making a connection may take, at most an hour. Default: 5 s. URL: `connect_timeout=5s`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.0.connect_timeout = timeout;
        self
    }

    /// How long the server may take to answer one call, at most an hour. Default: 10 s. URL: `call_timeout=10s`.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.0.call_timeout = timeout;
        self
    }

    /// The largest message in its encoded form, in bytes, at most 64 MiB. Default: 16 MiB. URL: `message_bytes=16777216`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.0.message_bytes = bytes;
        self
    }

    /// Connects, and checks the server's settings and the user's rights. Must be called within a tokio runtime with time and I/O
    /// enabled, whose end ends the handle.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of bounds or a database that is not there, `Unavailable` if the server cannot be
    /// reached or is a replica, `AccessDenied` for a wrong password or missing rights, which are named, `Incompatible`
    /// for a server that is too old, that evicts keys, or that belongs to a Redis Cluster.
    pub async fn open(self) -> Result<RedisQueue> {
        let config = self.checked().map_err(|error| error.with_operation(Operation::Open))?;
        RedisQueue::from_config(config).await
    }

    fn checked(self) -> Result<Config> {
        let config = self.0;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        let prefix = &config.prefix;
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.chars().all(allowed) {
            return Err(invalid("prefix is 1 to 64 of A-Z a-z 0-9 . _ : -"));
        }
        if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&config.poll_interval) {
            return Err(invalid("poll_interval is from 1ms to 60s"));
        }
        let timeouts = Duration::from_millis(1)..=MAX_TIMEOUT;
        if !timeouts.contains(&config.connect_timeout) || !timeouts.contains(&config.call_timeout) {
            return Err(invalid("connect_timeout and call_timeout are from 1ms to 1h"));
        }
        if !(1024..=MAX_MESSAGE_BYTES).contains(&config.message_bytes) {
            return Err(invalid("message_bytes is from 1024 to 67108864"));
        }
        Ok(config)
    }

    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        let mut plain = url.url().clone();
        plain.set_query(None); // our own options are not the client's
        // The error of the client is left out: it may quote parts of the URL.
        let connect = plain.as_str().into_connection_info();
        let connect = connect.map_err(|_| {
            invalid("this is no usable redis URL: write redis://user:password@host:6379/0, where 0 is the database")
        })?;
        let mut config = Self::new(connect).0;
        config.prefix = url.option("prefix")?.unwrap_or(config.prefix);
        config.poll_interval = url.duration("poll_interval")?.unwrap_or(config.poll_interval);
        config.connect_timeout = url.duration("connect_timeout")?.unwrap_or(config.connect_timeout);
        config.call_timeout = url.duration("call_timeout")?.unwrap_or(config.call_timeout);
        config.message_bytes = url.option("message_bytes")?.unwrap_or(config.message_bytes);
        Ok(Self(config))
    }
}

impl Config {
    /// The server and database, for messages.
    pub(crate) fn target(&self) -> String {
        format!("redis at {}, database {}", self.connect.addr(), self.connect.redis_settings().db())
    }
}

/// Without the password.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("target", &self.target())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Without the password.
impl std::fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

const fn option(name: &'static str, default: &'static str, help: &'static str) -> UrlOption {
    UrlOption { name, default, help }
}

const OPTIONS: &[UrlOption] = &[
    option("prefix", "anyqueue", "what all keys begin with, 1 to 64 of A-Z a-z 0-9 . _ : -"),
    option("poll_interval", "900ms", "how often waiting pulls look by themselves, 1ms to 60s"),
    option("connect_timeout", "5s", "how long making a connection may take"),
    option("call_timeout", "10s", "how long the server may take to answer one call"),
    option("message_bytes", "16777216", "largest encoded message in bytes"),
];

/// This backend for an [`anyqueue::Registry`]: `redis://user@host/0?prefix=jobs`.
pub fn backend() -> Backend {
    Backend {
        name: NAME,
        schemes: &["redis"],
        options: OPTIONS,
        open: |url| {
            Box::pin(async move {
                let builder = RedisBuilder::from_url(&url)
                    .map_err(|error| error.with_backend(NAME).with_operation(Operation::Open))?;
                Ok(Arc::new(builder.open().await?) as Arc<dyn Storage>)
            })
        },
    }
}
