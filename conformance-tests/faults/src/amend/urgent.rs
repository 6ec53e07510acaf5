//! Messages that do not become urgent, or not in the right way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{
    AmendQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, async_trait,
};
use anyqueue::{Amend, MessageData, MessageId, MessageState, PartitionId};
use anyqueue_conformance::Fault;

use super::change::{BREAKS, TO_THE_END};
use crate::quirk::{Amended, Client, Entry, Kept, Pulled, Pushed, Quirk, plain, subtle};
use crate::right::Right;

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::UrgentNever, BREAKS, || Arc::new(Otherwise(|_, _| None))),
    plain(Fault::UrgentAtOnce, BREAKS, || Arc::new(Otherwise(|_, _| Some(Duration::ZERO)))),
    subtle(Fault::UrgentForgetsDelayed, BREAKS, || {
        Arc::new(Otherwise(|message, wait| message.options().delay.is_none().then_some(wait)))
    }),
    subtle(Fault::UrgentToEnd, BREAKS, || timed(Wrong::ToEnd)),
    subtle(Fault::UrgentEndsDelay, BREAKS, || timed(Wrong::EndsDelay)),
    subtle(Fault::UrgentForgetsHeld, BREAKS, || timed(Wrong::ForgetsHeld)),
    subtle(Fault::UrgentForgetsReturned, BREAKS, || timed(Wrong::ForgetsReturned)),
    subtle(Fault::UrgentForgetsDisabled, BREAKS, || timed(Wrong::ForgetsDisabled)),
    subtle(Fault::UrgentShown, BREAKS, || timed(Wrong::Shown)),
    subtle(Fault::AmendmentEndsUrgency, BREAKS, || timed(Wrong::ForgetsAmended)),
    subtle(Fault::UrgentForGood, BREAKS, || Arc::<ForGood>::default()),
];

fn wait(message: &MessageData) -> Option<Duration> {
    message.urgent_after(SystemTime::UNIX_EPOCH)
}

fn with_wait(message: &MessageData, wait: Option<Duration>) -> MessageData {
    let mut options = message.options().clone();
    options.urgent_after = None;
    let without = message.clone().with_options(options);
    match wait {
        Some(wait) => without.with_urgent_after(wait),
        None => without,
    }
}

/// Pushes messages with another time at which they become urgent, or with none.
#[derive(Debug)]
struct Otherwise(fn(&MessageData, Duration) -> Option<Duration>);

#[async_trait]
impl Quirk for Otherwise {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let other = |message: &MessageData| match wait(message) {
            Some(wait) => with_wait(message, (self.0)(message, wait)),
            None => message.clone(),
        };
        client.right.push(partition, &messages.iter().map(other).collect::<Vec<_>>()).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    ToEnd,
    EndsDelay,
    ForgetsHeld,
    ForgetsReturned,
    ForgetsDisabled,
    ForgetsAmended,
    Shown,
}

/// Makes messages urgent by amending them at their time, as well as that can be done.
#[derive(Debug)]
struct Timed {
    wrong: Wrong,
    /// The priorities that the messages should show.
    shown: Kept<HashMap<MessageId, u8>>,
    amended: Arc<Kept<HashSet<MessageId>>>,
}

fn timed(wrong: Wrong) -> Arc<dyn Quirk> {
    Arc::new(Timed { wrong, shown: Kept::default(), amended: Arc::default() })
}

impl Timed {
    /// Waits until the message's time has come, then makes it urgent.
    fn lift(&self, client: &Client, partition: &PartitionId, id: MessageId, wait: Duration) {
        let (right, place, wrong) = (client.right.clone(), partition.clone(), self.wrong);
        let (amended, due) = (Arc::clone(&self.amended), Instant::now() + wait);
        tokio::spawn(async move {
            tokio::time::sleep_until(due.into()).await;
            if wrong == Wrong::ForgetsAmended && amended.lock().contains(&id) {
                return;
            }
            lift_now(&right, &place, id, wrong).await;
        });
    }
}

async fn lift_now(right: &Right, place: &PartitionId, id: MessageId, wrong: Wrong) {
    let Some(found) = right.find(place, id).await else { return };
    let is_forgotten = match wrong {
        Wrong::ForgetsReturned => found.delivery_count.is_some_and(|count| count > 0),
        Wrong::ForgetsDisabled => found.state == MessageState::Disabled,
        _ => false,
    };
    let urgent = Amend::new().with_priority(TOP);
    let change = match (wrong, found.state) {
        (Wrong::ToEnd, MessageState::Ready) => urgent.due_in(TO_THE_END),
        (Wrong::EndsDelay, _) => urgent.now(),
        _ => urgent,
    };
    if !is_forgotten {
        right.amend(place, &[id], &change).await;
    }
}

/// The memory backend's highest level.
const TOP: u8 = 9;

#[async_trait]
impl Quirk for Timed {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let plain: Vec<_> = messages.iter().map(|message| with_wait(message, None)).collect();
        let answers = client.right.push(partition, &plain).await;
        for message in messages {
            if let Some(wait) = wait(message) {
                self.shown.lock().insert(message.id(), message.options().priority);
                self.lift(client, partition, message.id(), wait);
            }
        }
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let shown = self.shown.lock();
        for delivery in deliveries.iter_mut().filter(|_| self.wrong != Wrong::Shown) {
            if let Some(priority) = shown.get(&delivery.lease.id) {
                delivery.message = delivery.message.clone().with_priority(*priority);
            }
        }
        Ok(deliveries)
    }

    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        if let Some(priority) = change.priority {
            self.amended.lock().extend(ids);
            self.shown.lock().extend(ids.iter().map(|id| (*id, priority)));
        }
        client.right.amend(partition, ids, change).await
    }
}

/// Once a message is urgent, another priority has no effect.
#[derive(Debug, Default)]
struct ForGood(Kept<HashMap<MessageId, Instant>>);

#[async_trait]
impl Quirk for ForGood {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let now = Instant::now();
        let moments = messages.iter().filter_map(|message| Some((message.id(), now + wait(message)?)));
        self.0.lock().extend(moments);
        client.right.push(partition, messages).await
    }

    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let mut change = change.clone();
            if self.0.lock().get(id).is_some_and(|moment| *moment < Instant::now()) {
                change.priority = None;
            }
            answers.extend(client.right.amend(partition, &[*id], &change).await);
        }
        answers
    }
}
