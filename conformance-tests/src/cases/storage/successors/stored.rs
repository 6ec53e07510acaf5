//! Which successors are stored, where, and when.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest};
use anyqueue::{MAX_SUCCESSORS, SettleOutcome};
use futures_util::future::{join, join_all};

use super::super::helpers::push_one;
use super::super::settle::token::actions;
use super::followed;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "successors.stored", [Successors], stored)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped, Fault::SuccessorsWithParent]),
    case!(Storage, "successors.each_action", [Successors], each_action)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsOfRemovalsOnly]),
    case!(Storage, "successors.several", [Successors, Order], several)
        .needs(NEEDS)
        .kills(&[Fault::FirstSuccessorOnly, Fault::SuccessorsReversed]),
    case!(Storage, "successors.as_many_as_allowed", [Successors], as_many_as_allowed)
        .needs(NEEDS)
        .kills(&[Fault::FirstSuccessorOnly, Fault::EleventhSuccessorLost]),
    case!(Storage, "successors.whole", [Successors, ContentIntact], whole)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsAsText]),
    case!(Storage, "successors.priority", [Successors, Order], priority)
        .needs(&[Need::Successors, Need::StrictPriority])
        .kills(&[Fault::SuccessorsWithoutOptions]),
    case!(Storage, "successors.delayed", [Successors, Delays], delayed)
        .needs(&[Need::Successors, Need::PushDelay])
        .kills(&[Fault::SuccessorsWithoutOptions]),
    case!(Storage, "successors.join_their_group", [Successors, Groups], join_their_group)
        .needs(&[Need::Successors, Need::Groups])
        .kills(&[Fault::SuccessorsWithoutOptions, Fault::SuccessorsAheadOfGroup]),
    case!(Storage, "successors.wake", [Successors, PushWakes], wake)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped, Fault::SuccessorsLate]),
    case!(Storage, "successors.exchange", [Successors, PullBounds], exchange)
        .needs(NEEDS)
        .kills(&[Fault::ExchangeForgetsSuccessors]),
    case!(Storage, "successors.from_many_tasks", [Successors, SettleOutcomes], from_many_tasks)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped, Fault::SuccessorsOfFirstSettlement]),
];

const NEEDS: &[Need] = &[Need::Successors];

/// Successors are stored, in their own partitions, with the end of the delivery.
async fn stored(c: &Context) -> CaseResult {
    let (p, next, last) = (c.partition("work")?, c.partition("next")?, c.partition("last")?);
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let (one, other) = (c.message(), c.message());
    let expected = [one.id(), other.id()];
    let mut settlement = followed(&held, Action::Remove, &next, [one]);
    settlement.then.extend(followed(&held, Action::Remove, &last, [other]).then);
    c.client().settle(&[settlement]).await?;
    for (place, id) in [&next, &last].into_iter().zip(expected) {
        let got = c.client().take(place, 1).await?;
        c.in_order(Clause::Successors, "the successor in its partition", &[id], &got)?;
        c.client().remove(&got).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::Successors, "nothing where the parent was").await
}

/// Whatever happens to the delivery, its successors are stored.
async fn each_action(c: &Context) -> CaseResult {
    let (p, next, elsewhere) = (c.partition("work")?, c.partition("next")?, c.partition("elsewhere")?);
    for action in actions(c)? {
        push_one(c, &p, c.message()).await?;
        let [held] = c.client().take_exact(&p).await?;
        let successor = c.message();
        let id = successor.id();
        c.client().settle(&[followed(&held, action.clone(), &next, [successor])]).await?;
        let got = c.client().take(&next, 1).await?;
        c.in_order(
            Clause::Successors,
            &format!("the successor of one that ended by {action:?}"),
            &[id],
            &got,
        )?;
        c.client().remove(&got).await?;
        let place = match action {
            Action::Remove => continue,
            Action::Move { .. } => &elsewhere,
            _ => &p,
        };
        let back = c.client().take(place, 1).await?;
        c.in_order(Clause::SettleActions, "the delivery itself", &[held.lease.id], &back)?;
        c.client().remove(&back).await?;
    }
    Ok(())
}

