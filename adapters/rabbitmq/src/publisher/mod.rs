//! Publishing: confirmed, mandatory, and within a bounded window, on its own connection.
//!
//! A broker that is out of memory or disk stops reading from clients that publish, so consumers use another connection.

mod age;
mod declare_lock;
mod growth;
mod publication;
mod send;
mod session;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyqueue::{ErrorKind, Operation, PartitionId, Result};
use lapin::Connection;

pub(crate) use self::publication::Publication;
use self::publication::{full, is_unroutable};
pub(crate) use self::send::OutgoingMessage;
use self::session::Session;
use crate::config::Config;
use crate::error::{ERRORS, classify};
use crate::handshake::Handshake;
use crate::link::{Link, within};
use crate::names::{LevelQueue, Names, level_queues};
use crate::topology::declare_shared;

/// Publishes for one storage.
pub(crate) struct Publisher {
    config: Arc<Config>,
    names: Names,
    link: Link,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    is_closed: AtomicBool,
}

impl Publisher {
    pub(crate) fn new(config: &Arc<Config>, names: &Names) -> Self {
        Self {
            config: Arc::clone(config),
            names: names.clone(),
            link: Link::new(config, "publisher"),
            session: tokio::sync::Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn limit(&self) -> Duration {
        self.config.call_timeout
    }

    /// Returns the session. After a break a new one is started, in which everything is declared again.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut current = self.session.lock().await;
        let is_usable = |session: &&Arc<Session>| session.is_alive() && self.link.is_current(&session.conn);
        if let Some(session) = current.as_ref().filter(is_usable) {
            return Ok(Arc::clone(session));
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(ERRORS.closed(Operation::Push));
        }
        let conn = self.link.connection().await?;
        let declaring = async {
            let control = conn.create_channel().await.map_err(classify)?;
            declare_shared(&control, &self.names).await?;
            Ok(control)
        };
        let control = self.on(&conn, declaring).await?;
        let session = Arc::new(Session::new(conn, control));
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Connects, but declares nothing, since the user may lack the permission.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.link.connection().await.map(drop)
    }

    /// The server's handshake.
    pub(crate) async fn handshake(&self) -> Result<Handshake> {
        self.link.handshake().await
    }

    /// Limits the time of a call. A connection without an answer is dropped, unless the broker has said why.
    async fn on<T>(&self, conn: &Arc<Connection>, call: impl Future<Output = Result<T>>) -> Result<T> {
        within(self.limit(), call).await.map_err(|error| {
            if conn.status().blocked() {
                return full();
            }
            if error.kind() == ErrorKind::TimedOut {
                self.link.discard(conn);
            }
            error
        })
    }

    /// Returns the queues of a partition. Most partitions have one, so this asks first whether there are
    /// more, because the client logs each message that is returned.
    pub(crate) async fn known(&self, partition: &PartitionId) -> Result<Vec<LevelQueue>> {
        let first =
            self.known_of(vec![LevelQueue::new(partition, 0), LevelQueue::any_above_zero(partition)]).await?;
        if first.iter().any(|level_queue| level_queue.level > 0) {
            self.known_of(level_queues(partition)).await
        } else {
            Ok(first)
        }
    }

    async fn known_of(&self, level_queues: Vec<LevelQueue>) -> Result<Vec<LevelQueue>> {
        let ask = |level_queue: &LevelQueue| {
            Publication::of(self.names.known(), level_queue.routing_word(), Vec::new())
        };
        let asked: Vec<_> = level_queues.iter().map(ask).collect();
        let session = self.session().await?;
        let answers = tokio::select! {
            answers = session.publish(&asked, true, Instant::now() + self.limit()) => answers,
            // A blocked broker answers only after the alarm. The caller has an alternative.
            () = session.wait_until_blocked() => return Err(full()),
        };
        let mut known = Vec::new();
        for (level_queue, answer) in level_queues.into_iter().zip(answers) {
            match answer {
                Ok(()) => known.push(level_queue),
                Err(error) if is_unroutable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    /// Whether the broker currently accepts no messages, because it is out of memory or disk.
    pub(crate) async fn is_blocked(&self) -> bool {
        self.session.lock().await.as_ref().is_some_and(|session| session.conn.status().blocked())
    }

    /// Checks that the broker answers.
    pub(crate) async fn ask(&self) -> Result<()> {
        let session = self.session().await?;
        if session.conn.status().blocked() {
            return Ok(()); // On this connection it answers nothing until the alarm is over.
        }
        let mut control = session.control.lock().await;
        let asking = async { declare_shared(session.control(&mut control).await?, &self.names).await };
        self.on(&session.conn, asking).await
    }

    /// Sends a message that no queue gets, because only clients that publish learn that the broker is
    /// blocked.
    pub(crate) async fn probe(&self) -> Result<()> {
        let session = self.session().await?;
        let probe = [Publication::of(self.names.known(), "nobody".to_owned(), Vec::new())];
        let answers = tokio::select! {
            answers = session.publish(&probe, false, Instant::now() + self.limit()) => answers,
            () = session.wait_until_blocked() => return Ok(()),
        };
        match answers.into_iter().collect::<Result<()>>() {
            // A client without the permission does not push anyway.
            Err(error) if error.kind() != ErrorKind::AccessDenied => Err(error),
            _ => Ok(()),
        }
    }

    /// Warnings for an operator.
    pub(crate) async fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(session) = self.session.lock().await.clone() else { return warnings };
        if session.conn.status().blocked() {
            warnings.push("The broker takes no messages: it is out of memory or disk.".to_owned());
        }
        let (most, told) = (session.max_body_bytes(), self.config.message_bytes);
        if most < told {
            warnings.push(format!("The server's max_message_size ({most}) is below message_bytes ({told})."));
        }
        warnings
    }

    /// Whatever still runs then makes no other connection.
    pub(crate) async fn close(&self, patience: Duration) {
        self.is_closed.store(true, Ordering::Release);
        *self.session.lock().await = None;
        self.link.close(patience).await;
    }
}
