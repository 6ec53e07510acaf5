//! What the queue refuses before anything is stored: what is not declared, what is out of range, and what
//! comes after close.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Dedup, PriorityDiscipline, Storage};
use anyqueue::{
    Error, ErrorKind, MAX_HEADER_NAME_BYTES, MAX_KEY_BYTES, MessageData, OnDuplicate, Page, PartitionId,
    PartitionOptions, Queue, QueueMessageStatus,
};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_refuse.undeclared_push_options", [Unsupported], undeclared_push_options)
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.undeclared_here", [Unsupported], undeclared_here)
        .kills(&[Fault::PriorityIgnored]),
    case!(Queue, "queue_refuse.undeclared_postponement", [Unsupported], undeclared_postponement)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_refuse.undeclared_inspection", [Unsupported], undeclared_inspection)
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.undeclared_compaction", [Unsupported], undeclared_compaction)
        .needs(&[Need::DedupWhileLive])
        .kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.out_of_range", [Unsupported], out_of_range).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.bad_names", [Unsupported], bad_names).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.bad_pulls", [Unsupported], bad_pulls).kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_refuse.bad_options", [Unsupported], bad_options).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.too_large", [Limits], too_large).kills(&[Fault::BufferLostAtClose]),
    case!(Queue, "queue_refuse.headers_too_large", [Limits], headers_too_large)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::SharedDelivery]),
];

fn over(c: &Context, storage: &Arc<Altered>) -> CaseResult<Queue> {
    let storage: Arc<dyn Storage> = storage.clone();
    c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(c.long_options()).build())
}

/// Returns one message for each optional feature, with its name.
fn with_options(c: &Context) -> [(&'static str, MessageData); 4] {
    [
        ("a group", c.message().with_group("g")),
        ("a deduplication key", c.message().with_dedup_key("k")),
        ("a delay", c.message().with_delay(c.timing().delay)),
        ("a priority", c.message().with_priority(1)),
    ]
}

/// Judges that both ways to push refuse the message with this kind, and that the queue continues to work.
async fn refused(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    (what, kind): (&str, ErrorKind),
    message: MessageData,
) -> CaseResult {
    let alone = queue.push(p, message.clone()).await;
    c.error(Clause::Unsupported, &format!("a push with {what}"), kind, &alone)?;
    let mut together = c.ok(Clause::Unsupported, "push_many", queue.push_many(p, vec![message]).await)?;
    c.equal(Clause::Unsupported, &[], "the number of answers", &1, &together.len())?;
    let answer = together.pop().unwrap_or_else(|| Err(Error::closed()));
    c.error(Clause::Unsupported, &format!("push_many with {what}"), kind, &answer)
}

/// Options that are not declared never reach the backend.
async fn undeclared_push_options(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| {
        declared.groups = false;
        declared.dedup = Dedup::None;
        declared.push_delay = None;
        (declared.priority_levels, declared.priority) = (1, PriorityDiscipline::None);
    });
    let queue = over(c, &storage)?;
    for (what, message) in with_options(c) {
        refused(c, &queue, &p, (what, ErrorKind::Unsupported), message).await?;
    }
    c.equal(Clause::Unsupported, &[], "the number of push calls", &0, &storage.pushes())?;
    usable(c, &queue, &p).await
}

/// The same for what this backend itself does not declare; what it does declare is accepted.
async fn undeclared_here(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let declared = c.capabilities();
    let has = [
        declared.groups,
        declared.dedup != Dedup::None,
        declared.push_delay.is_some(),
        declared.priority_levels > 1,
    ];
    for ((what, message), has) in with_options(c).into_iter().zip(has) {
        if has {
            c.store(&queue, &p, vec![message]).await?;
        } else {
            refused(c, &queue, &p, (what, ErrorKind::Unsupported), message).await?;
        }
    }
    let stored = has.into_iter().filter(|has| *has).count();
    let mut held = c.hold(&queue, &p, stored).await?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Unsupported, "nothing of what was refused").await
}

