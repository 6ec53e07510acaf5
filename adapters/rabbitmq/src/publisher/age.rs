//! How old queues are. A quorum queue that is younger than about a second is empty after its only node was killed, whatever it had
//! confirmed: seen on 3.10, where the node had not yet noted on disk which log is the queue's. So nobody is told that a message is
//! stored before its queue is old enough: in trials queues of 0.3, 0.6 and 0.9 s were lost, and those of 1.2 s and more kept.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::Result;
use tokio::time::Instant;

use super::Publisher;
use super::publication::Publication;
use super::session::Session;
use crate::config::QueueType;
use crate::names::Names;
use crate::topology::bind;

/// How long the server may take to say how old a queue is. Without an answer it counts as young: that costs a wait, no message.
const ASKING: Duration = Duration::from_secs(1);

/// What this publisher knows of the queues that it has declared.
#[derive(Debug, Default)]
pub(super) struct Ages(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Since when it knows them.
    young: HashMap<String, Instant>,
    old: HashSet<String>,
}

impl Ages {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_old(&self, queue: &str) -> bool {
        self.known().old.contains(queue)
    }

    fn young_since(&self, queue: &str) -> Option<Instant> {
        self.known().young.get(queue).copied()
    }

    fn is_young(&self, queue: String) {
        self.known().young.entry(queue).or_insert_with(Instant::now);
    }

    fn has_grown_old(&self, queue: String) {
        let mut known = self.known();
        known.young.remove(&queue);
        known.old.insert(queue);
    }
}

impl Publisher {
    /// Whether there is anything to wait for: seldom.
    pub(crate) fn has_young(&self) -> bool {
        !self.ages.known().young.is_empty()
    }

    /// A queue was declared: is it known to be old? Somebody else may have made it just now, so that not having made it tells nothing.
    pub(super) async fn note_age(&self, session: &Session, queue: String) {
        let matters = self.config.queue_type == QueueType::Quorum && !self.config.queue_age.is_zero();
        if !matters || self.ages.is_old(&queue) {
            return;
        }
        let ask = Publication { exchange: self.names.known(), key: Names::old(&queue), body: Vec::new() };
        let asked = session.publish(&[ask], true, std::time::Instant::now() + ASKING).await;
        if asked.iter().all(Result::is_ok) {
            self.ages.has_grown_old(queue);
        } else {
            self.ages.is_young(queue);
        }
    }

    /// Waits until these queues are old, and tells everybody.
    pub(crate) async fn grown(&self, queues: BTreeSet<String>) {
        for queue in queues {
            let Some(since) = self.ages.young_since(&queue) else { continue };
            tokio::time::sleep_until(since + self.config.queue_age).await;
            if let Err(error) = self.tell_old(&queue).await {
                // Others wait once more than they would have to.
                tracing::debug!(queue, %error, "the age of a queue could not be told");
            }
            self.ages.has_grown_old(queue);
        }
    }

    async fn tell_old(&self, queue: &str) -> Result<()> {
        let session = self.session().await?;
        let mut control = session.control.lock().await;
        let telling = async {
            let channel = session.control(&mut control).await?;
            bind(channel, self.names.sink(), self.names.known(), Names::old(queue)).await
        };
        self.on(&session.conn, telling).await
    }
}
