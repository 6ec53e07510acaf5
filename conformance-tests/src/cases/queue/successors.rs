//! Successors through the portable queue: what is refused, what is carried through, and what is returned.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{Dedup, Storage, Strictness};
use anyqueue::{
    Delivery, ErrorKind, MAX_KEY_BYTES, MAX_SUCCESSORS, MessageData, PartitionId, PartitionOptions, Queue,
    QueueMessageStatus as Status, Result, SettleOutcome, Successors,
};
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};

use crate::case::Case;
use crate::cases::recovery::Recovery;
use crate::clause::Clause;
use crate::context::{Altered, Context, handler_ids, polled};
use crate::fault::Fault;
use crate::fault_target::Disruption;
use crate::need::{MAX_TRIED_BYTES, Need};
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_successors.each_status", [Successors], each_status)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped, Fault::SuccessorsOfRemovalsOnly]),
    case!(Queue, "queue_successors.refused", [Successors, Unsupported, Limits], refused)
        .needs(NEEDS)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_successors.undeclared", [Unsupported], undeclared).kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_successors.undeclared_options", [Successors, Unsupported], undeclared_options)
        .needs(NEEDS)
        .kills(&[Fault::SharedDelivery]),
    case!(Queue, "queue_successors.again", [Successors, SettleTwice], again)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped]),
    case!(Queue, "queue_successors.dropped_future", [Successors, SettleCarriedThrough], dropped_future)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped]),
    case!(Queue, "queue_successors.many_at_once", [Successors, SettleOutcomes], many_at_once)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped])
        .deadline(LONG),
    case!(Queue, "queue_successors.more_than_a_push", [Successors, Limits], more_than_a_push)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsOfFirstSettlement])
        .deadline(LONG),
    case!(Queue, "queue_successors.time_of_day", [Successors, Delays, ServerTime], time_of_day)
        .needs(&[Need::Successors, Need::PushDelay])
        .kills(&[Fault::SuccessorsWithoutOptions]),
    case!(Queue, "queue_successors.chains", [Successors, Exclusive], chains)
        .needs(NEEDS)
        .kills(&[Fault::SuccessorsDropped, Fault::ExchangeForgetsSuccessors])
        .deadline(LONG),
    case!(Queue, "queue_successors.after_a_cut", [Successors, Recovery], after_a_cut)
        .needs(&[Need::Successors, Need::FaultTarget])
        .kills(&[Fault::NeverReconnects])
        .deadline(LONG),
];

const NEEDS: &[Need] = &[Need::Successors];

const LONG: Duration = Duration::from_mins(2);

/// How many chains of tasks there are, and how long each is.
const CHAINS: usize = 12;
const LINKS: usize = 20;

/// How often a consumer checks whether all have ended.
const LOOK: Duration = Duration::from_millis(50);

fn then(
    c: &Context,
    partition: &PartitionId,
    messages: impl IntoIterator<Item = MessageData>,
) -> CaseResult<Successors> {
    let all = messages.into_iter().try_fold(Successors::new(), |all, message| all.then(partition, message));
    c.ok(Clause::Successors, "successors", all)
}

/// Settles a delivery, which must return `Settled`.
async fn ends(c: &Context, delivery: &mut Delivery, status: Status, successors: Successors) -> CaseResult {
    let answer = delivery.settle_with(status, successors).await;
    let right = matches!(answer, Ok(SettleOutcome::Settled));
    c.check(Clause::SettleOutcomes, &[delivery.id()], right, "Settled", format!("{answer:?}"))
}

