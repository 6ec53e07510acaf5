//! Pulls through the queue: above the backend's own limit, and dropped at any moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{MessageId, PartitionId, Queue};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids, polled};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_pull.above_the_cap", [PullBounds], above_the_cap).kills(&[Fault::OneByOne]),
    case!(Queue, "queue_pull.above_this_cap", [PullBounds], above_this_cap).kills(&[Fault::LargeMaxEmpty]),
    case!(Queue, "queue_pull.no_more_than_max", [PullBounds, NoPrefetch], no_more_than_max)
        .kills(&[Fault::OneTooMany]),
    case!(Queue, "queue_pull.does_not_wait_to_fill", [ReadyAtOnce], does_not_wait_to_fill)
        .kills(&[Fault::FillsUp]),
    case!(Queue, "queue_pull.max_held", [NoPrefetch, Resources], max_held).kills(&[Fault::OneTooMany]),
    case!(Queue, "queue_pull.dropped_at_each_poll", [DroppedPull], dropped_at_each_poll)
        .kills(&[Fault::AutoAck]),
    case!(Queue, "queue_pull.dropped_in_a_loop", [DroppedPull], dropped_in_a_loop)
        .kills(&[Fault::StoppedPullLoses])
        .deadline(LONG),
    case!(Queue, "queue_pull.dropped_waiter", [DroppedPull, AllWaitersWake], dropped_waiter)
        .kills(&[Fault::StoppedPullLoses])
        .deadline(PATIENT),
];

const LONG: Duration = Duration::from_mins(1);
/// For a case that waits for the declared slack forty times.
const PATIENT: Duration = Duration::from_mins(3);

/// No larger pull than this is tested, whatever the backend allows.
const MAX_PULL: usize = 1001;

/// Steps of a pull before it is dropped, at most.
const STEPS: usize = 20;

/// One pull for more than a call can return brings everything that is ready.
async fn above_the_cap(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| declared.limits.pull_batch = 10);
    let below: Arc<dyn Storage> = storage.clone();
    let queue =
        c.ok(Clause::PullBounds, "a queue", Queue::builder(below).defaults(c.long_options()).build())?;
    for max in [10, 11, 25] {
        let sent = c.store(&queue, &p, c.messages(max, |_, task| task)).await?;
        all_at_once(c, &queue, &p, max, &sent).await?;
    }
    c.equal(Clause::PullBounds, &[], "the most that one call asked for", &10, &storage.largest_pull())
}

/// The same with the backend's own limit.
async fn above_this_cap(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    for max in [11, c.capabilities().limits.pull_batch.saturating_add(1).min(MAX_PULL)] {
        let sent = c.store(&queue, &p, c.messages(max, |_, task| task)).await?;
        all_at_once(c, &queue, &p, max, &sent).await?;
    }
    Ok(())
}

async fn all_at_once(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    max: usize,
    sent: &[MessageId],
) -> CaseResult {
    let mut held = c.ok(Clause::PullBounds, "a pull", queue.pull(p).max(max).wait(c.timing().soon).await)?;
    held.iter().try_for_each(|handler| c.whole(handler))?;
    c.same_order(Clause::PullBounds, &format!("all {max} by one pull"), sent, &handler_ids(&held))?;
    c.processed(queue, &mut held).await
}

/// A pull brings `max` messages, and leaves the rest to others at once.
async fn no_more_than_max(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(7, |_, task| task)).await?;
    let mut mine = c.ok(Clause::PullBounds, "a pull", queue.pull(&p).max(3).wait(c.timing().soon).await)?;
    c.equal(Clause::PullBounds, &sent, "of seven messages a pull with max 3 brings", &3, &mine.len())?;
    let mut theirs = c.hold(&other, &p, 4).await?;
    let all = [handler_ids(&mine), handler_ids(&theirs)].concat();
    c.same_ids(Clause::NoPrefetch, "every message, by one of the two", &sent, &all)?;
    c.processed(&queue, &mut mine).await?;
    c.processed(&other, &mut theirs).await
}

/// Three ready messages come at once, even if ten were requested and the pull may wait.
async fn does_not_wait_to_fill(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
    let asked = Instant::now();
    let wait = c.timing().soon * 3;
    let mut held = c.ok(Clause::ReadyAtOnce, "a pull", queue.pull(&p).max(10).wait(wait).await)?;
    c.took(Clause::ReadyAtOnce, &sent, "three of ten", asked.elapsed(), (Duration::ZERO, c.timing().soon))?;
    let more = c.hold(&queue, &p, 3 - held.len().min(3)).await?;
    held.extend(more);
    c.same_ids(Clause::ReadyAtOnce, "the three", &sent, &handler_ids(&held))?;
    c.processed(&queue, &mut held).await
}

