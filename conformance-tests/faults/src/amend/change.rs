//! Amendments that do something other than what was requested, or nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{
    Action, AmendQueueStorage as _, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    async_trait,
};
use anyqueue::{Amend, AmendOutcome, Browsed, MessageData, MessageId, MessageState, PartitionId, Regroup};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Amended, Client, Entry, Kept, Pulled, Pushed, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::AmendIgnored, BREAKS, || Arc::new(Instead(|_, _| Amend::new()))),
    plain(Fault::AmendsLeased, BREAKS, || Arc::<Leased>::default()),
    plain(Fault::AmendsFirstOnly, BREAKS, || Arc::new(FirstOnly)),
    plain(Fault::AmendsOneThing, BREAKS, || Arc::new(Instead(one_thing))),
    plain(Fault::AmendedDeadNotFound, BREAKS, || Arc::new(DeadNotFound)),
    plain(Fault::AmendedPriorityToEnd, BREAKS, || Arc::new(Instead(priority_to_end))),
    subtle(Fault::AmendedPriorityForgetsDelayed, BREAKS, || Arc::new(Instead(priority_unless_delayed))),
    plain(Fault::AmendedShowsOldPriority, BREAKS, || Arc::<OldPriority>::default()),
    subtle(Fault::NowMovesReady, BREAKS, || Arc::new(Instead(now_to_end))),
    subtle(Fault::NowWakesNobody, BREAKS, || Arc::new(Unheard::of(is_now))),
    plain(Fault::LaterIgnored, BREAKS, || Arc::new(Instead(never_later))),
    subtle(Fault::LaterKeepsPlace, BREAKS, || Arc::new(LaterKeepsPlace)),
    subtle(Fault::SameGroupJoinedAnew, BREAKS, || Arc::new(JoinedAnew)),
    subtle(Fault::AmendEnables, BREAKS, || Arc::new(Instead(enabled_too))),
    plain(Fault::EnabledToEnd, BREAKS, || Arc::new(Instead(enabled_to_end))),
    subtle(Fault::EnabledEarly, BREAKS, || Arc::new(Instead(enabled_now))),
    subtle(Fault::EnabledWakesNobody, BREAKS, || {
        Arc::new(Unheard::of(|change| change.disabled == Some(false)))
    }),
];

/// Empty: these faults were written together with the cases that find them, not from the contract alone.
pub(super) const BREAKS: &[Clause] = &[];

/// The shortest delay: a message with this delay joins the end a moment later.
pub(crate) const TO_THE_END: Duration = Duration::from_nanos(1);

/// Amends one message, which should exist.
pub(super) async fn amend_one(
    client: &Client,
    partition: &PartitionId,
    id: MessageId,
    change: &Amend,
) -> anyqueue::Result<AmendOutcome> {
    let answers = client.right.amend(partition, &[id], change).await;
    answers.into_iter().next().unwrap_or(Ok(AmendOutcome::NotFound))
}

fn delay(change: &Amend) -> Option<Duration> {
    change.delay(SystemTime::UNIX_EPOCH)
}

fn is_now(change: &Amend) -> bool {
    delay(change).is_some_and(|delay| delay.is_zero())
}

fn is_later(change: &Amend) -> bool {
    delay(change).is_some_and(|delay| !delay.is_zero())
}

/// Makes another change than the one that was requested. An empty change only returns what it found.
#[derive(Debug)]
pub(super) struct Instead(pub(super) fn(Amend, &Browsed) -> Amend);

#[async_trait]
impl Quirk for Instead {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let change = match client.find(partition, *id).await {
                Some(found) => (self.0)(change.clone(), &found),
                None => change.clone(),
            };
            answers.push(amend_one(client, partition, *id, &change).await);
        }
        answers
    }
}

fn one_thing(mut change: Amend, _: &Browsed) -> Amend {
    if change.priority.is_some() {
        (change.due, change.group, change.disabled) = (None, None, None);
    }
    change
}

fn priority_to_end(change: Amend, found: &Browsed) -> Amend {
    let moves = change.priority.is_some() && change.due.is_none() && found.state == MessageState::Ready;
    if moves { change.due_in(TO_THE_END) } else { change }
}

fn priority_unless_delayed(mut change: Amend, found: &Browsed) -> Amend {
    if found.state == MessageState::Delayed {
        change.priority = None;
    }
    change
}

fn now_to_end(change: Amend, found: &Browsed) -> Amend {
    let moves = is_now(&change) && found.state == MessageState::Ready;
    if moves { change.due_in(TO_THE_END) } else { change }
}

fn never_later(mut change: Amend, _: &Browsed) -> Amend {
    if is_later(&change) {
        change.due = None;
    }
    change
}

fn enabled_too(change: Amend, found: &Browsed) -> Amend {
    let enables = change.disabled.is_none() && found.state == MessageState::Disabled;
    if enables { change.enable() } else { change }
}

