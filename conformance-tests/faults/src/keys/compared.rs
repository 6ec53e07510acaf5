//! Faults in how keys and groups are compared, and in what a purge does to keys.

use std::collections::HashSet;
use std::sync::Arc;

use anyqueue::adapter::{
    InspectQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, async_trait,
};
use anyqueue::{MAX_PAGE, MessageData, MessageId, MessageState, Page, PartitionId, PushOutcome, Result};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Kept, Originals, Pulled, Pushed, Quirk, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::KeyTrimmed, &[Clause::Deduplication], || folded(What::Key, |text| text.trim().to_owned())),
    subtle(Fault::KeyCaseless, &[Clause::Deduplication], || folded(What::Key, str::to_lowercase)),
    subtle(Fault::KeyComposed, &[Clause::Deduplication], || folded(What::Key, composed)),
    subtle(Fault::GroupTrimmed, &[Clause::Groups], || folded(What::Group, |text| text.trim().to_owned())),
    subtle(Fault::PurgeFreesHeldKeys, &[Clause::Deduplication, Clause::Deletion], || {
        Arc::new(PurgeFreesHeldKeys::default())
    }),
];

/// Composes the one letter that the suite uses in two forms.
fn composed(text: &str) -> String {
    text.replace("e\u{301}", "\u{e9}")
}

#[derive(Clone, Copy, Debug)]
enum What {
    Key,
    Group,
}

/// Different keys or groups that are stored as one.
#[derive(Debug)]
struct Folded {
    what: What,
    fold: fn(&str) -> String,
    originals: Originals,
}

fn folded(what: What, fold: fn(&str) -> String) -> Arc<dyn Quirk> {
    Arc::new(Folded { what, fold, originals: Originals::default() })
}

#[async_trait]
impl Quirk for Folded {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let fold = |message: &MessageData| {
            let mut options = message.options().clone();
            let field = match self.what {
                What::Key => &mut options.dedup_key,
                What::Group => &mut options.group,
            };
            *field = field.as_deref().map(|text| (self.fold)(text).into());
            self.originals.keep(message);
            message.clone().with_options(options)
        };
        client.right.push(partition, &messages.iter().map(fold).collect::<Vec<_>>()).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.originals.restore(&mut delivery.message);
        }
        Ok(deliveries)
    }
}

/// Messages whose keys can be taken.
#[derive(Debug, Default)]
struct PurgeFreesHeldKeys {
    free: Kept<HashSet<MessageId>>,
    originals: Originals,
}

#[async_trait]
impl Quirk for PurgeFreesHeldKeys {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut answers = client.right.push(partition, messages).await;
        for (answer, message) in answers.iter_mut().zip(messages) {
            if let Ok(PushOutcome::Duplicate(Some(first))) = *answer
                && first != message.id()
                && self.free.lock().contains(&first)
            {
                self.originals.keep(message);
                let mut options = message.options().clone();
                options.dedup_key = None;
                *answer = client.push_one(partition, message.clone().with_options(options)).await;
            }
        }
        answers
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.originals.restore(&mut delivery.message);
        }
        Ok(deliveries)
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        let shown = client.right.browse(partition, Page::of(MAX_PAGE)).await?;
        let held = shown.iter().filter(|shown| shown.state == MessageState::Leased);
        self.free.lock().extend(held.map(|shown| shown.message.id()));
        client.right.purge(partition, limit).await
    }
}
