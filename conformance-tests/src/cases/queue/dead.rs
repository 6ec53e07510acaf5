//! Dead letters through the queue: how messages get there, and how they get out.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::{
    DeadLetter, Delivery, MAX_REASON_BYTES, MessageId, Page, PartitionId, Queue,
    QueueMessageStatus as Status, TaskReport, header,
};

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_dead.poisonous", [DeadLetters], poisonous)
        .kills(&[Fault::DeadVanish, Fault::MoveKeepsHeaders]),
    case!(Queue, "queue_dead.long_reason", [DeadLetters], long_reason).kills(&[Fault::AutoAck]),
    case!(Queue, "queue_dead.list_pages", [DeadLetters, Inspection], list_pages)
        .needs(&[Need::Browse])
        .kills(&[Fault::BrowseRepeats]),
    case!(Queue, "queue_dead.redrive", [DeadLetters], redrive).kills(&[Fault::MoveCopies]),
    case!(Queue, "queue_dead.redrive_filter", [DeadLetters], redrive_filter).kills(&[Fault::AutoAck]),
    case!(Queue, "queue_dead.redrive_refuses_all", [DeadLetters], redrive_refuses_all)
        .kills(&[Fault::AutoAck]),
    case!(
        Queue,
        "queue_dead.redrive_refuses_beyond_room",
        [DeadLetters, Resources],
        redrive_refuses_beyond_room
    )
    .kills(&[Fault::BrowseHidesPostponed, Fault::PurgeLeavesDelayed])
    .needs(&[Need::PostponeDelay, Need::Browse, Need::Purge]),
    case!(Queue, "queue_dead.redrive_limit", [DeadLetters], redrive_limit).kills(&[Fault::OneTooMany]),
    case!(Queue, "queue_dead.redrive_elsewhere", [DeadLetters], redrive_elsewhere).kills(&[Fault::AutoAck]),
    case!(Queue, "queue_dead.purge", [DeadLetters, Deletion], purge).kills(&[Fault::AutoAck]),
    case!(Queue, "queue_dead.dead_stays_dead", [SettleActions, DeadLetters], dead_stays_dead)
        .kills(&[Fault::PostponeDrops]),
    case!(Queue, "queue_dead.frees_key", [Deduplication, DeadLetters], frees_key)
        .needs(&[Need::DedupWhileLive])
        .kills(&[Fault::DedupForever]),
    case!(Queue, "queue_dead.frees_group", [Groups, DeadLetters], frees_group)
        .kills(&[Fault::GroupUnlocksAtDelivery])
        .needs(&[Need::Groups]),
];

/// Pushes `n` messages and lets them die; returns their ids.
async fn dead(c: &Context, queue: &Queue, p: &PartitionId, n: usize) -> CaseResult<Vec<MessageId>> {
    let sent =
        c.store(queue, p, c.messages(n, |index, task| task.with_header("number", index.to_string()))).await?;
    let mut held = c.hold(queue, p, n).await?;
    for handler in &mut held {
        let reason = format!("reason {}", handler.headers().get("number").cloned().unwrap_or_default());
        c.settle(handler, Status::Poisonous { reason }).await?;
    }
    Ok(sent)
}

/// Takes and holds everything that is there: the caller judges and settles it.
async fn all(c: &Context, queue: &Queue, p: &PartitionId, n: usize) -> CaseResult<Vec<Delivery>> {
    let held = if n == 0 { Vec::new() } else { c.hold(queue, p, n).await? };
    c.client().nothing(p, c.timing().slack, Clause::DeadLetters, "no further message").await?;
    Ok(held)
}

async fn list(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult<Vec<DeadLetter>> {
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(p))?;
    c.ok(Clause::DeadLetters, "list", letters.list(Page::of(100)).await)
}