/// The queue still works, and holds nothing but what is pushed now.
async fn usable(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult {
    let sent = c.store(queue, p, vec![c.message()]).await?;
    let got = c.drain(queue, p, c.timing().slack).await?;
    c.same_ids(Clause::Unsupported, "the one message that was accepted", &sent, &got)
}

/// A push that would change a waiting message is refused if that is not declared, and without a key.
async fn undeclared_compaction(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| declared.on_duplicate = false);
    let queue = over(c, &storage)?;
    for what in [OnDuplicate::Replace, OnDuplicate::Earlier, OnDuplicate::Behind] {
        let message = c.message().with_dedup_key("k").with_on_duplicate(what);
        refused(c, &queue, &p, ("a key that may be taken", ErrorKind::Unsupported), message).await?;
        let message = c.message().with_on_duplicate(what);
        refused(c, &queue, &p, ("no key that could be taken", ErrorKind::InvalidInput), message).await?;
    }
    c.equal(Clause::Unsupported, &[], "the number of push calls", &0, &storage.pushes())?;
    usable(c, &queue, &p).await
}

/// A refused postponement leaves the delivery held; it can be settled in another way.
async fn undeclared_postponement(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| {
        declared.postpone_delay = None;
        declared.postpone_headers = false;
    });
    let queue = over(c, &storage)?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let later = handler.settle(QueueMessageStatus::postponed(c.timing().delay)).await;
    c.error(Clause::Unsupported, "a postponement with a delay", ErrorKind::Unsupported, &later)?;
    let headers = Some([("a".to_owned(), "b".to_owned())].into());
    let changed = handler.settle(QueueMessageStatus::Postponed { delay: Duration::ZERO, headers }).await;
    c.error(Clause::Unsupported, "a postponement with headers", ErrorKind::Unsupported, &changed)?;
    c.client().nothing(&p, c.timing().slack, Clause::Unsupported, "the message still held").await?;
    c.settle(&mut handler, QueueMessageStatus::Processed).await
}

/// Inspection and pausing that are not declared return `Unsupported`.
async fn undeclared_inspection(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| {
        let inspect = &mut declared.inspect;
        (inspect.ready, inspect.delayed, inspect.leased, inspect.dead) = (false, false, false, false);
        (inspect.list, inspect.browse, inspect.delete) = (false, false, false);
        (inspect.purge, inspect.cancel) = (false, false);
        declared.pause = false;
    });
    let queue = over(c, &storage)?;
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let kind = ErrorKind::Unsupported;
    c.error(Clause::Unsupported, "counts", kind, &queue.counts(&p).await)?;
    c.error(Clause::Unsupported, "partitions", kind, &queue.partitions(Page::of(10)).await)?;
    c.error(Clause::Unsupported, "browse", kind, &queue.browse(&p, Page::of(10)).await)?;
    c.error(Clause::Unsupported, "delete", kind, &queue.delete(&p, &sent).await)?;
    c.error(
        Clause::Unsupported,
        "delete_where",
        kind,
        &queue.delete_where(&p, Page::of(10), |_| true).await,
    )?;
    c.error(Clause::Unsupported, "purge", kind, &queue.purge(&p).await)?;
    c.error(Clause::Unsupported, "request_cancel", kind, &queue.request_cancel(&p, &sent).await)?;
    c.error(Clause::Unsupported, "pause", kind, &queue.pause(&p).await)?;
    c.error(Clause::Unsupported, "resume", kind, &queue.resume(&p).await)?;
    c.error(Clause::Unsupported, "is_paused", kind, &queue.is_paused(&p).await)?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Unsupported, "the message, untouched", &sent, &got)
}

