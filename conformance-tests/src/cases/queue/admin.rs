//! What operators do through the queue: look inside, delete, pause, close; and what a trace leaves behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{
    Counts, DeleteOutcome, MessageId, MessageState, Page, PartitionId, Queue, QueueMessageStatus as Status,
    header,
};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_admin.counts", [Inspection], counts)
        .needs(&[Need::Counts])
        .kills(&[Fault::CountsLocal, Fault::LeasedCountedReady]),
    case!(Queue, "queue_admin.partitions", [Inspection], partitions)
        .kills(&[Fault::ListOnlyReady])
        .needs(&[Need::List]),
    case!(Queue, "queue_admin.browse", [Inspection], browse)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseLeases, Fault::BrowseRepeats]),
    case!(Queue, "queue_admin.delete", [Deletion], delete)
        .needs(&[Need::Delete])
        .kills(&[Fault::DeleteTakesLeased]),
    case!(Queue, "queue_admin.delete_where", [Deletion], delete_where)
        .needs(&[Need::Delete, Need::Browse])
        .kills(&[Fault::DeleteTakesLeased]),
    case!(Queue, "queue_admin.delete_where_in_steps", [Deletion], delete_where_in_steps)
        .kills(&[Fault::BrowseAfterGone])
        .needs(&[Need::Delete, Need::Browse]),
    case!(Queue, "queue_admin.purge", [Deletion], purge)
        .needs(&[Need::Purge])
        .kills(&[Fault::PurgeTakesLeased]),
    case!(Queue, "queue_admin.pause", [Pause], pause).needs(&[Need::Pause]).kills(&[Fault::PauseLocal]),
    case!(Queue, "queue_admin.trace", [ContentIntact], trace).kills(&[Fault::SharedDelivery]),
];

/// Waits until the counts are these, at most for as long as counts may be out of date.
async fn counted(c: &Context, queue: &Queue, p: &PartitionId, due: Counts) -> CaseResult {
    let deadline = Instant::now() + c.capabilities().inspect.staleness + c.timing().slack;
    loop {
        let seen = c.ok(Clause::Inspection, "counts", queue.counts(p).await)?;
        if seen == due || Instant::now() > deadline {
            return c.equal(Clause::Inspection, &[], "the counts", &due, &seen);
        }
        tokio::time::sleep(c.timing().slack / 4).await;
    }
}

/// Counts by state, seen through another client than the one that works.
async fn counts(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    counted(c, &other, &p, Counts::known(0, 0, 0, 0)).await?;
    c.store(&queue, &p, c.messages(6, |_, task| task)).await?;
    counted(c, &other, &p, Counts::known(6, 0, 0, 0)).await?;
    let mut held = c.hold(&queue, &p, 3).await?;
    counted(c, &other, &p, Counts::known(3, 0, 3, 0)).await?;
    for (handler, status) in held.iter_mut().zip([Status::Processed, Status::poisonous("x"), Status::Failed])
    {
        c.settle(handler, status).await?;
    }
    counted(c, &other, &p, Counts::known(4, 0, 0, 1)).await?;
    let dead = p.dead_letters();
    counted(c, &other, &dead, Counts::known(4, 0, 0, 1)).await
}

/// Names come in order, in pages, and only live ones.
async fn partitions(c: &Context) -> CaseResult {
    let queue = c.queue()?;
    let names = ["b", "A", "a.1", "a-1", "z_9"];
    for name in names {
        c.store(&queue, &c.partition(name)?, vec![c.message()]).await?;
    }
    let mut handler = c.hold_one(&queue, &c.partition("A")?).await?;
    c.settle(&mut handler, Status::poisonous("x")).await?;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page =
            c.ok(Clause::Inspection, "partitions", queue.partitions(Page::of(2).after(after.clone())).await)?;
        c.check(
            Clause::Inspection,
            &[],
            page.len() <= 2 && seen.len() <= names.len(),
            "pages of two that end",
            format!("{page:?}"),
        )?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        seen.extend(page);
    }
    let mut due = Vec::new();
    for name in BTreeSet::from(names) {
        due.push(c.partition(name)?);
    }
    c.equal(Clause::Inspection, &[], "the partitions", &due, &seen)
}

