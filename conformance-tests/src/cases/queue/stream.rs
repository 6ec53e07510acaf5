//! Streams: bounded by their window, complete, and honest about errors.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{Delivery, ErrorKind, HandlerStream, Queue, QueueMessageStatus as Status, RetryPolicy};
use futures_util::StreamExt as _;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_stream.delivers_all", [PullBounds, AllWaitersWake], delivers_all)
        .kills(&[Fault::RemoveLostOneIn30]),
    case!(Queue, "queue_stream.wakes", [PushWakes], wakes).kills(&[Fault::SleepsThroughPush]),
    case!(Queue, "queue_stream.window", [NoPrefetch], window).kills(&[Fault::Prefetches]),
    case!(Queue, "queue_stream.dropped_gives_back", [DroppedPull, DroppedDelivery], dropped_gives_back)
        .kills(&[Fault::ReleaseWaitsForLease]),
    case!(Queue, "queue_stream.dropped_takes_no_more", [DroppedPull], dropped_takes_no_more)
        .kills(&[Fault::IgnoresStop]),
    case!(Queue, "queue_stream.two_share", [NoPrefetch, Exclusive], two_share)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_stream.errors_are_items", [PushErrors, Recovery], errors_are_items)
        .kills(&[Fault::LargeMaxEmpty]),
    case!(Queue, "queue_stream.ends_at_close", [Close], ends_at_close).kills(&[Fault::IgnoresStop]),
];

/// Returns the next delivery, which must come soon.
async fn next(c: &Context, stream: &mut HandlerStream) -> CaseResult<Delivery> {
    let item = tokio::time::timeout(c.timing().soon, stream.next()).await;
    let item = item.map_err(|_| {
        c.failed(Clause::PushWakes, &[], "a delivery soon", format!("none within {:?}", c.timing().soon))
    })?;
    let item =
        item.ok_or_else(|| c.failed(Clause::PullBounds, &[], "a delivery", "the end of the stream"))?;
    let handler = c.ok(Clause::PullBounds, "the stream's item", item)?;
    c.whole(&handler)?;
    Ok(handler)
}

/// Judges that the stream has nothing at the moment.
async fn silent(c: &Context, stream: &mut HandlerStream, during: Duration, why: &str) -> CaseResult {
    let item = tokio::time::timeout(during, stream.next()).await;
    c.check(Clause::NoPrefetch, &[], item.is_err(), why, format!("{item:?}"))
}

/// Everything comes, once, in order, over many windows.
async fn delivers_all(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let mut stream = c.ok(Clause::PullBounds, "a stream", queue.stream(&p).window(7).build())?;
    let sent = c.store(&queue, &p, c.messages(200, |_, task| task)).await?;
    let mut seen = Vec::new();
    for _ in 0..sent.len() {
        let mut handler = next(c, &mut stream).await?;
        c.settle(&mut handler, Status::Processed).await?;
        seen.push(handler.id());
    }
    c.same_order(Clause::PullBounds, "everything", &sent, &seen)?;
    silent(c, &mut stream, c.timing().never(), "nothing beyond").await
}

/// A stream that waits is woken by a push.
async fn wakes(c: &Context) -> CaseResult {
    let (p, queue, pusher) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let mut stream = c.ok(Clause::PushWakes, "a stream", queue.stream(&p).build())?;
    for _ in 0..5 {
        c.pull_begins(c.client()).await?;
        silent(c, &mut stream, c.timing().slack, "nothing yet").await?;
        let sent = c.store(&pusher, &p, vec![c.message()]).await?;
        let mut handler = next(c, &mut stream).await?;
        c.same_ids(Clause::PushWakes, "what was pushed", &sent, &[handler.id()])?;
        c.settle(&mut handler, Status::Processed).await?;
    }
    Ok(())
}

/// A stream never holds more than its window, and continues when there is room.
async fn window(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(13, |_, task| task)).await?;
    let mut stream = c.ok(Clause::NoPrefetch, "a stream", queue.stream(&p).window(8).build())?;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(next(c, &mut stream).await?);
    }
    silent(c, &mut stream, c.timing().slack * 4, "no ninth delivery while eight are held").await?;
    let mut theirs = c.hold(&other, &p, 5).await?;
    c.same_ids(
        Clause::NoPrefetch,
        "all, by the two",
        &sent,
        &[handler_ids(&held), handler_ids(&theirs)].concat(),
    )?;
    c.processed(&other, &mut theirs).await?;
    for _ in 0..3 {
        let sent = c.store(&other, &p, vec![c.message()]).await?;
        let mut freed = held.remove(0);
        c.settle(&mut freed, Status::Processed).await?;
        drop(freed);
        held.push(next(c, &mut stream).await?);
        c.same_ids(
            Clause::NoPrefetch,
            "one more, as there is room",
            &sent,
            &handler_ids(held.get(7..).unwrap_or_default()),
        )?;
    }
    c.processed(&queue, &mut held).await
}

