//! The limits of what a queue can be given: nothing, one, and the largest value of the type. Each works, or
//! is refused with advice.

use std::time::{Duration, SystemTime};

use anyqueue::{
    Error, ErrorKind, MAX_KEY_BYTES, MessageData, Page, PartitionId, Queue, QueueBuilder,
    QueueMessageStatus as Status, RetryPolicy,
};
use futures_util::StreamExt as _;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_bounds.builders", [Resources, Unsupported], builders)
        .kills(&[Fault::LargeMaxEmpty, Fault::RemoveDoesNothing])
        .deadline(LONG),
    case!(Queue, "queue_bounds.pulls", [PullBounds, PullWait, PushWakes], pulls)
        .kills(&[Fault::LargeMaxEmpty, Fault::SleepsThroughPush]),
    case!(Queue, "queue_bounds.messages", [Limits, Expiry, Unsupported], messages)
        .kills(&[Fault::LongNamesCut, Fault::BufferLostAtClose]),
    case!(Queue, "queue_bounds.pages", [DeadLetters, Inspection], pages)
        .needs(&[Need::Browse, Need::Delete, Need::List])
        .kills(&[Fault::LimitZeroIsNone]),
    case!(Queue, "queue_bounds.dead", [DeadLetters], dead).kills(&[Fault::MoveCopies, Fault::OneTooMany]),
];

const LONG: Duration = Duration::from_mins(1);

/// One way to configure a queue, and its name.
type SetUp = (&'static str, fn(QueueBuilder, &Context) -> QueueBuilder);

/// The limits of each option of a queue.
const SET_UPS: &[SetUp] = &[
    ("max_held(1)", |builder, _| builder.max_held(1)),
    ("max_held(usize::MAX)", |builder, _| builder.max_held(usize::MAX)),
    ("push_buffer_bytes(0)", |builder, _| builder.push_buffer_bytes(0)),
    ("push_buffer_bytes(usize::MAX)", |builder, _| builder.push_buffer_bytes(usize::MAX)),
    ("call_timeout(Duration::MAX)", |builder, _| builder.call_timeout(Duration::MAX)),
    ("metric_partitions(0)", |builder, _| builder.metric_partitions(0)),
    ("metric_partitions(usize::MAX)", |builder, _| builder.metric_partitions(usize::MAX)),
    ("no attempts", |builder, _| builder.retry(RetryPolicy::default().with_attempts(0))),
    ("u32::MAX attempts", |builder, _| builder.retry(RetryPolicy::default().with_attempts(u32::MAX))),
    ("one delivery", |builder, c| builder.defaults(c.long_options().with_max_deliveries(Some(1)))),
    ("u32::MAX deliveries", |builder, c| {
        builder.defaults(c.long_options().with_max_deliveries(Some(u32::MAX)))
    }),
    ("max_hold(Duration::MAX)", |builder, c| builder.defaults(c.long_options().with_max_hold(Duration::MAX))),
    ("the longest lease", |builder, c| {
        let longest = c.capabilities().lease.max;
        builder.defaults(c.long_options().with_max_hold(Duration::MAX).with_lease(longest))
    }),
];

/// A queue at any limit of its options does what every queue does.
async fn builders(c: &Context) -> CaseResult {
    for (index, (what, set_up)) in SET_UPS.iter().enumerate() {
        c.client().note(*what);
        let p = c.partition(&format!("work{index}"))?;
        let queue = c.queue_over(c.client(), |builder| set_up(builder, c))?;
        let mut sent = c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
        // The largest possible number: it is bounded by what the queue may hold.
        let mut held =
            c.ok(Clause::PullBounds, what, queue.pull(&p).max(usize::MAX).wait(c.timing().soon).await)?;
        c.check(Clause::PullBounds, &sent, !held.is_empty(), format!("deliveries with {what}"), "none")?;
        let mut seen = handler_ids(&held);
        c.processed(&queue, &mut held).await?;
        drop(held);
        sent.extend(c.store(&queue, &p, c.messages(3, |_, task| task)).await?);
        let mut stream = c.ok(Clause::PullBounds, what, queue.stream(&p).window(usize::MAX).build())?;
        while seen.len() < sent.len() {
            let item = tokio::time::timeout(c.timing().soon, stream.next()).await.ok().flatten();
            let item = item.ok_or_else(|| {
                c.failed(Clause::PullBounds, &sent, format!("the rest, by a stream with {what}"), "none")
            })?;
            let mut handler = c.ok(Clause::PullBounds, what, item)?;
            c.settle(&mut handler, Status::Processed).await?;
            seen.push(handler.id());
        }
        c.same_ids(Clause::PullBounds, what, &sent, &seen)?;
    }
    Ok(())
}

/// Pulls of the largest size and for the longest time, for messages that are ready and for those that come.
async fn pulls(c: &Context) -> CaseResult {
    let (p, queue, pusher) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(12, |_, task| task)).await?;
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let pull = queue.pull(&p).max(usize::MAX).wait(Duration::MAX).into_future();
        let held = tokio::time::timeout(c.timing().soon, pull).await;
        let held = held.map_err(|_| c.failed(Clause::PullBounds, &sent, "what is ready", "nothing"))?;
        let mut held = c.ok(Clause::PullBounds, "a pull of the most", held)?;
        c.check(Clause::PullBounds, &sent, !held.is_empty(), "what is ready", "none")?;
        seen.extend(handler_ids(&held));
        c.processed(&queue, &mut held).await?;
    }
    c.same_ids(Clause::PullBounds, "all of them", &sent, &seen)?;
    let waiting = tokio::spawn(queue.pull(&p).max(usize::MAX).wait(Duration::MAX).into_future());
    c.pull_begins(c.client()).await?;
    let sent = c.store(&pusher, &p, vec![c.message()]).await?;
    let woken = tokio::time::timeout(c.timing().soon, waiting).await;
    let woken = woken.map_err(|_| {
        c.failed(Clause::PushWakes, &sent, "what was pushed during the longest wait", "nothing")
    })?;
    let woken = woken.map_err(|error| c.failed(Clause::Recovery, &sent, "no panic", error.to_string()))?;
    let mut woken = c.ok(Clause::PushWakes, "the longest wait", woken)?;
    c.same_ids(Clause::PushWakes, "what was pushed during the wait", &sent, &handler_ids(&woken))?;
    c.processed(&queue, &mut woken).await
}