/// With each status a delivery can have successors.
async fn each_status(c: &Context) -> CaseResult {
    let (p, next, queue) = (c.partition("work")?, c.partition("next")?, c.queue()?);
    let statuses = [
        Status::Processed,
        Status::Cancelled,
        Status::Waiting,
        Status::Failed,
        Status::Running,
        Status::postponed(Duration::ZERO),
        Status::poisonous("of no use"),
    ];
    for status in statuses {
        c.store(&queue, &p, vec![c.message()]).await?;
        let mut held = c.hold_one(&queue, &p).await?;
        let successor = c.message();
        let id = successor.id();
        ends(c, &mut held, status.clone(), then(c, &next, [successor])?).await?;
        c.equal(Clause::SettleActions, &[held.id()], "the status", &status, held.status())?;
        let mut got = c.hold(&queue, &next, 1).await?;
        c.same_ids(
            Clause::Successors,
            &format!("the successor after {status:?}"),
            &[id],
            &handler_ids(&got),
        )?;
        c.processed(&queue, &mut got).await?;
        let back = !matches!(status, Status::Processed | Status::Cancelled | Status::Poisonous { .. });
        if back {
            let mut back = c.hold(&queue, &p, 1).await?;
            c.processed(&queue, &mut back).await?;
        }
    }
    Ok(())
}

/// A message that cannot be pushed cannot be a successor: nothing is sent, the error names the successor, and
/// the delivery is still held.
async fn refused(c: &Context) -> CaseResult {
    let (p, next, queue) = (c.partition("work")?, c.partition("next")?, c.queue()?);
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let too_long = "k".repeat(MAX_KEY_BYTES + 1);
    let mut bad = vec![
        ("an empty group", c.message().with_group(""), ErrorKind::InvalidInput),
        ("a long task id", c.message().with_task_id(too_long), ErrorKind::InvalidInput),
        ("a reserved header", c.message().with_header("anyqueue-x", "y"), ErrorKind::InvalidInput),
    ];
    let limit = c.capabilities().limits.message_bytes;
    if limit <= MAX_TRIED_BYTES {
        let payload = vec![b'x'; usize::try_from(limit).unwrap_or(usize::MAX) + 1];
        bad.push(("a payload over the limit", MessageData::new(payload), ErrorKind::TooLarge));
    }
    for (what, message, kind) in bad {
        let id = message.id();
        let successors = then(c, &next, [c.message(), message])?;
        let answer = held.settle_with(Status::Processed, successors).await;
        c.error(Clause::Successors, &format!("a successor with {what}"), kind, &answer)?;
        named(c, &answer, "successor 2 of 2", &id.to_string())?;
    }
    let dead = then(c, &next.dead_letters(), [c.message()])?;
    let answer = held.settle_with(Status::Processed, dead).await;
    c.error(Clause::Successors, "a successor among dead letters", ErrorKind::InvalidInput, &answer)?;
    let too_many = then(c, &next, c.messages(MAX_SUCCESSORS + 1, |_, message| message))?;
    let answer = held.settle_with(Status::Processed, too_many).await;
    c.error(Clause::Successors, "more successors than are allowed", ErrorKind::InvalidInput, &answer)?;
    c.client().nothing(&p, c.timing().slack, Clause::Successors, "the delivery still held").await?;
    ends(c, &mut held, Status::Processed, then(c, &next, [c.message()])?).await?;
    let mut got = c.hold(&queue, &next, 1).await?;
    c.processed(&queue, &mut got).await?;
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "nothing of what was refused").await
}

/// Judges that the error says which successor it means.
fn named(c: &Context, answer: &Result<SettleOutcome>, which: &str, id: &str) -> CaseResult {
    let text = answer.as_ref().map_or_else(ToString::to_string, |outcome| format!("{outcome:?}"));
    let names = text.contains(which) && text.contains(id);
    c.check(Clause::Successors, &[], names, format!("an error that names {which}, {id}"), text)
}

fn over(c: &Context, storage: &Arc<Altered>) -> CaseResult<Queue> {
    let storage: Arc<dyn Storage> = storage.clone();
    c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(c.long_options()).build())
}