/// A dead letter keeps its bytes and headers, and says why, when, and after how many deliveries and attempts
/// it died, and who ran it for how long.
async fn poisonous(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let task = c.message().with_header("Mine", " kept ").with_task_id("t").with_session_id("s");
    let id = task.id();
    c.store(&queue, &p, vec![task.clone()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    c.settle(&mut handler, Status::Failed).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let (before, count) = (SystemTime::now(), handler.delivery_count());
    let report = TaskReport::new().with_worker("host ü").with_ran(Duration::from_micros(1_500_001));
    c.ok(Clause::DeadLetters, "a report", handler.report(report))?;
    c.settle(&mut handler, Status::poisonous("bad ü input")).await?;
    let letters = list(c, &queue, &p).await?;
    c.equal(Clause::DeadLetters, &[id], "the number of dead letters", &1, &letters.len())?;
    let Some(letter) = letters.first() else { return Ok(()) };
    c.equal(Clause::DeadLetters, &[id], "the reason", &Some("bad ü input"), &letter.reason.as_deref())?;
    c.equal(Clause::DeadLetters, &[id], "the deliveries", &count, &letter.deliveries)?;
    c.equal(Clause::DeadLetters, &[id], "the attempts", &Some(1), &letter.attempts)?;
    let ran = (letter.worker.as_deref(), letter.ran);
    let expected = (Some("host ü"), Some(Duration::from_micros(1_500_001)));
    c.equal(Clause::DeadLetters, &[id], "who ran it, and for how long", &expected, &ran)?;
    let grain = Duration::from_secs(1);
    let ok = letter.died_at.is_some_and(|at| at + grain >= before && at <= SystemTime::now() + grain);
    c.check(Clause::DeadLetters, &[id], ok, "the time of death", format!("{:?}", letter.died_at))?;
    c.equal(Clause::ContentIntact, &[id], "the payload", &task.payload(), &letter.message.payload())?;
    c.equal(Clause::ContentIntact, &[id], "the task id", &Some("t"), &letter.message.task_id())?;
    c.equal(Clause::ContentIntact, &[id], "the session id", &Some("s"), &letter.message.session_id())?;
    c.equal(
        Clause::ContentIntact,
        &[id],
        "its own header",
        &Some(&" kept ".to_owned()),
        &letter.message.headers().get("Mine"),
    )?;
    let mut held = all(c, &queue, &p.dead_letters(), 1).await?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::DeadLetters, "nothing in the live partition").await
}

/// A reason of any length and text is kept up to its limit, and affects nothing else.
async fn long_reason(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    for reason in ["ä".repeat(MAX_REASON_BYTES), String::new(), "a\0b\nc\r\n".to_owned()] {
        c.store(&queue, &p, vec![c.message()]).await?;
        let mut handler = c.hold_one(&queue, &p).await?;
        let id = handler.id();
        c.settle(&mut handler, Status::Poisonous { reason: reason.clone() }).await?;
        let mut held = all(c, &queue, &p.dead_letters(), 1).await?;
        let seen = held.first().and_then(|dead| dead.headers().get(header::DEAD_REASON)).cloned();
        let kept = reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).map(str::to_owned);
        c.equal(Clause::DeadLetters, &[id], "the reason", &kept, &seen)?;
        c.processed(&queue, &mut held).await?;
    }
    Ok(())
}

/// Pages list each dead letter once, and leave them where they are.
async fn list_pages(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = dead(c, &queue, &p, 7).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = c.ok(Clause::DeadLetters, "list", letters.list(Page::of(3).after(after)).await)?;
        c.check(
            Clause::DeadLetters,
            &sent,
            page.len() <= 3,
            "a page of at most 3",
            format!("{}", page.len()),
        )?;
        let Some(last) = page.last() else { break };
        after = Some(last.message.id());
        seen.extend(page.iter().map(|letter| letter.message.id()));
        c.check(
            Clause::DeadLetters,
            &sent,
            seen.len() <= sent.len(),
            "the pages to end",
            format!("{} listed", seen.len()),
        )?;
    }
    c.same_ids(Clause::DeadLetters, "each dead letter", &sent, &seen)?;
    let mut held = all(c, &queue, &p.dead_letters(), 7).await?;
    let counts: Vec<_> = held.iter().map(Delivery::delivery_count).collect();
    let untouched = counts.iter().all(|count| count.is_none_or(|count| count == 1));
    c.check(Clause::Inspection, &sent, untouched, "no delivery by listing", format!("{counts:?}"))?;
    c.processed(&queue, &mut held).await
}