/// Values outside their range are refused with what is wrong.
async fn out_of_range(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let long = |n: usize| "k".repeat(n);
    let levels = c.capabilities().priority_levels;
    let bad = match c.capabilities().priority {
        PriorityDiscipline::None => ErrorKind::Unsupported,
        _ => ErrorKind::InvalidInput,
    };
    refused(c, &queue, &p, ("the priority above the highest", bad), c.message().with_priority(levels))
        .await?;
    refused(c, &queue, &p, ("priority 255", bad), c.message().with_priority(u8::MAX)).await?;
    let invalid = [
        ("a reserved header", c.message().with_header("anyqueue-dead-reason", "mine")),
        ("an empty header name", c.message().with_header("", "x")),
        ("a long header name", c.message().with_header(long(MAX_HEADER_NAME_BYTES + 1), "x")),
        ("an empty task id", c.message().with_task_id("")),
        ("a long task id", c.message().with_task_id(long(MAX_KEY_BYTES + 1))),
        ("an empty session id", c.message().with_session_id("")),
        ("an empty group", c.message().with_group("")),
        ("a long group", c.message().with_group(long(MAX_KEY_BYTES + 1))),
        ("an empty deduplication key", c.message().with_dedup_key("")),
        ("a long deduplication key", c.message().with_dedup_key(long(MAX_KEY_BYTES + 1))),
    ];
    for (what, message) in invalid {
        refused(c, &queue, &p, (what, ErrorKind::InvalidInput), message).await?;
    }
    if let Some(delay) = c.capabilities().push_delay
        && let Some(longer) = delay.max.checked_add(Duration::from_millis(1))
    {
        let message = c.message().with_delay(longer);
        refused(c, &queue, &p, ("too long a delay", ErrorKind::InvalidInput), message).await?;
    }
    refused(
        c,
        &queue,
        &p.dead_letters(),
        ("dead letters as its target", ErrorKind::InvalidInput),
        c.message(),
    )
    .await?;
    let at_limits =
        c.message().with_task_id(long(MAX_KEY_BYTES)).with_header(long(MAX_HEADER_NAME_BYTES), "x");
    let highest = at_limits.with_priority(levels.saturating_sub(1));
    let sent = c.store(&queue, &p, vec![highest]).await?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Unsupported, "the message at the limits, and nothing of the others", &sent, &got)
}

/// An invalid name is refused by every method that takes a name.
async fn bad_names(c: &Context) -> CaseResult {
    let queue = c.queue()?;
    let (long, kind) = ("x".repeat(PartitionId::MAX_NAME_BYTES + 1), ErrorKind::InvalidInput);
    for name in ["", "a b", "a/b", "../a", "ü", "a\0", "a'b", long.as_str()] {
        c.error(Clause::Unsupported, "push", kind, &queue.push(name, c.message()).await)?;
        c.error(Clause::Unsupported, "push_many", kind, &queue.push_many(name, vec![c.message()]).await)?;
        c.error(Clause::Unsupported, "pull", kind, &queue.pull(name).await)?;
        c.error(Clause::Unsupported, "stream", kind, &queue.stream(name).build())?;
        c.error(Clause::Unsupported, "dead_letters", kind, &queue.dead_letters(name))?;
        c.error(Clause::Unsupported, "counts", kind, &queue.counts(name).await)?;
        c.error(Clause::Unsupported, "browse", kind, &queue.browse(name, Page::of(1)).await)?;
        c.error(Clause::Unsupported, "delete", kind, &queue.delete(name, &[]).await)?;
        c.error(
            Clause::Unsupported,
            "delete_where",
            kind,
            &queue.delete_where(name, Page::of(1), |_| true).await,
        )?;
        c.error(Clause::Unsupported, "purge", kind, &queue.purge(name).await)?;
        c.error(Clause::Unsupported, "request_cancel", kind, &queue.request_cancel(name, &[]).await)?;
        c.error(Clause::Unsupported, "pause", kind, &queue.pause(name).await)?;
        let dead = c.ok(Clause::Unsupported, "dead_letters", queue.dead_letters("work"))?;
        c.error(Clause::Unsupported, "redrive to it", kind, &dead.redrive().to(name).await)?;
    }
    usable(c, &queue, &c.partition("work")?).await
}

