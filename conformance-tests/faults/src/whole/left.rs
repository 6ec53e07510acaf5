//! Members that are not due but are taken with the others, and disabled ones that join a group too late.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage as _, InspectQueueStorage as _, PullQueueStorage as _, PullRequest, async_trait,
};
use anyqueue::{
    Amend, AmendOutcome, Browsed, MAX_PAGE, MessageId, MessageState, Page, PartitionId, Regroup, Result,
};
use anyqueue_conformance::Fault;

use super::{BREAKS, is_whole};
use crate::quirk::{Amended, Client, Entry, Kept, Pulled, Quirk, plain};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::WholeGroupsTakeDelayed, BREAKS, || {
        Arc::new(TakesToo { state: MessageState::Delayed, change: || Amend::new().now() })
    }),
    plain(Fault::WholeGroupsTakeDisabled, BREAKS, || {
        Arc::new(TakesToo { state: MessageState::Disabled, change: || Amend::new().enable() })
    }),
    plain(Fault::RegroupedWhenEnabled, BREAKS, || Arc::<RegroupedWhenEnabled>::default()),
];

/// A pull of whole groups first makes members in this state ready.
#[derive(Debug)]
struct TakesToo {
    state: MessageState,
    change: fn() -> Amend,
}

/// Returns the messages in this state whose group has a waiting member.
fn beside_ready(page: &[Browsed], state: MessageState) -> Vec<MessageId> {
    let in_state = |state| page.iter().filter(move |found| found.state == state);
    let group = |found: &Browsed| found.message.options().group.clone();
    let ready: HashSet<_> = in_state(MessageState::Ready).filter_map(group).collect();
    let is_beside = |found: &&Browsed| group(found).is_some_and(|group| ready.contains(&group));
    in_state(state).filter(is_beside).map(|found| found.message.id()).collect()
}

#[async_trait]
impl Quirk for TakesToo {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        if is_whole(partition, &request) {
            let page = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
            let ids = beside_ready(&page, self.state);
            client.right.amend(partition, &ids, &(self.change)()).await;
        }
        client.right.pull(partition, request).await
    }
}

/// The groups that disabled messages get once they are enabled.
#[derive(Debug, Default)]
struct RegroupedWhenEnabled(Kept<HashMap<MessageId, Regroup>>);

impl RegroupedWhenEnabled {
    async fn amend_one(
        &self,
        client: &Client,
        partition: &PartitionId,
        id: MessageId,
        mut change: Amend,
    ) -> Result<AmendOutcome> {
        let found = client.find(partition, id).await;
        let is_disabled = found.is_some_and(|found| found.state == MessageState::Disabled);
        if is_disabled && change.disabled == Some(false) {
            change.group = change.group.or_else(|| self.0.lock().remove(&id));
        } else if is_disabled && let Some(group) = change.group.take() {
            self.0.lock().insert(id, group);
        }
        let answers = client.right.amend(partition, &[id], &change).await;
        answers.into_iter().next().unwrap_or(Ok(AmendOutcome::NotFound))
    }
}

#[async_trait]
impl Quirk for RegroupedWhenEnabled {
    async fn amend(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Amended {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            answers.push(self.amend_one(client, partition, *id, change.clone()).await);
        }
        answers
    }
}
