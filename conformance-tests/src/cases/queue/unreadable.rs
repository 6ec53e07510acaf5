//! Stored messages that cannot be read, met by a queue.

use anyqueue::adapter::Action;
use anyqueue::{Queue, QueueMessageStatus::Processed, header};

use crate::case::Case;
use crate::cases::storage::unreadable::{Three, gather, settle};
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[case!(Queue, "unreadable.dies", [ContentIntact, DeadLetters], dies)
    .needs(&[Need::Corruptible])
    .kills(&[
        Fault::UnreadableDropped,
        Fault::UnreadableComesForever,
        Fault::UnreadableFailsPull,
        Fault::UnreadableLosesBytes,
    ])];

/// Through the queue: a handler gets the others, and the unreadable one is found among the dead letters with
/// the reason.
async fn dies(c: &Context) -> CaseResult {
    let three = Three::push(c).await?;
    let storage = c.unseen().await?;
    let queue = c.ok(Clause::DeadLetters, "a queue", Queue::new(storage))?;
    let mut handled = Vec::new();
    while handled.len() < 2 {
        let pulled = queue.pull(three.p.name()).max(3).wait(c.timing().soon).await;
        let mut handlers = c.ok(Clause::ContentIntact, "a pull, whatever is stored", pulled)?;
        c.check(
            Clause::ContentIntact,
            &[],
            !handlers.is_empty(),
            "the other two",
            format!("{} of them", handled.len()),
        )?;
        for handler in &mut handlers {
            c.ok(Clause::SettleOutcomes, "a settlement", handler.settle(Processed).await)?;
            if !handled.contains(&handler.payload().to_vec()) {
                handled.push(handler.payload().to_vec());
            }
        }
    }
    let others = [&three.sent[0], &three.sent[2]].map(|message| message.payload().to_vec());
    let whole = handled.len() == 2 && others.iter().all(|payload| handled.contains(payload));
    c.check(
        Clause::ContentIntact,
        &[],
        whole,
        "the other two as they were pushed, and nothing else",
        format!("{handled:?}"),
    )?;
    // The message may come behind them.
    let more =
        c.ok(Clause::ContentIntact, "a pull", queue.pull(three.p.name()).wait(c.timing().slack).await)?;
    c.check(
        Clause::ContentIntact,
        &[],
        more.is_empty(),
        "no handler for what cannot be read",
        format!("{more:?}"),
    )?;
    let dead = gather(c, &three.storage, &three.p.dead_letters(), 1).await?;
    for letter in &dead {
        three.as_it_is(c, letter)?;
        let reason = letter.message.headers().get(header::DEAD_REASON).map(String::as_str);
        let told = reason.is_some_and(|reason| reason.starts_with("cannot be read: "));
        c.check(Clause::DeadLetters, &[], told, "the reason of its death", format!("{reason:?}"))?;
    }
    settle(c, &three.storage, &dead, &Action::Remove).await?;
    c.ok(Clause::Close, "close", queue.close().await)?;
    three.end(c).await
}
