//! Notifying other processes of what can be pulled, and of the ends of tasks that they watch.
//!
//! Notifications are never sent in the transaction of a push, because committing one takes a lock that is
//! shared by all commits with notifications on the server. They are sent afterwards, for many pushes at once,
//! in a transaction that does not wait for the disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyqueue::adapter::{EndWatches, Hint};
use anyqueue::{PartitionId, Result};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pool::Pool;
use crate::sql::Statements;

/// The shortest time between two notifications of one handle.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last notification may take when the handle closes.
const FAREWELL: Duration = Duration::from_secs(1);

/// Hints for others, collected until they are sent. Bounded by the number of partitions.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    // A std mutex, because it is held for a few instructions and never across an await.
    hints: Mutex<HashMap<PartitionId, Hint>>,
    filled: Notify,
}

impl Outbox {
    pub(crate) fn put(&self, partition: &PartitionId, hint: Hint) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        hints.entry(partition.clone()).or_default().add(hint);
        drop(hints);
        self.filled.notify_one();
    }

    fn take(&self) -> HashMap<PartitionId, Hint> {
        std::mem::take(&mut *self.hints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends the contents of the outbox from time to time.
pub(crate) struct Notifier {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) end_watches: Arc<EndWatches>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) channel: String,
    pub(crate) sender: u64,
}

impl Notifier {
    /// Runs until the handle closes.
    pub(crate) async fn serve(self, closed: CancellationToken) {
        loop {
            let news = tokio::select! {
                () = closed.cancelled() => break,
                () = self.outbox.filled.notified() => Vec::new(),
                news = self.end_watches.news() => news,
            };
            self.send_or_warn(news).await;
            tokio::select! {
                () = closed.cancelled() => break,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        let news = self.end_watches.news().now_or_never().unwrap_or_default();
        let _ = tokio::time::timeout(FAREWELL, self.send_or_warn(news)).await; // others find the messages by polling
    }

    async fn send_or_warn(&self, news: Vec<String>) {
        if let Err(error) = self.send(news).await {
            tracing::debug!(%error, "a notification was not sent: those who wait elsewhere will find out by polling");
        }
    }

    async fn send(&self, news: Vec<String>) -> Result<()> {
        let Self { sender, .. } = self;
        let hints = self.outbox.take().into_iter();
        let hints = hints.map(|(partition, hint)| Note { sender: *sender, partition, hint }.write());
        let notes: Vec<String> =
            hints.chain(news.into_iter().map(|news| about_ends(*sender, &news))).collect();
        if notes.is_empty() {
            return Ok(());
        }
        self.pool.fetch(self.statements.notify.query().bind(self.channel.clone()).bind(notes)).await.map(drop)
    }
}

/// A notification about the ends of tasks: `sender news`. Earlier releases do not read it as a hint.
fn about_ends(sender: u64, news: &str) -> String {
    format!("{sender} {news}")
}

/// Splits a notification, which may be about the ends of tasks, into its sender and its content.
pub(crate) fn split(text: &str) -> Option<(u64, &str)> {
    let (sender, news) = text.split_once(' ')?;
    Some((sender.parse().ok()?, news))
}

/// A notification about messages: `sender dead ready due_ms name`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The handle that sent it, which ignores it.
    pub(crate) sender: u64,
    pub(crate) partition: PartitionId,
    pub(crate) hint: Hint,
}

impl Note {
    fn write(&self) -> String {
        let Self { sender, partition, hint } = self;
        let due_ms = hint.due.map_or_else(|| "-".to_owned(), |due| due.as_millis().to_string());
        format!(
            "{sender} {} {} {due_ms} {}",
            u8::from(partition.is_dead_letters()),
            hint.ready,
            partition.name()
        )
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let sender = words.next()?.parse().ok()?;
        let dead = words.next()? == "1";
        let ready = words.next()?.parse().ok()?;
        let due = words.next()?.parse().ok().map(Duration::from_millis);
        let live = PartitionId::new(words.next()?).ok()?;
        let partition = if dead { live.dead_letters() } else { live };
        Some(Self { sender, partition, hint: Hint { ready, due } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was_written() {
        let partition = PartitionId::new("mail.1").unwrap();
        for (partition, hint) in [
            (partition.clone(), Hint::ready(3)),
            (partition.dead_letters(), Hint { ready: 0, due: Some(Duration::from_millis(450)) }),
        ] {
            let note = Note { sender: 7, partition, hint };
            assert_eq!(Note::read(&note.write()), Some(note));
        }
        assert_eq!(Note::read("who knows"), None);
    }

    #[test]
    fn news_of_ends_are_no_hint_and_hints_no_news_of_ends() {
        let (watches, id) = (Arc::new(EndWatches::default()), anyqueue::MessageId::new());
        for news in [format!("w {id}"), format!("e {id}")] {
            let text = about_ends(7, &news);
            assert_eq!((split(&text), Note::read(&text)), (Some((7, news.as_str())), None));
            assert!(watches.hear(&news));
        }
        let hint =
            Note { sender: 7, partition: PartitionId::new("e").unwrap(), hint: Hint::ready(1) }.write();
        assert!(split(&hint).is_some_and(|(_, text)| !watches.hear(text)));
    }
}
