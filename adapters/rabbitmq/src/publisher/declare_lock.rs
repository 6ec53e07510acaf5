//! Only one client at a time declares a queue.
//!
//! The server shows a quorum queue to other clients before it runs. A client that consumes from it then loses its connection,
//! with everything that is held on it (`INTERNAL_ERROR`, seen on 3.10), and messages that fall due for it wait for three minutes.
//! A client that declares it then is told that it exists, and cannot find out whether it runs. So a client declares a queue only
//! while it holds a lock, and other clients use the queue only once it has a mark. The lock is an exclusive queue, which ends
//! with its connection. A queue that was left behind without a mark is given some time.
//!
//! A queue that holds messages for a time learns how long only after it runs, and an earlier message stays in it forever, with all
//! behind it. So nobody may send to it before it is made. The server also brings back a queue whose node died soon after it was
//! declared, as it does not bring back how long that holds messages (3.10, read in its code and seen). So such a queue
//! is used only by who has made it, and by others once it is old. If it does not become old, and is empty, it is made anew.

use std::time::Duration;

use anyqueue::Result;
use futures_util::FutureExt;
use lapin::Channel;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::time::Instant;

use super::Publisher;
use super::age::Found;
use super::session::Session;
use crate::error::{Right, is_locked};
use crate::link::channel;
use crate::names::Names;
use crate::topology::{exists, remove_if_empty};

/// The time between two attempts. Declaring a queue takes some 20 ms, and the server logs each failed attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// After this time a queue runs whose client died while declaring it, if it ever does: the server finishes what it has begun. In
/// trials it took up to 0.7 s on a very busy machine.
const UNFINISHED: Duration = Duration::from_secs(2);

/// From a queue being old to the mark that says so. Whoever made it has sent two requests by then.
const MARKED_OLD: Duration = Duration::from_secs(5);

/// What a queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It keeps messages until somebody takes them.
    Keeps,
    /// It holds them for a time and hands them on.
    Holds,
}

/// The lock for declaring a queue. Dropping it unlocks.
pub(super) struct DeclareLock {
    channel: Channel,
    name: String,
}

impl Publisher {
    /// Waits until a queue is declared, or takes the lock for declaring it here. `made` is the mark that it gets then. Also
    /// returns whether it is old.
    pub(super) async fn lock_unless_declared(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: &str,
        purpose: Purpose,
    ) -> Result<(Option<DeclareLock>, bool)> {
        let (start, limit, trusted) = (Instant::now(), self.limit(), self.config.queue_age.is_zero());
        let doubtful = start + self.config.queue_age + MARKED_OLD;
        let is_usable = |found: Found| {
            found == Found::Old || found == Found::Made && (trusted || purpose == Purpose::Keeps)
        };
        loop {
            let mut found = self.find(session, control, queue, Some(made.to_owned())).await?;
            let mut lock = None;
            if !found.is_made() || !is_usable(found) && Instant::now() >= doubtful {
                match self.on(&session.conn, self.try_lock(session, queue)).await {
                    Err(error) if is_locked(&error) && Instant::now() + RETRY_INTERVAL < start + limit => {}
                    locked => lock = Some(locked?),
                }
                // Who had the lock may have made it.
                found = self.find(session, control, queue, Some(made.to_owned())).await?;
            }
            if is_usable(found) {
                return Ok((None, found == Found::Old || trusted));
            }
            if lock.is_some() && (found != Found::Made || Instant::now() >= doubtful) {
                self.prepare(session, control, queue, made, found, purpose).await?;
                return Ok((lock, trusted));
            }
            drop(lock);
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// With the lock, deals with what another client has left behind.
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
            let removing = async { remove_if_empty(session.control(control).await?, queue.to_owned()).await };
            is_there = !self.on(&session.conn, removing).await?;
        }
        if !is_there && found != Found::Nothing {
            self.unmark(session, control, made.to_owned()).await?;
            self.unmark(session, control, Names::old(queue)).await?;
        }
        Ok(())
    }

    async fn try_lock(&self, session: &Session, queue: &str) -> Result<DeclareLock> {
        // A channel for each attempt: the server closes it if the attempt fails.
        let lock = DeclareLock {
            channel: channel(&session.conn, self.limit()).await?,
            name: Names::declare_lock(queue),
        };
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let declared =
            lock.channel.queue_declare(lock.name.as_str().into(), options, FieldTable::default()).await;
        declared.map_err(|error| Right::Configure.classify(error))?;
        Ok(lock)
    }
}

impl Drop for DeclareLock {
    fn drop(&mut self) {
        // The request is sent at the first poll, and the server does not answer it.
        let options = QueueDeleteOptions { nowait: true, ..QueueDeleteOptions::default() };
        let _ = self.channel.queue_delete(self.name.as_str().into(), options).now_or_never();
    }
}
