//! Deduplication: one message per key.

use std::time::Duration;

use anyqueue::adapter::Action;
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome};
use futures_util::future::join_all;

use super::helpers::{push_one, refused, removes};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Client, Context, ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "dedup.second_is_duplicate", [Deduplication], second_is_duplicate)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DedupIgnored, Fault::DuplicateNamesItself]),
    case!(Storage, "dedup.in_one_batch", [PushResults, Deduplication], in_one_batch)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DuplicateEndsBatch, Fault::DedupIgnored, Fault::TwinKeysInBatch]),
    case!(Storage, "dedup.sixteen_at_once", [Deduplication], sixteen_at_once)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DedupRace, Fault::DedupPerClient]),
    case!(Storage, "dedup.per_partition", [PartitionsApart, Deduplication], per_partition)
        .needs(NEEDS)
        .kills(&[Fault::DedupAcrossPartitions]),
    case!(Storage, "dedup.while_it_lives", [Deduplication], while_it_lives).needs(WHILE_LIVE).kills(&[
        Fault::DedupUntilDelivery,
        Fault::KeyFreeAfterRetry,
        Fault::KeyFreeWhilePostponed,
    ]),
    case!(Storage, "dedup.while_delayed", [Deduplication], while_delayed)
        .needs(&[Need::DedupWhileLive, Need::PushDelay])
        .kills(&[Fault::DedupForgetsDelayed]),
    case!(Storage, "dedup.free_after_removal", [Deduplication], free_after_removal)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DedupForever]),
    case!(Storage, "dedup.free_after_death", [Deduplication], free_after_death)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DedupForever, Fault::DeathKeepsKey]),
    case!(Storage, "dedup.moved_takes_no_key", [Deduplication], moved_takes_no_key)
        .needs(WHILE_LIVE)
        .kills(&[Fault::DedupForever, Fault::MoveTakesKey]),
    case!(Storage, "dedup.keys_by_bytes", [Deduplication], keys_by_bytes).needs(&[Need::Dedup]).kills(&[
        Fault::KeyTrimmed,
        Fault::KeyCaseless,
        Fault::KeyComposed,
    ]),
    case!(Storage, "dedup.purge_leaves_held", [Deduplication, Deletion], purge_leaves_held)
        .needs(&[Need::DedupWhileLive, Need::Purge])
        .kills(&[Fault::PurgeFreesHeldKeys]),
    case!(Storage, "dedup.key_over_priorities", [Deduplication], key_over_priorities)
        .needs(&[Need::DedupWhileLive, Need::Priority])
        .kills(&[Fault::DedupPerPriority]),
    case!(Storage, "dedup.long_keys", [Deduplication], long_keys)
        .needs(&[Need::Dedup])
        .kills(&[Fault::KeyCutAt255]),
    case!(Storage, "dedup.key_after_lease_end", [LeaseEnd, Deduplication], key_after_lease_end)
        .needs(&[Need::DedupWhileLive, Need::TimedLease])
        .kills(&[Fault::KeyFreeAtLeaseEnd]),
    case!(Storage, "dedup.purge_frees_keys", [Deduplication, Deletion], purge_frees_keys)
        .needs(&[Need::DedupWhileLive, Need::Purge])
        .kills(&[Fault::PurgeKeepsKeys]),
];

const NEEDS: &[Need] = &[Need::Dedup];

const WHILE_LIVE: &[Need] = &[Need::DedupWhileLive];

fn keyed(c: &Context) -> MessageData {
    c.message().with_dedup_key("the key")
}

/// Pushes a message with the key; it must be reported as a duplicate of `first`.
async fn is_duplicate(
    c: &Context,
    client: &Client,
    p: &PartitionId,
    first: MessageId,
    when: &str,
) -> CaseResult {
    let message = keyed(c);
    let about = [first, message.id()];
    let mut answers = client.storage().push(p, &[message]).await;
    let answer = answers.pop().ok_or_else(|| c.failed(Clause::PushResults, &about, "one answer", "none"))?;
    let answer = c.ok(Clause::Deduplication, "the second push", answer)?;
    let ok = matches!(answer, PushOutcome::Duplicate(id) if id.is_none_or(|id| id == first));
    c.check(
        Clause::Deduplication,
        &about,
        ok,
        format!("Duplicate of {} {when}", c.label(first)),
        format!("{answer:?}"),
    )
}