/// If successors are not declared, they are refused, and the delivery is still held.
async fn undeclared(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let queue = over(c, &Altered::new(c.client().storage(), |declared| declared.successors = None))?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let answer = held.settle_with(Status::Processed, then(c, &p, [c.message()])?).await;
    c.error(Clause::Unsupported, "a successor", ErrorKind::Unsupported, &answer)?;
    c.client()
        .nothing(&p, c.timing().slack, Clause::Unsupported, "the delivery held, and no successor")
        .await?;
    ends(c, &mut held, Status::Processed, Successors::new()).await
}

/// A successor's options are refused where a push would refuse them.
async fn undeclared_options(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage = Altered::new(c.client().storage(), |declared| {
        (declared.groups, declared.dedup, declared.push_delay) = (false, Dedup::None, None);
    });
    let queue = over(c, &storage)?;
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    for message in [
        c.message().with_group("g"),
        c.message().with_dedup_key("k"),
        c.message().with_delay(Duration::from_secs(1)),
    ] {
        let id = message.id();
        let answer = held.settle_with(Status::Processed, then(c, &p, [message])?).await;
        c.error(Clause::Unsupported, "a successor with it", ErrorKind::Unsupported, &answer)?;
        named(c, &answer, "successor 1 of 1", &id.to_string())?;
    }
    c.client()
        .nothing(&p, c.timing().slack, Clause::Unsupported, "the delivery held, and no successor")
        .await?;
    ends(c, &mut held, Status::Processed, Successors::new()).await
}

/// The same settlement with the same successors returns the same outcome; with others it is a different
/// settlement, and comes too late.
async fn again(c: &Context) -> CaseResult {
    let (p, next, queue) = (c.partition("work")?, c.partition("next")?, c.queue()?);
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let successor = c.message();
    for _ in 0..3 {
        ends(c, &mut held, Status::Processed, then(c, &next, [successor.clone()])?).await?;
    }
    for others in [then(c, &next, [c.message()])?, Successors::new()] {
        let answer = held.settle_with(Status::Processed, others).await;
        let lost = matches!(answer, Ok(SettleOutcome::Lost));
        c.check(
            Clause::SettleTwice,
            &[held.id()],
            lost,
            "Lost, as other successors are asked for",
            format!("{answer:?}"),
        )?;
    }
    let mut got = c.hold(&queue, &next, 1).await?;
    c.same_ids(Clause::Successors, "the successor, once", &[successor.id()], &handler_ids(&got))?;
    c.processed(&queue, &mut got).await?;
    c.client().nothing(&next, c.timing().slack, Clause::Successors, "no other successor").await
}

