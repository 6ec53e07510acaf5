//! Steps that several groups of cases take.

use std::time::Duration;

use anyqueue::adapter::{Action, RawDelivery};
use anyqueue::{Headers, MessageData, MessageId, PartitionId, PushOutcome};

use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::verdict::CaseResult;

/// Pushes one message, which must be stored.
pub(super) async fn push_one(c: &Context, p: &PartitionId, message: MessageData) -> CaseResult<MessageId> {
    let id = message.id();
    c.client().push(p, &[message]).await.map(|_| id)
}

/// Pushes one message, which must be a duplicate.
pub(super) async fn refused(
    c: &Context,
    clause: Clause,
    p: &PartitionId,
    message: MessageData,
) -> CaseResult {
    let id = message.id();
    let answer = c.client().storage().push(p, &[message]).await;
    let right = matches!(answer.as_slice(), [Ok(PushOutcome::Duplicate(_))]);
    c.check(clause, &[id], right, "a duplicate", format!("{answer:?}"))
}

/// Takes and removes exactly these messages, one pull after another.
pub(super) async fn removes(
    c: &Context,
    clause: Clause,
    what: &str,
    p: &PartitionId,
    expected: &[MessageId],
) -> CaseResult {
    let got = c.client().take(p, expected.len()).await?;
    c.in_order(clause, what, expected, &got)?;
    c.client().remove(&got).await
}

/// Creates a dead letter of the partition.
pub(super) async fn dead_letter(c: &Context, p: &PartitionId) -> CaseResult<MessageId> {
    let id = push_one(c, p, c.message()).await?;
    let held = c.client().take(p, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: p.dead_letters(), headers: None }).await?;
    Ok(id)
}

pub(super) async fn postpone(
    client: &Client,
    held: &[RawDelivery],
    delay: Duration,
    headers: Option<Headers>,
) -> CaseResult {
    client.settle_all(held, &Action::Postpone { delay, headers }).await
}
