//! How old queues are. A quorum queue that is younger than about a second is empty after its only node was killed, with
//! everything it had confirmed. That was seen on 3.10, where the node had not yet recorded on disk which log belongs to the
//! queue. So a push returns only once its queue is old enough. In trials queues of 0.3, 0.6 and 0.9 s were lost; those of 1.2 s
//! and more were kept.
//!
//! Waiting alone proves nothing: the node must have survived the wait. It has, if the connection that it confirmed on still
//! answers afterwards. That answer sets a mark, which tells other clients that the queue is old. The mark outlives the queue, so
//! it is removed before a removed queue is declared again.

use std::time::Duration;

use anyqueue::{Error, ErrorKind, Result};
use lapin::Channel;

use super::Publisher;
use super::publication::{Publication, is_refused};
use super::session::{POLL_INTERVAL, Session, Young};
use crate::error::ERRORS;
use crate::names::Names;
use crate::topology::{bind, exists, unbind};

/// How long the server may take to tell a queue's age. Without an answer the queue counts as young: that costs a wait, but no
/// message.
const ASKING: Duration = Duration::from_secs(1);

/// What is known about a queue that is to be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// It is running.
    Made,
    /// It survives a crash of its node.
    Old,
    /// It existed once.
    Removed,
}

impl Found {
    pub(super) fn is_made(self) -> bool {
        matches!(self, Self::Made | Self::Old)
    }
}

impl Publisher {
    /// What is known about a queue that is to be declared. `made` is the mark that it got when it was declared.
    pub(super) async fn find(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
        made: Option<String>,
    ) -> Result<Found> {
        let ask = |mark| Publication::of(self.names.known(), mark, Vec::new());
        let asked: Vec<_> = std::iter::once(Names::old(queue)).chain(made).map(ask).collect();
        let end = std::time::Instant::now() + ASKING;
        let mut answers = session.publish(&asked, true, end).await;
        while answers.iter().any(|answer| answer.as_ref().is_err_and(is_refused))
            && std::time::Instant::now() < end
        {
            // The server has just started, and the queue that takes the questions is not ready.
            tokio::time::sleep(POLL_INTERVAL).await;
            session.publish_again(&asked, &mut answers, is_refused, end).await;
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

    /// Waits until these queues are old, and marks them for all clients.
    ///
    /// # Errors
    /// The node that confirmed their messages may have died meanwhile, or somebody has removed a queue: confirmed messages may be
    /// lost.
    pub(super) async fn wait_until_old(&self, session: &Session, young: Young) -> Result<()> {
        if young.is_empty() {
            return Ok(());
        }
        for (queue, since) in young {
            tokio::time::sleep_until(since + self.config.queue_age).await;
            match session.young_since(&queue) {
                None => {} // Another task has marked it, over the same connection.
                Some(now) if now == since => {
                    self.announce_old(session, &queue).await?;
                    session.has_grown_old(&queue, since);
                }
                Some(_) => return Err(lost()),
            }
        }
        if session.is_alive() { Ok(()) } else { Err(lost()) }
    }

    async fn announce_old(&self, session: &Session, queue: &str) -> Result<()> {
        if !session.is_alive() {
            return Err(lost());
        }
        let mut control = session.control.lock().await;
        let telling = async {
            let channel = session.control(&mut control).await?;
            bind(channel, self.names.sink(), self.names.known(), Names::old(queue)).await
        };
        self.on(&session.conn, telling).await
    }
}

fn lost() -> Error {
    ERRORS.error(
        ErrorKind::Unavailable,
        "the connection broke, or the queue was removed, before the queue was old enough to survive a crash: the message may be lost",
    )
}