/// Redrive puts back all, with their own headers and without those of their death; the count starts anew.
async fn redrive(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = dead(c, &queue, &p, 5).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().await)?;
    c.equal(
        Clause::DeadLetters,
        &sent,
        "moved, scanned, more",
        &(5, 5, false),
        &(done.moved, done.scanned, done.more),
    )?;
    let mut held = all(c, &queue, &p, 5).await?;
    c.same_ids(Clause::DeadLetters, "all that were dead", &sent, &handler_ids(&held))?;
    for handler in &held {
        let headers: Vec<_> = handler.headers().keys().map(String::as_str).collect();
        c.equal(
            Clause::DeadLetters,
            &[handler.id()],
            "the headers",
            &vec![header::GENERATION, header::REDRIVEN_AT, "number"],
            &headers,
        )?;
        let count = handler.delivery_count().unwrap_or(1);
        c.equal(Clause::DeliveryCount, &[handler.id()], "the delivery count", &1, &count)?;
    }
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::DeadLetters, "no dead letter left").await
}

/// A filter sees the reason; messages that it refuses stay, and are available at once.
async fn redrive_filter(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = dead(c, &queue, &p, 6).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let wanted = |message: &anyqueue::MessageData| {
        matches!(
            message.headers().get(header::DEAD_REASON).map(String::as_str),
            Some("reason 1" | "reason 4")
        )
    };
    let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().filter(wanted).await)?;
    c.equal(Clause::DeadLetters, &sent, "moved, more", &(2, false), &(done.moved, done.more))?;
    let (chosen, others): (Vec<_>, Vec<_>) =
        sent.iter().enumerate().partition(|(index, _)| matches!(index, 1 | 4));
    let ids = |part: Vec<(usize, &MessageId)>| part.into_iter().map(|(_, id)| *id).collect::<Vec<_>>();
    let mut held = all(c, &queue, &p, 2).await?;
    c.same_ids(Clause::DeadLetters, "the chosen", &ids(chosen), &handler_ids(&held))?;
    c.processed(&queue, &mut held).await?;
    let mut held = all(c, &queue, &p.dead_letters(), 4).await?;
    c.same_ids(Clause::DeadLetters, "the others, still dead", &ids(others), &handler_ids(&held))?;
    c.processed(&queue, &mut held).await
}

/// A redrive whose filter refuses everything still ends, and leaves everything.
async fn redrive_refuses_all(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = dead(c, &queue, &p, 25).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().filter(|_| false).await)?;
    c.equal(
        Clause::DeadLetters,
        &sent,
        "moved, scanned, more",
        &(0, 25, false),
        &(done.moved, done.scanned, done.more),
    )?;
    let mut held = all(c, &queue, &p.dead_letters(), 25).await?;
    c.same_ids(Clause::DeadLetters, "all, still dead", &sent, &handler_ids(&held))?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::DeadLetters, "nothing put back").await
}

/// So does one on a queue that may hold fewer messages than are refused.
async fn redrive_refuses_beyond_room(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = c.queue()?;
    let sent = dead(c, &queue, &p, 12).await?;
    let small = c.queue_over(c.client(), |builder| builder.max_held(4))?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", small.dead_letters(&p))?;
    let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().filter(|_| false).await)?;
    c.equal(Clause::DeadLetters, &sent, "moved, scanned", &(0, 12), &(done.moved, done.scanned))?;
    let seen: Vec<_> = list(c, &queue, &p).await?.iter().map(|letter| letter.message.id()).collect();
    c.same_ids(Clause::DeadLetters, "all, still dead", &sent, &seen)?;
    c.client().nothing(&p, c.timing().slack, Clause::DeadLetters, "nothing put back").await?;
    let (mut purged, deadline) = (0, Instant::now() + c.timing().soon);
    while purged < 12 {
        purged += c.ok(Clause::Deletion, "purge", letters.purge().await)?;
        c.check(
            Clause::Deletion,
            &sent,
            Instant::now() < deadline,
            "all purged, as none is held",
            format!("{purged}"),
        )?;
    }
    c.equal(Clause::Deletion, &sent, "the number purged", &12, &purged)
}

/// `limit` bounds how many are put back, and the result says that there are more.
async fn redrive_limit(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = dead(c, &queue, &p, 5).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let mut seen = Vec::new();
    for (moved, more) in [(2, true), (2, true), (1, false)] {
        let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().limit(2).await)?;
        c.equal(Clause::DeadLetters, &sent, "moved, more", &(moved, more), &(done.moved, done.more))?;
        let mut held = all(c, &queue, &p, usize::try_from(moved).unwrap_or_default()).await?;
        seen.extend(handler_ids(&held));
        c.processed(&queue, &mut held).await?;
    }
    c.same_ids(Clause::DeadLetters, "each, once", &sent, &seen)
}