/// A stream that is dropped releases at once what nobody took; handlers that were taken stay.
async fn dropped_gives_back(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(10, |_, task| task)).await?;
    let mut stream = c.ok(Clause::DroppedDelivery, "a stream", queue.stream(&p).window(10).build())?;
    let mut mine = next(c, &mut stream).await?;
    drop(stream);
    let mut back = c.hold(&other, &p, 9).await?;
    c.same_ids(
        Clause::DroppedDelivery,
        "all but the one that was taken",
        &sent,
        &[handler_ids(&back), vec![mine.id()]].concat(),
    )?;
    c.settle(&mut mine, Status::Processed).await?;
    c.processed(&other, &mut back).await
}

/// A stream that is dropped while it waits takes nothing that is pushed later.
async fn dropped_takes_no_more(c: &Context) -> CaseResult {
    let (p, queue, other, slack) =
        (c.partition("work")?, c.queue()?, c.fresh_queue().await?, c.timing().slack);
    for _ in 0..3 {
        let mut stream = c.ok(Clause::DroppedPull, "a stream", queue.stream(&p).build())?;
        silent(c, &mut stream, slack, "nothing yet").await?;
        drop(stream);
        c.pulls_end(c.client()).await?;
        let sent = c.store(&other, &p, c.messages(3, |_, task| task)).await?;
        // Time for a pull that continues in secret to take them.
        tokio::time::sleep(slack).await;
        let mut held = c.hold(&other, &p, 3).await?;
        c.same_ids(Clause::DroppedPull, "what was pushed after the drop", &sent, &handler_ids(&held))?;
        c.delivered_once(Clause::DroppedPull, "nothing delivered to the dropped stream", &held)?;
        c.processed(&other, &mut held).await?;
    }
    Ok(())
}

/// Two streams share a partition without overlap.
async fn two_share(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(100, |_, task| task)).await?;
    let mut one = c.ok(Clause::NoPrefetch, "a stream", queue.stream(&p).window(5).build())?;
    let mut two = c.ok(Clause::NoPrefetch, "a stream", other.stream(&p).window(5).build())?;
    let mut seen = Vec::new();
    for _ in 0..sent.len() {
        let item = tokio::time::timeout(c.timing().soon, async {
            tokio::select! { item = one.next() => item, item = two.next() => item }
        });
        let item = item.await.ok().flatten();
        let item = item.ok_or_else(|| {
            c.failed(Clause::NoPrefetch, &[], "a delivery at one of them", format!("{} in all", seen.len()))
        })?;
        let mut handler = c.ok(Clause::PullBounds, "the stream's item", item)?;
        c.settle(&mut handler, Status::Processed).await?;
        seen.push(handler.id());
    }
    c.same_ids(Clause::Exclusive, "each, at one of them", &sent, &seen)
}

/// An error is an item; the stream continues after it.
async fn errors_are_items(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |_| {});
    let below: Arc<dyn Storage> = storage.clone();
    let builder = Queue::builder(below).defaults(c.long_options()).retry(RetryPolicy::NEVER);
    let queue = c.ok(Clause::Unsupported, "a queue", builder.build())?;
    storage.fail_pulls(3);
    let sent = c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
    let mut stream = c.ok(Clause::PullBounds, "a stream", queue.stream(&p).build())?;
    for _ in 0..3 {
        let item = tokio::time::timeout(c.timing().soon, stream.next()).await.ok().flatten();
        let ok = matches!(&item, Some(Err(error)) if error.kind() == ErrorKind::Unavailable);
        c.check(Clause::PushErrors, &[], ok, "each failed pull as an item", format!("{item:?}"))?;
    }
    let mut held = vec![next(c, &mut stream).await?, next(c, &mut stream).await?];
    c.same_ids(Clause::Recovery, "the messages, after the errors", &sent, &handler_ids(&held))?;
    c.processed(&queue, &mut held).await
}

/// A stream ends when its queue is closed, even while it waits.
async fn ends_at_close(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.fresh_queue().await?);
    let mut stream = c.ok(Clause::PullBounds, "a stream", queue.stream(&p).build())?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = next(c, &mut stream).await?;
    c.settle(&mut handler, Status::Processed).await?;
    let clone = queue.clone();
    let closing = tokio::spawn(async move { clone.close().await });
    let end = tokio::time::timeout(c.timing().soon, stream.next()).await;
    let ok = matches!(end, Ok(None));
    c.check(Clause::Close, &[], ok, "the end of the stream", format!("{end:?}"))?;
    let closed =
        closing.await.map_err(|error| c.failed(Clause::Close, &[], "no panic", error.to_string()))?;
    c.ok(Clause::Close, "close", closed)
}
