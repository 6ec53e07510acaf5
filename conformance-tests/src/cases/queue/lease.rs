//! Leases of handlers: kept alive, lost, stolen, cancelled, and limited.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Settlement, Storage};
use anyqueue::{
    CancelOutcome, Error, ExtendOutcome, IoThread, MessageId, PartitionId, PartitionOptions, Queue,
    QueueMessageStatus as Status, Result, SettleOutcome,
};
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::punctual::if_punctual;
use crate::run::on_a_thread;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_lease.of_a_connection", [ConnectionLease, Extend], of_a_connection)
        .needs(&[Need::ConnectionLease])
        .kills(&[Fault::ConnectionHoldsForever]),
    case!(Queue, "queue_lease.kept_alive", [Exclusive, Extend], kept_alive)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendDoesNothing]),
    case!(Queue, "queue_lease.not_kept_alive", [LeaseEnd, Extend], not_kept_alive)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::LeaseNeverExpires, Fault::LeaseUntilTooLate]),
    case!(Queue, "queue_lease.extended_by_hand", [Extend], extended_by_hand)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendDoesNothing]),
    case!(Queue, "queue_lease.stolen", [Fencing, Extend], stolen)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendNeverLost]),
    case!(Queue, "queue_lease.stolen_by_move", [Fencing, Extend], stolen_by_move)
        .kills(&[Fault::AutoAck])
        .needs(&[Need::TimedLease]),
    case!(
        Queue,
        "queue_lease.cancellation_reaches_handler",
        [Extend, Deletion],
        cancellation_reaches_handler
    )
    .needs(&[Need::Cancel, Need::TimedLease])
    .kills(&[Fault::CancelNotTold, Fault::CancelLocal]),
    case!(Queue, "queue_lease.max_hold", [LeaseEnd], max_hold)
        .kills(&[Fault::AutoAck])
        .needs(&[Need::TimedLease]),
    case!(Queue, "queue_lease.max_hold_by_hand", [LeaseEnd], max_hold_by_hand)
        .kills(&[Fault::SharedDelivery])
        .needs(&[Need::TimedLease]),
    case!(Queue, "queue_lease.heartbeat_ends", [DroppedDelivery, Extend], heartbeat_ends)
        .kills(&[Fault::AutoAck])
        .needs(&[Need::TimedLease]),
    case!(Queue, "queue_lease.io_thread", [Extend], io_thread)
        .needs(&[Need::TimedLease])
        .kills(&[Fault::ExtendDoesNothing, Fault::SecondExtendIgnored]),
];

/// Returns a lease that the heartbeat of a busy machine can keep, and that ends within the case.
fn lease(c: &Context) -> Duration {
    c.timing().lease * 3
}

/// Returns how late a heartbeat may run that comes every third of a lease.
fn late(c: &Context) -> Duration {
    lease(c) / 3
}

fn options(c: &Context) -> PartitionOptions {
    PartitionOptions::default().with_lease(lease(c))
}

/// Waits for a signal that must come, and returns how long it took.
async fn fires(
    c: &Context,
    what: &str,
    within: Duration,
    id: MessageId,
    signal: &CancellationToken,
) -> CaseResult<Duration> {
    let asked = Instant::now();
    let fired = tokio::time::timeout(within, signal.cancelled()).await.is_ok();
    c.check(Clause::Extend, &[id], fired, format!("{what} within {within:?}"), "it did not fire")?;
    Ok(asked.elapsed())
}

/// A message that is held for more than three leases stays with its handler.
async fn kept_alive(c: &Context) -> CaseResult {
    if_punctual(late(c), keep_alive(c)).await
}

async fn keep_alive(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, c.queue_with(options(c))?);
    c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 3).await?;
    let other = c.fresh().await?;
    other
        .nothing(&p, lease(c) * 33 / 10, Clause::Extend, "nothing for others while the handlers live")
        .await?;
    for handler in &held {
        c.check(Clause::Extend, &[handler.id()], !handler.is_lost(), "the handler not lost", "lost")?;
        let trusted = handler.lease_until().is_some_and(|until| until > Instant::now());
        c.check(
            Clause::Extend,
            &[handler.id()],
            trusted,
            "a lease that lasts",
            format!("{:?}", handler.lease_until()),
        )?;
    }
    c.processed(&queue, &mut held).await
}

