//! The ledger through the portable queue: where a task stands, what became of it, and for how long that is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{EndedQuery, Storage};
use anyqueue::{
    Amend, CancelOutcome, ErrorKind, Keep, MAX_RESULT_BYTES, MessageId, Page, PartitionId, PartitionOptions,
    Queue, QueueMessageStatus as Status, SettleOutcome, Task, TaskCount, TaskFilter, TaskReport, TaskState,
    header,
};
use futures_util::TryStreamExt as _;
use futures_util::future::join;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Client, Context};
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_ledger.states", [EndStored, EndedTold], states).needs(&[
        Need::Ledger,
        Need::Browse,
        Need::PushDelay,
    ]),
    case!(Queue, "queue_ledger.only_ends", [EndStored], only_ends).needs(&[Need::Ledger, Need::Browse]),
    case!(Queue, "queue_ledger.reports", [EndStored], reports).needs(NEEDS),
    case!(Queue, "queue_ledger.results", [EndStored, Limits], results).needs(NEEDS),
    case!(Queue, "queue_ledger.wait_for", [EndedTold], wait_for).needs(NEEDS),
    case!(Queue, "queue_ledger.wait_is_over", [EndedTold], wait_is_over).needs(&[Need::Ledger, Need::Browse]),
    case!(Queue, "queue_ledger.keep", [EndStored, EndedTold], keep).needs(NEEDS),
    case!(Queue, "queue_ledger.lapses", [EndedTold, EndsRemoved], lapses).needs(NEEDS),
    case!(Queue, "queue_ledger.expired", [EndStored, Expiry], expired).needs(NEEDS),
    case!(Queue, "queue_ledger.cancelled", [EndsRemoved, Deletion], cancelled)
        .needs(&[Need::Ledger, Need::Cancel]),
    case!(Queue, "queue_ledger.filters", [EndedTold, EndsRemoved], filters).needs(NEEDS).deadline(MINUTE),
    case!(Queue, "queue_ledger.many_at_once", [EndStored], many_at_once).needs(NEEDS).deadline(MINUTE),
    case!(Queue, "queue_ledger.dead_letters", [EndStored, DeadLetters], dead_letters).needs(NEEDS),
    case!(Queue, "queue_ledger.not_asked_for", [EndStored], not_asked_for).needs(NEEDS),
    case!(Queue, "queue_ledger.undeclared", [Unsupported], undeclared),
];

const NEEDS: &[Need] = &[Need::Ledger];
const MINUTE: Duration = Duration::from_mins(1);

/// How late [`Queue::wait_for`] may see the end that another client settled.
const LOOK: Duration = Duration::from_millis(500);

/// More than any of these cases counts.
const MANY: u64 = 1_000_000;

/// A queue over this client that keeps the ends of tasks.
fn keeping(c: &Context, client: &Client, keep: Keep) -> CaseResult<Queue> {
    c.queue_over(client, |builder| builder.ledger(keep))
}

fn queue(c: &Context) -> CaseResult<Queue> {
    keeping(c, c.client(), Keep::default())
}

/// Pushes one, holds it, and settles it.
async fn end(c: &Context, queue: &Queue, p: &PartitionId, status: Status) -> CaseResult<MessageId> {
    let ids = c.store(queue, p, vec![c.message()]).await?;
    let mut held = c.hold_one(queue, p).await?;
    c.equal(Clause::PullBounds, &ids, "the message", &ids, &vec![held.id()])?;
    c.settle(&mut held, status).await?;
    Ok(held.id())
}

async fn task(c: &Context, queue: &Queue, p: &PartitionId, id: MessageId) -> CaseResult<Option<Task>> {
    c.ok(Clause::EndedTold, "asking for a task", queue.task(p, id).await)
}

async fn ended(c: &Context, queue: &Queue, p: &PartitionId, id: MessageId) -> CaseResult<Task> {
    let found = task(c, queue, p, id).await?;
    found.ok_or_else(|| c.failed(Clause::EndStored, &[id], "the task as it ended", "nothing is known of it"))
}

async fn state(
    c: &Context,
    queue: &Queue,
    p: &PartitionId,
    id: MessageId,
    expected: Option<TaskState>,
) -> CaseResult {
    let seen = task(c, queue, p, id).await?.map(|task| task.state);
    c.equal(Clause::EndedTold, &[id], "the state", &expected, &seen)
}

