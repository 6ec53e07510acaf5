//! A member whose delay is over joins its group only when somebody pulls.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::adapter::{
    AmendQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, async_trait,
};
use anyqueue::{Amend, MessageData, MessageId, PartitionId};
use anyqueue_conformance::{Clause, Fault};

use crate::amend::change::TO_THE_END;
use crate::quirk::{Client, Entry, Kept, Pulled, Pushed, Quirk, subtle};

pub(crate) const FAULTS: &[Entry] =
    &[subtle(Fault::MaturesAtPull, &[Clause::Groups], || Arc::<MaturesAtPull>::default())];

/// A delayed member; nobody has pulled since it was pushed.
#[derive(Debug)]
struct Unseen {
    partition: PartitionId,
    id: MessageId,
    due: Instant,
}

#[derive(Debug, Default)]
struct MaturesAtPull(Kept<Vec<Unseen>>);

impl MaturesAtPull {
    fn due(&self, partition: &PartitionId, now: Instant) -> Vec<MessageId> {
        let unseen = self.0.lock();
        unseen.iter().filter(|one| one.partition == *partition && one.due <= now).map(|one| one.id).collect()
    }
}

#[async_trait]
impl Quirk for MaturesAtPull {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let answers = client.right.push(partition, messages).await;
        // Members that join a group now get ahead of those that should have joined before.
        for id in self.due(partition, client.server.now()) {
            client.right.amend(partition, &[id], &Amend::new().due_in(TO_THE_END)).await;
        }
        let (now, wall) = (client.server.now(), client.clock.wall());
        let delayed = messages.iter().filter(|message| message.options().group.is_some());
        let delayed = delayed.filter_map(|message| {
            let due = now + message.options().delay?.from_now(wall);
            Some(Unseen { partition: partition.clone(), id: message.id(), due })
        });
        self.0.lock().extend(delayed);
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        self.0.lock().retain(|one| one.partition != *partition);
        client.right.pull(partition, request).await
    }
}
