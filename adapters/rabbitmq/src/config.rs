//! Options of a queue on a broker.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyqueue::{Clock, Error, Result};
use lapin::uri::{AMQPScheme, AMQPUri};

use crate::error::ERRORS;

const MAX_MESSAGE_BYTES: u64 = 100 * 1024 * 1024;
const MAX_TIMEOUT: Duration = Duration::from_hours(1);
/// The server checks once a minute, and usual leases must fit in.
const MIN_CONSUMER_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_CONSUMER_TIMEOUT: Duration = Duration::from_hours(30 * 24);
const MAX_PREFETCH: u32 = 10_000;
const MAX_QUEUE_AGE: Duration = Duration::from_mins(1);
const MAX_PREFIX_BYTES: usize = 64;
const MAX_NODES: usize = 32;

/// The type of the queues that hold messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// Replicated, and on disk before a push is confirmed. The default.
    Quorum,
    /// On one node, and without delivery counts: a message that kills its consumers is delivered forever.
    Classic,
}

impl FromStr for QueueType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "quorum" => Ok(Self::Quorum),
            "classic" => Ok(Self::Classic),
            _ => Err(ERRORS.invalid("queue_type must be quorum or classic")),
        }
    }
}

/// Everything that can be set when a queue is opened.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) uri: AMQPUri,
    /// Further nodes of the cluster, by host and port.
    pub(crate) nodes: Vec<(String, u16)>,
    pub(crate) prefix: String,
    pub(crate) queue_type: QueueType,
    pub(crate) prefetch: u32,
    pub(crate) queue_age: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) consumer_timeout: Duration,
    pub(crate) message_bytes: u64,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) clock: Clock,
}

/// Options for a queue on a broker. Made by [`RabbitMqQueue::builder`](crate::RabbitMqQueue::builder).
#[derive(Clone)]
#[must_use = "call open()"]
pub struct RabbitMqBuilder(pub(crate) Config);

