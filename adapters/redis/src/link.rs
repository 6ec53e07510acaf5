//! The connection that all calls share, and the calls on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Result};
use redis::aio::PubSub;
use redis::{Arg, Cmd, RedisError, RedisResult, ServerErrorKind, Value};

use crate::config::Config;
use crate::connect::{Conn, Connector};
use crate::error::{
    ERRORS, classify, classify_connect, classify_of_cluster, is_client_gone, is_from_replica,
    is_server_answer,
};
use crate::script::Script;

/// If a call was dropped after this time, the connection may be dead, even if no error was seen.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// One connection, which is opened when needed, and again when it breaks. Calls are sent without waiting for
/// the answers of earlier ones.
pub(crate) struct Link {
    connector: Connector,
    target: String,
    connect_timeout: Duration,
    // A std mutex, because it is held for a few instructions and never across an await.
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    /// The number of connections so far, so that an error on an old one does not close the new one.
    generation: u64,
    conn: Option<Conn>,
    /// The last attempt that failed, for all tasks that waited for it.
    failed: Option<(Instant, Error)>,
}

/// A script with its keys and arguments.
pub(crate) struct Call {
    script: &'static Script,
    cmd: Cmd,
}

impl Call {
    /// Creates a call with these keys. `bytes` is the approximate size of its arguments.
    pub(crate) fn new(script: &'static Script, keys: &[impl AsRef<str>], args: usize, bytes: usize) -> Self {
        let mut cmd = Cmd::with_capacity(args + keys.len() + 3, bytes + 256);
        cmd.arg("EVALSHA").arg(script.hash()).arg(keys.len());
        for key in keys {
            cmd.arg(key.as_ref());
        }
        Self { script, cmd }
    }

    /// The same call with the whole script instead of its hash.
    fn in_full(&self) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.script.text());
        for arg in self.cmd.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                cmd.arg(arg);
            }
        }
        cmd
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
    pub(crate) async fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            connector: Connector::new(config).await?,
            target: config.target(),
            connect_timeout: config.connect_timeout,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_one(&self) -> Option<(u64, Conn)> {
        let current = self.current();
        current.conn.clone().map(|conn| (current.generation, conn))
    }

    async fn connection(&self) -> Result<(u64, Conn)> {
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        let came = Instant::now();
        let _guard = self.connecting.lock().await;
        if let Some(open) = self.open_one() {
            return Ok(open);
        }
        if let Some((at, error)) = &self.current().failed
            && *at >= came
        {
            return Err(error.clone());
        }
        let connected = match tokio::time::timeout(self.connect_timeout, self.connector.connect()).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => {
                Err(ERRORS.error(ErrorKind::Unavailable, format!("{} did not answer in time", self.target)))
            }
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

    /// Opens a connection that receives published messages.
    pub(crate) async fn subscriber(&self) -> Result<PubSub> {
        let known = self.open_one().map(|(_, conn)| conn);
        match tokio::time::timeout(self.connect_timeout, self.connector.subscriber(known)).await {
            Ok(connected) => connected.map_err(|error| classify_connect(error, &self.target)),
            Err(_) => {
                Err(ERRORS.error(ErrorKind::Unavailable, format!("{} did not answer in time", self.target)))
            }
        }
    }

    /// Runs a script. An error says whether it may have taken effect.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value> {
        let (generation, mut conn) = self.connection().await?;
        let pending = PendingCall::new(self, generation, &conn);
        let mut answer = conn.send(&call.cmd).await;
        if answer.as_ref().is_err_and(is_unknown_script) {
            // The server has forgotten the script, or is a cluster node that never had it. Nothing was done
            // yet.
            answer = conn.send(&call.in_full()).await;
        }
        pending.finish(answer)
    }

    /// Runs a command.
    pub(crate) async fn command(&self, cmd: &Cmd) -> Result<Value> {
        let (generation, mut conn) = self.connection().await?;
        let pending = PendingCall::new(self, generation, &conn);
        let answer = conn.send(cmd).await;
        pending.finish(answer)
    }

    /// Runs a command on each master.
    pub(crate) async fn command_to_each(&self, cmd: &Cmd) -> Result<Vec<Value>> {
        let (generation, mut conn) = self.connection().await?;
        let pending = PendingCall::new(self, generation, &conn);
        let answers = conn.send_to_each(cmd).await;
        pending.finish(answers)
    }

    fn discard(&self, generation: u64) {
        let mut current = self.current();
        if current.generation == generation {
            current.conn = None;
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        self.current().conn = None;
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// A call in progress. If it is dropped after a long wait, the connection is dropped too.
struct PendingCall<'l> {
    link: &'l Link,
    generation: u64,
    is_of_cluster: bool,
    started: Instant,
    is_finished: bool,
}

impl<'l> PendingCall<'l> {
    fn new(link: &'l Link, generation: u64, conn: &Conn) -> Self {
        let is_of_cluster = matches!(conn, Conn::Cluster(_));
        Self { link, generation, is_of_cluster, started: Instant::now(), is_finished: false }
    }

    /// Whether a new connection is needed. A cluster client repairs its connections itself, and knows more
    /// servers than a new client would. A replica may be the former master, so the master must be found
    /// again.
    fn is_broken_by(&self, error: &RedisError) -> bool {
        if self.is_of_cluster {
            is_client_gone(error)
        } else {
            !is_server_answer(error) || is_from_replica(error)
        }
    }

    fn finish<T>(mut self, answer: RedisResult<T>) -> Result<T> {
        self.is_finished = true;
        answer.map_err(|error| {
            if self.is_broken_by(&error) {
                self.link.discard(self.generation);
            }
            if self.is_of_cluster { classify_of_cluster(error) } else { classify(error) }
        })
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_finished && !self.is_of_cluster && self.started.elapsed() >= SUSPECT_AFTER {
            self.link.discard(self.generation);
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", &self.target).finish_non_exhaustive()
    }
}
