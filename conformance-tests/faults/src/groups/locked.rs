//! Faults of groups that stay blocked when their head is gone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, AmendQueueStorage as _, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest,
    RawDelivery, Settlement, async_trait,
};
use anyqueue::{
    Amend, Browsed, CancelOutcome, DeleteOutcome, MAX_PAGE, MessageId, MessageState, Page, PartitionId,
    Regroup, Result, SettleOutcome,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Amended, Client, Entry, Kept, Pulled, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::DeathLocksGroup, &[Clause::Groups], || locks(By::Death)),
    subtle(Fault::CancelLocksGroup, &[Clause::Groups, Clause::Deletion], || locks(By::Cancel)),
    subtle(Fault::DeleteLocksGroup, &[Clause::Groups, Clause::Deletion], || locks(By::Delete)),
    subtle(Fault::PurgeLocksGroup, &[Clause::Groups, Clause::Deletion], || locks(By::Purge)),
    subtle(Fault::RegroupLocksGroup, &[], || locks(By::Regroup)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Death,
    Cancel,
    Delete,
    Purge,
    Regroup,
}

type Group = (PartitionId, Arc<str>);

#[derive(Debug)]
struct Locks {
    by: By,
    locked: Kept<HashSet<Group>>,
    held: Kept<HashMap<Lease, Arc<str>>>,
}

fn locks(by: By) -> Arc<dyn Quirk> {
    Arc::new(Locks { by, locked: Kept::default(), held: Kept::default() })
}

/// Practically forever.
const YEAR: Duration = Duration::from_hours(365 * 24);

impl Locks {
    fn is_locked(&self, delivery: &RawDelivery) -> bool {
        let group = delivery.message.options().group.clone();
        group.is_some_and(|group| self.locked.lock().contains(&(delivery.lease.partition.clone(), group)))
    }

    fn lock_all(&self, partition: &PartitionId, groups: impl IntoIterator<Item = Arc<str>>) {
        if !partition.is_dead_letters() {
            self.locked.lock().extend(groups.into_iter().map(|group| (partition.clone(), group)));
        }
    }
}

async fn browse(client: &Client, partition: &PartitionId) -> Vec<Browsed> {
    client.right.browse(partition, Page::of(MAX_PAGE)).await.unwrap_or_default()
}

/// Returns the groups whose head is among these messages and not held. The head is the oldest message of its
/// group.
fn heads(all: &[Browsed], gone: impl Fn(MessageId) -> bool) -> Vec<Arc<str>> {
    let mut seen = BTreeSet::new();
    let mut heads = Vec::new();
    for browsed in all {
        let Some(group) = browsed.message.options().group.clone() else { continue };
        if seen.insert(Arc::clone(&group))
            && browsed.state != MessageState::Leased
            && gone(browsed.message.id())
        {
            heads.push(group);
        }
    }
    heads
}

#[async_trait]
impl Quirk for Locks {
    /// Postpones the next member of a locked group practically forever.
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            let deliveries = client.right.pull(partition, for_wait(&request, wait)).await?;
            let over = deliveries.is_empty();
            let (locked, free): (Vec<_>, Vec<_>) = deliveries.into_iter().partition(|it| self.is_locked(it));
            for delivery in locked {
                let action = Action::Postpone { delay: YEAR, headers: None };
                client.settle_one(delivery.lease, action).await?;
            }
            let group = |it: &RawDelivery| Some((it.lease.clone(), it.message.options().group.clone()?));
            self.held.lock().extend(free.iter().filter_map(group));
            if over || !free.is_empty() {
                return Ok(free);
            }
        }
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut answers = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Settlement { lease, action, .. } = settlement;
            let dies = matches!(action, Action::Move { to, .. } if *to == lease.partition.dead_letters());
            let group = self.held.lock().get(lease).cloned();
            let locks = self.by == By::Death && dies;
            // The group is locked before a waiting pull can see the next member.
            self.lock_all(&lease.partition, group.clone().filter(|_| locks));
            let answer = client.settle_by(settlement, action.clone()).await;
            if let Some(group) = group.filter(|_| locks && !matches!(answer, Ok(SettleOutcome::Settled))) {
                self.locked.lock().remove(&(lease.partition.clone(), group));
            }
            answers.push(answer);
        }
        answers
    }

    async fn delete(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<DeleteOutcome>> {
        if self.by == By::Delete {
            self.lock_all(partition, heads(&browse(client, partition).await, |id| ids.contains(&id)));
        }
        client.right.delete(partition, ids).await
    }

    async fn cancel(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<CancelOutcome>> {
        if self.by == By::Cancel {
            self.lock_all(partition, heads(&browse(client, partition).await, |id| ids.contains(&id)));
        }
        client.right.request_cancel(partition, ids).await
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let before = browse(client, partition).await;
        let purged = client.right.purge(partition, limit).await?;
        if self.by == By::Purge {
            let left: HashSet<_> = browse(client, partition).await.iter().map(|it| it.message.id()).collect();
            self.lock_all(partition, heads(&before, |id| !left.contains(&id)));
        }
        Ok(purged)
    }

    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        if self.by == By::Regroup && change.group.is_some() {
            let before = browse(client, partition).await;
            let groups = heads(&before, |id| ids.contains(&id));
            self.lock_all(partition, groups.into_iter().filter(|group| leaves(change, group)));
        }
        client.right.amend(partition, ids, change).await
    }
}

/// Returns whether a member of this group is to get another group, or none.
fn leaves(change: &Amend, group: &Arc<str>) -> bool {
    change.group != Some(Regroup::Join(Arc::clone(group)))
}
