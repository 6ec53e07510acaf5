//! Options for queues of the service, in code and as URL parameters.

use std::time::Duration;

use anyqueue::adapter::{DEATH_BYTES, StorageUrl, UrlOption};
use anyqueue::{Clock, Result};
use aws_config::SdkConfig;

use crate::error::ERRORS;

const MAX_LEVELS: u8 = 10;
const MAX_MESSAGE_BYTES: u64 = 1024 * 1024;
const MIN_MESSAGE_BYTES: u64 = 4 * DEATH_BYTES;
const MAX_TIMEOUT: Duration = Duration::from_hours(1);
const MAX_LINGER: Duration = Duration::from_secs(1);
const MAX_PREFIX_BYTES: usize = 64;

/// Everything that can be set when queues are opened.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) region: String,
    pub(crate) prefix: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) sdk: Option<SdkConfig>,
    pub(crate) levels: u8,
    pub(crate) fifo: bool,
    pub(crate) create: bool,
    pub(crate) message_bytes: u64,
    pub(crate) linger: Duration,
    pub(crate) clock: Clock,
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

impl Config {
    /// Whether single entries are joined by queue in this crate. If not, core joins them, which keeps the
    /// order within a group.
    pub(crate) fn joins(&self) -> bool {
        !self.fifo && !self.linger.is_zero()
    }
}

/// Options for queues of the service. Made by [`new`](Self::new) or [`SqsQueue::builder`](crate::SqsQueue::builder).
#[derive(Clone)]
#[must_use = "call open()"]
pub struct SqsBuilder(Config);

impl SqsBuilder {
    /// Options for the queues of this region, such as `eu-central-1`. Credentials come from the SDK's standard chain:
    /// environment, profile, container, instance.
    pub fn new(region: impl Into<String>) -> Self {
        Self(Config {
            region: region.into(),
            prefix: "anyqueue".to_owned(),
            endpoint: None,
            credentials: None,
            sdk: None,
            levels: MAX_LEVELS,
            fifo: false,
            create: true,
            message_bytes: MAX_MESSAGE_BYTES,
            linger: Duration::from_millis(10),
            clock: Clock::system(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
        })
    }

    /// What the names of all queues begin with: 1 to 64 of `A-Z a-z 0-9 _ -`. Default: `anyqueue`. URL: the path, as in
    /// `sqs://eu-central-1/jobs`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.0.prefix = prefix.into();
        self
    }