async fn listed(c: &Context, queue: &Queue, p: &PartitionId, filter: TaskFilter) -> CaseResult<Vec<Task>> {
    let stream = c.ok(Clause::EndedTold, "listing tasks", queue.tasks(p, filter))?;
    c.ok(Clause::EndedTold, "listing tasks", stream.try_collect().await)
}

/// How many ends the backend itself has, whatever core makes of them.
async fn stored(c: &Context, p: &PartitionId) -> CaseResult<usize> {
    let missing = || c.failed(Clause::EndStored, &[], "a ledger, as declared", "`ledger()` returns None");
    let ledger = c.client().storage().ledger().ok_or_else(missing)?;
    let page = ledger.ended(p, &EndedQuery::default(), Page::of(1000)).await;
    Ok(c.ok(Clause::EndedTold, "a page of what has ended", page)?.len())
}

/// A task is known in each state of its life.
async fn states(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, queue(c)?, c.timing());
    state(c, &queue, &p, MessageId::new(), None).await?;
    let later = c.store(&queue, &p, vec![c.message().with_delay(t.delay * 4)]).await?;
    for id in &later {
        state(c, &queue, &p, *id, Some(TaskState::Scheduled)).await?;
    }
    let [id] = c.store(&queue, &p, vec![c.message()]).await?[..] else { return Ok(()) };
    state(c, &queue, &p, id, Some(TaskState::Queued)).await?;
    if c.capabilities().amend {
        for (change, is) in
            [(Amend::new().disable(), TaskState::Disabled), (Amend::new().enable(), TaskState::Queued)]
        {
            c.ok(Clause::Amendments, "an amendment", queue.amend(&p, &[id], change).await)?;
            state(c, &queue, &p, id, Some(is)).await?;
        }
    }
    let mut held = c.hold_one(&queue, &p).await?;
    state(c, &queue, &p, id, Some(TaskState::Running)).await?;
    c.settle(&mut held, Status::poisonous("of no use")).await?;
    let dead = ended(c, &queue, &p, id).await?;
    let seen = (dead.state, dead.reason.as_deref());
    c.equal(Clause::EndedTold, &[id], "state and reason", &(TaskState::Failed, Some("of no use")), &seen)?;
    let letters = c.ok(Clause::DeadLetters, "the dead letters", queue.dead_letters(&p))?;
    c.ok(Clause::DeadLetters, "a redrive", letters.redrive().await)?;
    state(c, &queue, &p, id, Some(TaskState::Queued)).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    c.settle(&mut held, Status::Processed).await?;
    state(c, &queue, &p, id, Some(TaskState::Succeeded)).await?;
    let mut rest = c.ok(Clause::Delays, "a pull", queue.pull(&p).wait(t.latest(t.delay * 4)).await)?;
    c.processed(&queue, &mut rest).await
}

/// Only what is removed has ended: what goes back lives, and what dies is a dead letter.
async fn only_ends(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    for status in [Status::Failed, Status::Waiting, Status::postponed(Duration::ZERO)] {
        let id = end(c, &queue, &p, status.clone()).await?;
        state(c, &queue, &p, id, Some(TaskState::Queued)).await?;
        c.equal(Clause::EndStored, &[id], "how many ends are stored:", &0, &stored(c, &p).await?)?;
        let mut back = c.hold_one(&queue, &p).await?;
        c.settle(&mut back, Status::Processed).await?;
        state(c, &queue, &p, id, Some(TaskState::Succeeded)).await?;
        c.ok(Clause::EndsRemoved, "a deletion", queue.delete_ended(&p, &TaskFilter::new(), MANY).await)?;
    }
    let cancelled = end(c, &queue, &p, Status::Cancelled).await?;
    state(c, &queue, &p, cancelled, Some(TaskState::Cancelled)).await?;
    let dead = end(c, &queue, &p, Status::poisonous("of no use")).await?;
    state(c, &queue, &p, dead, Some(TaskState::Failed)).await?;
    c.equal(Clause::EndStored, &[dead], "how many ends are stored:", &1, &stored(c, &p).await?)
}

