//! Amendments and urgency through the portable queue: what is refused, what is split, and what is returned.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{PriorityDiscipline, Storage};
use anyqueue::{
    Amend, AmendOutcome, ErrorKind, MAX_KEY_BYTES, MAX_PAGE, MessageId, PartitionId, Queue,
    QueueMessageStatus as Status, Result,
};
use futures_util::StreamExt as _;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids, polled};
use crate::fault::Fault;
use crate::history::Op;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_amend.outcomes", [Amendments], outcomes)
        .needs(NEEDS)
        .kills(&[Fault::AmendedDeadNotFound, Fault::AmendsLeased]),
    case!(Queue, "queue_amend.shown", [Amendments, ContentIntact], shown)
        .needs(&[Need::Amend, Need::Priority, Need::Groups])
        .kills(&[Fault::AmendedShowsOldPriority, Fault::AmendsOneThing]),
    case!(Queue, "queue_amend.more_than_a_page", [Amendments, Limits], more_than_a_page)
        .needs(NEEDS)
        .kills(&[Fault::AmendsFirstOnly])
        .deadline(Duration::from_mins(1)),
    case!(Queue, "queue_amend.time_of_day", [Amendments, Delays, ServerTime], time_of_day)
        .needs(&[Need::Amend, Need::PushDelay])
        .kills(&[Fault::LaterIgnored]),
    case!(Queue, "queue_amend.refused", [Amendments, Unsupported], refused)
        .needs(NEEDS)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_amend.undeclared", [Unsupported], undeclared).kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_amend.undeclared_options", [Amendments, Unsupported], undeclared_options)
        .needs(NEEDS)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_amend.streams", [Amendments], streams)
        .needs(NEEDS)
        .kills(&[Fault::DisabledLate, Fault::EnabledWakesNobody]),
    case!(Queue, "queue_amend.expired", [Amendments, Expiry], expired)
        .needs(NEEDS)
        .kills(&[Fault::AmendIgnored]),
    case!(Queue, "queue_amend.dropped_future", [Amendments, Recovery], dropped_future)
        .needs(NEEDS)
        .kills(&[Fault::AmendIgnored]),
    case!(Queue, "queue_urgent.lifts", [Urgency], lifts)
        .needs(&[Need::UrgentAfter, Need::StrictPriority, Need::PushOrder])
        .kills(&[Fault::UrgentNever, Fault::UrgentShown]),
    case!(Queue, "queue_urgent.undeclared", [Unsupported], urgency_undeclared)
        .kills(&[Fault::SharedDelivery]),
];

const NEEDS: &[Need] = &[Need::Amend];

async fn amend(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    ids: &[MessageId],
    change: Amend,
) -> CaseResult<Vec<Result<AmendOutcome>>> {
    let answers = c.ok(Clause::Amendments, "an amendment", queue.amend(p, ids, change).await)?;
    c.equal(Clause::Amendments, &[], "the number of outcomes", &ids.len(), &answers.len())?;
    Ok(answers)
}

/// Amends, and checks the outcomes.
async fn amends(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    change: Amend,
    expected: &[(MessageId, AmendOutcome)],
) -> CaseResult {
    let ids: Vec<_> = expected.iter().map(|(id, _)| *id).collect();
    let answers = amend(c, queue, p, &ids, change).await?;
    for ((id, expected), answer) in expected.iter().zip(answers) {
        let right = answer.as_ref().is_ok_and(|answer| answer == expected);
        let told = format!("{expected:?} for {}", c.label(*id));
        c.check(Clause::Amendments, &[*id], right, told, format!("{answer:?}"))?;
    }
    Ok(())
}

fn all(ids: &[MessageId], outcome: AmendOutcome) -> Vec<(MessageId, AmendOutcome)> {
    ids.iter().map(|id| (*id, outcome)).collect()
}

