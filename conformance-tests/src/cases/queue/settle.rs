//! Settling through handlers: each status, once, carried through, and what happens when a handler is dropped.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Settlement};
use anyqueue::{
    Error, ErrorKind, MessageId, PartitionId, PartitionOptions, Queue, QueueMessageStatus as Status,
    SettleOutcome, header,
};
use futures_util::future::join_all;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, handler_ids, polled};
use crate::fault::Fault;
use crate::need::Need;
use crate::run::on_a_thread;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_settle.removes", [SettleActions, SettleOutcomes], removes)
        .kills(&[Fault::RemoveDoesNothing]),
    case!(Queue, "queue_settle.gives_back", [SettleActions], gives_back).kills(&[
        Fault::RetryDrops,
        Fault::ReleaseWaitsForLease,
        Fault::AutoAck,
    ]),
    case!(Queue, "queue_settle.postpones", [SettleActions, Delays], postpones)
        .needs(&[Need::PostponeDelay])
        .kills(&[Fault::PostponeAtOnce]),
    case!(
        Queue,
        "queue_settle.postpones_with_headers",
        [SettleActions, ContentIntact],
        postpones_with_headers
    )
    .needs(&[Need::PostponeHeaders])
    .kills(&[Fault::PostponeKeepsHeaders]),
    case!(Queue, "queue_settle.poisons", [SettleActions, DeadLetters], poisons).kills(&[Fault::DeadVanish]),
    case!(Queue, "queue_settle.twice", [SettleTwice], twice).kills(&[Fault::AutoAck]),
    case!(Queue, "queue_settle.dropped_future", [SettleCarriedThrough], dropped_future)
        .kills(&[Fault::RemoveDoesNothing]),
    case!(Queue, "queue_settle.thousand_at_once", [SettleOutcomes], thousand_at_once)
        .kills(&[Fault::RemoveLostOneIn30])
        .deadline(LONG),
    case!(Queue, "queue_settle.many_mixed", [SettleActions, SettleOutcomes], many_mixed)
        .kills(&[Fault::OnlyFirstSettled, Fault::LostEndsBatch]),
    case!(Queue, "queue_settle.dropped_handler", [DroppedDelivery], dropped_handler)
        .kills(&[Fault::ReleaseWaitsForLease, Fault::ReleaseWakesNobody]),
    case!(Queue, "queue_settle.dropped_in_batches", [DroppedDelivery], dropped_in_batches)
        .kills(&[Fault::OnlyFirstSettled, Fault::ReleaseWaitsForLease]),
    case!(Queue, "queue_settle.runtime_ends", [DroppedDelivery, LeaseEnd], runtime_ends)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::AutoAck]),
];

const LONG: Duration = Duration::from_mins(1);

/// `Processed` and `Cancelled` remove the message for good.
async fn removes(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    for status in [Status::Processed, Status::Cancelled] {
        c.store(&queue, &p, vec![c.message()]).await?;
        let mut handler = c.hold_one(&queue, &p).await?;
        c.equal(
            Clause::SettleActions,
            &[handler.id()],
            "the status on receipt",
            &Status::Waiting,
            handler.status(),
        )?;
        c.settle(&mut handler, status.clone()).await?;
        c.equal(Clause::SettleActions, &[handler.id()], "the status", &status, handler.status())?;
        let lost = handler.is_lost() || handler.lost().is_cancelled();
        c.check(Clause::Extend, &[handler.id()], !lost, "no loss told after one's own settlement", "lost")?;
    }
    c.client().nothing(&p, c.timing().never(), Clause::SettleActions, "nothing after the removals").await
}

/// `Waiting`, `Running` and `Failed` release the message at once, ahead of those that were never delivered
/// where that is declared.
async fn gives_back(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let front = c.capabilities().requeue == anyqueue::adapter::Requeue::Front;
    for status in [Status::Waiting, Status::Running, Status::Failed] {
        let first = c.store(&queue, &p, vec![c.message()]).await?;
        let mut handler = c.hold_one(&queue, &p).await?;
        let second = c.store(&queue, &p, vec![c.message()]).await?;
        c.settle(&mut handler, status.clone()).await?;
        let mut held = c.hold(&queue, &p, 2).await?;
        let (seen, expected) = (handler_ids(&held), [first, second].concat());
        c.same_ids(Clause::SettleActions, &format!("both after {status:?}"), &expected, &seen)?;
        let told = format!("the one settled with {status:?} first: {}", c.history().labels(&expected));
        c.check(
            Clause::SettleActions,
            &expected,
            seen == expected || !front,
            told,
            c.history().labels(&seen),
        )?;
        c.processed(&queue, &mut held).await?;
    }
    c.client().nothing(&p, c.timing().slack, Clause::SettleActions, "each message once").await
}

/// `Postponed` makes the message invisible for its delay, no longer.
async fn postpones(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let asked = Instant::now();
    c.settle(&mut handler, Status::postponed(t.delay)).await?;
    let wait = t.latest(t.delay);
    let mut back = c.ok(Clause::Delays, "a pull", queue.pull(&p).max(10).wait(wait).await)?;
    c.took(Clause::Delays, &sent, "the postponed message back", asked.elapsed(), (t.delay, wait))?;
    c.same_ids(Clause::Delays, "the postponed message, once", &sent, &handler_ids(&back))?;
    c.processed(&queue, &mut back).await
}

