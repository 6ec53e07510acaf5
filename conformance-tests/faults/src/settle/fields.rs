//! Faults of what a message carries: one field is lost by one kind of settlement.

use std::collections::HashSet;
use std::sync::Arc;

use anyqueue::adapter::{Action, PullQueueStorage as _, PullRequest, Settlement, async_trait};
use anyqueue::{Browsed, MessageData, MessageId, PartitionId, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Originals, Pulled, Quirk, Settled, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::PostponeLosesSession, &[Clause::ContentIntact, Clause::SettleActions], || {
        lost(postponed, Field::Session)
    }),
    subtle(Fault::RetryLosesMaxRetries, &[Clause::ContentIntact, Clause::SettleActions], || {
        lost(failed, Field::MaxRetries)
    }),
    subtle(Fault::ReleaseLosesTask, &[Clause::ContentIntact, Clause::SettleActions], || {
        lost(released, Field::Task)
    }),
    subtle(Fault::RedeliveryLosesExpiry, &[Clause::ContentIntact], || {
        Arc::new(RedeliveryLosesExpiry::default())
    }),
    subtle(Fault::MoveLosesMaxDuration, &[Clause::ContentIntact, Clause::SettleActions], || {
        lost(moved, Field::MaxDuration)
    }),
    subtle(Fault::RedriveForgetsPriority, &[Clause::SettleActions, Clause::DeadLetters], || {
        forgotten(|message| message.with_priority(0))
    }),
    subtle(Fault::RedriveForgetsGroup, &[Clause::SettleActions, Clause::DeadLetters], || {
        forgotten(without_group)
    }),
];

#[derive(Clone, Copy, Debug)]
enum Field {
    Session,
    Task,
    MaxRetries,
    MaxDuration,
    Expiry,
}

impl Field {
    fn taken_from(self, message: &MessageData) -> MessageData {
        let mut options = message.options().clone();
        match self {
            Self::MaxRetries => options.max_retries = None,
            Self::MaxDuration => options.max_duration = None,
            Self::Expiry => options.expiry = None,
            Self::Session | Self::Task => {}
        }
        let mut left = MessageData::with_id(message.id(), message.payload_bytes())
            .with_headers(message.headers().clone())
            .with_options(options);
        if let Some(session) = message.session_id().filter(|_| !matches!(self, Self::Session)) {
            left = left.with_session_id(session);
        }
        if let Some(task) = message.task_id().filter(|_| !matches!(self, Self::Task)) {
            left = left.with_task_id(task);
        }
        left
    }
}

fn postponed(action: &Action) -> bool {
    matches!(action, Action::Postpone { .. })
}

fn failed(action: &Action) -> bool {
    *action == Action::Retry
}

fn released(action: &Action) -> bool {
    *action == Action::Release
}

fn moved(action: &Action) -> bool {
    matches!(action, Action::Move { .. })
}

/// Messages that were settled in this way have lost the field.
#[derive(Debug)]
struct Lost {
    by: fn(&Action) -> bool,
    field: Field,
    without: Kept<HashSet<MessageId>>,
}

fn lost(by: fn(&Action) -> bool, field: Field) -> Arc<dyn Quirk> {
    Arc::new(Lost { by, field, without: Kept::default() })
}

#[async_trait]
impl Quirk for Lost {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let without = self.without.lock();
        for delivery in deliveries.iter_mut().filter(|delivery| without.contains(&delivery.lease.id)) {
            delivery.message = self.field.taken_from(&delivery.message);
        }
        drop(without);
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        let done = settlements.iter().zip(&answers);
        let done = done.filter(|(it, answer)| (self.by)(&it.action) && answer.is_ok());
        self.without.lock().extend(done.map(|(it, _)| it.lease.id));
        answers
    }
}

/// A message that was delivered before has lost its expiry.
#[derive(Debug, Default)]
struct RedeliveryLosesExpiry {
    delivered: Kept<HashSet<MessageId>>,
}

#[async_trait]
impl Quirk for RedeliveryLosesExpiry {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        let mut delivered = self.delivered.lock();
        for delivery in &mut deliveries {
            if !delivered.insert(delivery.lease.id) {
                delivery.message = Field::Expiry.taken_from(&delivery.message);
            }
        }
        drop(delivered);
        Ok(deliveries)
    }
}

fn without_group(message: MessageData) -> MessageData {
    let mut options = message.options().clone();
    options.group = None;
    message.with_options(options)
}

/// A message that comes out of the dead letters has lost what decides its place, though it still shows it.
#[derive(Debug)]
struct Forgotten {
    forget: fn(MessageData) -> MessageData,
    originals: Originals,
}

fn forgotten(forget: fn(MessageData) -> MessageData) -> Arc<dyn Quirk> {
    Arc::new(Forgotten { forget, originals: Originals::default() })
}

#[async_trait]
impl Quirk for Forgotten {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.originals.restore(&mut delivery.message);
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, action, .. } = settlement;
            let redriven = match action {
                Action::Move { to, headers }
                    if lease.partition.is_dead_letters() && !to.is_dead_letters() =>
                {
                    client.find(&lease.partition, lease.id).await.map(|shown| (to, headers, shown))
                }
                _ => None,
            };
            let Some((to, headers, Browsed { mut message, .. })) = redriven else {
                answers.push(client.settle_by(settlement, action.clone()).await);
                continue;
            };
            let removed = client.settle_by(settlement, Action::Remove).await;
            if matches!(removed, Ok(SettleOutcome::Settled)) {
                if let Some(headers) = headers {
                    message = message.with_headers(headers.clone());
                }
                self.originals.keep(&message);
                let _ = client.push_one(to, (self.forget)(message)).await;
            }
            answers.push(removed);
        }
        answers
    }
}