/// Several successors of one settlement are stored in order.
async fn several(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let messages = c.messages(5, |_, message| message);
    let expected: Vec<_> = messages.iter().map(anyqueue::MessageData::id).collect();
    c.client().settle(&[followed(&held, Action::Remove, &p, messages)]).await?;
    let got = c.client().take(&p, 5).await?;
    c.same(Clause::Successors, "all successors", &expected, &got)?;
    if Need::PushOrder.is_declared(c.capabilities()) {
        c.in_order(Clause::Order, "the successors in their order", &expected, &got)?;
    }
    c.client().remove(&got).await
}

/// As many successors are stored as one settlement may bring, even if a single push may not carry as many.
async fn as_many_as_allowed(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let messages = c.messages(MAX_SUCCESSORS, |_, message| message);
    let expected: Vec<_> = messages.iter().map(anyqueue::MessageData::id).collect();
    c.client().settle(&[followed(&held, Action::Remove, &p, messages)]).await?;
    let got = c.client().take(&p, MAX_SUCCESSORS).await?;
    c.same(Clause::Successors, "all successors", &expected, &got)?;
    c.client().remove(&got).await
}

/// A successor is delivered like a pushed message: every byte and every field.
async fn whole(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let payload = [b"\0\xff\xfe \r\n".as_slice(), &[0x80; 300]].concat();
    let successor = anyqueue::MessageData::new(payload)
        .with_task_id("next task")
        .with_session_id("a session")
        .with_header("Content-Type", "application/octet-stream")
        .with_header("empty", "")
        .with_max_retries(7)
        .with_max_duration(Duration::from_secs(90))
        .with_time_to_live(Duration::from_hours(10));
    c.client().settle(&[followed(&held, Action::Remove, &p, [successor.clone()])]).await?;
    let [got] = c.client().take_exact(&p).await?;
    let about = [successor.id()];
    c.equal(Clause::ContentIntact, &about, "the payload", &successor.payload(), &got.message.payload())?;
    c.equal(Clause::ContentIntact, &about, "the headers", successor.headers(), got.message.headers())?;
    c.equal(Clause::ContentIntact, &about, "the task", &successor.task_id(), &got.message.task_id())?;
    c.equal(
        Clause::ContentIntact,
        &about,
        "the session",
        &successor.session_id(),
        &got.message.session_id(),
    )?;
    c.equal(Clause::ContentIntact, &about, "the options", successor.options(), got.message.options())?;
    if c.capabilities().delivery_count != anyqueue::adapter::DeliveryCount::None {
        c.equal(Clause::DeliveryCount, &about, "its first delivery", &Some(1), &got.delivery_count)?;
    }
    c.client().remove(&[got]).await
}

/// A successor stands where its own priority puts it.
async fn priority(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let waiting = push_one(c, &p, c.message()).await?;
    let urgent = c.message().with_priority(1);
    let expected = [urgent.id(), waiting];
    c.client().settle(&[followed(&held, Action::Remove, &p, [urgent])]).await?;
    let got = c.client().take(&p, 2).await?;
    c.in_order(Clause::Order, "the urgent successor ahead of what waits", &expected, &got)?;
    c.client().remove(&got).await
}

/// The delay of a successor begins when it is stored.
async fn delayed(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let successor = c.message().with_delay(t.delay);
    let about = [successor.id()];
    let asked = Instant::now();
    c.client().settle(&[followed(&held, Action::Remove, &p, [successor])]).await?;
    let request = PullRequest::new(1, t.latest(t.delay), t.long_lease);
    let got = c.client().pull_with(&p, request).await?;
    c.took(Clause::Delays, &about, "the delayed successor", asked.elapsed(), (t.delay, t.latest(t.delay)))?;
    c.in_order(Clause::Successors, "the delayed successor", &about, &got)?;
    c.client().remove(&got).await
}