/// What the message says, and what its handler reports, is told of the task when it has ended.
async fn reports(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    let message = c
        .message()
        .with_task_id("order 7")
        .with_session_id("customer 3")
        .with_header(header::TASK_KIND, "mail")
        .with_header(header::TASK_ATTEMPTS, "2")
        .with_header(header::TRACEPARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let id = message.id();
    c.store(&queue, &p, vec![message]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let report = TaskReport::new()
        .with_state(anyqueue::EndState::Failed)
        .with_worker("host 1")
        .with_reason("out of cheese")
        .with_errors("[\"out of milk\"]")
        .with_ran(Duration::from_micros(1_500_001))
        .with_result("half of it");
    c.ok(Clause::EndStored, "a report", held.report(report))?;
    c.settle(&mut held, Status::Processed).await?;
    let task = ended(c, &queue, &p, id).await?;
    let texts = [&task.task_id, &task.session_id, &task.kind, &task.worker, &task.reason, &task.errors];
    let texts = texts.map(|text| text.as_deref().unwrap_or("nothing").to_owned());
    let expected = ["order 7", "customer 3", "mail", "host 1", "out of cheese", "[\"out of milk\"]"];
    c.equal(Clause::EndStored, &[id], "the texts", &expected.map(str::to_owned), &texts)?;
    let seen = (task.state, task.attempt, task.ran, task.result.as_deref());
    let ran = Some(Duration::from_micros(1_500_001));
    let expected = (TaskState::Failed, 3, ran, Some(&b"half of it"[..]));
    c.equal(Clause::EndStored, &[id], "state, attempt, run and result", &expected, &seen)?;
    let trace = task.trace.as_deref().unwrap_or_default().contains("0af7651916cd43dd8448eb211c80319c");
    c.check(Clause::EndStored, &[id], trace, "the pusher's trace", format!("{:?}", task.trace))?;
    c.check(Clause::EndStored, &[id], task.message.is_none(), "no message", format!("{:?}", task.message))
}

/// The largest results come back byte for byte; one beyond that is refused, and the task still held.
async fn results(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    for size in [0, 1, MAX_RESULT_BYTES] {
        c.store(&queue, &p, vec![c.message()]).await?;
        let mut held = c.hold_one(&queue, &p).await?;
        let too_large = TaskReport::new().with_result(vec![0; MAX_RESULT_BYTES + 1]);
        let refused = held.report(too_large);
        c.error(Clause::Limits, "a result beyond the limit", ErrorKind::TooLarge, &refused)?;
        let result: Vec<u8> = (0..=250).cycle().take(size).collect();
        c.ok(Clause::EndStored, "a report", held.report(TaskReport::new().with_result(result.clone())))?;
        c.settle(&mut held, Status::Processed).await?;
        let seen = ended(c, &queue, &p, held.id()).await?.result;
        let told = format!("{:?} bytes, or others", seen.as_ref().map(|seen| seen.len()));
        let right = seen.is_some_and(|seen| seen == result);
        c.check(Clause::EndStored, &[held.id()], right, format!("the {size} bytes of the result"), told)?;
    }
    let all = listed(c, &queue, &p, TaskFilter::new()).await?;
    let bare = all.iter().all(|task| task.result.is_none());
    c.check(
        Clause::EndedTold,
        &[],
        bare && all.len() == 3,
        "three in the list, without results",
        format!("{all:?}"),
    )
}

/// Who waits for a task sees the end that another client settles, soon, with its result.
async fn wait_for(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    let other = keeping(c, &c.fresh().await?, Keep::default())?;
    for by in [&other, &queue] {
        let ids = c.store(&queue, &p, vec![c.message()]).await?;
        let Some(id) = ids.first().copied() else { break };
        let waiting = async {
            let task = queue.wait_for(&p, id, MINUTE).await;
            (task, Instant::now())
        };
        let working = async {
            let mut held = c.hold_one(by, &p).await?;
            tokio::time::sleep(Duration::from_millis(30)).await; // so that the other one waits by then
            c.ok(Clause::EndStored, "a report", held.report(TaskReport::new().with_result("done")))?;
            c.settle(&mut held, Status::Processed).await?;
            CaseResult::Ok(Instant::now())
        };
        let ((task, at), settled) = join(waiting, working).await;
        let task = c.ok(Clause::EndedTold, "waiting for a task", task)?;
        let seen = task.map(|task| (task.state, task.result));
        let expected = Some((TaskState::Succeeded, Some(b"done".as_slice().into())));
        c.equal(Clause::EndedTold, &[id], "state and result", &expected, &seen)?;
        let took = at.saturating_duration_since(settled?);
        let bounds = (Duration::ZERO, LOOK + c.timing().soon);
        c.took(Clause::EndedTold, &[id], "the end to be seen", took, bounds)?;
    }
    Ok(())
}

/// A wait that is over returns the task as it stands, and nothing of a task that nobody knows.
async fn wait_is_over(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    let ids = c.store(&queue, &p, vec![c.message()]).await?;
    for (id, expected) in [(ids.first().copied(), Some(TaskState::Queued)), (Some(MessageId::new()), None)] {
        let Some(id) = id else { continue };
        let waited = queue.wait_for(&p, id, Duration::from_millis(30)).await;
        let seen = c.ok(Clause::EndedTold, "waiting for a task", waited)?.map(|task| task.state);
        c.equal(Clause::EndedTold, &[id], "the state", &expected, &seen)?;
    }
    let mut held = c.hold(&queue, &p, 1).await?;
    c.processed(&queue, &mut held).await
}

/// How long an end is kept says the task, else the partition, else the queue; for no time: it is not stored.
async fn keep(c: &Context) -> CaseResult {
    let (hour, minute) = (Duration::from_hours(1), MINUTE);
    let own = c.long_options().with_keep(Keep::all(Some(hour)));
    let queue =
        c.queue_over(c.client(), |builder| builder.ledger(Keep::all(Some(minute))).partition("own", own))?;
    let cases = [
        ("other", None, Some(Some(minute))),
        ("own", None, Some(Some(hour))),
        ("own", Some("5m"), Some(Some(Duration::from_mins(5)))),
        ("own", Some("forever"), Some(None)),
        ("own", Some("0s"), None),
    ];
    for (place, says, expected) in cases {
        let p = c.partition(place)?;
        let message = match says {
            Some(says) => c.message().with_header(header::TASK_KEEP_SUCCESS, says),
            None => c.message(),
        };
        let before = stored(c, &p).await?;
        c.store(&queue, &p, vec![message]).await?;
        let mut held = c.hold_one(&queue, &p).await?;
        c.settle(&mut held, Status::Processed).await?;
        let task = task(c, &queue, &p, held.id()).await?;
        let seen = task.map(|task| {
            let ended_at = task.ended_at?;
            task.expires_at.and_then(|expires| expires.duration_since(ended_at).ok())
        });
        c.equal(Clause::EndStored, &[held.id()], &format!("kept where {says:?} is said:"), &expected, &seen)?;
        let more = stored(c, &p).await? - before;
        c.equal(Clause::EndStored, &[held.id()], "stored:", &usize::from(expected.is_some()), &more)?;
    }
    Ok(())
}

/// When its time is over nothing is known of a task, and its place can be freed.
async fn lapses(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let keep = Duration::from_millis(200);
    let queue = keeping(c, c.client(), Keep::all(Some(keep)))?;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(end(c, &queue, &p, Status::Processed).await?);
    }
    tokio::time::sleep(keep + crate::context::CLOCK_GRAIN).await;
    for id in &ids {
        state(c, &queue, &p, *id, None).await?;
    }
    let all = listed(c, &queue, &p, TaskFilter::new()).await?;
    c.check(Clause::EndedTold, &ids, all.is_empty(), "no task", format!("{all:?}"))?;
    let count = c.ok(Clause::EndedTold, "a count", queue.count_tasks(&p, &TaskFilter::new(), MANY).await)?;
    c.equal(Clause::EndedTold, &ids, "the count", &TaskCount { value: 0, exact: true }, &count)?;
    let purged = c.ok(Clause::EndsRemoved, "a purge", queue.purge_ended(MANY).await)?;
    c.check(Clause::EndsRemoved, &ids, purged <= 3, "at most three purged", purged.to_string())?;
    let again = c.ok(Clause::EndsRemoved, "a purge", queue.purge_ended(MANY).await)?;
    c.equal(Clause::EndsRemoved, &ids, "purged after that:", &0, &again)
}

/// What expires while it waits has timed out.
async fn expired(c: &Context) -> CaseResult {
    let (p, queue, t) = (c.partition("work")?, queue(c)?, c.timing());
    let message = c.message().with_time_to_live(t.delay).with_task_id("too late");
    let id = message.id();
    c.store(&queue, &p, vec![message]).await?;
    tokio::time::sleep(t.delay + t.slack).await;
    let got = c.ok(Clause::Expiry, "a pull", queue.pull(&p).wait(t.slack).await)?;
    c.check(Clause::Expiry, &[id], got.is_empty(), "nothing that has expired", format!("{got:?}"))?;
    let waited = c.ok(Clause::EndedTold, "waiting for a task", queue.wait_for(&p, id, t.soon).await)?;
    let seen = waited.map(|task| (task.state, task.attempt, task.task_id));
    let expected = Some((TaskState::TimedOut, 0, Some("too late".into())));
    c.equal(Clause::EndStored, &[id], "state, attempt and name", &expected, &seen)
}

/// What is cancelled while it waits has ended so; what is held ends as its holder says; what nobody knows leaves nothing.
async fn cancelled(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&queue, &p).await?;
    let waiting = c.message().with_task_id("t");
    let ids = [waiting.id(), held.id(), MessageId::new()];
    c.store(&queue, &p, vec![waiting]).await?;
    let outcomes = c.ok(Clause::EndsRemoved, "a cancellation", queue.request_cancel(&p, &ids).await)?;
    let outcomes: anyqueue::Result<Vec<_>> = outcomes.into_iter().collect();
    let outcomes = c.ok(Clause::EndsRemoved, "a cancellation", outcomes)?;
    let expected = vec![CancelOutcome::Removed, CancelOutcome::Requested, CancelOutcome::NotFound];
    c.equal(Clause::EndsRemoved, &ids, "the outcomes", &expected, &outcomes)?;
    let [waiting, ..] = ids;
    let seen = ended(c, &queue, &p, waiting).await?;
    c.equal(Clause::EndsRemoved, &[waiting], "the state", &TaskState::Cancelled, &seen.state)?;
    if c.capabilities().inspect.browse {
        c.equal(Clause::EndsRemoved, &[waiting], "its name", &Some("t"), &seen.task_id.as_deref())?;
    }
    c.equal(Clause::EndsRemoved, &ids, "how many ends are stored:", &1, &stored(c, &p).await?)?;
    c.settle(&mut held, Status::Processed).await?;
    state(c, &queue, &p, held.id(), Some(TaskState::Succeeded)).await?;
    c.client().nothing(&p, c.timing().slack, Clause::Deletion, "nothing of what was cancelled").await
}