fn enabled_to_end(change: Amend, found: &Browsed) -> Amend {
    let enables = change.disabled == Some(false) && found.state == MessageState::Disabled;
    if enables && found.due_in.is_none() { change.due_in(TO_THE_END) } else { change }
}

fn enabled_now(change: Amend, found: &Browsed) -> Amend {
    let enables = change.disabled == Some(false) && found.state == MessageState::Disabled;
    if enables && change.due.is_none() { change.now() } else { change }
}

#[derive(Debug, Default)]
struct Leased(Kept<HashMap<MessageId, Lease>>);

#[async_trait]
impl Quirk for Leased {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        self.0.lock().extend(deliveries.iter().map(|it| (it.lease.id, it.lease.clone())));
        Ok(deliveries)
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
            let lease = self.0.lock().get(id).cloned();
            if let Some(lease) = lease.filter(|lease| lease.partition == *partition) {
                let _lost = client.settle_one(lease, Action::Release).await;
            }
            answers.push(amend_one(client, partition, *id, change).await);
        }
        answers
    }
}

#[derive(Debug)]
struct FirstOnly;

#[async_trait]
impl Quirk for FirstOnly {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let (first, rest) = ids.split_at(ids.len().min(1));
        let mut answers = client.right.amend(partition, first, change).await;
        answers.extend(client.right.amend(partition, rest, &Amend::new()).await);
        answers
    }
}

#[derive(Debug)]
struct DeadNotFound;

#[async_trait]
impl Quirk for DeadNotFound {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let mut answers = client.right.amend(partition, ids, change).await;
        for answer in &mut answers {
            if let Ok(AmendOutcome::Dead) = answer {
                *answer = Ok(AmendOutcome::NotFound);
            }
        }
        answers
    }
}

#[derive(Debug, Default)]
struct OldPriority(Kept<HashMap<MessageId, u8>>);

#[async_trait]
impl Quirk for OldPriority {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        self.0.lock().extend(messages.iter().map(|it| (it.id(), it.options().priority)));
        client.right.push(partition, messages).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let known = self.0.lock();
        for delivery in &mut deliveries {
            if let Some(priority) = known.get(&delivery.lease.id) {
                delivery.message = delivery.message.clone().with_priority(*priority);
            }
        }
        Ok(deliveries)
    }
}

/// While a pull waits, some amendments are deferred until it has ended.
#[derive(Debug)]
struct Unheard {
    which: fn(&Amend) -> bool,
    waiting: Arc<Kept<usize>>,
}

impl Unheard {
    fn of(which: fn(&Amend) -> bool) -> Self {
        Self { which, waiting: Arc::default() }
    }
}

/// One waiting pull.
struct Waits<'a>(&'a Kept<usize>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

#[async_trait]
impl Quirk for Unheard {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        *self.waiting.lock() += 1;
        let _waits = Waits(&self.waiting);
        client.right.pull(partition, request).await
    }

    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        if !(self.which)(change) || *self.waiting.lock() == 0 {
            return client.right.amend(partition, ids, change).await;
        }
        let (right, waiting) = (client.right.clone(), Arc::clone(&self.waiting));
        let (place, about, put_off) = (partition.clone(), ids.to_vec(), change.clone());
        tokio::spawn(async move {
            while *waiting.lock() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            right.amend(&place, &about, &put_off).await;
        });
        client.right.amend(partition, ids, &Amend::new()).await
    }
}

/// A message that is to be due later is disabled until then.
#[derive(Debug)]
struct LaterKeepsPlace;

#[async_trait]
impl Quirk for LaterKeepsPlace {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let Some(delay) = delay(change).filter(|delay| !delay.is_zero()) else {
            return client.right.amend(partition, ids, change).await;
        };
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let found = client.find(partition, *id).await;
            if found.is_none_or(|found| found.state != MessageState::Ready) {
                answers.push(amend_one(client, partition, *id, change).await);
                continue;
            }
            let mut disabled = change.clone().disable();
            disabled.due = None;
            answers.push(amend_one(client, partition, *id, &disabled).await);
            let (right, place, id) = (client.right.clone(), partition.clone(), *id);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                right.amend(&place, &[id], &Amend::new().enable()).await;
            });
        }
        answers
    }
}

#[derive(Debug)]
struct JoinedAnew;

#[async_trait]
impl Quirk for JoinedAnew {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let Some(Regroup::Join(group)) = &change.group else {
            return client.right.amend(partition, ids, change).await;
        };
        let mut left = HashSet::new();
        for id in ids {
            let found = client.find(partition, *id).await;
            if found.is_some_and(|found| found.message.options().group.as_ref() == Some(group)) {
                left.insert(*id);
            }
        }
        let left: Vec<_> = left.into_iter().collect();
        client.right.amend(partition, &left, &Amend::new().without_group()).await;
        client.right.amend(partition, ids, change).await
    }
}