/// New headers replace the old ones.
async fn postpones_with_headers(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    c.store(&queue, &p, vec![c.message().with_header("old", "1").with_header("kept", "no")]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let id = handler.id();
    let headers: anyqueue::Headers = [("New".to_owned(), " ä ".to_owned())].into();
    let status = Status::Postponed { delay: Duration::ZERO, headers: Some(headers.clone()) };
    c.settle(&mut handler, status).await?;
    let mut back = c.hold_one(&queue, &p).await?;
    c.equal(Clause::ContentIntact, &[id], "the headers", &headers, back.headers())?;
    c.settle(&mut back, Status::Processed).await
}

/// `Poisonous` moves the message to the dead letters, where it waits for somebody to look at it.
async fn poisons(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let id = handler.id();
    c.settle(&mut handler, Status::poisonous("it bites")).await?;
    c.client()
        .nothing(&p, c.timing().never(), Clause::SettleActions, "nothing in the live partition")
        .await?;
    let mut dead = c.hold_one(&queue, &p.dead_letters()).await?;
    c.equal(Clause::DeadLetters, &[id], "the dead letter", &id, &dead.id())?;
    let reason = dead.headers().get(header::DEAD_REASON).map(String::as_str);
    c.equal(Clause::DeadLetters, &[id], "the reason", &Some("it bites"), &reason)?;
    c.settle(&mut dead, Status::Processed).await
}

/// The same status again returns the same outcome; another one returns `Lost`, and changes nothing.
async fn twice(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    if let [removed, released] = held.as_mut_slice() {
        for (handler, status, other) in
            [(removed, Status::Processed, Status::Failed), (released, Status::Waiting, Status::Processed)]
        {
            c.settle(handler, status.clone()).await?;
            c.settle(handler, status.clone()).await?;
            c.settle_lost(Clause::SettleTwice, handler, other).await?;
            c.settle(handler, status).await?;
        }
    }
    drop(held);
    let got = c.drain(&queue, &p, c.timing().never()).await?;
    c.same_ids(
        Clause::SettleTwice,
        "the released message alone, once",
        sent.get(1..).unwrap_or_default(),
        &got,
    )
}

/// A settlement whose future was dropped after its first poll is carried through, with or without its handler.
async fn dropped_future(c: &Context) -> CaseResult {
    // A lease that ends within the case: a message that is not settled comes back.
    let lease = c.timing().lease * 3;
    let (p, queue) = (c.partition("work")?, c.queue_with(PartitionOptions::default().with_lease(lease))?);
    for steps in 1..10 {
        c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
        let mut held = c.hold(&queue, &p, 2).await?;
        for handler in &mut held {
            let _ = polled(steps, handler.settle(Status::Processed)).await;
        }
        if let Some(mut asked_again) = held.pop() {
            c.settle(&mut asked_again, Status::Processed).await?;
            c.settle_lost(Clause::SettleCarriedThrough, &mut asked_again, Status::Failed).await?;
        }
    }
    // Many settlements, most of which wait for the call before them, and whose handlers are gone by then.
    c.store(&queue, &p, c.messages(50, |_, task| task)).await?;
    for mut handler in c.hold(&queue, &p, 50).await? {
        let _ = polled(1, handler.settle(Status::Processed)).await;
    }
    c.client()
        .nothing(
            &p,
            lease + c.timing().never(),
            Clause::SettleCarriedThrough,
            "nothing back, as each was settled as processed",
        )
        .await
}

/// Settlements that many tasks request at once each get their own outcome.
async fn thousand_at_once(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let count = 1000;
    c.store(&queue, &p, c.messages(count, |_, task| task)).await?;
    let held = c.hold(&queue, &p, count).await?;
    let stolen: Vec<MessageId> = handler_ids(&held).into_iter().step_by(7).collect();
    for id in &stolen {
        steal(c, *id).await?;
    }
    let settling = held.into_iter().map(|mut handler| {
        tokio::spawn(async move {
            let answer = handler.settle(Status::Processed).await;
            (handler.id(), answer)
        })
    });
    for settled in join_all(settling).await {
        let (id, answer) = c.ok(
            Clause::SettleOutcomes,
            "a task",
            settled.map_err(|error| Error::invalid(error.to_string())),
        )?;
        let answer = c.ok(Clause::SettleOutcomes, "settle", answer)?;
        let due = if stolen.contains(&id) { SettleOutcome::Lost } else { SettleOutcome::Settled };
        c.equal(Clause::SettleOutcomes, &[id], "the outcome", &due, &answer)?;
    }
    c.client().nothing(&p, c.timing().never(), Clause::SettleOutcomes, "nothing left").await
}

/// Removes a message by its lease, behind its handler's back.
async fn steal(c: &Context, id: MessageId) -> CaseResult {
    let settlement = Settlement::new(c.lease_of(id)?, Action::Remove);
    c.client().settle(&[settlement]).await
}

/// One call with many different settlements: each is done, each is answered, and refused ones stay held.
async fn many_mixed(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let statuses = [
        Status::Processed,
        Status::Failed,
        Status::poisonous("mixed"),
        Status::Waiting,
        Status::Cancelled,
        Status::postponed(Duration::MAX),
        Status::Running,
        Status::Processed,
        Status::postponed(Duration::ZERO),
    ];
    c.store(&queue, &p, c.messages(statuses.len(), |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, statuses.len()).await?;
    let ids = handler_ids(&held);
    let at = |index: usize| ids.get(index).copied();
    let lost = at(7);
    if let Some(id) = lost {
        steal(c, id).await?;
    }
    let answers = queue.settle_many(held.iter_mut().zip(statuses.clone())).await;
    c.equal(Clause::SettleOutcomes, &ids, "the number of outcomes", &statuses.len(), &answers.len())?;
    for ((id, status), answer) in ids.iter().zip(&statuses).zip(&answers) {
        let ok = match status {
            Status::Postponed { delay, .. } if !delay.is_zero() => answer
                .as_ref()
                .is_err_and(|error| matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)),
            _ if lost == Some(*id) => matches!(answer, Ok(SettleOutcome::Lost)),
            _ => matches!(answer, Ok(SettleOutcome::Settled)),
        };
        c.check(
            Clause::SettleOutcomes,
            &[*id],
            ok,
            format!("the outcome of {status:?}"),
            format!("{answer:?}"),
        )?;
    }
    if let Some(refused) = held.get_mut(5) {
        c.settle(refused, Status::Waiting).await?;
    }
    let back: Vec<_> = [1, 3, 5, 6, 8].into_iter().filter_map(at).collect();
    c.same_ids(
        Clause::SettleActions,
        "what was released",
        &back,
        &c.drain(&queue, &p, c.timing().never()).await?,
    )?;
    let dead: Vec<_> = at(2).into_iter().collect();
    c.same_ids(
        Clause::SettleActions,
        "what was poisonous",
        &dead,
        &c.drain(&queue, &p.dead_letters(), c.timing().slack).await?,
    )
}

/// A message whose handler is dropped unsettled comes back at once, although its lease would last.
async fn dropped_handler(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    for _ in 0..3 {
        drop(c.hold_one(&queue, &p).await?);
    }
    let mut handler = c.hold_one(&other, &p).await?;
    c.equal(Clause::DroppedDelivery, &sent, "the message", &sent.first().copied(), &Some(handler.id()))?;
    c.settle(&mut handler, Status::Processed).await
}

/// So do hundreds, dropped at once and from a thread outside any runtime.
async fn dropped_in_batches(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue()?);
    let sent = c.store(&queue, &p, c.messages(300, |_, task| task)).await?;
    let held = c.hold(&queue, &p, sent.len()).await?;
    let dropping = std::thread::spawn(move || drop(held));
    let mut back = c.hold(&queue, &p, sent.len()).await?;
    c.same_ids(Clause::DroppedDelivery, "all that was dropped", &sent, &handler_ids(&back))?;
    c.check(Clause::DroppedDelivery, &[], dropping.join().is_ok(), "no panic in drop", "a panic")?;
    c.processed(&queue, &mut back).await
}