/// Lists, counts and deletions by a filter mean the same tasks.
async fn filters(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    let n = c.size(24, 260);
    let messages = c.messages(n, |at, message| {
        let kind = if at % 2 == 0 { "even" } else { "odd" };
        message.with_header(header::TASK_KIND, kind).with_task_id(format!("t{}", at % 5))
    });
    c.store(&queue, &p, messages).await?;
    for mut held in c.hold(&queue, &p, n).await? {
        let even = held.message().headers().get(header::TASK_KIND).is_some_and(|kind| kind == "even");
        let status = if even { Status::Processed } else { Status::Cancelled };
        c.settle(&mut held, status).await?;
    }
    let all = || TaskFilter::new();
    let every = listed(c, &queue, &p, all()).await?;
    c.equal(Clause::EndedTold, &[], "how many are listed:", &n, &every.len())?;
    let middle = every.get(n / 2).and_then(|task| task.ended_at).unwrap_or(std::time::UNIX_EPOCH);
    let filters = [
        all(),
        all().in_state(TaskState::Succeeded),
        all().in_state(TaskState::Cancelled).in_state(TaskState::TimedOut),
        all().in_state(TaskState::TimedOut),
        all().since(middle),
        all().before(middle),
        all().of_kind("odd"),
        all().of_kind("even").in_state(TaskState::Cancelled),
        all().with_task_id_prefix("t3").since(middle),
    ];
    for filter in filters {
        let expected: Vec<_> = every.iter().filter(|task| filter.matches(task)).map(|task| task.id).collect();
        let seen: Vec<_> = listed(c, &queue, &p, filter.clone()).await?.iter().map(|task| task.id).collect();
        c.equal(Clause::EndedTold, &[], &format!("listed for {filter:?}:"), &expected, &seen)?;
        let count = c.ok(Clause::EndedTold, "a count", queue.count_tasks(&p, &filter, MANY).await)?;
        let exact = TaskCount { value: expected.len() as u64, exact: true };
        c.equal(Clause::EndedTold, &[], &format!("counted for {filter:?}:"), &exact, &count)?;
    }
    let odd = all().of_kind("odd");
    for (limit, expected) in [(1, 1), (MANY, n as u64 / 2 - 1), (MANY, 0)] {
        let deleted = queue.delete_ended(&p, &odd, limit).await;
        let deleted = c.ok(Clause::EndsRemoved, "a deletion", deleted)?;
        c.equal(Clause::EndsRemoved, &[], &format!("deleted, up to {limit}:"), &expected, &deleted)?;
    }
    let left = listed(c, &queue, &p, all()).await?;
    let right = left.len() == n.div_ceil(2) && left.iter().all(|task| task.kind.as_deref() == Some("even"));
    c.check(Clause::EndsRemoved, &[], right, "the even ones left", format!("{} are", left.len()))
}

