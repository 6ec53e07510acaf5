//! Roles for children that are killed in the middle of something, or stopped for a while.

use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest, Settlement, Storage};
use anyqueue::{MessageData, PartitionId, Result, SettleOutcome};
use tokio::process::Command;

use super::{Child, ChildEvent, say};
use crate::case::{CaseResult, Stop};

/// How often a payload repeats itself: long enough that a torn one would show.
const REPEATS: usize = 40;

impl Child {
    /// Stops it (SIGSTOP): it holds what it holds, and does nothing.
    ///
    /// # Errors
    /// Inconclusive if it cannot be stopped.
    pub async fn stop(&self) -> CaseResult {
        self.signal("STOP").await
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// Inconclusive if it cannot go on.
    pub async fn resume(&self) -> CaseResult {
        self.signal("CONT").await
    }

    async fn signal(&self, name: &str) -> CaseResult {
        let failed = |what: String| Stop::Inconclusive(format!("no SIG{name} could be sent: {what}"));
        let id = self.process.id().ok_or_else(|| failed("the process has ended".to_owned()))?;
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().await;
        let status = sent.map_err(|error| failed(error.to_string()))?;
        self.history.note(&self.name, format!("SIG{name}"));
        if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
    }
}

pub(super) async fn push_batches(storage: &dyn Storage, name: &str, batch: usize) -> Result<()> {
    let partition = PartitionId::new(name)?;
    for round in 0_usize.. {
        let payload =
            |index: usize| format!("from process {}, {round}.{index}; ", std::process::id()).repeat(REPEATS);
        let messages: Vec<_> = (0..batch).map(|index| MessageData::new(payload(index))).collect();
        for message in &messages {
            let payload = String::from_utf8_lossy(message.payload()).into_owned();
            say(&ChildEvent::Pushing { partition: name.to_owned(), id: message.id().to_string(), payload });
        }
        for (message, answer) in messages.iter().zip(storage.push(&partition, &messages).await) {
            answer?;
            say(&ChildEvent::Pushed { id: message.id().to_string() });
        }
    }
    Ok(())
}

pub(super) async fn consume_late(
    storage: &dyn Storage,
    name: &str,
    count: usize,
    lease_ms: u64,
    hold_ms: u64,
) -> Result<()> {
    let (partition, lease) = (PartitionId::new(name)?, Duration::from_millis(lease_ms));
    let mut held = Vec::new();
    while held.len() < count {
        let request = PullRequest::new(count - held.len(), Duration::from_secs(1), lease);
        held.extend(storage.pull(&partition, request).await?);
    }
    for delivery in &held {
        let id = delivery.lease.id.to_string();
        say(&ChildEvent::Took { id, count: delivery.delivery_count, lease_ms });
    }
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    for delivery in held {
        let id = delivery.lease.id.to_string();
        let settlement = Settlement { lease: delivery.lease, action: Action::Remove };
        for outcome in storage.settle(&[settlement]).await {
            say(&match outcome? {
                SettleOutcome::Settled => ChildEvent::Removed { id: id.clone() },
                SettleOutcome::Lost => ChildEvent::Lost { id: id.clone() },
            });
        }
    }
    Ok(())
}