/// The one id of a push of one message.
fn only(c: &Context, sent: &[MessageId]) -> CaseResult<MessageId> {
    sent.first().copied().ok_or_else(|| c.failed(Clause::PushResults, &[], "one id", "none"))
}

/// A second message with a key is not stored, even if its body differs, whoever pushes it.
async fn second_is_duplicate(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    let sent = c.client().push(&p, &[keyed(c)]).await?;
    let first = only(c, &sent)?;
    is_duplicate(c, c.client(), &p, first, "while it waits").await?;
    is_duplicate(c, &other, &p, first, "while it waits").await?;
    let second = c.client().push(&p, &[c.message().with_dedup_key("The key")]).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "the first of each key", &[sent, second].concat(), &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "nothing else").await?;
    c.client().remove(&got).await
}

/// Three messages in one batch, two with one key: the first is stored, the second is its duplicate, the third
/// is not affected.
async fn in_one_batch(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let batch = [keyed(c), keyed(c), c.message()];
    let [first, _, third] = batch.each_ref().map(MessageData::id);
    let answers = c.client().storage().push(&p, &batch).await;
    let answers =
        c.ok(Clause::PushResults, "each item", answers.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let stored: Vec<_> = answers
        .iter()
        .filter_map(|answer| if let PushOutcome::Stored(id) = answer { Some(*id) } else { None })
        .collect();
    c.equal(Clause::Deduplication, &[first], "the messages stored", &vec![first, third], &stored)?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "the first and the one without a key", &[first, third], &got)?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "nothing else").await?;
    c.client().remove(&got).await
}

/// Of sixteen concurrent pushes, exactly one is stored.
async fn sixteen_at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = [c.client().clone(), c.fresh().await?, c.fresh().await?, c.fresh().await?];
    let pushes = (0..4).flat_map(|_| clients.iter()).map(|client| {
        let message = keyed(c);
        let p = &p;
        async move { client.storage().push(p, &[message]).await }
    });
    let answers = join_all(pushes).await.concat();
    let answers =
        c.ok(Clause::Deduplication, "each push", answers.into_iter().collect::<anyqueue::Result<Vec<_>>>())?;
    let stored = answers.iter().filter(|answer| matches!(answer, PushOutcome::Stored(_))).count();
    c.equal(Clause::Deduplication, &[], "the number of messages stored", &1, &stored)?;
    let got = c.client().take(&p, 1).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deduplication, "one message only").await?;
    c.client().remove(&got).await
}

/// Each partition has its own keys.
async fn per_partition(c: &Context) -> CaseResult {
    for name in ["a", "b"] {
        let p = c.partition(name)?;
        let sent = c.client().push(&p, &[keyed(c)]).await?;
        let got = c.client().pull(&p, 10).await?;
        c.in_order(Clause::Deduplication, "the message", &sent, &got)?;
    }
    Ok(())
}

/// The key stays taken while its message is held, and when it comes back.
async fn while_it_lives(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = only(c, &c.client().push(&p, &[keyed(c)]).await?)?;
    for action in [Action::Release, Action::Retry, Action::Postpone { delay: Duration::ZERO, headers: None }]
    {
        let held = c.client().take(&p, 1).await?;
        is_duplicate(c, c.client(), &p, first, "while it is held").await?;
        c.client().settle_all(&held, &action).await?;
        is_duplicate(c, c.client(), &p, first, "when it is back").await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Deduplication, "the first message", &[first], &got)?;
    c.client().remove(&got).await
}

async fn while_delayed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let delay = c.timing().delay;
    let first = only(c, &c.client().push(&p, &[keyed(c).with_delay(delay)]).await?)?;
    is_duplicate(c, c.client(), &p, first, "while it is delayed").await?;
    let got = c.client().pull_with(&p, c.client().request(10, c.timing().latest(delay))).await?;
    c.in_order(Clause::Deduplication, "the delayed message", &[first], &got)?;
    c.client().remove(&got).await
}

/// When its message is gone, the key is free.
async fn free_after_removal(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    for _ in 0..3 {
        let sent = c.client().push(&p, &[keyed(c)]).await?;
        let got = c.client().take(&p, 1).await?;
        c.in_order(Clause::Deduplication, "the message", &sent, &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// A dead message leaves its key to the next, and takes it from nobody when it is redriven.
async fn free_after_death(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut sent = c.client().push(&p, &[keyed(c)]).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: p.dead_letters(), headers: None }).await?;
    sent.extend(c.client().push(&p, &[keyed(c)]).await?);
    let dead = c.client().take(&p.dead_letters(), 1).await?;
    c.client().settle_all(&dead, &Action::Move { to: p.clone(), headers: None }).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "the redriven message and the next with its key", &sent, &got)?;
    c.client().remove(&got).await
}