/// Dead letters can be put into another partition.
async fn redrive_elsewhere(c: &Context) -> CaseResult {
    let (p, to, queue) = (c.partition("work")?, c.partition("repair")?, c.queue()?);
    let sent = dead(c, &queue, &p, 3).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    let refused = letters.redrive().to(p.dead_letters()).await;
    c.error(Clause::Unsupported, "a redrive into dead letters", anyqueue::ErrorKind::InvalidInput, &refused)?;
    let done = c.ok(Clause::DeadLetters, "redrive", letters.redrive().to(&to).await)?;
    c.equal(Clause::DeadLetters, &sent, "moved", &3, &done.moved)?;
    let mut held = all(c, &queue, &to, 3).await?;
    c.same_ids(Clause::DeadLetters, "all that were dead", &sent, &handler_ids(&held))?;
    c.processed(&queue, &mut held).await?;
    c.client().nothing(&p, c.timing().slack, Clause::PartitionsApart, "nothing where they came from").await
}

/// Purging dead letters returns how many there were, and leaves the live messages.
async fn purge(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let gone = dead(c, &queue, &p, 5).await?;
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let letters = c.ok(Clause::DeadLetters, "dead_letters", queue.dead_letters(&p))?;
    c.equal(
        Clause::Deletion,
        &gone,
        "the number purged",
        &5,
        &c.ok(Clause::Deletion, "purge", letters.purge().await)?,
    )?;
    c.equal(
        Clause::Deletion,
        &gone,
        "the number purged again",
        &0,
        &c.ok(Clause::Deletion, "purge", letters.purge().await)?,
    )?;
    c.client().nothing(&p.dead_letters(), c.timing().slack, Clause::Deletion, "no dead letter left").await?;
    c.same_ids(Clause::Deletion, "the live message", &sent, &c.drain(&queue, &p, c.timing().slack).await?)
}

/// A dead letter that is settled as poisonous again stays one.
async fn dead_stays_dead(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    dead(c, &queue, &p, 1).await?;
    let mut handler = c.hold_one(&queue, &p.dead_letters()).await?;
    c.settle(&mut handler, Status::poisonous("again")).await?;
    let mut again = all(c, &queue, &p.dead_letters(), 1).await?;
    c.equal(
        Clause::DeadLetters,
        &[handler.id()],
        "the dead letter",
        &handler_ids(&again),
        &vec![handler.id()],
    )?;
    c.processed(&queue, &mut again).await
}

/// Death frees the deduplication key.
async fn frees_key(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    c.store(&queue, &p, vec![c.message().with_dedup_key("k")]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let held =
        c.ok(Clause::Deduplication, "a push", queue.push(&p, c.message().with_dedup_key("k")).await)?;
    let ok = held == anyqueue::PushOutcome::Duplicate(Some(handler.id()))
        || held == anyqueue::PushOutcome::Duplicate(None);
    c.check(
        Clause::Deduplication,
        &[handler.id()],
        ok,
        "Duplicate while the first is held",
        format!("{held:?}"),
    )?;
    c.settle(&mut handler, Status::poisonous("dead")).await?;
    let sent = c.store(&queue, &p, vec![c.message().with_dedup_key("k")]).await?;
    c.same_ids(
        Clause::Deduplication,
        "the second with the key",
        &sent,
        &c.drain(&queue, &p, c.timing().slack).await?,
    )?;
    let mut dead = all(c, &queue, &p.dead_letters(), 1).await?;
    c.processed(&queue, &mut dead).await
}

/// Death lets the next member of the group come; nothing less does.
async fn frees_group(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(2, |_, task| task.with_group("g"))).await?;
    let mut first = c.hold_one(&queue, &p).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Groups, "the second to wait for the first").await?;
    c.settle(&mut first, Status::poisonous("dead")).await?;
    let mut second = c.hold_one(&queue, &p).await?;
    c.equal(Clause::Groups, &sent, "first and second", &sent, &vec![first.id(), second.id()])?;
    c.settle(&mut second, Status::Processed).await?;
    let mut dead = all(c, &queue, &p.dead_letters(), 1).await?;
    c.processed(&queue, &mut dead).await
}
