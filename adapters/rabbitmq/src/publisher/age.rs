//! The age of queues. If the only node of a quorum queue is killed while the queue is younger than about a
//! second, the queue is empty afterwards, although it had confirmed messages. That was seen on 3.10, where
//! the node had not yet recorded on disk which log belongs to the queue. So a push returns only once its
//! queue is old enough. In trials queues of 0.3, 0.6 and 0.9 s were lost; those of 1.2 s and more were kept.
//!
//! Waiting alone proves nothing: the node must have survived the wait. It has if the connection on which it
//! confirmed still answers afterwards. After that answer a mark is set, which tells other clients that the
//! queue is old. The mark outlives the queue, so it is removed before a removed queue is declared again.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::{Error, ErrorKind, Result};
use lapin::Channel;
use tokio::sync::watch;

use super::Publisher;
use super::declare_lock::DeclareLock;
use super::growth::{Found, Growth};
use super::publication::{Publication, is_refused, is_unroutable};
use super::session::{POLL_INTERVAL, Session};
use crate::error::{ERRORS, classify};
use crate::link::within;
use crate::names::Names;
use crate::topology::{bind, exists, unbind};

impl Publisher {
    /// Returns what is known about a queue that may have to be declared. `made` is the mark that it got when
    /// it was declared.
    ///
    /// # Errors
    /// If the server refused the question or did not answer. Nothing was stored, so the call can be repeated.
    pub(super) async fn find(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: Option<String>,
    ) -> Result<Found> {
        let ask = |mark| Publication::of(self.names.known(), mark, Vec::new());
        let asked: Vec<_> = std::iter::once(Names::old(queue)).chain(made).map(ask).collect();
        let end = Instant::now() + self.limit();
        let mut answers = session.publish(&asked, true, end).await;
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused))
            && Instant::now() + POLL_INTERVAL < end
        {
            // The server has just started, and the queue for such questions is not ready yet.
            tokio::time::sleep(POLL_INTERVAL).await;
            session.publish_again(&asked, &mut answers, is_refused, end).await;
        }
        // Without an answer nothing is known, and a queue in use must not be mistaken for an abandoned one.
        if let Some(error) =
            answers.iter().filter_map(|answer| answer.as_ref().err()).find(|error| !is_unroutable(error))
        {
            return Err(error.clone().repeatable());
        }
        if answers.iter().all(Result::is_err) {
            return Ok(Found::Nothing);
        }
        let looking = async { exists(session.control(control).await?, queue.to_owned()).await };
        let is_old = answers.first().is_some_and(Result::is_ok);
        Ok(match self.on(&session.conn, looking).await? {
            true if is_old => Found::Old,
            true => Found::Made,
            false => Found::Removed,
        })
    }

    /// Removes a mark of a queue that was removed.
    pub(super) async fn unmark(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        mark: String,
    ) -> Result<()> {
        let unmarking = async {
            let channel = session.control(control).await?;
            unbind(channel, self.names.sink(), self.names.known(), mark).await
        };
        self.on(&session.conn, unmarking).await
    }

    /// Marks a queue as old for all clients once it is, in a task of its own, so that no caller can cut it off.
    /// The lock keeps other clients out until then. `known_as` is the name under which the session knows the
    /// queue; if the mark cannot be set, the session forgets it and declares the queue again when it needs it.
    pub(super) fn grow(
        &self,
        session: &Arc<Session>,
        queue: String,
        known_as: String,
        lock: Option<DeclareLock>,
    ) {
        let (is_old, growth) = watch::channel(false);
        session.growing.begin(&queue, growth.clone());
        let (age, limit, names) = (self.config.queue_age, self.limit(), self.names.clone());
        let (ended, session) = (session.ended.clone(), Arc::downgrade(session));
        tokio::spawn(async move {
            ended.run_until_cancelled(tokio::time::sleep(age)).await;
            let Some(session) = session.upgrade() else { return };
            if !session.growing.is_current(&queue, &growth) {
                return; // It was declared again, which started another growth.
            }
            if within(limit, mark_old(&session, &names, &queue)).await.is_ok() {
                is_old.send_replace(true);
                session.growing.end(&queue, &growth);
            } else {
                // The closed growth stays, for pushes that found the queue known and have yet to check its age.
                session.forget(&known_as);
            }
            drop(lock);
        });
    }

    /// Waits until these queues are old and marked. Each is marked or given up within `queue_age` and one call,
    /// so the wait is bounded.
    ///
    /// # Errors
    /// If the node that confirmed their messages may have died in the meantime, or somebody has removed a
    /// queue: confirmed messages may then be lost.
    pub(super) async fn wait_until_old(&self, session: &Session, young: Vec<Growth>) -> Result<()> {
        if young.is_empty() {
            return Ok(());
        }
        for mut growth in young {
            growth.wait_for(|is_old| *is_old).await.map_err(|_| lost())?;
        }
        if session.is_alive() { Ok(()) } else { Err(lost()) }
    }
}

/// Sets the mark, on a channel of its own: the session's channel may be waiting for other clients.
async fn mark_old(session: &Session, names: &Names, queue: &str) -> Result<()> {
    let channel = session.conn.create_channel().await.map_err(classify)?;
    bind(&channel, names.sink(), names.known(), Names::old(queue)).await?;
    // The mark is set, whether or not the channel closes properly.
    let _ = channel.close(200, "done".into()).await;
    Ok(())
}

fn lost() -> Error {
    ERRORS.error(
        ErrorKind::Unavailable,
        "the connection broke, or the queue was removed, before the queue was old enough to survive a crash: the message may be lost",
    )
}
