//! Amending messages that wait.

use std::time::SystemTime;

use anyqueue::adapter::{AmendQueueStorage, async_trait};
use anyqueue::{Amend, AmendOutcome, Error, ErrorKind, MessageId, Operation, PartitionId, Regroup, Result};
use uuid::Uuid;

use crate::RedisQueue;
use crate::clock::millis;
use crate::error::{ERRORS, NAME, unexpected_reply};
use crate::inspect::IDS_PER_CALL;
use crate::reply::bytes;
use crate::script;

#[async_trait]
impl AmendQueueStorage for RedisQueue {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        let mut outcomes = Vec::with_capacity(ids.len());
        while let Some(left) = ids.get(outcomes.len()..).filter(|left| !left.is_empty()) {
            let some = left.get(..IDS_PER_CALL).unwrap_or(left);
            match self.amend_some(partition, some, change).await {
                Ok(letters) => {
                    for (id, letter) in some.iter().zip(letters) {
                        outcomes.push(self.outcome(partition, *id, letter).await.map_err(stamp));
                    }
                }
                Err(error) => outcomes.extend(some.iter().map(|_| Err(stamp(error.clone())))),
            }
        }
        outcomes
    }
}

impl RedisQueue {
    /// Amends the first of these messages. Returns a letter for each one that was processed.
    async fn amend_some(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Result<Vec<u8>> {
        if change.disabled.is_some() || change.group.is_some() {
            self.register_counted(partition).await?;
        } else {
            self.register_amended(partition).await?;
        }
        let mut call = self.new_call(&script::AMEND, partition, ids.len() + 5, 32 * ids.len() + 512);
        // If a connection breaks, the client of a cluster repeats a call by itself, which must not undo what
        // others did in between.
        let name = self.inner.config.is_cluster().then(Uuid::new_v4);
        call.arg(name.as_ref().map_or(&[], |name| name.as_bytes()));
        let delay = change.delay(SystemTime::UNIX_EPOCH).map(|delay| 1000 * millis(delay));
        for number in [change.priority.map(u64::from), delay] {
            call.arg(number.map(|number| number.to_string()).unwrap_or_default().as_bytes());
        }
        let group = match &change.group {
            Some(Regroup::Join(group)) => format!("+{group}"),
            Some(Regroup::Leave) => "-".to_owned(),
            None => String::new(),
        };
        call.arg(group.as_bytes());
        call.arg(match change.disabled {
            Some(true) => b"1",
            Some(false) => b"0",
            None => b"",
        });
        for id in ids {
            call.arg(id.as_bytes());
        }
        let letters = bytes(self.run(&call, Operation::Amend).await?)?;
        if letters.is_empty() { Err(unexpected_reply()) } else { Ok(letters) }
    }

    async fn outcome(&self, partition: &PartitionId, id: MessageId, letter: u8) -> Result<AmendOutcome> {
        match letter {
            b'a' => Ok(AmendOutcome::Amended),
            b'l' => Ok(AmendOutcome::Leased),
            b'd' => Ok(AmendOutcome::Dead),
            b'n' => Ok(AmendOutcome::NotFound),
            b'u' => Err(self.why_unreadable(partition, id).await?),
            _ => Err(unexpected_reply()),
        }
    }

    /// Returns the reason why a message could not be amended.
    async fn why_unreadable(&self, partition: &PartitionId, id: MessageId) -> Result<Error> {
        let mut shown = Vec::new();
        self.show(partition, &[id], &mut shown).await?;
        let why = shown.pop().and_then(|browsed| browsed.unreadable);
        Ok(why.unwrap_or_else(|| {
            let text = "the message has parts that this release does not know: amend it with the release that wrote it";
            ERRORS.error(ErrorKind::Incompatible, text)
        }))
    }
}

/// A repetition is safe: amending again has the same result.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Amend)
}