/// A message whose handler is dropped after its runtime has ended comes back by its lease's end; nothing
/// panics and nothing blocks.
async fn runtime_ends(c: &Context) -> CaseResult {
    let (p, t) = (c.partition("work")?, c.timing());
    let sent = c.store(&c.queue()?, &p, vec![c.message()]).await?;
    let (storage, partition) = (c.client().storage().clone(), p.clone());
    let options = PartitionOptions::default().with_lease(t.lease);
    let soon = t.soon;
    let work = move || hold_past_runtime(storage, options, &partition, soon);
    let ended = on_a_thread("a runtime that ends", work).await;
    let held = ended.map_err(|error| c.failed(Clause::DroppedDelivery, &sent, "no panic", error))?;
    let held = c.ok(Clause::DroppedDelivery, "a pull in a runtime of its own", held)?;
    c.equal(Clause::DroppedDelivery, &sent, "what it held", &sent, &held)?;
    let queue = c.queue()?;
    let mut back = c.ok(Clause::LeaseEnd, "a pull", queue.pull(&p).max(10).wait(t.latest(t.lease)).await)?;
    c.same_ids(Clause::LeaseEnd, "the message at its lease's end", &sent, &handler_ids(&back))?;
    c.processed(&queue, &mut back).await
}

/// Holds messages until after the end of the runtime in which they were pulled, and returns which.
fn hold_past_runtime(
    storage: std::sync::Arc<dyn anyqueue::adapter::Storage>,
    options: PartitionOptions,
    partition: &PartitionId,
    wait: Duration,
) -> anyqueue::Result<Vec<MessageId>> {
    let failed = |error: std::io::Error| Error::invalid(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let held = runtime.block_on(async {
        Queue::builder(storage).defaults(options).build()?.pull(partition).wait(wait).await
    })?;
    drop(runtime);
    Ok(handler_ids(&held))
}