/// Each id gets the outcome for what was found.
async fn outcomes(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let dead = c.store(&queue, &p, vec![c.message()]).await?;
    let mut poisonous = c.hold_one(&queue, &p).await?;
    c.settle(&mut poisonous, Status::poisonous("of no use")).await?;
    let leased = c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold(&queue, &p, 1).await?;
    let waiting = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    let expected = [
        all(&leased, AmendOutcome::Leased),
        all(&waiting, AmendOutcome::Amended),
        all(&dead, AmendOutcome::Dead),
        all(&[MessageId::new()], AmendOutcome::NotFound),
    ];
    amends(c, &queue, &p, Amend::new().disable(), &expected.concat()).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Amendments, "nothing of what is disabled").await?;
    c.processed(&queue, &mut held).await?;
    amends(c, &queue, &p, Amend::new().enable(), &all(&waiting, AmendOutcome::Amended)).await?;
    let mut got = c.hold(&queue, &p, waiting.len()).await?;
    c.same_order(Clause::Amendments, "what was enabled", &waiting, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// A delivery shows the new priority and the new group.
async fn shown(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let ids = c.store(&queue, &p, vec![c.message().with_group("old")]).await?;
    let change = Amend::new().with_priority(1).with_group("new");
    amends(c, &queue, &p, change, &all(&ids, AmendOutcome::Amended)).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let options = held.message().options();
    let seen = (options.priority, options.group.as_deref());
    c.equal(Clause::Amendments, &ids, "priority and group", &(1, Some("new")), &seen)?;
    c.settle(&mut held, Status::Processed).await
}

/// More ids than one call may have are split, and answered in their order.
async fn more_than_a_page(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let none = amend(c, &queue, &p, &[], Amend::new().disable()).await?;
    c.equal(Clause::Amendments, &[], "outcomes of no ids", &0, &none.len())?;
    let unknown = (MessageId::new(), AmendOutcome::NotFound);
    let ids = c.client().push(&p, &c.messages(MAX_PAGE, |_, message| message)).await?;
    let mut expected = all(&ids, AmendOutcome::Amended);
    expected.insert(0, unknown);
    amends(c, &queue, &p, Amend::new().disable(), &expected).await?;
    let events = c.history().events();
    let calls = events.iter().filter_map(|event| match &event.op {
        Op::Amend { ids, .. } => Some(ids.len()),
        _ => None,
    });
    let largest = calls.max().unwrap_or_default();
    let told = format!("at most {MAX_PAGE} ids in one call");
    c.check(Clause::Limits, &[], largest <= MAX_PAGE, told, largest.to_string())?;
    c.client().nothing(&p, c.timing().slack, Clause::Amendments, "nothing, as all are disabled").await?;
    amends(c, &queue, &p, Amend::new().enable(), &expected).await?;
    let drained = c.drain(&queue, &p, c.timing().slack).await?;
    c.same_ids(Clause::Amendments, "all of them", &ids, &drained)
}

/// A message that is made due at a time of day waits until then; a past time means at once.
async fn time_of_day(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let ids = c.store(&queue, &p, c.messages(2, |_, message| message.with_delay(t.delay * 40))).await?;
    let (now, later) = ids.split_at(1);
    let past = SystemTime::now() - Duration::from_hours(1);
    amends(c, &queue, &p, Amend::new().due_at(past), &all(now, AmendOutcome::Amended)).await?;
    let (asked, due) = (Instant::now(), SystemTime::now() + t.delay);
    amends(c, &queue, &p, Amend::new().due_at(due), &all(later, AmendOutcome::Amended)).await?;
    let mut first = c.hold(&queue, &p, 1).await?;
    c.same_ids(Clause::Amendments, "the one whose time is past", now, &handler_ids(&first))?;
    let wait = t.latest(t.delay);
    let mut second = c.ok(Clause::Delays, "a pull", queue.pull(&p).wait(wait).await)?;
    c.took(Clause::Amendments, later, "the one that is due later", asked.elapsed(), (t.delay, wait))?;
    c.same_ids(Clause::Amendments, "the one that is due later", later, &handler_ids(&second))?;
    amends(c, &queue, &p, Amend::new().now(), &all(later, AmendOutcome::Leased)).await?;
    c.processed(&queue, &mut first).await?;
    c.processed(&queue, &mut second).await
}

/// An amendment that is impossible is refused, and changes nothing.
async fn refused(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let declared = c.capabilities();
    let ids = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    let mut bad = vec![("no change", Amend::new(), ErrorKind::InvalidInput)];
    if declared.priority != PriorityDiscipline::None {
        let beyond = Amend::new().disable().with_priority(declared.priority_levels);
        bad.push(("a priority out of range", beyond, ErrorKind::InvalidInput));
    }
    if declared.groups {
        let empty = Amend::new().disable().with_group("");
        bad.push(("an empty group", empty, ErrorKind::InvalidInput));
        let long = Amend::new().disable().with_group("g".repeat(MAX_KEY_BYTES + 1));
        bad.push(("a long group", long, ErrorKind::InvalidInput));
    }
    if let Some(delay) = declared.push_delay
        && delay.max < Duration::MAX
    {
        let beyond = Amend::new().disable().due_in(delay.max + Duration::from_secs(1));
        bad.push(("a delay out of range", beyond, ErrorKind::InvalidInput));
    }
    for (what, change, kind) in bad {
        let answer = queue.amend(&p, &ids, change).await;
        c.error(Clause::Amendments, &format!("an amendment with {what}"), kind, &answer)?;
    }
    let answer = queue.amend(p.dead_letters(), &ids, Amend::new().disable()).await;
    c.error(Clause::Amendments, "an amendment of dead letters", ErrorKind::InvalidInput, &answer)?;
    unchanged(c, &queue, &p, &ids).await
}

/// The messages are there, as they were pushed.
async fn unchanged(c: &Context, queue: &Queue, p: &PartitionId, ids: &[MessageId]) -> CaseResult {
    let mut got = c.hold(queue, p, ids.len()).await?;
    c.same_order(Clause::Amendments, "all as they were", ids, &handler_ids(&got))?;
    for held in &got {
        let options = held.message().options();
        let seen = (options.priority, options.group.as_deref());
        c.equal(Clause::Amendments, &[held.id()], "priority and group", &(0, None), &seen)?;
    }
    c.processed(queue, &mut got).await
}

fn over(c: &Context, storage: &Arc<Altered>) -> CaseResult<Queue> {
    let storage: Arc<dyn Storage> = storage.clone();
    c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(c.long_options()).build())
}