/// Pages show each message once with its state, and neither lease nor count a delivery.
async fn browse(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(7, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    let (mut seen, mut leased, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = c.ok(Clause::Inspection, "browse", other.browse(&p, Page::of(3).after(after)).await)?;
        c.check(
            Clause::Inspection,
            &sent,
            page.len() <= 3 && seen.len() <= 7,
            "pages of three that end",
            format!("{}", page.len()),
        )?;
        let Some(last) = page.last() else { break };
        after = Some(last.message.id());
        seen.extend(page.iter().map(|browsed| browsed.message.id()));
        leased.extend(page.iter().filter(|b| b.state == MessageState::Leased).map(|b| b.message.id()));
    }
    c.same_ids(Clause::Inspection, "each message", &sent, &seen)?;
    c.same_ids(Clause::Inspection, "those held shown as leased", &handler_ids(&held), &leased)?;
    let rest = c.hold(&other, &p, 5).await?;
    let untouched = rest.iter().all(|handler| handler.delivery_count().is_none_or(|count| count == 1));
    c.check(Clause::Inspection, &sent, untouched, "no delivery by browsing", "a count above 1")?;
    held.extend(rest);
    c.processed(&queue, &mut held).await
}

/// Deletion by id returns an outcome per id; held messages are left alone.
async fn delete(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let waiting: Vec<MessageId> = sent.iter().filter(|id| **id != held.id()).copied().collect();
    let ids = [held.id(), waiting.first().copied().unwrap_or(held.id()), c.message().id()];
    let mut answers = Vec::new();
    for answer in c.ok(Clause::Deletion, "delete", queue.delete(&p, &ids).await)? {
        answers.push(c.ok(Clause::Deletion, "each deletion", answer)?);
    }
    let due = vec![DeleteOutcome::Leased, DeleteOutcome::Deleted, DeleteOutcome::NotFound];
    c.equal(Clause::Deletion, &ids, "the outcomes", &due, &answers)?;
    c.settle(&mut held, Status::Processed).await?;
    let left = waiting.get(1..).unwrap_or_default();
    c.same_ids(Clause::Deletion, "what was not deleted", left, &c.drain(&queue, &p, c.timing().slack).await?)
}

/// A filter deletes the messages that it accepts, and leaves those that it refuses and those that are held.
async fn delete_where(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c
        .store(&queue, &p, c.messages(10, |i, task| task.with_header("even", (i % 2 == 0).to_string())))
        .await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let even = |browsed: &anyqueue::Browsed| {
        browsed.message.headers().get("even").is_some_and(|even| even == "true")
    };
    let held_is_even = u64::from(held.headers().get("even").is_some_and(|even| even == "true"));
    let done = c.ok(Clause::Deletion, "delete_where", queue.delete_where(&p, Page::of(1000), even).await)?;
    let seen = (done.deleted, done.leased, done.scanned, done.next);
    c.equal(
        Clause::Deletion,
        &sent,
        "deleted, leased, scanned, next",
        &(5 - held_is_even, held_is_even, 10, None),
        &seen,
    )?;
    let odd = sent.iter().skip(1).step_by(2).filter(|id| **id != held.id()).copied().collect::<Vec<_>>();
    c.settle(&mut held, Status::Processed).await?;
    c.same_ids(
        Clause::Deletion,
        "what the filter refused",
        &odd,
        &c.drain(&queue, &p, c.timing().slack).await?,
    )
}

/// A limit bounds one step; `next` continues where it stopped, until all messages were looked at once.
async fn delete_where_in_steps(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent =
        c.store(&queue, &p, c.messages(10, |i, task| task.with_header("number", i.to_string()))).await?;
    let (mut looked_at, mut deleted, mut after, mut steps) = (Vec::new(), 0, None, 0);
    loop {
        let step = queue.delete_where(&p, Page::of(4).after(after), |browsed| {
            looked_at.push(browsed.message.id());
            browsed.message.headers().get("number").is_some_and(|number| number != "3")
        });
        let done = c.ok(Clause::Deletion, "delete_where", step.await)?;
        (deleted, steps) = (deleted + done.deleted, steps + 1);
        c.check(
            Clause::Deletion,
            &sent,
            done.scanned <= 4,
            "at most 4 looked at",
            format!("{}", done.scanned),
        )?;
        c.check(Clause::Deletion, &sent, steps <= 4, "the steps to end", format!("{steps} steps"))?;
        after = done.next;
        if after.is_none() {
            break;
        }
    }
    c.same_ids(Clause::Deletion, "each looked at", &sent, &looked_at)?;
    c.equal(Clause::Deletion, &sent, "the number deleted", &9, &deleted)?;
    let left = sent.get(3..4).unwrap_or_default();
    c.same_ids(
        Clause::Deletion,
        "what the filter refused",
        left,
        &c.drain(&queue, &p, c.timing().slack).await?,
    )
}

/// A purge returns how many it deleted, in steps of any size, and leaves held messages and other partitions.
async fn purge(c: &Context) -> CaseResult {
    let (p, near, queue) = (c.partition("work")?, c.partition("work2")?, c.queue()?);
    let count = anyqueue::MAX_PAGE + 3;
    c.store(&queue, &p, c.messages(count, |_, task| task)).await?;
    let other = c.store(&queue, &near, vec![c.message()]).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    let purged = c.ok(Clause::Deletion, "purge", queue.purge(&p).await)?;
    c.equal(Clause::Deletion, &[], "the number purged", &(count as u64 - 2), &purged)?;
    c.equal(
        Clause::Deletion,
        &[],
        "the number purged again",
        &0,
        &c.ok(Clause::Deletion, "purge", queue.purge(&p).await)?,
    )?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "nothing left").await?;
    c.same_ids(
        Clause::Deletion,
        "the other partition's message",
        &other,
        &c.drain(&queue, &near, c.timing().slack).await?,
    )
}

