//! How old queues are. A quorum queue that is younger than about a second is empty after its only node was killed, whatever it had
//! confirmed: seen on 3.10, where the node had not yet noted on disk which log is the queue's. So nobody is told that a message is
//! stored before its queue is old enough: in trials queues of 0.3, 0.6 and 0.9 s were lost, and those of 1.2 s and more kept.
//!
//! Waiting alone proves nothing: the node must have lived through the wait. It has if the connection that it confirmed on still
//! answers afterwards. That answer is to a mark, by which others know that the queue is old. The mark outlives the queue, so it is
//! taken away before a queue that was removed is made anew.

use std::collections::BTreeMap;
use std::time::Duration;

use anyqueue::{Error, ErrorKind, Result};
use lapin::Channel;
use tokio::time::Instant;

use super::Publisher;
use super::publication::Publication;
use super::session::Session;
use crate::error::own;
use crate::names::Names;
use crate::topology::{bind, exists, unbind};

/// How long the server may take to say how old a queue is. Without an answer it counts as young: that costs a wait, no message.
const ASKING: Duration = Duration::from_secs(1);

/// Queues that were young, and since when this session knows them.
pub(super) type Young = BTreeMap<String, Instant>;

impl Publisher {
    /// Whether a queue that is about to be declared is known to be old. If it has a mark but was removed, the mark is taken away.
    pub(super) async fn is_old(
        &self,
        session: &Session,
        control: &mut Option<Channel>,
        queue: &str,
    ) -> Result<bool> {
        if self.config.queue_age.is_zero() {
            return Ok(true);
        }
        let ask = Publication::of(self.names.known(), Names::old(queue), Vec::new());
        let asked = session.publish(&[ask], true, std::time::Instant::now() + ASKING).await;
        if asked.iter().any(Result::is_err) {
            return Ok(false);
        }
        let looking = async { exists(session.control(control).await?, queue.to_owned()).await };
        if self.on(&session.conn, looking).await? {
            return Ok(true);
        }
        let (sink, known, mark) = (self.names.sink(), self.names.known(), Names::old(queue));
        let unmarking = async { unbind(session.control(control).await?, sink, known, mark).await };
        self.on(&session.conn, unmarking).await?;
        Ok(false)
    }

    /// Waits until these queues are old, and tells everybody.
    ///
    /// # Errors
    /// The node that has confirmed messages for them may have died meanwhile, or somebody has removed one: what was confirmed may
    /// be lost.
    pub(super) async fn grown(&self, session: &Session, young: Young) -> Result<()> {
        if young.is_empty() {
            return Ok(());
        }
        for (queue, since) in young {
            tokio::time::sleep_until(since + self.config.queue_age).await;
            match session.young_since(&queue) {
                None => {} // Somebody else has told it, over the same connection.
                Some(now) if now == since => {
                    self.tell_old(session, &queue).await?;
                    session.has_grown_old(&queue, since);
                }
                Some(_) => return Err(lost()),
            }
        }
        if session.is_alive() { Ok(()) } else { Err(lost()) }
    }

    async fn tell_old(&self, session: &Session, queue: &str) -> Result<()> {
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
    own(
        ErrorKind::Unavailable,
        "the connection broke, or the queue was removed, before the queue was old enough to outlive that: the message may be lost",
    )
}
