//! How old queues are. A quorum queue that is younger than about a second is empty after its only node was killed, with
//! everything it had confirmed. That was seen on 3.10, where the node had not yet recorded on disk which log belongs to the
//! queue. So a push returns only once its queue is old enough. In trials queues of 0.3, 0.6 and 0.9 s were lost; those of 1.2 s
//! and more were kept.
//!
//! Waiting alone proves nothing: the node must have survived the wait. It has, if the connection that it confirmed on still
//! answers afterwards. That answer sets a mark, which tells other clients that the queue is old. The mark outlives the queue, so
//! it is removed before a removed queue is declared again.

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
    /// What is known about a queue that is to be declared. `made` is the mark that it got when it was declared.
    ///
    /// # Errors
    /// The server has refused the question, or not answered. Nothing was stored, so it can be asked again.
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
            // The server has just started, and the queue that takes the questions is not ready.
            tokio::time::sleep(POLL_INTERVAL).await;
            session.publish_again(&asked, &mut answers, is_refused, end).await;
        }
        // Without an answer nothing is known. A queue in use could be taken for one that nobody has finished.
        if let Some(error) = answers.iter().filter_map(|answer| answer.as_ref().err()).find(is_unanswered) {
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

    /// Has a queue marked for all clients once it is old, whoever waits for that. It is known to the session by this name. Others are
    /// kept out by the lock until then; if it cannot be marked, the session declares it anew when it is needed again.
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
                return; // It was declared anew, which is another growth.
            }
            if within(limit, mark_old(&session, &names, &queue)).await.is_ok() {
                is_old.send_replace(true);
                session.growing.end(&queue, &growth);
            } else {
                // This growth stays, closed, for pushes that have found the queue known and are yet to look whether it is old.
                session.forget(&known_as);
            }
            drop(lock);
        });
    }

    /// Waits until these queues are old and marked. That ends: each is marked or given up within `queue_age` and one call.
    ///
    /// # Errors
    /// The node that confirmed their messages may have died meanwhile, or somebody has removed a queue: confirmed messages may be
    /// lost.
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

/// On a channel of its own: others may be waited for on the session's.
async fn mark_old(session: &Session, names: &Names, queue: &str) -> Result<()> {
    let channel = session.conn.create_channel().await.map_err(classify)?;
    bind(&channel, names.sink(), names.known(), Names::old(queue)).await?;
    // What it was for is done, whatever becomes of it.
    let _ = channel.close(200, "done".into()).await;
    Ok(())
}

fn is_unanswered(error: &&Error) -> bool {
    !is_unroutable(error)
}

fn lost() -> Error {
    ERRORS.error(
        ErrorKind::Unavailable,
        "the connection broke, or the queue was removed, before the queue was old enough to survive a crash: the message may be lost",
    )
}
