//! Pulls of whole groups that return something else than they should.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use anyqueue::adapter::{Action, PullQueueStorage as _, PullRequest, RawDelivery, Settlement, async_trait};
use anyqueue::{MessageId, PartitionId};
use anyqueue_conformance::Fault;

use super::{BREAKS, are_together, groups, is_whole};
use crate::quirk::{Client, Entry, Kept, Pulled, Quirk, Settled, plain};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::WholeGroupsHeadOnly, BREAKS, || Arc::new(Asks(|_| 1))),
    plain(Fault::WholeGroupsWithoutBound, BREAKS, || Arc::new(Asks(|_| usize::MAX))),
    plain(Fault::WholeGroupsReversed, BREAKS, || Arc::new(Brings(reversed))),
    plain(Fault::WholeGroupsScattered, BREAKS, || Arc::new(Brings(scattered))),
    plain(Fault::WholeGroupsByPriority, BREAKS, || Arc::new(Brings(by_priority))),
    plain(Fault::WholeGroupsBeyondMax, BREAKS, || Arc::new(BeyondMax)),
    plain(Fault::CutMembersHeld, BREAKS, || Arc::new(CutHeld)),
    plain(Fault::WholeGroupsCountHead, BREAKS, || Arc::<CountHead>::default()),
    plain(Fault::WholeGroupsForGood, BREAKS, || Arc::<ForGood>::default()),
    plain(Fault::ExchangeTakesHeads, BREAKS, || Arc::new(ExchangeTakesHeads)),
];

/// Pulls whole groups with another number of members.
#[derive(Debug)]
struct Asks(fn(usize) -> usize);

#[async_trait]
impl Quirk for Asks {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        if is_whole(partition, &request) {
            request.group_members = (self.0)(request.group_members);
        }
        client.right.pull(partition, request).await
    }
}

/// Returns whole groups in another order.
#[derive(Debug)]
struct Brings(fn(Vec<Vec<RawDelivery>>) -> Vec<RawDelivery>);

#[async_trait]
impl Quirk for Brings {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let is_whole = is_whole(partition, &request);
        let deliveries = client.right.pull(partition, request).await?;
        Ok(if is_whole { (self.0)(groups(&deliveries)) } else { deliveries })
    }
}

/// Changes what is behind the first member of each group.
fn with_followers(
    mut groups: Vec<Vec<RawDelivery>>,
    change: impl Fn(&mut [RawDelivery]),
) -> Vec<RawDelivery> {
    for group in &mut groups {
        if let Some((_, followers)) = group.split_first_mut() {
            change(followers);
        }
    }
    groups.concat()
}

fn reversed(groups: Vec<Vec<RawDelivery>>) -> Vec<RawDelivery> {
    with_followers(groups, <[_]>::reverse)
}

fn by_priority(groups: Vec<Vec<RawDelivery>>) -> Vec<RawDelivery> {
    let priority = |delivery: &RawDelivery| Reverse(delivery.message.options().priority);
    with_followers(groups, |followers| followers.sort_by_key(priority))
}

fn scattered(groups: Vec<Vec<RawDelivery>>) -> Vec<RawDelivery> {
    let (mut heads, mut followers) = (Vec::new(), Vec::new());
    for mut group in groups {
        followers.extend(group.drain(1..).collect::<Vec<_>>());
        heads.extend(group);
    }
    [heads, followers].concat()
}

async fn release(client: &Client, deliveries: impl IntoIterator<Item = RawDelivery>) {
    for delivery in deliveries {
        let _lost = client.settle_one(delivery.lease, Action::Release).await;
    }
}

/// Returns as many groups as messages were requested.
#[derive(Debug)]
struct BeyondMax;

#[async_trait]
impl Quirk for BeyondMax {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let max = request.max;
        if !is_whole(partition, &request) {
            return client.right.pull(partition, request).await;
        }
        request.max = max.saturating_mul(request.group_members);
        let mut groups = groups(&client.right.pull(partition, request).await?);
        let beyond = groups.split_off(max.min(groups.len()));
        release(client, beyond.concat()).await;
        Ok(groups.concat())
    }
}

/// Claims the last group as a whole, and returns as much of it as the pull has room for.
#[derive(Debug)]
struct CutHeld;

#[async_trait]
impl Quirk for CutHeld {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let max = request.max;
        if is_whole(partition, &request) {
            request.max = max.saturating_add(request.group_members);
        }
        let mut deliveries = client.right.pull(partition, request).await?;
        let beyond = deliveries.split_off(max.min(deliveries.len()));
        let last = deliveries.last().cloned();
        let is_cut = |one: &RawDelivery| last.as_ref().is_some_and(|last| are_together(last, one));
        release(client, beyond.into_iter().skip_while(is_cut)).await;
        Ok(deliveries)
    }
}

/// How much to subtract from the count of each message.
#[derive(Debug, Default)]
struct CountHead(Kept<HashMap<MessageId, u32>>);

#[async_trait]
impl Quirk for CountHead {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let is_whole = is_whole(partition, &request);
        let deliveries = client.right.pull(partition, request).await?;
        let mut uncounted = self.0.lock();
        let count = |(nth, mut delivery): (usize, RawDelivery)| {
            let off = uncounted.entry(delivery.lease.id).or_default();
            *off += u32::from(is_whole && nth > 0);
            delivery.delivery_count = delivery.delivery_count.map(|count| count.saturating_sub(*off));
            delivery
        };
        Ok(groups(&deliveries)
            .into_iter()
            .flat_map(|group| group.into_iter().enumerate())
            .map(count)
            .collect())
    }
}

/// The most members that each client has requested.
#[derive(Debug, Default)]
struct ForGood(Kept<HashMap<usize, usize>>);

#[async_trait]
impl Quirk for ForGood {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let most = {
            let mut kept = self.0.lock();
            let most = kept.entry(client.number).or_default();
            *most = request.group_members.max(*most);
            *most
        };
        request.group_members = most;
        client.right.pull(partition, request).await
    }
}

#[derive(Debug)]
struct ExchangeTakesHeads;

#[async_trait]
impl Quirk for ExchangeTakesHeads {
    async fn exchange(
        &self,
        client: &Client,
        settlements: &[Settlement],
        partition: &PartitionId,
        mut request: PullRequest,
    ) -> (Settled, Pulled) {
        request.group_members = 1;
        client.right.exchange(settlements, partition, request).await
    }
}