/// Without a heartbeat the lease ends on time, its handler is notified, and its settlement changes nothing.
async fn not_kept_alive(c: &Context) -> CaseResult {
    let (p, t, lease) = (c.partition("work")?, c.timing(), c.timing().lease);
    let (queue, other) = (c.queue()?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let asked = Instant::now();
    let pulled = queue.pull(&p).wait(t.soon).lease(lease).keep_alive(false).await;
    let mut handler = c
        .ok(Clause::PullBounds, "a pull", pulled)?
        .pop()
        .ok_or_else(|| c.failed(Clause::PullBounds, &sent, "a delivery", "none"))?;
    let received = asked.elapsed();
    fires(c, "lost, at the lease's end,", t.latest(lease), handler.id(), &handler.lost().clone()).await?;
    c.took(Clause::Extend, &sent, "the loss told", asked.elapsed(), (lease, received + lease + t.soon))?;
    c.check(Clause::Extend, &sent, handler.is_lost(), "the handler lost", "not lost")?;
    c.equal(Clause::Extend, &sent, "the end of a lost lease", &None, &handler.lease_until())?;
    let mut back = c.hold_one(&other, &p).await?;
    c.settle_lost(Clause::Fencing, &mut handler, Status::Processed).await?;
    let extended = c.ok(Clause::Extend, "extend", handler.extend(lease).await)?;
    c.equal(Clause::Extend, &sent, "extending a lost lease answers", &ExtendOutcome::Lost, &extended)?;
    drop(handler);
    c.client().nothing(&p, t.never(), Clause::Fencing, "the new owner undisturbed").await?;
    c.settle(&mut back, Status::Processed).await
}

/// `extend` moves the end of the lease, and the handler knows the new end.
async fn extended_by_hand(c: &Context) -> CaseResult {
    if_punctual(late(c), extend_by_hand(c)).await
}

async fn extend_by_hand(c: &Context) -> CaseResult {
    let (p, t, lease) = (c.partition("work")?, c.timing(), lease(c));
    let queue = c.queue()?;
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let start = Instant::now();
    let pulled = queue.pull(&p).wait(t.soon).lease(lease).keep_alive(false).await;
    let mut handler = c
        .ok(Clause::PullBounds, "a pull", pulled)?
        .pop()
        .ok_or_else(|| c.failed(Clause::PullBounds, &sent, "a delivery", "none"))?;
    let asked = Instant::now();
    let outcome = c.ok(Clause::Extend, "extend", handler.extend(lease * 3).await)?;
    let answered = Instant::now();
    c.still_within(start, lease)?;
    c.equal(Clause::Extend, &sent, "extend answers", &ExtendOutcome::Extended, &outcome)?;
    let until = handler.lease_until();
    let ok =
        until.is_some_and(|until| until + CLOCK_GRAIN >= asked + lease * 3 && until <= answered + lease * 3);
    let seen = format!("{:?}", until.map(|until| until.saturating_duration_since(asked)));
    c.check(Clause::Extend, &sent, ok, format!("a lease of {:?} from the extension on", lease * 3), seen)?;
    let other = c.fresh().await?;
    other.nothing(&p, lease * 2, Clause::Extend, "nothing for others before the new end").await?;
    c.check(Clause::Extend, &sent, !handler.is_lost(), "the handler not lost", "lost")?;
    c.settle(&mut handler, Status::Processed).await
}

/// The heartbeat notices a lease that ended behind the handler's back, before its time is over.
async fn stolen(c: &Context) -> CaseResult {
    if_punctual(late(c), taken_away(c, Action::Remove)).await
}

/// It also notices a lease whose message was moved elsewhere.
async fn stolen_by_move(c: &Context) -> CaseResult {
    let elsewhere = Action::Move { to: c.partition("elsewhere")?, headers: None };
    if_punctual(late(c), taken_away(c, elsewhere)).await
}

async fn taken_away(c: &Context, action: Action) -> CaseResult {
    let lease = lease(c) * 3;
    let (p, queue) = (c.partition("work")?, c.queue_with(options(c).with_lease(lease))?);
    c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    let [theirs, mine] = held.as_mut_slice() else { return Ok(()) };
    let lost = theirs.lost().clone();
    let settlement = Settlement::new(c.lease_of(theirs.id())?, action);
    c.client().settle(&[settlement]).await?;
    fires(c, "lost, by the next heartbeat,", lease * 8 / 10, theirs.id(), &lost).await?;
    c.settle_lost(Clause::Fencing, theirs, Status::Processed).await?;
    c.check(Clause::Extend, &[mine.id()], !mine.is_lost(), "the other handler not lost", "lost")?;
    c.settle(mine, Status::Processed).await
}

/// A request for cancellation reaches the handler by its next heartbeat; a waiting message is removed at
/// once.
async fn cancellation_reaches_handler(c: &Context) -> CaseResult {
    if_punctual(late(c), cancel_at_handler(c)).await
}

async fn cancel_at_handler(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue_with(options(c))?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(3, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    let waiting: Vec<_> = sent.iter().filter(|id| held.iter().all(|h| h.id() != **id)).copied().collect();
    let [theirs, mine] = held.as_mut_slice() else { return Ok(()) };
    let signal = theirs.cancel_requested().clone();
    let ids = [theirs.id(), waiting.first().copied().unwrap_or(theirs.id()), c.message().id()];
    let mut answers = Vec::new();
    for answer in c.ok(Clause::Deletion, "request_cancel", other.request_cancel(&p, &ids).await)? {
        answers.push(c.ok(Clause::Deletion, "each request", answer)?);
    }
    let due = vec![CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound];
    c.equal(Clause::Deletion, &ids, "the outcomes", &due, &answers)?;
    fires(c, "the request at its handler", c.timing().latest(lease(c)), theirs.id(), &signal).await?;
    c.check(Clause::Extend, &ids, !theirs.is_lost(), "the handler still holding it", "lost")?;
    let told = mine.cancel_requested().is_cancelled();
    c.check(
        Clause::Extend,
        &[mine.id()],
        !told,
        "no request at another message's handler",
        "it was told too",
    )?;
    c.settle(theirs, Status::Cancelled).await?;
    c.settle(mine, Status::Processed).await?;
    c.client().nothing(&p, c.timing().never(), Clause::Deletion, "nothing left").await
}

/// However often its lease is renewed, a message is held no longer than `max_hold`.
async fn max_hold(c: &Context) -> CaseResult {
    let (p, lease, t) = (c.partition("work")?, lease(c), c.timing());
    let (most, before) = (lease * 2, Instant::now());
    let queue = c.queue_with(options(c).with_max_hold(most))?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let (id, received) = (handler.id(), Instant::now());
    let lost = handler.lost().clone();
    let ending = tokio::time::timeout(most + t.soon, async {
        let mut trusted = handler.lease_until();
        while !lost.is_cancelled() {
            trusted = handler.lease_until().or(trusted);
            tokio::time::sleep(lease / 50).await;
        }
        trusted
    });
    let trusted = ending.await.map_err(|_| {
        c.failed(Clause::LeaseEnd, &[id], format!("the hold to end by {most:?}"), "it went on")
    })?;
    c.took(
        Clause::LeaseEnd,
        &[id],
        "the hold's end",
        before.elapsed(),
        (lease, received - before + most + t.soon),
    )?;
    let longest = trusted.map(|until| until.saturating_duration_since(received));
    let ok = longest.is_some_and(|longest| longest <= most + CLOCK_GRAIN);
    c.check(
        Clause::LeaseEnd,
        &[id],
        ok,
        format!("no lease beyond {most:?}, the longest hold"),
        format!("one until {longest:?}"),
    )?;
    c.settle_lost(Clause::LeaseEnd, &mut handler, Status::Processed).await
}

/// `extend` cannot hold it longer than that either.
async fn max_hold_by_hand(c: &Context) -> CaseResult {
    let (p, lease) = (c.partition("work")?, lease(c));
    let queue = c.queue_with(options(c).with_max_hold(lease * 2))?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut handler = c.hold_one(&queue, &p).await?;
    let received = Instant::now();
    // Capped or refused: either keeps the promise.
    let answer = handler.extend(lease * 5).await;
    let longest = handler.lease_until().map(|until| until.saturating_duration_since(received));
    let ok = longest.is_none_or(|longest| longest <= lease * 2 + CLOCK_GRAIN);
    let seen = format!("{answer:?}, and a lease until {longest:?}");
    c.check(
        Clause::LeaseEnd,
        &[handler.id()],
        ok,
        format!("no lease beyond {:?}, the longest hold", lease * 2),
        seen,
    )?;
    c.settle(&mut handler, Status::Processed).await
}

/// A handler that was dropped or settled is no longer extended, and anybody can get its message.
async fn heartbeat_ends(c: &Context) -> CaseResult {
    if_punctual(late(c), end_heartbeats(c)).await
}

async fn end_heartbeats(c: &Context) -> CaseResult {
    let (p, queue, other) = (c.partition("work")?, c.queue_with(options(c))?, c.fresh_queue().await?);
    let sent = c.store(&queue, &p, c.messages(2, |_, task| task)).await?;
    let mut held = c.hold(&queue, &p, 2).await?;
    // Heartbeats come every third of a lease, so the next after these is far off.
    let beaten = || sent.iter().all(|id| c.extensions_of(*id) > 0);
    let deadline = tokio::time::Instant::now() + lease(c);
    while !beaten() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(lease(c) / 20).await;
    }
    for id in &sent {
        c.check(
            Clause::Extend,
            &[*id],
            c.extensions_of(*id) > 0,
            "a heartbeat while it is held",
            "no extension",
        )?;
    }
    if let Some(mut settled) = held.pop() {
        c.settle(&mut settled, Status::Processed).await?;
    }
    drop(held);
    let mut back = c.hold_one(&other, &p).await?;
    let count = |ids: &[MessageId]| ids.iter().map(|id| c.extensions_of(*id)).collect::<Vec<_>>();
    let before = count(&sent);
    c.client().nothing(&p, lease(c) * 2, Clause::DroppedDelivery, "the new owner undisturbed").await?;
    c.equal(Clause::Extend, &sent, "the extensions after settlement and drop", &before, &count(&sent))?;
    c.settle(&mut back, Status::Processed).await
}

/// An executor that is blocked for three leases loses none of them if core has a thread of its own.
async fn io_thread(c: &Context) -> CaseResult {
    if_punctual(late(c), block_executor(c)).await
}

async fn block_executor(c: &Context) -> CaseResult {
    let (p, lease) = (c.partition("work")?, lease(c));
    let sent = c.store(&c.queue()?, &p, vec![c.message()]).await?;
    let (storage, partition, options) = (c.client().storage().clone(), p.clone(), options(c));
    let (holding, held) = tokio::sync::oneshot::channel();
    let soon = c.timing().soon;
    let work = move || blocked(storage, options, &partition, soon, holding);
    let busy = tokio::spawn(on_a_thread("a busy executor", work));
    let took =
        held.await.map_err(|_| c.failed(Clause::Extend, &sent, "a delivery in the busy thread", "none"))?;
    c.equal(Clause::Extend, &sent, "what it holds", &sent.first().copied(), &Some(took))?;
    let other = c.fresh().await?;
    other.nothing(&p, lease * 28 / 10, Clause::Extend, "nothing for others while the thread is busy").await?;
    let ended = busy.await.map_err(|error| error.to_string()).flatten();
    let outcome = ended.map_err(|error| c.failed(Clause::Extend, &sent, "no panic", error))?;
    let outcome = c.ok(Clause::Extend, "the settlement after the work", outcome)?;
    c.equal(Clause::Extend, &sent, "the settlement after the work answers", &SettleOutcome::Settled, &outcome)
}

/// Pulls in a single-threaded runtime, blocks it for three leases, then settles.
fn blocked(
    storage: Arc<dyn Storage>,
    options: PartitionOptions,
    partition: &PartitionId,
    wait: Duration,
    holding: tokio::sync::oneshot::Sender<MessageId>,
) -> Result<SettleOutcome> {
    let failed = |error: std::io::Error| Error::invalid(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let io = IoThread::start()?;
    runtime.block_on(async {
        let lease = options.lease;
        let queue = Queue::builder(storage).defaults(options).io(&io).build()?;
        let mut held = queue.pull(partition).wait(wait).await?;
        let handler = held.first_mut().ok_or_else(|| Error::invalid("no delivery"))?;
        let _ = holding.send(handler.id());
        std::thread::sleep(lease * 3);
        handler.settle(Status::Processed).await
    })
}

/// If the lease is the connection, no server ends it by its time: core does, for deliveries that nobody
/// extends. It notifies the holder, and releases the message.
async fn of_a_connection(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    let sent = c.store(&queue, &p, vec![c.message()]).await?;
    let asked = Instant::now();
    let held = c.ok(
        Clause::ConnectionLease,
        "a pull",
        queue.pull(&p).lease(t.lease).keep_alive(false).wait(t.soon).await,
    )?;
    let other = c.fresh().await?;
    let back = other.pull_with(&p, other.request(1, t.latest(t.lease))).await?;
    c.took(
        Clause::ConnectionLease,
        &sent,
        "the message back",
        asked.elapsed(),
        (t.lease, t.latest(t.lease)),
    )?;
    c.in_order(Clause::ConnectionLease, "the message that nobody extended", &sent, &back)?;
    let told = held.iter().all(anyqueue::Delivery::is_lost);
    c.check(Clause::Extend, &sent, told, "the holder told of its loss", "it was not")?;
    other.remove(&back).await
}