/// A message moved to another partition frees its key in the old one, and takes none in the new one.
async fn moved_takes_no_key(c: &Context) -> CaseResult {
    let (p, to) = (c.partition("work")?, c.partition("to")?);
    let moved = c.client().push(&p, &[keyed(c)]).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: to.clone(), headers: None }).await?;
    let home = c.client().push(&p, &[keyed(c)]).await?;
    let abroad = c.client().push(&to, &[keyed(c)]).await?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Deduplication, "the next with the key at home", &home, &got)?;
    c.client().remove(&got).await?;
    let got = c.client().take(&to, 2).await?;
    c.same(Clause::Deduplication, "the moved one and another with its key", &[moved, abroad].concat(), &got)?;
    c.client().remove(&got).await
}

/// Texts that look the same to people, or to software that normalises them, but differ in their bytes.
pub(super) const NEARLY_EQUAL: [&str; 8] =
    ["key", "key ", " key", "key\t", "KEY", "Key", "k\u{e9}y", "ke\u{301}y"];

/// Keys that differ in one byte are different.
async fn keys_by_bytes(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let messages: Vec<_> = NEARLY_EQUAL.iter().map(|key| c.message().with_dedup_key(*key)).collect();
    let sent = c.client().push(&p, &messages).await?;
    let got = c.client().take(&p, sent.len()).await?;
    c.same(Clause::Deduplication, "one for each key", &sent, &got)?;
    c.client().remove(&got).await
}

/// A purge takes waiting messages, with their keys, and leaves held ones, with theirs.
async fn purge_leaves_held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &[c.message().with_dedup_key("held")]).await?;
    let held = c.client().take(&p, 1).await?;
    c.client().push(&p, &[c.message().with_dedup_key("waiting")]).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    let free = c.client().push(&p, &[c.message().with_dedup_key("waiting")]).await?;
    let taken = c.message().with_dedup_key("held");
    let about = [taken.id()];
    let answer = c.client().storage().push(&p, &[taken]).await;
    let right = matches!(answer.as_slice(), [Ok(PushOutcome::Duplicate(_))]);
    c.check(
        Clause::Deduplication,
        &about,
        right,
        "a duplicate, as the first is held",
        format!("{answer:?}"),
    )?;
    let got = c.client().take(&p, 1).await?;
    c.in_order(Clause::Deletion, "what was pushed after the purge", &free, &got)?;
    c.client().remove(&[held, got].concat()).await
}

async fn key_over_priorities(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k").with_priority(1)).await?;
    removes(c, Clause::Deduplication, "the first", &p, &[first]).await
}

/// Keys of the largest size that differ in their last byte only.
async fn long_keys(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let key = |last: &str| "k".repeat(anyqueue::MAX_KEY_BYTES - 1) + last;
    let first = push_one(c, &p, c.message().with_dedup_key(key("a"))).await?;
    let second = push_one(c, &p, c.message().with_dedup_key(key("b"))).await?;
    let got = c.client().take(&p, 2).await?;
    c.same(Clause::Deduplication, "both", &[first, second], &got)?;
    c.client().remove(&got).await
}

async fn key_after_lease_end(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_dedup_key("k")).await?;
    let lost = c
        .client()
        .pull_with(&p, anyqueue::adapter::PullRequest::new(1, c.timing().soon, c.timing().lease))
        .await?;
    c.equal(Clause::PullBounds, &ids(&lost), "deliveries", &1, &lost.len())?;
    tokio::time::sleep(c.timing().never()).await;
    refused(c, Clause::Deduplication, &p, c.message().with_dedup_key("k")).await?;
    removes(c, Clause::LeaseEnd, "the first again", &p, &ids(&lost)).await
}

async fn purge_frees_keys(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_dedup_key("k")).await?;
    let purged = c.ok(Clause::Deletion, "a purge", c.client().inspect()?.purge(&p, 10).await)?;
    c.equal(Clause::Deletion, &[], "purged", &1, &purged)?;
    let next = push_one(c, &p, c.message().with_dedup_key("k")).await?;
    removes(c, Clause::Deduplication, "the next with the key", &p, &[next]).await
}