impl RabbitMqBuilder {
    /// Further nodes of the cluster, by host and port, with the same login and virtual host. The nodes are tried in turn whenever
    /// a connection is made. At most 32. URL: `nodes=host:5672,host:5672`.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = (String, u16)>) -> Self {
        self.0.nodes = nodes.into_iter().collect();
        self
    }

    /// What the names of all queues and exchanges begin with: 1 to 64 of `A-Z a-z 0-9 . _ -`. Storages with different prefixes do
    /// not affect each other. Default: `anyqueue`. URL: `prefix=anyqueue`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.0.prefix = prefix.into();
        self
    }

    /// The type of the queues. All clients with the same prefix must choose the same. Default: quorum. URL: `queue_type=classic`.
    pub fn queue_type(mut self, queue_type: QueueType) -> Self {
        self.0.queue_type = queue_type;
        self
    }

    /// How many messages of each level of a partition may be prefetched for later pulls, for speed. Other
    /// clients cannot get them in the meantime. They are released when no pull has come for a second, or for
    /// longer if that happens often. At most 10 000. Default: 0, which means strict pulls without
    /// prefetching. URL: `prefetch=256`.
    pub fn prefetch(mut self, messages: u32) -> Self {
        self.0.prefetch = messages;
        self
    }

    /// How old a quorum queue must be before a push to it returns, at most a minute. With 0 a push returns as
    /// soon as the server confirms it. If a single node is killed, it loses the messages of queues that are
    /// younger than a second, and a queue of that age that delayed messages pass through can get stuck.
    /// Default: 2 s. URL: `queue_age=2s`.
    pub fn queue_age(mut self, age: Duration) -> Self {
        self.0.queue_age = age;
        self
    }

    /// The clock of this client, for tests with a wrong clock. Ages use the clocks of pusher and puller;
    /// delays and leases use the server's. Default: the host's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.0.clock = clock;
        self
    }

    /// How long opening a connection may take, at most an hour. Several nodes share the time equally.
    /// Default: 5 s. URL: `connect_timeout=5s`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.0.connect_timeout = timeout;
        self
    }

    /// How long the server may take to answer, at most an hour. A push also waits this long while the broker
    /// accepts no messages because it is out of memory or disk. Default: 10 s. URL: `call_timeout=10s`.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.0.call_timeout = timeout;
        self
    }

    /// How often either side shows that it is alive, in whole seconds from 1 to 3600. A connection that is silent for twice as
    /// long is closed. Default: 10 s. URL: `heartbeat=10s`.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.0.heartbeat = interval;
        self
    }

    /// The server's `consumer_timeout`, which a client cannot query: how long a consumer may hold a message
    /// before the server closes the channel. Deliveries are held for a little less. From 1 min to 30 days.
    /// Default: 30 min, like the server's. URL: `consumer_timeout=30m`.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.0.consumer_timeout = timeout;
        self
    }

    /// The largest encoded message in bytes, at most 100 MiB. Must be below the server's `max_message_size`, with room for the
    /// headers of a dead letter. Default: 8 MiB. URL: `message_bytes=8388608`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.0.message_bytes = bytes;
        self
    }

    /// A file with PEM certificates to trust in addition to the system's, for `amqps`. URL: `ca_file=/etc/ca.pem`.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.ca_file = Some(path.into());
        self
    }

    pub(crate) fn checked(self) -> Result<Config> {
        let config = self.0;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let prefix = &config.prefix;
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.chars().all(allowed) {
            return Err(ERRORS.invalid("prefix must be 1 to 64 of A-Z a-z 0-9 . _ -"));
        }
        if config.nodes.len() > MAX_NODES {
            return Err(ERRORS.invalid("there can be at most 32 nodes"));
        }
        if config.ca_file.is_some() && config.uri.scheme != AMQPScheme::AMQPS {
            return Err(ERRORS.invalid("ca_file needs TLS: write amqps:// instead of amqp://"));
        }
        if config.prefetch > MAX_PREFETCH {
            return Err(ERRORS.invalid("prefetch must be from 0 to 10000"));
        }
        if config.queue_age > MAX_QUEUE_AGE {
            return Err(ERRORS.invalid("queue_age must be from 0s to 1m"));
        }
        let timeouts = Duration::from_millis(1)..=MAX_TIMEOUT;
        if !timeouts.contains(&config.connect_timeout) || !timeouts.contains(&config.call_timeout) {
            return Err(ERRORS.invalid("connect_timeout and call_timeout must be from 1ms to 1h"));
        }
        if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&config.heartbeat) {
            return Err(ERRORS.invalid("heartbeat must be from 1s to 1h"));
        }
        if !(MIN_CONSUMER_TIMEOUT..=MAX_CONSUMER_TIMEOUT).contains(&config.consumer_timeout) {
            return Err(ERRORS
                .invalid("consumer_timeout must be from 1m to 30 days: the server checks once a minute"));
        }
        if !(1024..=MAX_MESSAGE_BYTES).contains(&config.message_bytes) {
            return Err(ERRORS.invalid("message_bytes must be from 1024 to 104857600"));
        }
        Ok(config)
    }
}

impl Config {
    pub(crate) fn of(uri: AMQPUri) -> Self {
        Self {
            uri,
            nodes: Vec::new(),
            prefix: "anyqueue".to_owned(),
            queue_type: QueueType::Quorum,
            prefetch: 0,
            queue_age: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_secs(10),
            consumer_timeout: Duration::from_mins(30),
            message_bytes: 8 * 1024 * 1024,
            ca_file: None,
            clock: Clock::system(),
        }
    }

    /// How many messages of each level may be prefetched.
    pub(crate) fn ready(&self) -> usize {
        usize::try_from(self.prefetch).unwrap_or(usize::MAX)
    }

    /// How many nodes there are to connect to.
    pub(crate) fn node_count(&self) -> usize {
        1 + self.nodes.len()
    }

    /// The address of one node.
    pub(crate) fn node(&self, index: usize) -> AMQPUri {
        let mut uri = self.uri.clone();
        if let Some((host, port)) = index.checked_sub(1).and_then(|index| self.nodes.get(index)) {
            host.clone_into(&mut uri.authority.host);
            uri.authority.port = *port;
        }
        uri
    }
}

/// The server and virtual host, for error messages.
pub(crate) fn target(uri: &AMQPUri) -> String {
    let authority = &uri.authority;
    format!("the broker at {}:{}, virtual host {:?}", authority.host, authority.port, uri.vhost)
}

/// Without the password.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("target", &target(&self.uri))
            .field("nodes", &self.nodes)
            .field("prefix", &self.prefix)
            .field("queue_type", &self.queue_type)
            .finish_non_exhaustive()
    }
}

/// Without the password.
impl std::fmt::Debug for RabbitMqBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
