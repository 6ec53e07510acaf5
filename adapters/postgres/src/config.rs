//! Options for a queue in a database, in code and as URL parameters.

use std::str::FromStr;
use std::time::Duration;

use anyqueue::adapter::{StorageUrl, UrlOption};
use anyqueue::{Clock, Result};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::error::ERRORS;
use crate::sql::Schema;

const MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_CONNECTIONS: u32 = 1000;
const MAX_TIMEOUT: Duration = Duration::from_hours(1);
/// How often waiting pulls poll if notifications wake them.
const POLL_NOTIFIED: Duration = Duration::from_millis(450);
/// The same without notifications.
const POLL_ALONE: Duration = Duration::from_millis(25);

/// Everything that can be set when a queue is opened.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) connect: PgConnectOptions,
    pub(crate) schema: Schema,
    pub(crate) create: bool,
    pub(crate) notify: bool,
    pub(crate) prepared: bool,
    pub(crate) poll_interval: Duration,
    pub(crate) max_connections: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) message_bytes: u64,
    pub(crate) clock: Clock,
}

/// Options for a queue in a database. Made by [`new`](Self::new) or [`PostgresQueue::builder`](crate::PostgresQueue::builder).
#[derive(Clone)]
#[must_use = "call open()"]
pub struct PostgresBuilder {
    connect: PgConnectOptions,
    schema: String,
    create: bool,
    notify: bool,
    prepared: bool,
    poll_interval: Option<Duration>,
    max_connections: u32,
    connect_timeout: Duration,
    call_timeout: Duration,
    message_bytes: u64,
    clock: Clock,
}

impl PostgresBuilder {
    /// Options for connecting to the server that `connect` describes, password and TLS settings included.
    pub fn new(connect: PgConnectOptions) -> Self {
        Self {
            connect,
            schema: "anyqueue".to_owned(),
            create: true,
            notify: true,
            prepared: true,
            poll_interval: None,
            max_connections: 8,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            message_bytes: 16 * 1024 * 1024,
            clock: Clock::system(),
        }
    }

    /// The schema that holds the queue's tables and functions: up to 40 of `a-z 0-9 _`. Queues in different schemas do not affect
    /// each other. Default: `anyqueue`. URL: `schema=anyqueue`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Whether to create or upgrade the schema if needed. If not, the schema must exist, and the role needs only the permission
    /// to use it. Default: true. URL: `create=true|false`.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to send and receive notifications, which wake waiting pulls at once. Turn it off behind a
    /// proxy that assigns connections per transaction (`PgBouncer` in transaction mode): waiting pulls then
    /// only poll, and the handle makes no settings that other clients would find on a shared connection.
    /// Default: true. URL: `notify=true|false`.
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// Whether to keep prepared statements. Turn it off behind a proxy that cannot keep them per client; each call then takes
    /// three more round trips. Default: true. URL: `prepared=true|false`.
    pub fn prepared(mut self, prepared: bool) -> Self {
        self.prepared = prepared;
        self
    }

    /// How often, approximately, waiting pulls look for messages by themselves. No polling happens while no
    /// pull waits. From 1 ms to 60 s. Default: 450 ms, or 25 ms without [`notify`](Self::notify). URL:
    /// `poll_interval=450ms`.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// The most connections of this handle, not counting one that listens and one that ends abandoned calls.
    /// They are opened when needed. From 1 to 1000. Default: 8. URL: `max_connections=8`.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// How long opening a connection may take, at most an hour. Default: 5 s. URL: `connect_timeout=5s`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long the server may take to answer one call, at most an hour. Default: 30 s. URL: `call_timeout=30s`.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The largest encoded message in bytes, at most 64 MiB. Default: 16 MiB. URL: `message_bytes=16777216`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// The clock of this client, for tests with a wrong clock. Messages store the time of their push by this
    /// clock, but nothing depends on it: leases, delays and ages use the server's clock. Default: the host's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn checked(self) -> Result<Config> {
        let poll = if self.notify { POLL_NOTIFIED } else { POLL_ALONE };
        let poll_interval = self.poll_interval.unwrap_or(poll);
        if !(Duration::from_millis(1)..=Duration::from_mins(1)).contains(&poll_interval) {
            return Err(ERRORS.invalid("poll_interval must be from 1ms to 60s"));
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.max_connections) {
            return Err(ERRORS.invalid("max_connections must be from 1 to 1000"));
        }
        let timeouts = Duration::from_millis(1)..=MAX_TIMEOUT;
        if !timeouts.contains(&self.connect_timeout) || !timeouts.contains(&self.call_timeout) {
            return Err(ERRORS.invalid("connect_timeout and call_timeout must be from 1ms to 1h"));
        }
        if !(1024..=MAX_MESSAGE_BYTES).contains(&self.message_bytes) {
            return Err(ERRORS.invalid("message_bytes must be from 1024 to 67108864"));
        }
        Ok(Config {
            // Do not send a setting to proxies that only concerns floating-point numbers, which are not used.
            connect: self.connect.disable_statement_logging().extra_float_digits(None),
            schema: Schema::new(&self.schema)?,
            create: self.create,
            notify: self.notify,
            prepared: self.prepared,
            poll_interval,
            max_connections: self.max_connections,
            connect_timeout: self.connect_timeout,
            call_timeout: self.call_timeout,
            message_bytes: self.message_bytes,
            clock: self.clock,
        })
    }

    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        let mut builder = Self::new(connect_options(url)?);
        builder.schema = url.option("schema")?.unwrap_or(builder.schema);
        builder.create = url.option("create")?.unwrap_or(builder.create);
        builder.notify = url.option("notify")?.unwrap_or(builder.notify);
        builder.prepared = url.option("prepared")?.unwrap_or(builder.prepared);
        builder.poll_interval = url.duration("poll_interval")?;
        builder.max_connections = url.option("max_connections")?.unwrap_or(builder.max_connections);
        builder.connect_timeout = url.duration("connect_timeout")?.unwrap_or(builder.connect_timeout);
        builder.call_timeout = url.duration("call_timeout")?.unwrap_or(builder.call_timeout);
        builder.message_bytes = url.option("message_bytes")?.unwrap_or(builder.message_bytes);
        Ok(builder)
    }
}

