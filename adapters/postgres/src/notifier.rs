//! Telling other processes what can be pulled.
//!
//! Never in the transaction of a push: committing a notification takes a lock that all commits of the server with one share.
//! So it is sent afterwards, many pushes' worth at once, and in a transaction that waits for no disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyqueue::adapter::Hint;
use anyqueue::{PartitionId, Result};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pool::Pool;
use crate::sql::Statements;

/// The least time between two notifications of one handle.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last one may take when the handle closes.
const FAREWELL: Duration = Duration::from_secs(1);

/// What others are to be told, gathered until it is sent. Bounded by the number of partitions.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    // A std mutex: it is held for a few instructions and never across an await.
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

/// Sends what the outbox holds, from time to time.
pub(crate) struct Notifier {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) channel: String,
    pub(crate) sender: u64,
}

impl Notifier {
    /// Runs until the handle closes.
    pub(crate) async fn serve(self, closed: CancellationToken) {
        loop {
            tokio::select! {
                () = closed.cancelled() => break,
                () = self.outbox.filled.notified() => {}
            }
            self.send_or_warn().await;
            tokio::select! {
                () = closed.cancelled() => break,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        let _ = tokio::time::timeout(FAREWELL, self.send_or_warn()).await; // others find the messages by polling
    }

    async fn send_or_warn(&self) {
        if let Err(error) = self.send().await {
            tracing::debug!(%error, "a notification was not sent: waiting pulls elsewhere will find out by polling");
        }
    }

    async fn send(&self) -> Result<()> {
        let hints = self.outbox.take();
        if hints.is_empty() {
            return Ok(());
        }
        let notes: Vec<String> = hints
            .into_iter()
            .map(|(partition, hint)| Note { sender: self.sender, partition, hint }.write())
            .collect();
        self.pool.fetch(self.statements.notify.query().bind(self.channel.clone()).bind(notes)).await.map(drop)
    }
}

/// What one notification says: `sender dead ready due_ms name`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Which handle sent it; it need not wake itself.
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
}