/// A paused partition delivers nothing to anybody; pushes and settlements go on; a resume wakes waiting
/// pulls.
async fn pause(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    for paused in [false, true, true] {
        if paused {
            c.ok(Clause::Pause, "pause", other.pause(&p).await)?;
        }
        c.equal(
            Clause::Pause,
            &[],
            "paused:",
            &paused,
            &c.ok(Clause::Pause, "is_paused", queue.is_paused(&p).await)?,
        )?;
    }
    let sent = c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
    c.settle(&mut held, Status::Processed).await?;
    c.client().nothing(&p, c.timing().never(), Clause::Pause, "nothing while it is paused").await?;
    let waiting = tokio::spawn(queue.pull(&p).max(10).wait(c.timing().soon * 3).into_future());
    tokio::time::sleep(c.timing().slack).await;
    let asked = Instant::now();
    for _ in 0..2 {
        c.ok(Clause::Pause, "resume", other.resume(&p).await)?;
    }
    let woken =
        waiting.await.map_err(|error| c.failed(Clause::Pause, &sent, "no panic", error.to_string()))?;
    let mut got = c.ok(Clause::Pause, "the waiting pull", woken)?;
    c.took(
        Clause::Pause,
        &sent,
        "the waiting pull woken",
        asked.elapsed(),
        (Duration::ZERO, c.timing().soon),
    )?;
    let missing = c.hold(&queue, &p, 2 - got.len().min(2)).await?;
    got.extend(missing);
    c.same_ids(Clause::Pause, "what was pushed meanwhile", &sent, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// The trace that is current during the push is in the delivered headers, unless the message has its own.
async fn trace(c: &Context) -> CaseResult {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OWN: &str = "00-11111111111111111111111111111111-2222222222222222-00";
    let p = c.partition("work")?;
    let queue = c.queue_over(c.client(), |builder| builder.trace(Arc::new(|| Some(PARENT.to_owned()))))?;
    let plain = c.queue_over(c.client(), |builder| builder.trace(Arc::new(|| None)))?;
    let task = || c.message().with_header("mine", "1");
    c.store(&queue, &p, vec![task()]).await?;
    c.store(&queue, &p, vec![task().with_header(header::TRACEPARENT, OWN)]).await?;
    c.store(&plain, &p, vec![task()]).await?;
    for due in [Some(PARENT), Some(OWN), None] {
        let mut handler = c.hold_one(&queue, &p).await?;
        let headers = handler.headers();
        let seen = headers.get(header::TRACEPARENT).map(String::as_str);
        c.equal(Clause::ContentIntact, &[handler.id()], "the traceparent", &due, &seen)?;
        c.equal(
            Clause::ContentIntact,
            &[handler.id()],
            "the number of headers",
            &(1 + usize::from(due.is_some())),
            &headers.len(),
        )?;
        c.settle(&mut handler, Status::Processed).await?;
    }
    Ok(())
}
