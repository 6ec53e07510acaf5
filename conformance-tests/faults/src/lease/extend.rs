//! Faults of leases and of cancellation requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, Capabilities, Extension, InspectQueueStorage as _, Lease, LeaseKind, PullQueueStorage as _,
    PullRequest, QueueStorage as _, RawDelivery, Settlement, Token, async_trait,
};
use anyqueue::{CancelOutcome, ExtendOutcome, MessageId, PartitionId, Result, SettleOutcome};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Kept, Pulled, Quirk, Settled, of, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::ConnectionHoldsForever, &[], || Arc::new(HoldsForever)), // written together with its cases
    subtle(Fault::ExtendTakesBatch, &[Clause::LeaseEnd, Clause::Extend], || {
        Arc::new(ExtendTakesBatch::default())
    }),
    subtle(Fault::ExtensionUndoesRelease, &[Clause::Exclusive, Clause::Extend], || {
        Arc::new(ExtensionUndoesRelease::default())
    }),
    subtle(Fault::ExtendNeverShortens, &[Clause::Extend], || extended(never_shorter)),
    subtle(Fault::ExtendAddsUp, &[Clause::Extend], || extended(added_up)),
    subtle(Fault::SecondExtendIgnored, &[Clause::Extend], || extended(first_only)),
    subtle(Fault::FirstLeaseForAll, &[Clause::LeaseEnd], || Arc::new(FirstLeaseForAll::default())),
    subtle(Fault::SecondLeaseEndless, &[Clause::LeaseEnd], || Arc::new(Endless::default())),
    subtle(Fault::DeadLeaseEndless, &[Clause::LeaseEnd, Clause::DeadLetters], || Arc::new(DeadLeaseEndless)),
    subtle(Fault::TokenPerClient, &[Clause::Fencing], || Arc::new(TokenPerClient::default())),
    subtle(Fault::Row129Unleased, &[Clause::Exclusive], || Arc::new(Row129Unleased)),
    subtle(Fault::CancelLostByExtension, &[Clause::Extend], || Arc::new(CancelLostByExtension::default())),
    subtle(Fault::CancelLocal, &[Clause::Extend, Clause::Deletion], || Arc::new(CancelLocal::default())),
];

/// Practically forever.
const DAY: Duration = Duration::from_hours(24);

/// The time between looking and writing, in which others can interfere.
const BETWEEN: Duration = Duration::from_millis(20);

/// For each lease, all leases of its pull.
#[derive(Debug, Default)]
struct ExtendTakesBatch {
    siblings: Kept<HashMap<Lease, Arc<[Lease]>>>,
}

#[async_trait]
impl Quirk for ExtendTakesBatch {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let batch: Arc<[Lease]> = deliveries.iter().map(|delivery| delivery.lease.clone()).collect();
        self.siblings.lock().extend(batch.iter().map(|lease| (lease.clone(), Arc::clone(&batch))));
        Ok(deliveries)
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let answers = client.right.extend(extensions).await;
        for Extension { lease, duration } in extensions {
            let siblings = self.siblings.lock().get(lease).cloned().unwrap_or_default();
            let others = siblings.iter().filter(|other| *other != lease);
            let others = others.map(|other| Extension { lease: other.clone(), duration: *duration });
            client.right.extend(&others.collect::<Vec<_>>()).await;
        }
        answers
    }
}

/// The leases that were released.
#[derive(Debug, Default)]
struct ExtensionUndoesRelease {
    released: Kept<HashSet<Lease>>,
}

#[async_trait]
impl Quirk for ExtensionUndoesRelease {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        let released = settlements.iter().filter(|it| matches!(it.action, Action::Release | Action::Retry));
        self.released.lock().extend(released.map(|it| it.lease.clone()));
        answers
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let answers = client.right.extend(extensions).await;
        tokio::time::sleep(BETWEEN).await;
        for (Extension { lease, duration }, answer) in extensions.iter().zip(&answers) {
            let held = answer.as_ref().is_ok_and(|outcome| *outcome != ExtendOutcome::Lost);
            if held && self.released.lock().contains(lease) {
                let again = PullRequest::new(1, Duration::ZERO, *duration);
                // What this pull takes is held by nobody.
                let _ = client.right.pull(&lease.partition, again).await;
            }
        }
        answers
    }
}

/// What is known of a lease: when it ends, and how often it was extended.
#[derive(Clone, Copy, Debug)]
struct Span {
    until: Instant,
    extensions: u32,
}

/// Extensions are stored with another duration.
#[derive(Debug)]
struct Extensions {
    duration: fn(&Span, Duration) -> Duration,
    spans: Kept<HashMap<Lease, Span>>,
}

fn extended(duration: fn(&Span, Duration) -> Duration) -> Arc<dyn Quirk> {
    Arc::new(Extensions { duration, spans: Kept::default() })
}

fn left(span: &Span) -> Duration {
    span.until.saturating_duration_since(Instant::now())
}

fn never_shorter(span: &Span, duration: Duration) -> Duration {
    duration.max(left(span))
}

fn added_up(span: &Span, duration: Duration) -> Duration {
    duration + left(span)
}

fn first_only(span: &Span, duration: Duration) -> Duration {
    if span.extensions == 0 { duration } else { left(span) }
}