/// Once polled, a settlement is carried through, including its successors, even if its future and its
/// delivery are dropped.
async fn dropped_future(c: &Context) -> CaseResult {
    let (p, next, queue) = (c.partition("work")?, c.partition("next")?, c.queue()?);
    let count = 20;
    c.store(&queue, &p, c.messages(count, |_, message| message)).await?;
    let successors = c.messages(count, |_, message| message);
    let expected: Vec<_> = successors.iter().map(MessageData::id).collect();
    for (mut held, successor) in c.hold(&queue, &p, count).await?.into_iter().zip(successors) {
        let _ = polled(1, held.settle_with(Status::Processed, then(c, &next, [successor])?)).await;
    }
    let mut got = c.hold(&queue, &next, count).await?;
    c.same_ids(Clause::Successors, "the successor of each", &expected, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await?;
    c.client().nothing(&p, c.timing().slack, Clause::SettleCarriedThrough, "all to have ended").await
}

/// Many tasks settle at once: each delivery has its own successor, whichever call carried it.
async fn many_at_once(c: &Context) -> CaseResult {
    let (p, next, queue) = (c.partition("work")?, c.partition("next")?, c.queue()?);
    let count = c.size(200, 1000);
    c.store(&queue, &p, c.messages(count, |_, message| message)).await?;
    let held = c.hold(&queue, &p, count).await?;
    let successors = c.messages(count, |_, message| message);
    let expected: Vec<_> = successors.iter().step_by(2).map(MessageData::id).collect();
    let settling = held.into_iter().zip(successors).enumerate().map(|(number, (mut held, successor))| {
        let followed = number.is_multiple_of(2).then_some(successor);
        let successors = then(c, &next, followed);
        async move { ends(c, &mut held, Status::Processed, successors?).await }
    });
    join_all(settling).await.into_iter().collect::<CaseResult>()?;
    let mut got = c.hold(&queue, &next, expected.len()).await?;
    c.same_ids(Clause::Successors, "the successors of every second", &expected, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await?;
    c.client().nothing(&p, c.timing().slack, Clause::SettleOutcomes, "all to have ended").await
}

/// Settlements that together bring more than one push may carry are split.
async fn more_than_a_push(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let storage = Altered::new(c.client().storage(), |declared| {
        declared.limits.push_batch = declared.limits.push_batch.min(7);
    });
    let queue = over(c, &storage)?;
    let (count, each) = (12, 3);
    c.store(&queue, &p, c.messages(count, |_, message| message)).await?;
    let mut held = c.hold(&queue, &p, count).await?;
    let successors = c.messages(count * each, |_, message| message);
    let expected: Vec<_> = successors.iter().map(MessageData::id).collect();
    let mut settlements = Vec::new();
    for (held, messages) in held.iter_mut().zip(successors.chunks(each)) {
        settlements.push((held, Status::Processed, then(c, &next, messages.to_vec())?));
    }
    let answers = queue.settle_many_with(settlements).await;
    let settled = answers.iter().filter(|answer| matches!(answer, Ok(SettleOutcome::Settled))).count();
    c.equal(Clause::SettleOutcomes, &[], "how many were settled:", &count, &settled)?;
    let largest = storage.most_successors();
    c.check(Clause::Limits, &[], largest <= 7, "at most 7 successors in one call", largest.to_string())?;
    let mut got = c.hold(&queue, &next, count * each).await?;
    c.same_ids(Clause::Successors, "all successors", &expected, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// A successor that is due at a time of day is delayed until then.
async fn time_of_day(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, c.queue()?, c.timing());
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let (asked, due) = (Instant::now(), SystemTime::now() + t.delay);
    let successor = c.message().with_not_before(due);
    let about = [successor.id()];
    ends(c, &mut held, Status::Processed, then(c, &p, [successor])?).await?;
    let wait = t.latest(t.delay);
    let mut got = c.ok(Clause::Delays, "a pull", queue.pull(&p).wait(wait).await)?;
    c.took(Clause::Delays, &about, "the successor", asked.elapsed(), (t.delay, wait))?;
    c.same_ids(Clause::Successors, "the successor", &about, &handler_ids(&got))?;
    c.processed(&queue, &mut got).await
}

/// Tasks that are each followed by the next of their chain, consumed by several streams: no chain breaks, and
/// none forks.
async fn chains(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let first = c.messages(CHAINS, |chain, message| message.with_header("chain", format!("{chain} 1")));
    c.client().push(&p, &first).await?;
    let queues = [c.queue()?, c.fresh_queue().await?];
    let chains = Chains::begun();
    let consumers = queues.iter().flat_map(|queue| [queue, queue]).map(|queue| follow(c, queue, &p, &chains));
    let links: Vec<_> = join_all(consumers).await.into_iter().collect::<CaseResult<Vec<Vec<String>>>>()?;
    let mut links = links.concat();
    links.sort();
    let mut expected: Vec<_> =
        (0..CHAINS).flat_map(|chain| (1..=LINKS).map(move |link| format!("{chain} {link}"))).collect();
    expected.sort();
    if c.capabilities().exclusive != Strictness::Strict {
        links.dedup(); // the same link may come to two
    }
    c.equal(Clause::Successors, &[], "each link of each chain, once:", &expected, &links)
}

/// Returns `3 8` after `3 7`, and `None` after the last.
fn link_after(link: &str) -> Option<String> {
    let (chain, number) = link.split_once(' ')?;
    let next = number.parse::<usize>().ok()? + 1;
    (next <= LINKS).then(|| format!("{chain} {next}"))
}

/// How far the chains are.
struct Chains {
    ended: AtomicUsize,
    last: Mutex<Instant>,
}

impl Chains {
    fn begun() -> Self {
        Self { ended: AtomicUsize::new(0), last: Mutex::new(Instant::now()) }
    }

    fn reached(&self, end: bool) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.ended.fetch_add(usize::from(end), Ordering::SeqCst);
    }

    /// Returns whether some have not ended, and there was a link not long ago.
    fn go_on(&self, patience: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.load(Ordering::SeqCst) < CHAINS && last.elapsed() < patience
    }
}

/// Consumes from a stream, and lets each link be followed by the next, until all chains have ended.
async fn follow(c: &Context, queue: &Queue, p: &PartitionId, chains: &Chains) -> CaseResult<Vec<String>> {
    let stream = c.ok(Clause::Successors, "a stream", queue.stream(p).window(4).build())?;
    let (mut links, mut stream) = (Vec::new(), pin!(stream));
    while chains.go_on(2 * c.timing().soon) {
        let Ok(next) = tokio::time::timeout(LOOK, stream.next()).await else { continue };
        let Some(delivery) = next else { break };
        let mut delivery = c.ok(Clause::Successors, "a delivery", delivery)?;
        let link = delivery.headers().get("chain").cloned().unwrap_or_default();
        let following = link_after(&link).map(|next| c.message().with_header("chain", next));
        let is_last = following.is_none();
        ends(c, &mut delivery, Status::Processed, then(c, p, following)?).await?;
        links.push(link);
        chains.reached(is_last);
    }
    Ok(links)
}

/// Settlements with successors that meet a cut are repeated, or return an error: every one that was reported
/// as settled has its successor.
async fn after_a_cut(c: &Context) -> CaseResult {
    let (p, next) = (c.partition("work")?, c.partition("next")?);
    let options = PartitionOptions::default().with_lease(c.timing().act_lease);
    let queue = c.queue_over(c.client(), |builder| builder.defaults(options))?;
    let mut owed = HashSet::new();
    for _ in 0..c.size(4, 20) {
        let mut held = held_again(c, &queue, &p).await?;
        let successor = c.message();
        let id = successor.id();
        let settling = held.settle_with(Status::Processed, then(c, &next, [successor])?);
        let (answer, cut) = join(settling, c.disrupt(Disruption::Cut)).await;
        cut?;
        if matches!(answer, Ok(SettleOutcome::Settled)) {
            owed.insert(id);
        }
    }
    let recovery = Recovery::begins();
    while !owed.is_empty() {
        let got = queue.pull(&next).max(10).wait(c.timing().soon).await.unwrap_or_default();
        if got.is_empty() {
            let told = format!("the successors of all that were settled; {} are missing", owed.len());
            recovery.again(c, &told).await?;
        }
        for mut delivery in got {
            owed.remove(&delivery.id());
            let _ = delivery.settle(Status::Processed).await; // else it comes again
        }
    }
    Ok(())
}

/// Pushes one message and pulls one, despite what is left of a cut.
async fn held_again(c: &Context, queue: &Queue, p: &PartitionId) -> CaseResult<Delivery> {
    let (recovery, message) = (Recovery::begins(), c.message());
    while queue.push(p, message.clone()).await.is_err() {
        recovery.again(c, "a push").await?;
    }
    loop {
        let got = queue.pull(p).wait(c.timing().soon).await.unwrap_or_default();
        match got.into_iter().next() {
            Some(delivery) => return Ok(delivery),
            None => recovery.again(c, "a pull").await?,
        }
    }
}