/// If amendment is not declared, it is refused, and nothing is changed.
async fn undeclared(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = over(c, &Altered::new(c.client().storage(), |declared| declared.amend = false))?;
    let ids = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    let answer = queue.amend(&p, &ids, Amend::new().disable()).await;
    c.error(Clause::Unsupported, "an amendment", ErrorKind::Unsupported, &answer)?;
    unchanged(c, &queue, &p, &ids).await
}

/// An amendment to an option that a push could not have either is refused, and nothing is changed.
async fn undeclared_options(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| {
        (declared.groups, declared.push_delay) = (false, None);
        (declared.priority_levels, declared.priority) = (1, PriorityDiscipline::None);
    });
    let queue = over(c, &storage)?;
    let ids = c.store(&queue, &p, c.messages(2, |_, message| message)).await?;
    for (what, change) in [
        ("a group", Amend::new().with_group("g")),
        ("a later moment", Amend::new().due_in(Duration::from_secs(1))),
        ("a priority", Amend::new().with_priority(1)),
    ] {
        let answer = queue.amend(&p, &ids, change.disable()).await;
        let what = format!("an amendment with {what}");
        c.error(Clause::Unsupported, &what, ErrorKind::Unsupported, &answer)?;
    }
    unchanged(c, &queue, &p, &ids).await
}