#[async_trait]
impl Quirk for Extensions {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        let span =
            |it: &RawDelivery| Some((it.lease.clone(), Span { until: it.lease_until?, extensions: 0 }));
        self.spans.lock().extend(deliveries.iter().filter_map(span));
        Ok(deliveries)
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let limits = client.right.capabilities().lease;
        let mut stored = extensions.to_vec();
        for Extension { lease, duration } in &mut stored {
            let mut spans = self.spans.lock();
            if let Some(span) =
                spans.get_mut(lease).filter(|_| *duration >= limits.min && *duration <= limits.max)
            {
                *duration = (self.duration)(span, *duration).clamp(limits.min, limits.max);
                *span = Span { until: Instant::now() + *duration, extensions: span.extensions + 1 };
            }
        }
        client.right.extend(&stored).await
    }
}

/// A client uses the first lease that it asked for in all its pulls.
#[derive(Debug, Default)]
struct FirstLeaseForAll {
    first: Kept<HashMap<(usize, PartitionId), Duration>>,
}

#[async_trait]
impl Quirk for FirstLeaseForAll {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let place = (client.number, partition.clone());
        request.lease = *self.first.lock().entry(place).or_insert(request.lease);
        client.right.pull(partition, request).await
    }
}

async fn hold(client: &Client, lease: Lease) {
    client.right.extend(&[Extension { lease, duration: DAY }]).await;
}

/// A message whose lease has ended once does not come back a second time.
#[derive(Debug, Default)]
struct Endless {
    open: Kept<HashSet<MessageId>>,
}

#[async_trait]
impl Quirk for Endless {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        for delivery in &deliveries {
            let ended = !self.open.lock().insert(delivery.lease.id);
            if ended {
                hold(client, delivery.lease.clone()).await;
            }
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let answers = client.right.settle(settlements).await;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            if matches!(answer, Ok(anyqueue::SettleOutcome::Settled)) {
                self.open.lock().remove(&settlement.lease.id);
            }
        }
        answers
    }
}

#[derive(Debug)]
struct DeadLeaseEndless;

#[async_trait]
impl Quirk for DeadLeaseEndless {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        for delivery in deliveries.iter().filter(|_| partition.is_dead_letters()) {
            hold(client, delivery.lease.clone()).await;
        }
        Ok(deliveries)
    }
}

/// The token identifies only the client. Inside, the last delivery of a message to that client counts.
#[derive(Debug, Default)]
struct TokenPerClient {
    last: Kept<HashMap<Lease, Lease>>,
}

impl TokenPerClient {
    fn last(&self, lease: &Lease) -> Lease {
        self.last.lock().get(lease).cloned().unwrap_or_else(|| lease.clone())
    }
}

#[async_trait]
impl Quirk for TokenPerClient {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            let inside = delivery.lease.clone();
            delivery.lease.token = Token::from_bytes(format!("client-{}", client.number));
            self.last.lock().insert(delivery.lease.clone(), inside);
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let last = |it: &Settlement| of(it, self.last(&it.lease));
        client.right.settle(&settlements.iter().map(last).collect::<Vec<_>>()).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let last = |it: &Extension| Extension { lease: self.last(&it.lease), ..it.clone() };
        client.right.extend(&extensions.iter().map(last).collect::<Vec<_>>()).await
    }
}

#[derive(Debug)]
struct Row129Unleased;

#[async_trait]
impl Quirk for Row129Unleased {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deliveries = client.right.pull(partition, request).await?;
        for delivery in deliveries.iter().skip(128) {
            client.settle_one(delivery.lease.clone(), Action::Release).await?;
        }
        Ok(deliveries)
    }
}

#[derive(Debug, Default)]
struct CancelLostByExtension {
    extended: Kept<HashSet<Lease>>,
}

#[async_trait]
impl Quirk for CancelLostByExtension {
    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let mut answers = client.right.extend(extensions).await;
        for (extension, answer) in extensions.iter().zip(&mut answers) {
            let again = !self.extended.lock().insert(extension.lease.clone());
            if again && matches!(answer, Ok(ExtendOutcome::CancelRequested)) {
                *answer = Ok(ExtendOutcome::Extended);
            }
        }
        answers
    }
}

/// The client that asked for each cancellation.
#[derive(Debug, Default)]
struct CancelLocal {
    asked: Kept<HashSet<(usize, MessageId)>>,
}

#[async_trait]
impl Quirk for CancelLocal {
    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        self.asked.lock().extend(ids.iter().map(|id| (client.number, *id)));
        client.right.request_cancel(partition, ids).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let mut answers = client.right.extend(extensions).await;
        for (extension, answer) in extensions.iter().zip(&mut answers) {
            let own = self.asked.lock().contains(&(client.number, extension.lease.id));
            if !own && matches!(answer, Ok(ExtendOutcome::CancelRequested)) {
                *answer = Ok(ExtendOutcome::Extended);
            }
        }
        answers
    }
}

/// Leases that are declared to be connections, and never end.
#[derive(Debug)]
struct HoldsForever;

#[async_trait]
impl Quirk for HoldsForever {
    fn declare(&self, capabilities: &mut Capabilities) {
        capabilities.lease.kind = LeaseKind::Connection;
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut long = request.clone();
        long.lease = Duration::from_hours(1);
        let mut got = client.right.pull(partition, long).await?;
        for delivery in &mut got {
            delivery.lease_until = None;
        }
        Ok(got)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::new();
        for settlement in settlements {
            answers.push(match settlement.action {
                Action::Release => Ok(SettleOutcome::Settled),
                _ => client.settle_by(settlement, settlement.action.clone()).await,
            });
        }
        answers
    }
}
