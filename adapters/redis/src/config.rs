//! Options of a queue on a server.

use std::path::PathBuf;
use std::time::Duration;

use anyqueue::{Clock, Result};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};

use crate::error::ERRORS;

const MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_TIMEOUT: Duration = Duration::from_hours(1);
const MAX_PREFIX_BYTES: usize = 64;

/// Everything that can be set when a queue is opened.
#[derive(Clone)]
pub(crate) struct Config {
    /// The server, the first cluster node, or the first sentinel; with the login of the servers.
    pub(crate) connect: ConnectionInfo,
    pub(crate) topology: Topology,
    /// Further nodes or sentinels, by host and port.
    pub(crate) nodes: Vec<(String, u16)>,
    pub(crate) tls: TlsFiles,
    pub(crate) prefix: String,
    pub(crate) poll_interval: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) message_bytes: u64,
    pub(crate) clock: Clock,
}

/// What kind of server is at the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server, the master.
    Server,
    /// A node of a Redis Cluster.
    Cluster,
    /// A sentinel that knows the master of this name.
    Sentinel(String),
}

/// Files with certificates, in PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) authority: Option<PathBuf>,
    /// A certificate and its private key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

/// Options for a queue on a server. Made by [`new`](Self::new) or [`RedisQueue::builder`](crate::RedisQueue::builder).
#[derive(Clone)]
#[must_use = "call open()"]
pub struct RedisBuilder(pub(crate) Config);

impl RedisBuilder {
    /// Options for connecting to the server that `connect` describes, with its user and password. Connections
    /// always use RESP2, whatever `connect` says, since every server supports it.
    pub fn new(connect: ConnectionInfo) -> Self {
        // Calls do not wait for the answers of earlier ones, so small packets must not wait either.
        let tcp = TcpSettings::default().set_nodelay(true);
        // Answers are parsed as RESP2.
        let settings = connect.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        Self(Config {
            connect: connect.set_tcp_settings(tcp).set_redis_settings(settings),
            topology: Topology::Server,
            nodes: Vec::new(),
            tls: TlsFiles::default(),
            prefix: "anyqueue".to_owned(),
            poll_interval: Duration::from_millis(900),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            message_bytes: 16 * 1024 * 1024,
            clock: Clock::system(),
        })
    }

    /// Connects to a Redis Cluster. The address is one of its nodes, which knows the others. URL:
    /// `redis-cluster://…`.
    pub fn cluster(mut self) -> Self {
        self.0.topology = Topology::Cluster;
        self
    }

    /// Connects to the master of this name. The address is a sentinel, which is asked where the master is.
    /// User, password and database are the master's; sentinels are asked without a login. URL:
    /// `redis-sentinel://…?master=mymaster`.
    pub fn sentinel(mut self, master: impl Into<String>) -> Self {
        self.0.topology = Topology::Sentinel(master.into());
        self
    }

    /// Further nodes of the cluster, or further sentinels, by host and port, in case the first cannot be reached. URL:
    /// `nodes=host:port,host:port`.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = (String, u16)>) -> Self {
        self.0.nodes = nodes.into_iter().collect();
        self
    }

    /// A PEM file with the certificate authorities to trust instead of the system's. Only with TLS. URL: `ca_file=/etc/redis/ca.crt`.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.tls.authority = Some(file.into());
        self
    }

    /// PEM files with a client certificate and its private key, for servers that ask for one. Only with TLS. URL:
    /// `cert_file=/etc/app.crt&key_file=/etc/app.key`.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.0.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// What all keys and channels begin with: 1 to 64 of `A-Z a-z 0-9 . _ : -`. Queues with different prefixes do not affect each
    /// other. Default: `anyqueue`. URL: `prefix=anyqueue`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.0.prefix = prefix.into();
        self
    }

    /// How often, approximately, waiting pulls look for messages by themselves, in case a hint was lost. No
    /// polling happens while no pull waits. From 1 ms to 60 s. Default: 900 ms. URL: `poll_interval=900ms`.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.0.poll_interval = interval;
        self
    }

    /// How long opening a connection may take, at most an hour. Default: 5 s. URL: `connect_timeout=5s`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.0.connect_timeout = timeout;
        self
    }

    /// How long the server may take to answer one call, at most an hour. Default: 10 s. URL: `call_timeout=10s`.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.0.call_timeout = timeout;
        self
    }

    /// The largest encoded message in bytes, at most 64 MiB. Default: 16 MiB. URL: `message_bytes=16777216`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.0.message_bytes = bytes;
        self
    }

    /// The clock of this client, for tests with a wrong clock. Leases, delays and ages use the server's.
    /// Default: the host's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.0.clock = clock;
        self
    }

    pub(crate) fn checked(self) -> Result<Config> {
        let config = self.0;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        let prefix = &config.prefix;
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.chars().all(allowed) {
            return Err(ERRORS.invalid("prefix must be 1 to 64 of A-Z a-z 0-9 . _ : -"));
        }
        if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&config.poll_interval) {
            return Err(ERRORS.invalid("poll_interval must be from 1ms to 60s"));
        }
        let timeouts = Duration::from_millis(1)..=MAX_TIMEOUT;
        if !timeouts.contains(&config.connect_timeout) || !timeouts.contains(&config.call_timeout) {
            return Err(ERRORS.invalid("connect_timeout and call_timeout must be from 1ms to 1h"));
        }
        if !(1024..=MAX_MESSAGE_BYTES).contains(&config.message_bytes) {
            return Err(ERRORS.invalid("message_bytes must be from 1024 to 67108864"));
        }
        let is_encrypted = matches!(config.connect.addr(), ConnectionAddr::TcpTls { .. });
        if !is_encrypted && (config.tls.authority.is_some() || config.tls.client.is_some()) {
            return Err(ERRORS.invalid("certificates need TLS: write rediss:// instead of redis://"));
        }
        if config.topology == Topology::Cluster && config.connect.redis_settings().db() != 0 {
            return Err(ERRORS.invalid("a Redis Cluster has only database 0"));
        }
        if config.topology == Topology::Server && !config.nodes.is_empty() {
            return Err(ERRORS.invalid("nodes can only be set for a cluster or for sentinels"));
        }
        Ok(config)
    }
}

impl Config {
    /// The server and database, for error messages.
    pub(crate) fn target(&self) -> String {
        let (address, db) = (self.connect.addr(), self.connect.redis_settings().db());
        match &self.topology {
            Topology::Server => format!("redis at {address}, database {db}"),
            Topology::Cluster => format!("the redis cluster at {address}"),
            Topology::Sentinel(master) => format!("redis master {master:?} of the sentinel at {address}"),
        }
    }

    /// Whether the partitions of a queue are on different servers.
    pub(crate) fn is_cluster(&self) -> bool {
        self.topology == Topology::Cluster
    }

    /// Returns all addresses, beginning with the main one.
    pub(crate) fn addresses(&self) -> Vec<ConnectionAddr> {
        let first = self.connect.addr().clone();
        let others: Vec<_> =
            self.nodes.iter().map(|(host, port)| with_host(&first, host.clone(), *port)).collect();
        std::iter::once(first).chain(others).collect()
    }
}

/// Returns an address of the same kind with another host and port.
pub(crate) fn with_host(address: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match address {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
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
