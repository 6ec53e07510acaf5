//! One at a time makes a queue.
//!
//! The server shows a quorum queue to others before it runs, and treats them badly until it does: whoever consumes from it loses the
//! connection, with all that is held on it (`INTERNAL_ERROR`, seen on 3.10), and what falls due for it waits for three minutes. Who
//! declares it in that moment is told that it is there, and cannot ask whether it runs. So nobody declares a queue that another may be
//! making, and nobody is told of it before it is made: then it has a mark. Who makes it is known by an exclusive queue. That ends with
//! its connection; what its maker has left behind without a mark is given some time.

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
use crate::topology::exists;

/// Between two attempts. Making a queue takes some 20 ms, and the server notes each attempt that fails in its log.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A queue whose maker has died runs after so long, if ever: the server goes on with what it had begun. In trials it took up to 0.7 s on
/// a machine that was very busy.
const UNFINISHED: Duration = Duration::from_secs(2);

/// The right to make a queue, until it is dropped.
pub(super) struct DeclareLock {
    channel: Channel,
    name: String,
}

impl Publisher {
    /// Waits until a queue is made, or may be made here. `made` is the mark that it gets then. Answers also whether it is old.
    pub(super) async fn lock_unless_declared(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: &str,
    ) -> Result<(Option<DeclareLock>, bool)> {
        let (end, trusted) = (Instant::now() + self.limit(), self.config.queue_age.is_zero());
        loop {
            let found = self.find(session, control, queue, Some(made.to_owned())).await?;
            if found.is_made() {
                return Ok((None, found == Found::Old || trusted));
            }
            match self.on(&session.conn, self.try_lock(session, queue)).await {
                Ok(lock) => {
                    self.prepare(session, control, queue, made, found).await?;
                    return Ok((Some(lock), trusted));
                }
                Err(error) if is_locked(&error) && Instant::now() + RETRY_INTERVAL < end => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whoever has the turn looks what others have left behind.
    async fn prepare(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: &str,
        found: Found,
    ) -> Result<()> {
        let looking = async { exists(session.control(control).await?, queue.to_owned()).await };
        if self.on(&session.conn, looking).await? {
            if !self.find(session, control, queue, Some(made.to_owned())).await?.is_made() {
                tokio::time::sleep(UNFINISHED).await;
            }
        } else if found == Found::Removed {
            self.unmark(session, control, made.to_owned()).await?;
            self.unmark(session, control, Names::old(queue)).await?;
        }
        Ok(())
    }

    async fn try_lock(&self, session: &Session, queue: &str) -> Result<DeclareLock> {
        // A channel for each attempt: one that fails ends it.
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
        // Sent when it is first polled, and the server sends no answer.
        let options = QueueDeleteOptions { nowait: true, ..QueueDeleteOptions::default() };
        let _ = self.channel.queue_delete(self.name.as_str().into(), options).now_or_never();
    }
}
