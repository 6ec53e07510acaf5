//! Faults in what one client does to the others when it opens or closes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest,
    PushQueueStorage as _, RawDelivery, Settlement, async_trait,
};
use anyqueue::{Error, ErrorKind, MessageData, MessageId, MessageState, PartitionId, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, Settled, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::InitReleasesLeased, &[Clause::Exclusive, Clause::Init], || leases(LeasesEnd::AtInit)),
    subtle(Fault::CloseReleasesAll, &[Clause::Exclusive, Clause::Close], || leases(LeasesEnd::AtClose)),
    subtle(Fault::ClosedKeepsLeases, &[Clause::LeaseEnd, Clause::Close], || leases(LeasesEnd::Never)),
    subtle(Fault::MovedByItsPullerOnly, &[Clause::SettleOutcomes], || {
        Arc::new(MovedByItsPullerOnly::default())
    }),
    subtle(Fault::DelayedDieWithPusher, &[Clause::Stored, Clause::Delays], || {
        Arc::new(DelayedDieWithPusher::default())
    }),
    subtle(Fault::PostponedDieWithClient, &[Clause::SettleActions, Clause::Delays], || {
        Arc::new(PostponedDieWithClient::default())
    }),
];

/// Which clients' leases end, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeasesEnd {
    /// All leases end when any client starts.
    AtInit,
    /// All leases end when any client closes.
    AtClose,
    /// The leases of a closed client never end.
    Never,
}

#[derive(Debug)]
struct Leases {
    end: LeasesEnd,
    held: Kept<HashMap<Lease, usize>>,
}

fn leases(end: LeasesEnd) -> Arc<dyn Quirk> {
    Arc::new(Leases { end, held: Kept::default() })
}

impl Leases {
    async fn release_all(&self, client: &Client) {
        let held = std::mem::take(&mut *self.held.lock());
        let release = |lease| Settlement::new(lease, Action::Release);
        client.right.settle(&held.into_keys().map(release).collect::<Vec<_>>()).await;
    }

    async fn keep_for_ever(&self, client: &Client) {
        let mut own = self.held.lock().clone();
        own.retain(|_, holder| *holder == client.number);
        let keep = |lease| Extension { lease, duration: Duration::from_hours(24) };
        client.right.extend(&own.into_keys().map(keep).collect::<Vec<_>>()).await;
    }
}

#[async_trait]
impl Quirk for Leases {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let held = |delivery: &RawDelivery| (delivery.lease.clone(), client.number);
        self.held.lock().extend(deliveries.iter().map(held));
        Ok(deliveries)
    }

    async fn before_init(&self, client: &Client) {
        if self.end == LeasesEnd::AtInit {
            self.release_all(client).await;
        }
    }

    async fn before_close(&self, client: &Client) {
        match self.end {
            LeasesEnd::AtInit => {}
            LeasesEnd::AtClose => self.release_all(client).await,
            LeasesEnd::Never => self.keep_for_ever(client).await,
        }
    }
}

/// Needs the message for a move, as a broker would, but declares that any client can make it.
#[derive(Debug, Default)]
struct MovedByItsPullerOnly(Kept<HashMap<Lease, usize>>);

#[async_trait]
impl Quirk for MovedByItsPullerOnly {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let pulled = |delivery: &RawDelivery| (delivery.lease.clone(), client.number);
        self.0.lock().extend(deliveries.iter().map(pulled));
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let is_refused = |it: &Settlement| {
            let by_another = self.0.lock().get(&it.lease).is_some_and(|puller| *puller != client.number);
            matches!(it.action, Action::Move { .. }) && by_another
        };
        let mut outcomes = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let refused =
                || Error::new(ErrorKind::InvalidInput, "the client that has the message must move it");
            let outcome = if is_refused(settlement) {
                Err(refused())
            } else {
                client
                    .right
                    .settle(std::slice::from_ref(settlement))
                    .await
                    .pop()
                    .unwrap_or_else(|| Err(refused()))
            };
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// Messages that wait in one client's memory until they are due.
#[derive(Debug, Default)]
struct Waiting(Kept<HashMap<MessageId, (PartitionId, usize)>>);

impl Waiting {
    fn insert(&self, id: MessageId, partition: &PartitionId, client: &Client) {
        self.0.lock().insert(id, (partition.clone(), client.number));
    }

    async fn die_with(&self, client: &Client) {
        let mut own = self.0.lock().clone();
        own.retain(|_, (_, holder)| *holder == client.number);
        for (id, (partition, _)) in own {
            let found = client.find(&partition, id).await;
            if found.is_some_and(|found| found.state == MessageState::Delayed) {
                client.right.delete(&partition, &[id]).await;
            }
        }
    }
}

#[derive(Debug, Default)]
struct DelayedDieWithPusher(Waiting);

#[async_trait]
impl Quirk for DelayedDieWithPusher {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        for message in messages.iter().filter(|message| message.options().delay.is_some()) {
            self.0.insert(message.id(), partition, client);
        }
        client.right.push(partition, messages).await
    }

    async fn before_close(&self, client: &Client) {
        self.0.die_with(client).await;
    }
}

#[derive(Debug, Default)]
struct PostponedDieWithClient(Waiting);

#[async_trait]
impl Quirk for PostponedDieWithClient {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (Settlement { lease, action, .. }, answer) in settlements.iter().zip(&answers) {
            if matches!((action, answer), (Action::Postpone { .. }, Ok(SettleOutcome::Settled))) {
                self.0.insert(lease.id, &lease.partition, client);
            }
        }
        answers
    }

    async fn before_close(&self, client: &Client) {
        self.0.die_with(client).await;
    }
}