/// `max` of zero, and leases that the backend cannot keep.
async fn bad_pulls(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let (kind, too_long) =
        (ErrorKind::InvalidInput, c.capabilities().lease.max.saturating_add(Duration::from_millis(1)));
    c.error(Clause::Unsupported, "max 0", kind, &queue.pull(&p).max(0).await)?;
    c.error(Clause::Unsupported, "a window of 0", kind, &queue.stream(&p).window(0).build())?;
    for lease in [Duration::ZERO, too_long] {
        c.error(
            Clause::Unsupported,
            &format!("a lease of {lease:?}"),
            kind,
            &queue.pull(&p).lease(lease).await,
        )?;
        c.error(Clause::Unsupported, "the same for a stream", kind, &queue.stream(&p).lease(lease).build())?;
    }
    let mut handler = c.hold_one(&queue, &p).await?;
    c.equal(Clause::Unsupported, &sent, "the message", &sent.first().copied(), &Some(handler.id()))?;
    if let Some(count) = handler.delivery_count() {
        c.equal(
            Clause::Unsupported,
            &sent,
            "the delivery count, as no refused pull claimed it:",
            &1,
            &count,
        )?;
    }
    for lease in [Duration::ZERO, too_long] {
        c.error(
            Clause::Unsupported,
            &format!("an extension by {lease:?}"),
            kind,
            &handler.extend(lease).await,
        )?;
    }
    c.settle(&mut handler, QueueMessageStatus::Processed).await
}

/// Options that cannot be kept are refused when the queue is created.
async fn bad_options(c: &Context) -> CaseResult {
    let lease = c.capabilities().lease;
    let of = PartitionOptions::default;
    let bad = [
        ("a lease of zero", of().with_lease(Duration::ZERO)),
        ("too long a lease", of().with_lease(lease.max.saturating_add(Duration::from_millis(1)))),
        ("max_deliveries of 0", c.long_options().with_max_deliveries(Some(0))),
        ("max_hold below the lease", c.long_options().with_max_hold(c.timing().long_lease / 2)),
    ];
    for (what, options) in bad {
        let storage = c.client().storage().clone();
        let built = Queue::builder(storage.clone()).defaults(options.clone()).build();
        c.error(Clause::Unsupported, what, ErrorKind::InvalidInput, &built)?;
        let built = Queue::builder(storage).defaults(c.long_options()).partition("work", options).build();
        c.error(Clause::Unsupported, &format!("{what} for one partition"), ErrorKind::InvalidInput, &built)?;
    }
    usable(c, &c.queue()?, &c.partition("work")?).await
}

/// A message at the limit works, one byte more is `TooLarge`, and the queue continues to work.
async fn too_large(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let limit = c.client().storage().encoded_len(&c.message().with_header("h", "v".repeat(40)));
    let storage = Altered::new(c.client().storage(), |declared| declared.limits.message_bytes = limit);
    let queue = over(c, &storage)?;
    let at = c.message().with_header("h", "v".repeat(40));
    let beyond = c.message().with_header("h", "v".repeat(41));
    refused(c, &queue, &p, ("one byte too many", ErrorKind::TooLarge), beyond).await?;
    c.equal(Clause::Limits, &[], "the number of push calls", &0, &storage.pushes())?;
    let sent = c.store(&queue, &p, vec![at]).await?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Limits, "the message at the limit", &sent, &got)
}

/// New headers that would make a message too large are refused, and the delivery stays held.
async fn headers_too_large(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let limit = c.client().storage().encoded_len(&c.message()) + 200;
    let storage = Altered::new(c.client().storage(), |declared| declared.limits.message_bytes = limit);
    let queue = over(c, &storage)?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let headers = Some([("h".to_owned(), "v".repeat(300))].into());
    let answer = handler.settle(QueueMessageStatus::Postponed { delay: Duration::ZERO, headers }).await;
    c.error(Clause::Limits, "a postponement with too large headers", ErrorKind::TooLarge, &answer)?;
    let reserved = Some([("anyqueue-mine".to_owned(), "x".to_owned())].into());
    let answer =
        handler.settle(QueueMessageStatus::Postponed { delay: Duration::ZERO, headers: reserved }).await;
    c.error(Clause::Unsupported, "a postponement with a reserved header", ErrorKind::InvalidInput, &answer)?;
    c.client().nothing(&p, c.timing().slack, Clause::Limits, "the message still held").await?;
    c.settle(&mut handler, QueueMessageStatus::Processed).await
}