/// The options that sqlx reads from the URL. Those of this backend are removed, since sqlx would log unknown ones.
fn connect_options(url: &StorageUrl) -> Result<PgConnectOptions> {
    let unusable =
        || ERRORS.invalid("this is not a valid postgres URL: write postgres://user@host:5432/database");
    // sqlx would take the address of any other server for its own.
    if !SCHEMES.contains(&url.scheme()) {
        return Err(unusable());
    }
    let mut plain = url.url().clone();
    plain
        .query_pairs_mut()
        .clear()
        .extend_pairs(url.url().query_pairs().filter(|(key, _)| PASSED_ON.contains(&&**key)));
    // The error of sqlx is dropped: it may quote parts of the URL.
    let options = PgConnectOptions::from_str(plain.as_str()).map_err(|_| unusable())?;
    Ok(if options.get_application_name().is_none() { options.application_name("anyqueue") } else { options })
}

impl Config {
    /// The server and database, for error messages.
    pub(crate) fn target(&self) -> String {
        let connect = &self.connect;
        let database = connect.get_database().unwrap_or(connect.get_username());
        match connect.get_socket() {
            Some(socket) => format!("database {database} at {}", socket.display()),
            None => format!("database {database} at {}:{}", connect.get_host(), connect.get_port()),
        }
    }
}

/// Without the password.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("target", &self.target())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Without the password.
impl std::fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresBuilder").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// What a URL begins with.
pub(crate) const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// URL parameters that sqlx reads.
const PASSED_ON: [&str; 6] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "host"];

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[
    UrlOption::new("schema", "anyqueue", "the schema that holds the queue, up to 40 of a-z 0-9 _"),
    UrlOption::new("create", "true", "whether to create or upgrade the schema where needed"),
    UrlOption::new(
        "notify",
        "true",
        "whether to send and receive notifications; false behind PgBouncer in transaction mode",
    ),
    UrlOption::new(
        "prepared",
        "true",
        "whether to keep prepared statements; false behind a proxy that cannot",
    ),
    UrlOption::new(
        "poll_interval",
        "450ms",
        "how often waiting pulls look by themselves, 1ms to 60s; 25ms without notify",
    ),
    UrlOption::new(
        "max_connections",
        "8",
        "the most connections, besides one that listens and one that ends calls given up",
    ),
    UrlOption::new("connect_timeout", "5s", "how long making a connection may take"),
    UrlOption::new("call_timeout", "30s", "how long the server may take to answer one call"),
    UrlOption::new("message_bytes", "16777216", "largest encoded message in bytes"),
    UrlOption::new("sslmode", "prefer", "disable, allow, prefer, require, verify-ca or verify-full"),
    UrlOption::new("sslrootcert", "the system's", "file with the certificates of the authorities to trust"),
    UrlOption::new("sslcert", "none", "file with the client's certificate"),
    UrlOption::new("sslkey", "none", "file with the client's key"),
    UrlOption::new("application_name", "anyqueue", "the name that the server shows for the connections"),
    UrlOption::new("host", "of the URL", "the directory of a Unix socket, or a host"),
];
