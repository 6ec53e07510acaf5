//! Closing a queue: final, prompt, idempotent, and without loss.

use std::time::{Duration, Instant};

use anyqueue::{
    Error, ErrorKind, Page, PartitionId, Queue, QueueMessageStatus as Status, Result, SettleOutcome,
};
use futures_util::StreamExt as _;
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids, polled};
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_close.is_final", [Close], is_final).kills(&[Fault::CloseDoesNothing]),
    case!(Queue, "queue_close.gives_back", [Close, DroppedDelivery], gives_back)
        .kills(&[Fault::ReleaseWaitsForLease]),
    case!(Queue, "queue_close.wakes", [Close], wakes).kills(&[Fault::IgnoresStop]),
    case!(Queue, "queue_close.ten_at_once", [Close], ten_at_once).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_close.finishes_settlements", [Close, SettleCarriedThrough], finishes_settlements)
        .kills(&[Fault::RemoveLostOneIn30]),
];

/// After `close` every method returns `Closed`, and a stream ends.
async fn is_final(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    c.ok(Clause::Close, "close", queue.close().await)?;
    let kind = ErrorKind::Closed;
    c.error(Clause::Close, "push", kind, &queue.push(&p, c.message()).await)?;
    c.error(Clause::Close, "push_many", kind, &queue.push_many(&p, vec![c.message()]).await)?;
    c.error(Clause::Close, "pull", kind, &queue.pull(&p).await)?;
    c.error(Clause::Close, "init", kind, &queue.init().await)?;
    c.error(Clause::Close, "check", kind, &queue.check().await)?;
    let dead = c.ok(Clause::Close, "dead_letters", queue.dead_letters(&p))?;
    c.error(Clause::Close, "dead_letters.list", kind, &dead.list(Page::of(10)).await)?;
    c.error(Clause::Close, "redrive", kind, &dead.redrive().await)?;
    c.error(Clause::Close, "dead_letters.purge", kind, &dead.purge().await)?;
    inspection_after_close(c, &queue, &p).await?;
    let ended = c.ok(Clause::Close, "a stream", queue.stream(&p).build())?.next().await;
    c.check(Clause::Close, &[], ended.is_none(), "the stream to end at once", format!("{ended:?}"))?;
    let got = c.drain(&c.queue()?, &p, c.timing().slack).await?;
    c.same_ids(Clause::Close, "what was stored before, and nothing else", &sent, &got)
}

async fn inspection_after_close(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult {
    let (inspect, kind, id) = (c.capabilities().inspect, ErrorKind::Closed, c.message().id());
    let flat = |answers: Result<Vec<Result<_>>>| {
        answers.and_then(|mut all| all.pop().unwrap_or_else(|| Err(Error::closed())))
    };
    if inspect.ready || inspect.dead {
        c.error(Clause::Close, "counts", kind, &queue.counts(p).await)?;
    }
    if inspect.list {
        c.error(Clause::Close, "partitions", kind, &queue.partitions(Page::of(10)).await)?;
    }
    if inspect.browse {
        c.error(Clause::Close, "browse", kind, &queue.browse(p, Page::of(10)).await)?;
    }
    if inspect.delete {
        c.error(Clause::Close, "delete", kind, &flat(queue.delete(p, &[id]).await))?;
    }
    if inspect.purge {
        c.error(Clause::Close, "purge", kind, &queue.purge(p).await)?;
    }
    if inspect.cancel {
        let answer = queue
            .request_cancel(p, &[id])
            .await
            .and_then(|mut all| all.pop().unwrap_or_else(|| Err(Error::closed())));
        c.error(Clause::Close, "request_cancel", kind, &answer)?;
    }
    if c.capabilities().pause {
        c.error(Clause::Close, "pause", kind, &queue.pause(p).await)?;
        c.error(Clause::Close, "is_paused", kind, &queue.is_paused(p).await)?;
    }
    Ok(())
}

/// Messages that are held at `close` come back at once; their handlers learn that they lost them.
async fn gives_back(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.fresh_queue().await?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(20, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 20).await?;
    let signals: Vec<_> = held.iter().map(|handler| handler.lost().clone()).collect();
    c.ok(Clause::Close, "close", queue.close().await)?;
    let told = signals.iter().filter(|signal| signal.is_cancelled()).count();
    c.equal(Clause::Close, &sent, "the handlers told", &20, &told)?;
    let mut back = c.hold(&other, &p, 20).await?;
    c.same_ids(Clause::Close, "what was held", &sent, &handler_ids(&back))?;
    if let Some(handler) = held.first_mut() {
        let late = handler.settle(Status::Processed).await;
        let settled = matches!(late, Ok(SettleOutcome::Settled));
        c.check(Clause::Close, &sent, !settled, "no settlement after close", format!("{late:?}"))?;
    }
    drop(held);
    c.client().nothing(&p, c.timing().slack, Clause::Close, "the new owner undisturbed").await?;
    c.processed(&other, &mut back).await
}

/// `close` wakes waiting pulls, and does not wait for the ends of their waits.
async fn wakes(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.fresh_queue().await?);
    let (waits, t) = (c.timing().soon * 10, c.timing());
    let waiting: Vec<_> = (0..5).map(|_| tokio::spawn(queue.pull(&p).wait(waits).into_future())).collect();
    tokio::time::sleep(t.slack).await;
    let asked = Instant::now();
    c.ok(Clause::Close, "close", queue.close().await)?;
    c.took(Clause::Close, &[], "close", asked.elapsed(), (Duration::ZERO, t.soon))?;
    for pull in waiting {
        let ended = tokio::time::timeout(t.soon, pull).await;
        let ok = match &ended {
            Ok(Ok(Ok(got))) => got.is_empty(),
            Ok(Ok(Err(error))) => error.kind() == ErrorKind::Closed,
            _ => false,
        };
        c.check(Clause::Close, &[], ok, "a waiting pull to end empty or Closed", format!("{ended:?}"))?;
    }
    Ok(())
}

/// Closing it ten times at once, and once more, is the same as closing it once.
pub(super) async fn ten_at_once(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let closing = (0..10).map(|_| {
        let queue = queue.clone();
        async move { queue.close().await }
    });
    for closed in join_all(closing).await {
        c.ok(Clause::Close, "each close", closed)?;
    }
    c.ok(Clause::Close, "one more close", queue.close().await)?;
    c.same_ids(Clause::Close, "what was stored", &sent, &c.drain(&c.queue()?, &p, c.timing().slack).await?)
}

/// Settlements that were requested before `close` are carried through.
async fn finishes_settlements(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.fresh_queue().await?);
    c.store(&queue, &p, c.messages(50, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 50).await?;
    for handler in &mut held {
        let _ = polled(1, handler.settle(Status::Processed)).await;
    }
    c.ok(Clause::Close, "close", queue.close().await)?;
    c.client()
        .nothing(&p, c.timing().slack, Clause::Close, "nothing back, as each was settled as processed")
        .await
}
