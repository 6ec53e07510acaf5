//! A server that remembers deduplication keys for a time, whatever becomes of their messages, and does not
//! report duplicates; correct, or with a fault.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Capabilities, Dedup, PullQueueStorage as _, PullRequest, PushQueueStorage as _, Settlement,
    Successor, async_trait,
};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, by, plain};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::WindowIgnored, BREAKS, || faulty(Wrong::Ignored)),
    plain(Fault::WindowPerClient, BREAKS, || faulty(Wrong::PerClient)),
    plain(Fault::WindowEndsWithMessage, BREAKS, || faulty(Wrong::EndsWithMessage)),
    plain(Fault::WindowRace, BREAKS, || faulty(Wrong::Race)),
    plain(Fault::WindowAcrossPartitions, BREAKS, || faulty(Wrong::AcrossPartitions)),
    plain(Fault::WindowKeysCaseless, BREAKS, || faulty(Wrong::KeysCaseless)),
    plain(Fault::WindowDropsMoved, BREAKS, || faulty(Wrong::DropsMoved)),
    plain(Fault::WindowDropsSuccessors, BREAKS, || faulty(Wrong::DropsSuccessors)),
];

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
const BREAKS: &[Clause] = &[];

/// Longer than any case.
const WINDOW: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Ignored,
    PerClient,
    EndsWithMessage,
    /// Looks first and notes the key later, with others in between.
    Race,
    AcrossPartitions,
    KeysCaseless,
    /// Treats a move as a push.
    DropsMoved,
    DropsSuccessors,
}

/// The partition and client that the key belongs to, where these count, and the key.
type Key = (Option<PartitionId>, Option<usize>, String);

#[derive(Debug, Default)]
pub(crate) struct Window {
    wrong: Option<Wrong>,
    keys: Kept<HashSet<Key>>,
    of_message: Kept<HashMap<MessageId, Key>>,
    /// The keys of messages that are stored without one.
    originals: Kept<HashMap<MessageId, Arc<str>>>,
}

fn faulty(wrong: Wrong) -> Arc<dyn Quirk> {
    Arc::new(Window { wrong: Some(wrong), ..Window::default() })
}

impl Window {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    fn key(&self, client: &Client, partition: &PartitionId, message: &MessageData) -> Option<Key> {
        let key = message.options().dedup_key.as_deref().filter(|_| !self.is(Wrong::Ignored))?;
        let key = if self.is(Wrong::KeysCaseless) { key.to_lowercase() } else { key.to_owned() };
        let partition = (!self.is(Wrong::AcrossPartitions)).then(|| partition.clone());
        Some((partition, self.is(Wrong::PerClient).then_some(client.number), key))
    }

    /// Returns whether a push with this key is the first.
    async fn is_first(&self, key: Key) -> bool {
        if !self.is(Wrong::Race) {
            return self.keys.lock().insert(key);
        }
        let is_first = !self.keys.lock().contains(&key);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.keys.lock().insert(key);
        is_first
    }

    /// Returns the message as the correct backend stores it: without its key, which that backend would free
    /// with the message.
    fn without_key(&self, message: &MessageData) -> MessageData {
        let mut options = message.options().clone();
        let Some(key) = options.dedup_key.take() else { return message.clone() };
        self.originals.lock().insert(message.id(), key);
        message.clone().with_options(options)
    }

    async fn push_one(
        &self,
        client: &Client,
        partition: &PartitionId,
        message: &MessageData,
    ) -> anyqueue::Result<PushOutcome> {
        if let Some(key) = self.key(client, partition, message) {
            self.of_message.lock().insert(message.id(), key.clone());
            if !self.is_first(key).await {
                return Ok(PushOutcome::Stored(message.id()));
            }
        }
        client.push_one(partition, self.without_key(message)).await
    }

    /// Returns the settlement that the correct backend is to make.
    fn settlement(&self, client: &Client, settlement: &Settlement) -> Settlement {
        let is_known = |key: Option<Key>| key.is_some_and(|key| self.keys.lock().contains(&key));
        let mut action = settlement.action.clone();
        if let Action::Move { to, .. } = &action
            && self.is(Wrong::DropsMoved)
            && let Some((_, own, key)) = self.of_message.lock().get(&settlement.lease.id).cloned()
            && is_known(Some((Some(to.clone()), own, key)))
        {
            action = Action::Remove;
        }
        if action == Action::Remove
            && self.is(Wrong::EndsWithMessage)
            && let Some(key) = self.of_message.lock().get(&settlement.lease.id)
        {
            self.keys.lock().remove(key);
        }
        let dropped = |it: &&Successor| {
            self.is(Wrong::DropsSuccessors) && is_known(self.key(client, &it.partition, &it.message))
        };
        let then = settlement
            .then
            .iter()
            .filter(|it| !dropped(it))
            .map(|it| Successor { partition: it.partition.clone(), message: self.without_key(&it.message) });
        let then = then.collect();
        by(settlement, action).with_then(then)
    }
}

#[async_trait]
impl Quirk for Window {
    fn declare(&self, capabilities: &mut Capabilities) {
        capabilities.dedup = Dedup::Window(WINDOW);
        capabilities.on_duplicate = false;
    }

    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        // If no message has a key, the order of the batch is left to the correct backend.
        if messages.iter().all(|message| message.options().dedup_key.is_none()) {
            return client.right.push(partition, messages).await;
        }
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            answers.push(self.push_one(client, partition, message).await);
        }
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            if let Some(key) = self.originals.lock().get(&delivery.message.id()) {
                delivery.message = delivery.message.clone().with_dedup_key(key.clone());
            }
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let settlements: Vec<_> = settlements.iter().map(|it| self.settlement(client, it)).collect();
        client.right.settle(&settlements).await
    }
}