/// A stream returns no disabled messages, and enabled ones as soon as they are enabled.
async fn streams(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let ids = c.store(&queue, &p, c.messages(3, |_, message| message)).await?;
    amends(c, &queue, &p, Amend::new().disable(), &all(&ids, AmendOutcome::Amended)).await?;
    let stream = c.ok(Clause::Amendments, "a stream", queue.stream(&p).window(4).build())?;
    let mut stream = pin!(stream);
    let early = tokio::time::timeout(t.delay, stream.next()).await;
    c.check(Clause::Amendments, &ids, early.is_err(), "nothing of what is disabled", format!("{early:?}"))?;
    let enabled = Instant::now();
    amends(c, &queue, &p, Amend::new().enable(), &all(&ids, AmendOutcome::Amended)).await?;
    let mut got = Vec::new();
    while got.len() < ids.len() {
        let Ok(Some(next)) = tokio::time::timeout(t.soon, stream.next()).await else { break };
        got.push(c.ok(Clause::Amendments, "a delivery", next)?);
    }
    c.took(Clause::AllWaitersWake, &ids, "all of them", enabled.elapsed(), (Duration::ZERO, t.soon))?;
    c.same_ids(Clause::Amendments, "what was enabled", &ids, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// A message that expires while it is disabled is not delivered when it is enabled.
async fn expired(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let expires = c.message().with_time_to_live(t.delay);
    let expiring = c.store(&queue, &p, vec![expires]).await?;
    let lasting = c.store(&queue, &p, vec![c.message()]).await?;
    let both = [expiring, lasting.clone()].concat();
    amends(c, &queue, &p, Amend::new().disable(), &all(&both, AmendOutcome::Amended)).await?;
    c.client().nothing(&p, t.delay + t.slack, Clause::Amendments, "nothing of what is disabled").await?;
    amends(c, &queue, &p, Amend::new().enable(), &all(&both, AmendOutcome::Amended)).await?;
    let mut got = c.hold(&queue, &p, 1).await?;
    c.same_ids(Clause::Expiry, "the one whose time has not come", &lasting, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// An amendment whose future is dropped is done or not; if it answered, it is done.
async fn dropped_future(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    for steps in 1..c.size(8, 24) {
        let ids = c.store(&queue, &p, vec![c.message()]).await?;
        let answered = polled(steps, queue.amend(&p, &ids, Amend::new().disable())).await.is_some();
        if answered {
            let what = "nothing, as it is disabled";
            c.client().nothing(&p, Duration::ZERO, Clause::Amendments, what).await?;
        }
        // An amendment that was cut off may still arrive: then the message is disabled, and the next check
        // enables it.
        let begun = Instant::now();
        let mut got = Vec::new();
        while got.is_empty() {
            let late = begun.elapsed() > 2 * c.timing().soon;
            c.check(Clause::Amendments, &ids, !late, "the message, once it is enabled", "nothing")?;
            amend(c, &queue, &p, &ids, Amend::new().enable()).await?;
            got = c.ok(Clause::PullBounds, "a pull", queue.pull(&p).wait(c.timing().slack).await)?;
        }
        c.same_ids(Clause::Amendments, "the message", &ids, &handler_ids(&got))?;
        c.processed(&queue, &mut got).await?;
    }
    Ok(())
}

/// From its moment on, given as a time of day or as a duration, the message comes first, and shows the
/// priority with which it was pushed.
async fn lifts(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let lower = c.store(&queue, &p, vec![c.message()]).await?;
    let urgent =
        vec![c.message().with_urgent_after(t.delay), c.message().with_urgent_at(SystemTime::now() + t.delay)];
    let urgent = c.store(&queue, &p, urgent).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    let mut got = c.hold(&queue, &p, 3).await?;
    let seen = handler_ids(&got);
    let told: Vec<_> = got.iter().map(|held| held.message().options().priority).collect();
    c.equal(Clause::Urgency, &seen, "the order", &[urgent, lower].concat(), &seen)?;
    c.equal(Clause::Urgency, &seen, "the priorities as pushed", &vec![0; 3], &told)?;
    c.processed(&queue, &mut got).await
}

/// If urgency is not declared, it is refused, and nothing is stored.
async fn urgency_undeclared(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = over(c, &Altered::new(c.client().storage(), |declared| declared.urgent_after = false))?;
    let urgent = c.message().with_urgent_after(Duration::from_secs(1));
    let answer = queue.push(&p, urgent).await;
    c.error(Clause::Unsupported, "a message that becomes urgent", ErrorKind::Unsupported, &answer)?;
    let ids = c.store(&queue, &p, vec![c.message()]).await?;
    unchanged(c, &queue, &p, &ids).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Unsupported, "nothing of what was refused").await
}
