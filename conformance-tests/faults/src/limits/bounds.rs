//! Faults at the limits of what is allowed: the longest, the most, the least, and nothing.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage as _, PullQueueStorage as _, PullRequest, PushQueueStorage as _,
    QueueStorage as _, Settlement, async_trait,
};
use anyqueue::{
    Browsed, ExtendOutcome, MAX_PAGE, MessageData, MessageId, Page, PartitionId, Result, SettleOutcome,
};
use anyqueue_conformance::{Clause, Fault};

use crate::quirk::{Client, Entry, Extended, Pulled, Pushed, Quirk, Settled, for_wait, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    subtle(Fault::LongNamesCut, &[Clause::ContentIntact], || altering(long_names_cut)),
    subtle(Fault::HeadersBeyond255Lost, &[Clause::ContentIntact], || altering(headers_beyond_255_lost)),
    subtle(Fault::RetriesOf31Bits, &[Clause::ContentIntact], || altering(retries_of_31_bits)),
    subtle(Fault::ZeroRetriesLost, &[Clause::ContentIntact], || altering(zero_retries_lost)),
    subtle(Fault::LastOfFullSettlement, &[Clause::SettleOutcomes], || Arc::new(LastOfFullSettlement)),
    subtle(Fault::LastOfFullExtension, &[Clause::Extend], || Arc::new(LastOfFullExtension)),
    subtle(Fault::LeastLeaseEndless, &[Clause::LeaseEnd], || Arc::new(LeastLeaseEndless)),
    subtle(Fault::WaitOverflows, &[Clause::PullWait, Clause::Recovery], || Arc::new(WaitOverflows)),
    subtle(Fault::LimitZeroIsNone, &[Clause::Inspection, Clause::Deletion], || Arc::new(LimitZeroIsNone)),
    subtle(Fault::PostponeOf32BitMillis, &[Clause::Delays], || Arc::new(PostponeOf32BitMillis)),
];

/// Stores something other than what was pushed.
struct Altering(fn(MessageData) -> MessageData);

fn altering(alter: fn(MessageData) -> MessageData) -> Arc<dyn Quirk> {
    Arc::new(Altering(alter))
}

impl fmt::Debug for Altering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Altering").finish_non_exhaustive()
    }
}

#[async_trait]
impl Quirk for Altering {
    async fn push(&self, client: &Client, partition: &PartitionId, messages: &[MessageData]) -> Pushed {
        let altered: Vec<_> = messages.iter().cloned().map(self.0).collect();
        client.right.push(partition, &altered).await
    }
}

/// Cuts the text to what fits into a field of 255 bytes.
fn cut(text: &str) -> Option<String> {
    let end = (0..=255).rev().find(|end| text.is_char_boundary(*end))?;
    text.get(..end).filter(|short| short.len() < text.len()).map(str::to_owned)
}

fn long_names_cut(mut message: MessageData) -> MessageData {
    if let Some(task) = message.task_id().and_then(cut) {
        message = message.with_task_id(task);
    }
    match message.session_id().and_then(cut) {
        Some(session) => message.with_session_id(session),
        None => message,
    }
}

fn headers_beyond_255_lost(message: MessageData) -> MessageData {
    let headers = message.headers().clone().into_iter().take(255).collect();
    message.with_headers(headers)
}

fn with_retries(message: MessageData, max_retries: Option<u32>) -> MessageData {
    let mut options = message.options().clone();
    options.max_retries = max_retries;
    message.with_options(options)
}

fn retries_of_31_bits(message: MessageData) -> MessageData {
    let fits = message.options().max_retries.filter(|retries| i32::try_from(*retries).is_ok());
    with_retries(message, fits)
}

fn zero_retries_lost(message: MessageData) -> MessageData {
    let some = message.options().max_retries.filter(|retries| *retries > 0);
    with_retries(message, some)
}

/// Forgets the last item of a call that has as many as are allowed.
#[derive(Debug)]
struct LastOfFullSettlement;

#[derive(Debug)]
struct LastOfFullExtension;

fn all_but_last<'a, T>(client: &Client, items: &'a [T]) -> Option<&'a [T]> {
    let is_full = items.len() == client.right.capabilities().limits.settle_batch;
    items.split_last().map(|(_, before)| before).filter(|_| is_full)
}

#[async_trait]
impl Quirk for LastOfFullSettlement {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let Some(before) = all_but_last(client, settlements) else {
            return client.right.settle(settlements).await;
        };
        let mut answers = client.right.settle(before).await;
        answers.push(Ok(SettleOutcome::Settled));
        answers
    }
}

#[async_trait]
impl Quirk for LastOfFullExtension {
    async fn extend(&self, client: &Client, extensions: &[Extension]) -> Extended {
        let Some(before) = all_but_last(client, extensions) else {
            return client.right.extend(extensions).await;
        };
        let mut answers = client.right.extend(before).await;
        answers.push(Ok(ExtendOutcome::Extended));
        answers
    }
}

/// In whole seconds this lease would be zero, and zero means forever.
#[derive(Debug)]
struct LeastLeaseEndless;

#[async_trait]
impl Quirk for LeastLeaseEndless {
    async fn pull(&self, client: &Client, partition: &PartitionId, mut request: PullRequest) -> Pulled {
        let declared = client.right.capabilities().lease;
        if request.lease == declared.min {
            request.lease = declared.max;
        }
        client.right.pull(partition, request).await
    }
}

#[derive(Debug)]
struct WaitOverflows;

#[async_trait]
impl Quirk for WaitOverflows {
    async fn pull(&self, client: &Client, partition: &PartitionId, request: PullRequest) -> Pulled {
        let deadline = Instant::now() + request.wait;
        let wait = deadline.saturating_duration_since(Instant::now());
        client.right.pull(partition, for_wait(&request, wait)).await
    }
}

#[derive(Debug)]
struct LimitZeroIsNone;

#[async_trait]
impl Quirk for LimitZeroIsNone {
    async fn browse(
        &self,
        client: &Client,
        partition: &PartitionId,
        page: Page<MessageId>,
    ) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        client.right.browse(partition, Page::of(if limit == 0 { MAX_PAGE } else { limit }).after(after)).await
    }

    async fn purge(&self, client: &Client, partition: &PartitionId, limit: usize) -> Result<usize> {
        client.right.purge(partition, if limit == 0 { MAX_PAGE } else { limit }).await
    }
}

#[derive(Debug)]
struct PostponeOf32BitMillis;

#[async_trait]
impl Quirk for PostponeOf32BitMillis {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let mut settlements = settlements.to_vec();
        for settlement in &mut settlements {
            if let Action::Postpone { delay, .. } = &mut settlement.action {
                let low = delay.as_millis() & u128::from(u32::MAX);
                *delay = Duration::from_millis(u64::try_from(low).unwrap_or_default());
            }
        }
        client.right.settle(&settlements).await
    }
}