/// A queue that may hold two messages holds two; when one of them ends, a waiting pull continues.
async fn max_held(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.max_held(2))?;
    let sent = c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
    let mut held = c.ok(Clause::NoPrefetch, "a pull", queue.pull(&p).max(10).wait(c.timing().soon).await)?;
    c.equal(Clause::NoPrefetch, &sent, "with room for two a pull brings", &2, &held.len())?;
    let none = c.ok(Clause::NoPrefetch, "a pull without room", queue.pull(&p).await)?;
    c.check(Clause::NoPrefetch, &sent, none.is_empty(), "no third delivery", format!("{none:?}"))?;
    let waiting = tokio::spawn(queue.pull(&p).max(10).wait(c.timing().soon * 3).into_future());
    let mut seen = handler_ids(&held);
    if let Some(mut one) = held.pop() {
        c.settle(&mut one, anyqueue::QueueMessageStatus::Processed).await?;
    }
    let third = waiting
        .await
        .map_err(|error| c.failed(Clause::NoPrefetch, &sent, "the waiting pull to end", error.to_string()))?;
    let third = c.ok(Clause::NoPrefetch, "the waiting pull", third)?;
    seen.extend(handler_ids(&third));
    c.same_ids(Clause::NoPrefetch, "all three in the end", &sent, &seen)?;
    held.extend(third);
    c.processed(&queue, &mut held).await
}

/// A pull dropped at any of its polls loses nothing, and the messages that it took come back long before the
/// lease ends.
async fn dropped_at_each_poll(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    for steps in 0..STEPS {
        for wait in [Duration::ZERO, c.timing().long_lease] {
            let sent = c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
            // What it returns is dropped as well, unsettled.
            drop(polled(steps, queue.pull(&p).max(2).wait(wait).into_future()).await);
            let mut held = c.hold(&queue, &p, 2).await?;
            c.same_ids(
                Clause::DroppedPull,
                "what the dropped pull may have taken",
                &sent,
                &handler_ids(&held),
            )?;
            c.processed(&queue, &mut held).await?;
        }
    }
    c.client().nothing(&p, c.timing().slack, Clause::DroppedPull, "each message once").await
}

/// The case ends well within its time.
const HALF: Duration = Duration::from_secs(20);

/// A loop that gives up each pull after a moment still gets everything, each message once, while others push.
async fn dropped_in_a_loop(c: &Context) -> CaseResult {
    let (p, queue, pusher) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let (count, mut random, mut pauses) = (c.size(300, 1000), c.random(), c.random());
    let pushing = async {
        let mut sent = Vec::new();
        for _ in 0..count {
            sent.extend(c.store(&pusher, &p, vec![c.message()]).await?);
            tokio::time::sleep(Duration::from_micros(pauses.u64(0..2000))).await;
        }
        CaseResult::Ok(sent)
    };
    let pulling = async {
        let (mut seen, mut pulls, half) = (Vec::new(), 0_usize, (c.timing().soon * 5).min(HALF));
        let (patient, deadline) = (Instant::now() + half, Instant::now() + half * 2);
        // At first pulls are dropped early; in the end the loop waits for what is left, which must come long
        // before its lease ends. A server that is busy with others may be too slow for the first part: half
        // of the time is for the second.
        while seen.len() < count && Instant::now() < deadline {
            pulls += 1;
            let hasty = pulls < 10 * count && Instant::now() < patient;
            let patience = if hasty { random.u64(0..1500) } else { 1_000_000 };
            tokio::select! {
                biased;
                got = queue.pull(&p).max(1 + pulls % 3).wait(c.timing().long_lease).into_future() => {
                    let mut got = c.ok(Clause::DroppedPull, "a pull", got)?;
                    seen.extend(handler_ids(&got));
                    c.processed(&queue, &mut got).await?;
                }
                () = tokio::time::sleep(Duration::from_micros(patience)) => {}
            }
        }
        CaseResult::Ok(seen)
    };
    let (sent, seen) = tokio::join!(pushing, pulling);
    c.same_ids(Clause::DroppedPull, "every message, once", &sent?, &seen?)?;
    c.client().nothing(&p, c.timing().slack, Clause::DroppedPull, "each message once").await
}

/// A pull that is dropped while it waits takes nothing that is pushed later, and releases what is pushed
/// right before.
async fn dropped_waiter(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    for round in 0..2 * STEPS {
        let mut waiting = queue.pull(&p).max(10).wait(c.timing().long_lease).into_future();
        let none = polled(1 + round / 2, &mut waiting).await;
        c.check(
            Clause::DroppedPull,
            &[],
            none.is_none(),
            "the pull to wait, as there is nothing",
            format!("{none:?}"),
        )?;
        let messages = c.messages(2, |_, task| task);
        let sent = if round % 2 == 0 {
            drop(waiting);
            c.pulls_end(c.client()).await?;
            let sent = c.store(&other, &p, messages).await?;
            // Time for a pull that continues in secret to take them.
            tokio::time::sleep(c.timing().slack).await;
            sent
        } else {
            let sent = c.store(&other, &p, messages).await?;
            drop(waiting);
            sent
        };
        let mut held = c.hold(&other, &p, 2).await?;
        c.same_ids(
            Clause::DroppedPull,
            "what was pushed when the waiter was dropped",
            &sent,
            &handler_ids(&held),
        )?;
        if round % 2 == 0 {
            c.delivered_once(
                Clause::DroppedPull,
                "nothing delivered to a pull that was dropped before",
                &held,
            )?;
        }
        c.processed(&other, &mut held).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::DroppedPull, "each message once").await
}