/// Returns messages at the limits of what is allowed and beyond them, with `None` for those that are stored.
fn tried(c: &Context) -> Vec<(&'static str, MessageData, Option<ErrorKind>)> {
    let (declared, kind) = (c.capabilities(), Some(ErrorKind::InvalidInput));
    let [most, beyond] = [MAX_KEY_BYTES, MAX_KEY_BYTES + 1].map(|bytes| "k".repeat(bytes));
    let mut all = vec![
        ("the longest task id", c.message().with_task_id(most.as_str()), None),
        ("the longest session id", c.message().with_session_id(most.as_str()), None),
        ("too long a session id", c.message().with_session_id(beyond.as_str()), kind),
        ("no retries", c.message().with_max_retries(0), None),
        ("u32::MAX retries", c.message().with_max_retries(u32::MAX), None),
        ("no time to run", c.message().with_max_duration(Duration::ZERO), None),
        ("the longest time to live", c.message().with_time_to_live(Duration::from_millis(u64::MAX)), None),
        (
            "many headers",
            c.message().with_headers((0..1000).map(|n| (format!("h{n}"), String::new())).collect()),
            None,
        ),
    ];
    if declared.groups {
        all.push(("the longest group", c.message().with_group(most.as_str()), None));
    }
    if Need::DedupWhileLive.is_declared(declared) {
        all.push(("the longest key", c.message().with_dedup_key(most), None));
    }
    if let Some(delay) = declared.push_delay {
        all.push(("no delay", c.message().with_delay(Duration::ZERO), None));
        all.push(("a time long gone", c.message().with_not_before(SystemTime::UNIX_EPOCH), None));
        if let Some(longer) = delay.max.checked_add(Duration::from_nanos(1)) {
            all.push(("a delay beyond the longest", c.message().with_delay(longer), kind));
            all.push(("the longest delay that there is", c.message().with_delay(Duration::MAX), kind));
        }
    }
    let limit = declared.limits.message_bytes;
    all.retain(|(_, message, _)| c.client().storage().encoded_len(message) <= limit);
    all
}