    /// The endpoint of the service, for emulators and private endpoints: `http://127.0.0.1:4566`. Default: the region's. URL:
    /// `endpoint=http://…`.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.0.endpoint = Some(endpoint.into());
        self
    }

    /// An access key and its secret, in place of the standard chain. URL: user and password.
    pub fn credentials(mut self, key: impl Into<String>, secret: impl Into<String>) -> Self {
        self.0.credentials = Some((key.into(), secret.into()));
        self
    }

    /// A configuration of the AWS SDK, for anything else that it offers, such as an assumed role or another
    /// HTTP client. It then determines region, endpoint, credentials and connect timeout, and it must have an
    /// HTTP client. Its retries are switched off.
    pub fn sdk_config(mut self, config: SdkConfig) -> Self {
        self.0.sdk = Some(config);
        self
    }

    /// The number of priority levels, from 1 to 10, each of which is a queue. All processes must use the same
    /// number. Fewer levels cost less, because a pull asks each level above the one where it finds messages.
    /// Default: 10. URL: `levels=10`.
    pub fn levels(mut self, levels: u8) -> Self {
        self.0.levels = levels;
        self
    }

    /// Whether the queues are FIFO queues. These have groups, and only one level, because the service keeps a group together only
    /// within one queue. Their names end with `.fifo`, so they are separate from standard queues. Setting this sets
    /// [`levels`](Self::levels) to 1. Default: no. URL: `fifo=true`.
    pub fn fifo(mut self, fifo: bool) -> Self {
        self.0.fifo = fifo;
        if fifo {
            self.0.levels = 1;
        }
        self
    }

    /// Whether missing queues are created. If not, the handle needs no permission to create queues, and all levels of a partition
    /// and of its dead letters must exist. Default: yes. URL: `create=true`.
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }

    /// The largest message body in bytes, at most 1 MiB; less for emulators with a lower limit. A payload takes four thirds of
    /// its size. Default: 1 MiB. URL: `message_bytes=1048576`.
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.0.message_bytes = bytes;
        self
    }

    /// How long pushes and settlements that do not fill a request wait for others to share it, at most a second. Each request
    /// costs money, and a full one carries ten entries. Default: 10 ms. URL: `linger=10ms`.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.0.linger = linger;
        self
    }

    /// The clock of this client, for tests with a wrong clock. Leases, delays and ages use the server's.
    /// Default: the host's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.0.clock = clock;
        self
    }

    /// How long opening a connection may take, at most an hour. Default: 5 s. URL: `connect_timeout=5s`.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.0.connect_timeout = timeout;
        self
    }

    /// How long the server may take to answer one request, not counting the wait of a poll, at most an hour.
    /// Default: 10 s. URL: `call_timeout=10s`.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.0.call_timeout = timeout;
        self
    }

    pub(crate) fn checked(self) -> Result<Config> {
        let config = self.0;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let prefix = &config.prefix;
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.chars().all(allowed) {
            return Err(ERRORS.invalid("the prefix must be 1 to 64 of A-Z a-z 0-9 _ -"));
        }
        if config.region.is_empty() && config.sdk.is_none() {
            return Err(ERRORS
                .invalid("the region is missing: write sqs://region/prefix, as in sqs://eu-central-1/jobs"));
        }
        if !(1..=MAX_LEVELS).contains(&config.levels) {
            return Err(ERRORS.invalid("levels must be from 1 to 10"));
        }
        if config.fifo && config.levels != 1 {
            let text = "FIFO queues have one level, because the service keeps a group only within one queue: leave levels out";
            return Err(ERRORS.invalid(text));
        }
        if !(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&config.message_bytes) {
            return Err(ERRORS
                .invalid(format!("message_bytes must be from {MIN_MESSAGE_BYTES} to {MAX_MESSAGE_BYTES}")));
        }
        if config.linger > MAX_LINGER {
            return Err(ERRORS.invalid("linger must be at most 1s"));
        }
        let timeouts = Duration::from_millis(1)..=MAX_TIMEOUT;
        if !timeouts.contains(&config.connect_timeout) || !timeouts.contains(&config.call_timeout) {
            return Err(ERRORS.invalid("connect_timeout and call_timeout must be from 1ms to 1h"));
        }
        Ok(config)
    }

    pub(crate) fn from_url(url: &StorageUrl) -> Result<Self> {
        // The host of any other address would be taken for a region.
        if !SCHEMES.contains(&url.scheme()) {
            return Err(ERRORS.invalid(
                "this is not a valid sqs URL: write sqs://region/prefix, as in sqs://eu-central-1/jobs",
            ));
        }
        let parsed = url.url();
        let fifo = url.option("fifo")?.unwrap_or(false);
        let mut config = Self::new(parsed.host_str().unwrap_or_default()).fifo(fifo).0;
        let path = url.path().trim_matches('/');
        if !path.is_empty() {
            path.clone_into(&mut config.prefix);
        }
        if let Some(secret) = parsed.password() {
            config.credentials = Some((plain(parsed.username())?, plain(secret)?));
        }
        config.endpoint = url.option("endpoint")?;
        config.levels = url.option("levels")?.unwrap_or(config.levels);
        config.create = url.option("create")?.unwrap_or(config.create);
        config.message_bytes = url.option("message_bytes")?.unwrap_or(config.message_bytes);
        config.linger = url.duration("linger")?.unwrap_or(config.linger);
        config.connect_timeout = url.duration("connect_timeout")?.unwrap_or(config.connect_timeout);
        config.call_timeout = url.duration("call_timeout")?.unwrap_or(config.call_timeout);
        Ok(Self(config))
    }
}

/// A part of a URL, percent-decoded.
fn plain(text: &str) -> Result<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| ERRORS.invalid("the access key or its secret is not UTF-8"))
}

/// Without the credentials.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("region", &self.region)
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Without the credentials.
impl std::fmt::Debug for SqsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a URL begins with.
pub(crate) const SCHEMES: &[&str] = &["sqs"];

/// All options that a URL can have.
pub(crate) const OPTIONS: &[UrlOption] = &[
    UrlOption::new("endpoint", "the region's", "where the service is, for emulators"),
    UrlOption::new("levels", "10", "priority levels, each a queue of its own, 1 to 10"),
    UrlOption::new("fifo", "false", "whether these are FIFO queues, which have groups and one level"),
    UrlOption::new("create", "true", "whether missing queues are made"),
    UrlOption::new("message_bytes", "1048576", "largest body of a message in bytes"),
    UrlOption::new(
        "linger",
        "10ms",
        "how long single pushes and settlements wait for others to share a request with",
    ),
    UrlOption::new("connect_timeout", "5s", "how long making a connection may take"),
    UrlOption::new(
        "call_timeout",
        "10s",
        "how long the server may take to answer one request, beyond a wait",
    ),
];
