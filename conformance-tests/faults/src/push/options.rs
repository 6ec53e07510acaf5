//! Faults of options: a message is stored with other options than it was pushed with, and shown with its own.

use std::sync::Arc;

use anyqueue::adapter::{
    InspectQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _, async_trait,
};
use anyqueue::{Browsed, MessageData, MessageId, Page, PartitionId, Result, TaskOptions};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Originals, Pulled, Pushed, Quirk, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::TwinKeysInBatch, &[Clause::Deduplication], || disguise(twin_key)),
    subtle(Fault::KeyCutAt255, &[Clause::Deduplication], || disguise(key_cut)),
    subtle(Fault::DedupPerClient, &[Clause::Deduplication], || disguise(key_of_client)),
    subtle(Fault::DedupPerPriority, &[Clause::Deduplication], || disguise(key_of_priority)),
    subtle(Fault::GroupCaseless, &[Clause::Groups], || disguise(group_caseless)),
    subtle(Fault::GroupPerClient, &[Clause::Groups], || disguise(group_of_client)),
    subtle(Fault::GroupPerPriority, &[Clause::Groups], || disguise(group_of_priority)),
    subtle(Fault::GroupForgetsPriority, &[Clause::Order], || disguise(grouped_without_priority)),
    subtle(Fault::DelayedForgetsGroup, &[Clause::Groups], || disguise(delayed_without_group)),
    subtle(Fault::DelayedForgetsPriority, &[Clause::Order], || disguise(delayed_without_priority)),
    subtle(Fault::TopLevelClamped, &[Clause::Order], || disguise(top_level_clamped)),
];

/// Where a pushed message comes from.
struct Origin<'a> {
    client: usize,
    /// The messages before it in its batch.
    before: &'a [MessageData],
}

type Change = fn(&mut TaskOptions, &Origin<'_>);

fn twin_key(options: &mut TaskOptions, origin: &Origin<'_>) {
    if origin.before.iter().any(|other| other.options().dedup_key == options.dedup_key) {
        options.dedup_key = None;
    }
}

fn key_cut(options: &mut TaskOptions, _: &Origin<'_>) {
    options.dedup_key = options.dedup_key.take().map(|key| key.chars().take(255).collect::<String>().into());
}

fn key_of_client(options: &mut TaskOptions, origin: &Origin<'_>) {
    options.dedup_key = options.dedup_key.take().map(|key| format!("{}/{key}", origin.client).into());
}

fn key_of_priority(options: &mut TaskOptions, _: &Origin<'_>) {
    options.dedup_key = options.dedup_key.take().map(|key| format!("{}/{key}", options.priority).into());
}

fn group_caseless(options: &mut TaskOptions, _: &Origin<'_>) {
    options.group = options.group.take().map(|group| group.to_lowercase().into());
}

fn group_of_client(options: &mut TaskOptions, origin: &Origin<'_>) {
    options.group = options.group.take().map(|group| format!("{}/{group}", origin.client).into());
}

fn group_of_priority(options: &mut TaskOptions, _: &Origin<'_>) {
    options.group = options.group.take().map(|group| format!("{}/{group}", options.priority).into());
}

fn grouped_without_priority(options: &mut TaskOptions, _: &Origin<'_>) {
    if options.group.is_some() {
        options.priority = 0;
    }
}

fn delayed_without_group(options: &mut TaskOptions, _: &Origin<'_>) {
    if options.delay.is_some() {
        options.group = None;
    }
}

fn delayed_without_priority(options: &mut TaskOptions, _: &Origin<'_>) {
    if options.delay.is_some() {
        options.priority = 0;
    }
}

fn top_level_clamped(options: &mut TaskOptions, _: &Origin<'_>) {
    if options.priority == 9 {
        options.priority = 8;
    }
}

#[derive(Debug)]
struct Disguise {
    change: Change,
    originals: Originals,
}

fn disguise(change: Change) -> Arc<dyn Quirk> {
    Arc::new(Disguise { change, originals: Originals::default() })
}

#[async_trait]
impl Quirk for Disguise {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let mut disguised = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let origin = Origin { client: client.number, before: messages.get(..at).unwrap_or_default() };
            let mut options = message.options().clone();
            (self.change)(&mut options, &origin);
            if options != *message.options() {
                self.originals.keep(message);
            }
            disguised.push(message.clone().with_options(options));
        }
        client.right.push(partition, &disguised).await
    }

    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let mut deliveries = client.right.pull(partition, request).await?;
        for delivery in &mut deliveries {
            self.originals.restore(&mut delivery.message);
        }
        Ok(deliveries)
    }

    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let mut page = client.right.browse(partition, Page::of(limit).after(after)).await?;
        for browsed in &mut page {
            self.originals.restore(&mut browsed.message);
        }
        Ok(page)
    }
}