async fn messages(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.fresh().await?);
    let queue = c.queue_over(&client, |builder| builder)?;
    let mut sent = Vec::new();
    for (what, message, refused) in tried(c) {
        let (id, answer) = (message.id(), queue.push(&p, message).await);
        if let Some(kind) = refused {
            c.error(Clause::Unsupported, what, kind, &answer)?;
            let told = answer.as_ref().map_or_else(Error::to_string, |_| String::new());
            c.check(
                Clause::Unsupported,
                &[id],
                told.contains("at most"),
                format!("{what} to be told what is allowed"),
                told,
            )?;
        } else {
            c.stored(&[id], &[answer])?;
            sent.push(id);
        }
    }
    c.ok(Clause::Close, "close", queue.close().await)?;
    let queue = c.queue()?;
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Limits, "what was stored", &sent, &got)?;
    gone_at_once(c, &queue, &p).await
}

/// A message that expires at once, or expired long ago, is stored and never delivered.
async fn gone_at_once(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult {
    let past = c.message().with_expires_at(SystemTime::UNIX_EPOCH);
    c.store(queue, p, vec![c.message().with_time_to_live(Duration::ZERO), past]).await?;
    let none = c.ok(Clause::Expiry, "a pull", queue.pull(p).max(10).wait(c.timing().slack).await)?;
    c.equal(Clause::Expiry, &[], "deliveries of what has expired", &Vec::new(), &handler_ids(&none))
}

/// Pages of no message, of one, and of all.
async fn pages(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let mut sent = c.store(&queue, &p, c.messages(4, |_, task| task)).await?;
    sent.sort_unstable();
    for (limit, expected) in [(0, 0), (1, 1), (usize::MAX, sent.len())] {
        let page = c.ok(Clause::Inspection, "browsing", queue.browse(&p, Page::of(limit)).await)?;
        let seen: Vec<_> = page.iter().map(|browsed| browsed.message.id()).collect();
        let expected = sent.get(..expected).unwrap_or_default().to_vec();
        c.equal(
            Clause::Inspection,
            &sent,
            &format!("with a limit of {limit}, the messages"),
            &expected,
            &seen,
        )?;
        let listed = c.ok(Clause::Inspection, "the list", queue.partitions(Page::of(limit)).await)?;
        c.equal(
            Clause::Inspection,
            &sent,
            &format!("with a limit of {limit}, the partitions"),
            &limit.min(1),
            &listed.len(),
        )?;
    }
    let none = c.ok(Clause::Deletion, "deleting none", queue.delete(&p, &[]).await)?;
    c.equal(Clause::Deletion, &sent, "the outcomes of deleting none", &0, &none.len())?;
    for (limit, deleted) in [(0, 0), (1, 1), (usize::MAX, 3), (usize::MAX, 0)] {
        let done =
            c.ok(Clause::Deletion, "deleting", queue.delete_where(&p, Page::of(limit), |_| true).await)?;
        c.equal(
            Clause::Deletion,
            &sent,
            &format!("with a limit of {limit}, deleted"),
            &deleted,
            &done.deleted,
        )?;
    }
    Ok(())
}

/// Lists and redrives of no dead letter, of one, and of all.
async fn dead(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(4, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, sent.len()).await?;
    let all = held.iter_mut().map(|handler| (handler, Status::poisonous("as the case wants it")));
    for answer in queue.settle_many(all).await {
        c.ok(Clause::SettleOutcomes, "a settlement", answer)?;
    }
    drop(held);
    let letters = c.ok(Clause::DeadLetters, "the dead letters", queue.dead_letters(&p))?;
    for (limit, expected) in [(0, 0), (1, 1), (usize::MAX, sent.len())] {
        let listed = c.ok(Clause::DeadLetters, "the list", letters.list(Page::of(limit)).await)?;
        c.equal(
            Clause::DeadLetters,
            &sent,
            &format!("with a limit of {limit}, the dead letters"),
            &expected,
            &listed.len(),
        )?;
    }
    for (limit, moved) in [(0, 0), (1, 1), (usize::MAX, 3), (usize::MAX, 0)] {
        let redriven = c.ok(Clause::DeadLetters, "a redrive", letters.redrive().limit(limit).await)?;
        c.equal(
            Clause::DeadLetters,
            &sent,
            &format!("with a limit of {limit}, put back"),
            &moved,
            &redriven.moved,
        )?;
    }
    let got = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::DeadLetters, "all of them", &sent, &got)
}