/// A successor joins the end of its group, even that of the delivery that it follows.
async fn join_their_group(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message.with_group("g"))).await?;
    let [head] = c.client().take_exact(&p).await?;
    let successor = c.message().with_group("g");
    let expected = [sent.last().copied().unwrap_or(successor.id()), successor.id()];
    c.client().settle(&[followed(&head, Action::Remove, &p, [successor])]).await?;
    for id in expected {
        let got = c.client().pull(&p, 10).await?;
        c.in_order(Clause::Groups, "the members one by one, the successor last", &[id], &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// A successor wakes waiting pulls, including those of a client with another connection.
async fn wake(c: &Context) -> CaseResult {
    let (p, next, t) = (c.partition("work")?, c.partition("next")?, c.timing());
    push_one(c, &p, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let (other, successor) = (c.fresh().await?, c.message());
    let about = [successor.id()];
    let long = t.soon * 3;
    let waiting = async {
        let got = other.pull_with(&next, other.request(1, long)).await?;
        Ok::<_, crate::verdict::Stop>((got, Instant::now()))
    };
    let settling = async {
        c.pull_begins(&other).await?;
        let asked = Instant::now();
        c.client().settle(&[followed(&held, Action::Remove, &next, [successor])]).await?;
        Ok::<_, crate::verdict::Stop>(asked)
    };
    let (waited, settled) = join(waiting, settling).await;
    let ((got, came), asked) = (waited?, settled?);
    c.in_order(Clause::Successors, "the successor", &about, &got)?;
    let took = came.saturating_duration_since(asked);
    c.took(Clause::PushWakes, &about, "the wake-up by a successor", took, (Duration::ZERO, t.soon))?;
    other.remove(&got).await
}

/// An exchange stores the successors of what it settles before it pulls.
async fn exchange(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message()).await?;
    let mut held = c.client().take(&p, 1).await?;
    for _ in 0..4 {
        let successor = c.message();
        let id = successor.id();
        let batch: Vec<_> =
            held.iter().map(|held| followed(held, Action::Remove, &p, [successor.clone()])).collect();
        let request = c.client().request(1, c.timing().soon);
        let (settled, pulled) = c.client().storage().exchange(&batch, &p, request).await;
        let right = matches!(settled.as_slice(), [Ok(SettleOutcome::Settled)]);
        c.check(Clause::SettleOutcomes, &[id], right, "Settled", format!("{settled:?}"))?;
        held = c.ok(Clause::PullBounds, "pulling in an exchange", pulled)?;
        c.in_order(Clause::Successors, "the successor, by the same exchange", &[id], &held)?;
    }
    c.client().remove(&held).await
}

/// Many tasks settle at once, one by one and in batches, each with its own successor.
async fn from_many_tasks(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let count = 60;
    c.client().push(&p, &c.messages(count, |_, message| message)).await?;
    let held = c.client().take(&p, count).await?;
    let successors = c.messages(count, |_, message| message);
    let expected: Vec<_> = successors.iter().map(anyqueue::MessageData::id).collect();
    let pairs: Vec<_> = held.iter().zip(successors).collect();
    let tasks = pairs.chunks(4).enumerate().map(|(number, chunk)| {
        let settle = |(held, message): &(&_, anyqueue::MessageData)| {
            followed(held, Action::Remove, &next, [message.clone()])
        };
        let batch: Vec<_> = chunk.iter().map(settle).collect();
        async move {
            let size = if number.is_multiple_of(2) { 1 } else { batch.len() };
            for part in batch.chunks(size) {
                c.client().settle(part).await?;
            }
            Ok(())
        }
    });
    join_all(tasks).await.into_iter().collect::<CaseResult>()?;
    let got = c.client().take(&next, count).await?;
    c.same(Clause::Successors, "a successor of each", &expected, &got)?;
    c.client().remove(&got).await
}
