//! Faults of names: two partitions are treated as one.

use std::sync::Arc;

use anyqueue::adapter::{
    Extension, InspectQueueStorage as _, Lease, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    Settlement, async_trait,
};
use anyqueue::{Counts, MessageData, PartitionId, Result};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Pulled, Pushed, Quirk, Settled, of, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::NameCutAt63, &[Clause::PartitionsApart], || Arc::new(Renamed(cut_at_63))),
    subtle(Fault::DeadNameCollides, &[Clause::PartitionsApart], || Arc::new(Renamed(dead_by_suffix))),
];

/// Where the messages of a partition really are.
#[derive(Debug)]
struct Renamed(fn(&PartitionId) -> Option<PartitionId>);

fn cut_at_63(partition: &PartitionId) -> Option<PartitionId> {
    let cut = PartitionId::new(partition.name().get(..63)?).ok()?;
    Some(if partition.is_dead_letters() { cut.dead_letters() } else { cut })
}

fn dead_by_suffix(partition: &PartitionId) -> Option<PartitionId> {
    let name = partition.name().strip_suffix("-dead").filter(|_| !partition.is_dead_letters())?;
    PartitionId::new(name).ok().map(|live| live.dead_letters())
}

impl Renamed {
    fn place(&self, partition: &PartitionId) -> PartitionId {
        (self.0)(partition).unwrap_or_else(|| partition.clone())
    }

    fn lease(&self, lease: &Lease) -> Lease {
        Lease { partition: self.place(&lease.partition), ..lease.clone() }
    }
}

#[async_trait]
impl Quirk for Renamed {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        client.right.push(&self.place(partition), messages).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(&self.place(partition), request).await?;
        for delivery in &mut deliveries {
            delivery.lease.partition = partition.clone();
        }
        Ok(deliveries)
    }

    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let placed = settlements.iter().map(|settlement| {
            let mut placed = of(settlement, self.lease(&settlement.lease));
            if let anyqueue::adapter::Action::Move { to, .. } = &mut placed.action {
                *to = self.place(to);
            }
            placed
        });
        client.right.settle(&placed.collect::<Vec<_>>()).await
    }

    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let placed = extensions.iter().map(|it| Extension { lease: self.lease(&it.lease), ..it.clone() });
        client.right.extend(&placed.collect::<Vec<_>>()).await
    }

    async fn counts(&self, client: &Client, partition: &PartitionId) -> Result<Counts> {
        client.right.counts(&self.place(partition)).await
    }
}
