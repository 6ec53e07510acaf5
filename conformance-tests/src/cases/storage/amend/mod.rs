//! Amendments of waiting messages.

pub(super) mod crowd;
pub(super) mod disabled;
pub(super) mod group;
pub(super) mod moment;
pub(super) mod outcome;
pub(super) mod priority;
pub(super) mod removed;

use anyqueue::{MessageData, MessageId, PartitionId};

use crate::clause::Clause;
use crate::context::Context;
use crate::need::Need;
use crate::verdict::CaseResult;

/// What cases need that check the order.
const ORDERED: &[Need] = &[Need::Amend, Need::PushOrder];

/// Pushes the messages one after another.
async fn push<const N: usize>(
    c: &Context,
    p: &PartitionId,
    messages: [MessageData; N],
) -> CaseResult<[MessageId; N]> {
    let ids = messages.each_ref().map(MessageData::id);
    c.client().push(p, &messages).await?;
    Ok(ids)
}

/// Pushes ready messages that differ only in their ids.
async fn push_alike<const N: usize>(c: &Context, p: &PartitionId) -> CaseResult<[MessageId; N]> {
    push(c, p, std::array::from_fn(|_| c.message())).await
}

/// Removes them in this order, each before the next is pulled, so that a group gives one after another.
async fn one_by_one(c: &Context, what: &str, p: &PartitionId, expected: &[MessageId]) -> CaseResult {
    for id in expected {
        let got = c.client().take(p, 1).await?;
        c.in_order(Clause::Amendments, what, &[*id], &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// Judges that nothing comes for as long as a wake-up may take.
async fn nothing(c: &Context, p: &PartitionId, expected: &str) -> CaseResult {
    c.client().nothing(p, c.timing().slack, Clause::Amendments, expected).await
}
