//! Only one client at a time declares a queue.
//!
//! The server shows a quorum queue to other clients before it runs. If a client then consumes from it, that
//! client loses its connection, with everything that is held on it (`INTERNAL_ERROR`, seen on 3.10), and
//! messages that fall due for the queue wait for three minutes. If a client declares it at that time, it
//! learns that the queue exists, but not whether it runs. So a client declares a queue only while it holds a
//! lock, and other clients use the queue only once it has a mark. The lock is an exclusive queue, which ends
//! with its connection. A queue that was left behind without a mark is given some time.
//!
//! A queue that holds messages for a certain time learns this time only after it runs. A message that comes
//! earlier stays in it forever, and so do all behind it. So nobody may send to such a queue before its
//! declaration is complete. If its node dies soon after the declaration, the server restores the queue, but
//! not the time (3.10, seen, and read in its code). So the client that declared it keeps the lock until the
//! queue is old and marked as old, and only then do others use it. A queue that is neither old nor locked was
//! left behind by a client that died. No push to it has returned, so it is removed, with whatever it holds,
//! and declared again.

use std::time::Duration;

use anyqueue::{Error, ErrorKind, Result, RetryClass};
use futures_util::FutureExt;
use lapin::Channel;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::time::Instant;

use super::Publisher;
use super::growth::Found;
use super::session::{LockName, Session};
use crate::error::{ERRORS, Right, is_locked, locked_here};
use crate::link::channel;
use crate::names::Names;
use crate::topology::{exists, has_leader, remove};

/// The time between two attempts. Declaring a queue takes about 20 ms, and the server logs each failed
/// attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// If a client died while it was declaring a queue, the queue runs after this time, if it ever does, because
/// the server finishes what it has begun. In trials it took up to 0.7 s on a very busy machine.
const UNFINISHED: Duration = Duration::from_secs(2);

/// The time between two attempts while another client waits for the queue to become old.
const GROWING_INTERVAL: Duration = Duration::from_millis(200);

/// The purpose of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It keeps messages until they are pulled.
    Keeps,
    /// It holds messages for a certain time and passes them on.
    Holds,
}

/// The lock for declaring a queue. Dropping it releases the lock.
pub(super) struct DeclareLock {
    channel: Channel,
    name: LockName,
}

impl Publisher {
    /// Waits until a queue is declared, or takes the lock for declaring it here; gives up at `until`. `made` is
    /// the mark that the queue gets once it is declared. Also returns whether it is old.
    pub(super) async fn lock_unless_declared(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        (queue, made): (&str, &str),
        purpose: Purpose,
        until: Instant,
    ) -> Result<(Option<DeclareLock>, bool)> {
        let trusted = self.config.queue_age.is_zero();
        let is_usable =
            |found: Found| found == Found::Old || found == Found::Made && purpose == Purpose::Keeps;
        loop {
            let found = self.find(session, control, queue, Some(made.to_owned())).await?;
            if is_usable(found) {
                return Ok((None, found == Found::Old || trusted));
            }
            let pause = if found == Found::Made { GROWING_INTERVAL } else { RETRY_INTERVAL };
            let lock = match self.on(&session.conn, self.try_lock(session, queue)).await {
                Err(error) if is_locked(&error) && Instant::now() + pause < until => None,
                locked => Some(locked?),
            };
            if let Some(lock) = lock {
                // The previous holder of the lock may have declared the queue.
                let found = self.find(session, control, queue, Some(made.to_owned())).await?;
                if is_usable(found) {
                    return Ok((None, found == Found::Old || trusted));
                }
                self.prepare(session, control, queue, made, found, purpose).await?;
                return Ok((Some(lock), trusted));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Under the lock, cleans up what another client has left behind.
    async fn prepare(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: &str,
        found: Found,
        purpose: Purpose,
    ) -> Result<()> {
        let looking = async { exists(session.control(control).await?, queue.to_owned()).await };
        let mut is_there = self.on(&session.conn, looking).await?;
        if is_there && found == Found::Nothing {
            tokio::time::sleep(UNFINISHED).await;
        }
        if is_there && purpose == Purpose::Holds {
            let looking = async { has_leader(session.control(control).await?, queue.to_owned()).await };
            if !self.on(&session.conn, looking).await? {
                *control = None; // The server no longer reads from this channel.
                return Err(without_leader(queue));
            }
            let removing = async { remove(session.control(control).await?, queue.to_owned()).await };
            self.on(&session.conn, removing).await?;
            is_there = false;
        }
        if !is_there && found != Found::Nothing {
            self.unmark(session, control, made.to_owned()).await?;
            self.unmark(session, control, Names::old(queue)).await?;
        }
        Ok(())
    }

    async fn try_lock(&self, session: &Session, queue: &str) -> Result<DeclareLock> {
        // Each attempt uses a new channel, since the server closes it if the attempt fails.
        let name = session.lock(Names::declare_lock(queue)).ok_or_else(|| locked_here(queue))?;
        let lock = DeclareLock { channel: channel(&session.conn, self.limit()).await?, name };
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let declared =
            lock.channel.queue_declare(lock.name.as_str().into(), options, FieldTable::default()).await;
        declared.map_err(|error| Right::Configure.classify(error))?;
        Ok(lock)
    }
}

fn without_leader(queue: &str) -> Error {
    let text = format!(
        "the queue {queue} has no leader: its node may have died while it was being declared. If that lasts, remove it by hand"
    );
    ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::Safe)
}

impl Drop for DeclareLock {
    fn drop(&mut self) {
        // The request is sent at the first poll, and the server does not answer it.
        let options = QueueDeleteOptions { nowait: true, ..QueueDeleteOptions::default() };
        let _ = self.channel.queue_delete(self.name.as_str().into(), options).now_or_never();
    }
}