/// Tasks that end at once, their settlements joined, have each its own result.
async fn many_at_once(c: &Context) -> CaseResult {
    let (p, queue, n) = (c.partition("work")?, queue(c)?, c.size(120, 1000));
    let ids = c.store(&queue, &p, c.messages(n, |_, message| message)).await?;
    let held = c.hold(&queue, &p, n).await?;
    let settling = held.into_iter().map(|mut held| async move {
        let result = format!("of {}", held.id());
        c.ok(Clause::EndStored, "a report", held.report(TaskReport::new().with_result(result)))?;
        let answer = held.settle(Status::Processed).await;
        let right = matches!(answer, Ok(SettleOutcome::Settled));
        c.check(Clause::SettleOutcomes, &[held.id()], right, "Settled", format!("{answer:?}"))
    });
    futures_util::future::join_all(settling).await.into_iter().collect::<CaseResult>()?;
    for id in &ids {
        let task = ended(c, &queue, &p, *id).await?;
        let expected = format!("of {id}");
        c.equal(
            Clause::EndStored,
            &[*id],
            "its own result",
            &Some(expected.as_bytes()),
            &task.result.as_deref(),
        )?;
    }
    c.equal(Clause::EndStored, &[], "how many ends are stored:", &n.min(1000), &stored(c, &p).await?)
}

