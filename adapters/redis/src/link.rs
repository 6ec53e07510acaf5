//! The connection that all calls share, and how calls are made.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, ServerErrorKind, Value};

use crate::config::Config;
use crate::error::{classify, classify_connect, leaves_connection, own};
use crate::script::{self, Script};

/// Calls that may wait for their turn to be sent. More wait in their tasks.
const PIPELINE: usize = 1024;
/// A call that was given up after so long says that the connection may be dead, though nobody told us.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// One connection, made when needed, and made anew when it breaks. Calls are sent one after the other without waiting for answers.
pub(crate) struct Link {
    client: Client,
    options: AsyncConnectionConfig,
    target: String,
    connect_timeout: Duration,
    // A std mutex: it is held for a few instructions and never across an await.
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    /// Counts connections, so that an error of an old one does not end the new one.
    generation: u64,
    conn: Option<MultiplexedConnection>,
    /// The last attempt that failed: an answer to all who waited for it.
    failed: Option<(Instant, Error)>,
}

/// A script with its keys and arguments.
pub(crate) struct Call {
    script: &'static Script,
    cmd: Cmd,
}

impl Call {
    /// A call with these keys; `bytes` is about how much its arguments take.
    pub(crate) fn new(script: &'static Script, keys: &[&str], args: usize, bytes: usize) -> Self {
        let mut cmd = Cmd::with_capacity(args + keys.len() + 3, bytes + 256);
        cmd.arg("EVALSHA").arg(script.hash()).arg(keys.len());
        for key in keys {
            cmd.arg(*key);
        }
        Self { script, cmd }
    }

    /// Adds an argument.
    pub(crate) fn arg(&mut self, arg: &[u8]) -> &mut Self {
        self.cmd.arg(arg);
        self
    }

    /// Adds a number.
    pub(crate) fn int(&mut self, number: u64) -> &mut Self {
        self.cmd.arg(number);
        self
    }
}

impl Link {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let client = Client::open(config.connect.clone())
            .map_err(|error| classify_connect(error, &config.target()))?;
        Ok(Self {
            client,
            options: AsyncConnectionConfig::new()
                .set_connection_timeout(Some(config.connect_timeout))
                .set_response_timeout(Some(config.call_timeout))
                .set_pipeline_buffer_size(PIPELINE),
            target: config.target(),
            connect_timeout: config.connect_timeout,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_one(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current();
        current.conn.clone().map(|conn| (current.generation, conn))
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection)> {
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        let came = Instant::now();
        let _turn = self.connecting.lock().await;
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        if let Some((at, error)) = &self.current().failed
            && *at >= came
        {
            return Err(error.clone());
        }
        let connected = match tokio::time::timeout(self.connect_timeout, self.connect()).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => Err(own(ErrorKind::Unavailable, format!("{} did not answer in time", self.target))),
        };
        let mut current = self.current();
        match connected {
            Ok(conn) => {
                current.generation += 1;
                current.conn = Some(conn.clone());
                current.failed = None;
                Ok((current.generation, conn))
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Connects, and loads the scripts: a server that was started again has forgotten them.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let mut conn = self.client.get_multiplexed_async_connection_with_config(&self.options).await?;
        // Whoever has not logged in may not send anything as large as a script.
        match redis::cmd("PING").query_async::<()>(&mut conn).await {
            Err(error) if error.is_io_error() || error.code() == Some("NOAUTH") => return Err(error),
            _ => {}
        }
        let mut load = redis::pipe();
        for script in script::all() {
            load.add_command(script.load()).ignore();
        }
        match load.query_async::<()>(&mut conn).await {
            // What is refused is told when it is needed.
            Err(error) if error.is_io_error() => Err(error),
            _ => Ok(conn),
        }
    }

    /// A connection of its own that receives what is published.
    pub(crate) async fn subscriber(&self) -> Result<PubSub> {
        match tokio::time::timeout(self.connect_timeout, self.client.get_async_pubsub()).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => Err(own(ErrorKind::Unavailable, format!("{} did not answer in time", self.target))),
        }
    }

    /// Runs a script. An error says whether it may have run.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value> {
        let (generation, mut conn) = self.connection().await?;
        let flight = Flight { link: self, generation, begun: Instant::now(), is_over: false };
        let mut answer = send(&mut conn, &call.cmd).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            // Somebody made the server forget its scripts. Nothing was done.
            answer = match send(&mut conn, &call.script.load()).await {
                Ok(_) => send(&mut conn, &call.cmd).await,
                Err(error) => Err(error),
            };
        }
        flight.land(answer)
    }

    /// Runs a command that is no script.
    pub(crate) async fn command(&self, cmd: &Cmd) -> Result<Value> {
        let (generation, mut conn) = self.connection().await?;
        let flight = Flight { link: self, generation, begun: Instant::now(), is_over: false };
        let answer = send(&mut conn, cmd).await;
        flight.land(answer)
    }

    fn discard(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            current.conn = None;
        }
    }

    /// Lets go of the connection.
    pub(crate) fn close(&self) {
        self.current().conn = None;
    }
}

async fn send(conn: &mut MultiplexedConnection, cmd: &Cmd) -> RedisResult<Value> {
    match conn.send_packed_command(cmd).await? {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// A call under way. Dropped half-way after a long wait, it takes the connection along.
struct Flight<'l> {
    link: &'l Link,
    generation: u64,
    begun: Instant,
    is_over: bool,
}

impl Flight<'_> {
    fn land(mut self, answer: RedisResult<Value>) -> Result<Value> {
        self.is_over = true;
        answer.map_err(|error| {
            if !leaves_connection(&error) {
                self.link.discard(self.generation);
            }
            classify(error)
        })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.begun.elapsed() >= SUSPICIOUS {
            self.link.discard(self.generation);
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", &self.target).finish_non_exhaustive()
    }
}
