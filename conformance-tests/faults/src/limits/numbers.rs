//! Faults of numbers too small for what they count, and of pages that end too early.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::adapter::{
    InspectQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, async_trait,
};
use anyqueue::{Browsed, MessageData, MessageId, Page, PartitionId, Result};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Pulled, Pushed, Quirk, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::CountOfEightBits, &[Clause::DeliveryCount], || Arc::new(CountOfEightBits)),
    subtle(Fault::LeaseOf32BitMicros, &[Clause::LeaseEnd], || {
        Arc::new(Leased(|lease| micros(low_bits(lease.as_micros()))))
    }),
    subtle(Fault::LeaseCappedAt32BitMicros, &[Clause::LeaseEnd], || {
        Arc::new(Leased(|lease| lease.min(micros(u32::MAX))))
    }),
    subtle(Fault::DelayOf32BitMillis, &[Clause::Delays], || {
        Arc::new(Delayed(|delay| millis(low_bits(delay.as_millis()))))
    }),
    subtle(Fault::DelayCappedAt32BitMicros, &[Clause::Delays], || {
        Arc::new(Delayed(|delay| delay.min(micros(u32::MAX))))
    }),
    subtle(Fault::BrowseEndsAtHundred, &[Clause::Inspection], || Arc::new(BrowseEndsAtHundred)),
];

fn low_bits(number: u128) -> u32 {
    u32::try_from(number & u128::from(u32::MAX)).unwrap_or(u32::MAX)
}

fn micros(number: u32) -> Duration {
    Duration::from_micros(number.into())
}

fn millis(number: u32) -> Duration {
    Duration::from_millis(number.into())
}

#[derive(Debug)]
struct CountOfEightBits;

#[async_trait]
impl Quirk for CountOfEightBits {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            delivery.delivery_count = delivery.delivery_count.map(|count| count % 256);
        }
        Ok(deliveries)
    }
}

/// Uses another lease than was requested, but reports the right one.
#[derive(Debug)]
struct Leased(fn(Duration) -> Duration);

#[async_trait]
impl Quirk for Leased {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let asked = request.lease;
        request.lease = (self.0)(asked).max(millis(1));
        let missing = asked.saturating_sub(request.lease);
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            delivery.lease_until = delivery.lease_until.map(|until| until + missing);
        }
        Ok(deliveries)
    }
}

/// Uses another delay than was requested.
#[derive(Debug)]
struct Delayed(fn(Duration) -> Duration);

#[async_trait]
impl Quirk for Delayed {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let other = |message: &MessageData| {
            let delay = message.delay(SystemTime::UNIX_EPOCH);
            if delay.is_zero() { message.clone() } else { message.clone().with_delay((self.0)(delay)) }
        };
        client.right.push(partition, &messages.iter().map(other).collect::<Vec<_>>()).await
    }
}

#[derive(Debug)]
struct BrowseEndsAtHundred;

#[async_trait]
impl Quirk for BrowseEndsAtHundred {
    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let shown = client.right.browse(partition, Page::of(100)).await?;
        let rest = shown.into_iter().filter(|shown| after.is_none_or(|after| shown.message.id() > after));
        Ok(rest.take(limit).collect())
    }
}