/// What is taken out of the dead letters leaves no end: it had died before.
async fn dead_letters(c: &Context) -> CaseResult {
    let (p, queue) = (c.partition("work")?, queue(c)?);
    end(c, &queue, &p, Status::poisonous("of no use")).await?;
    let dead = p.dead_letters();
    let mut held = c.hold(&queue, &dead, 1).await?;
    c.processed(&queue, &mut held).await?;
    c.equal(Clause::EndStored, &[], "how many ends are stored:", &0, &stored(c, &p).await?)
}

/// A queue that was not asked to keep ends stores none, and reads those that others keep.
async fn not_asked_for(c: &Context) -> CaseResult {
    let (p, plain, keeps) = (c.partition("work")?, c.queue()?, queue(c)?);
    c.store(&plain, &p, vec![c.message()]).await?;
    let mut held = c.hold_one(&plain, &p).await?;
    c.ok(Clause::EndStored, "a report", held.report(TaskReport::new().with_result("forgotten")))?;
    c.settle(&mut held, Status::Processed).await?;
    c.equal(Clause::EndStored, &[held.id()], "how many ends are stored:", &0, &stored(c, &p).await?)?;
    state(c, &plain, &p, held.id(), None).await?;
    let kept = end(c, &keeps, &p, Status::Processed).await?;
    state(c, &plain, &p, kept, Some(TaskState::Succeeded)).await
}

/// Where a ledger is not declared each of its calls is refused, and so is a queue that keeps ends.
async fn undeclared(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let storage: Arc<dyn Storage> = Altered::new(c.client().storage(), |declared| declared.ledger = None);
    let kind = ErrorKind::Unsupported;
    let keeping = Queue::builder(storage.clone()).ledger(Keep::default()).build();
    c.error(Clause::Unsupported, "a queue that keeps ends", kind, &keeping.map(drop))?;
    let options = PartitionOptions::default().with_lease(c.timing().long_lease);
    let queue = c.ok(Clause::Unsupported, "a queue", Queue::builder(storage).defaults(options).build())?;
    let succeeded = TaskFilter::new().in_state(TaskState::Succeeded);
    c.error(Clause::Unsupported, "a list of ends", kind, &queue.tasks(&p, succeeded.clone()).map(drop))?;
    c.error(Clause::Unsupported, "a count of ends", kind, &queue.count_tasks(&p, &succeeded, 10).await)?;
    c.error(Clause::Unsupported, "a deletion of ends", kind, &queue.delete_ended(&p, &succeeded, 10).await)?;
    c.error(Clause::Unsupported, "a purge of ends", kind, &queue.purge_ended(10).await)?;
    let ids = c.store(&queue, &p, vec![c.message()]).await?;
    let mut held = c.hold(&queue, &p, 1).await?;
    c.processed(&queue, &mut held).await?;
    if c.capabilities().inspect.browse {
        for id in ids {
            state(c, &queue, &p, id, None).await?;
        }
    }
    if c.capabilities().ledger.is_some() {
        c.equal(Clause::Unsupported, &[], "how many ends are stored:", &0, &stored(c, &p).await?)?;
    }
    Ok(())
}
