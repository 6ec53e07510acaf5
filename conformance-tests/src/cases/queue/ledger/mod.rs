//! The ledger through the portable queue: the state of a task, how it ended, and for how long that is kept.

pub(super) mod told;

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{EndedQuery, Storage};
use anyqueue::{
    Amend, ErrorKind, Keep, MAX_RESULT_BYTES, MessageId, Page, PartitionId, PartitionOptions, Queue,
    QueueMessageStatus as Status, Task, TaskFilter, TaskReport, TaskState, header,
};
use futures_util::TryStreamExt as _;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Altered, Client, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Queue, "queue_ledger.states", [EndStored, EndedTold], states)
        .needs(&[Need::Ledger, Need::Browse, Need::PushDelay])
        .kills(&[Fault::EndsForgotten, Fault::EndLate]),
    case!(Queue, "queue_ledger.only_ends", [EndStored], only_ends)
        .needs(&[Need::Ledger, Need::Browse])
        .kills(&[Fault::EndsForgotten]),
    case!(Queue, "queue_ledger.reports", [EndStored], reports).needs(NEEDS).kills(&[
        Fault::EndResultForgotten,
        Fault::EndRanInMillis,
        Fault::EndKindForgotten,
        Fault::EndAttemptForgotten,
        Fault::EndErrorsForgotten,
    ]),
    case!(Queue, "queue_ledger.results", [EndStored, Limits], results).needs(NEEDS).kills(&[
        Fault::EndResultCut,
        Fault::EndResultEmpty,
        Fault::EndResultAsText,
    ]),
    case!(Queue, "queue_ledger.dead_letters", [EndStored, DeadLetters], dead_letters)
        .needs(NEEDS)
        .kills(&[Fault::DeadVanish]),
    case!(Queue, "queue_ledger.not_asked_for", [EndStored], not_asked_for)
        .needs(NEEDS)
        .kills(&[Fault::EndUnasked]),
    case!(Queue, "queue_ledger.undeclared", [Unsupported], undeclared).kills(&[Fault::EndUnasked]),
];

const NEEDS: &[Need] = &[Need::Ledger];
const MINUTE: Duration = Duration::from_mins(1);

/// How late [`Queue::wait_for`] may see the end that another client settled.
const LOOK: Duration = Duration::from_millis(500);

/// More than any of these cases counts.
const MANY: u64 = 1_000_000;

/// Creates a queue over this client that keeps the ends of tasks.
fn keeping(c: &Context, client: &Client, keep: Keep) -> CaseResult<Queue> {
    c.queue_over(client, |builder| builder.ledger(keep))
}

fn queue(c: &Context) -> CaseResult<Queue> {
    keeping(c, c.client(), Keep::default())
}

/// Pushes one message, holds it, and settles it.
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

/// Returns how many ends the backend itself has, however core presents them.
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

/// Only a removed message has ended: a released one lives, and one that dies is a dead letter.
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

/// What the message says, and what its handler reports, is returned for the task when it has ended.
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

/// The largest results come back byte for byte; one byte more is refused, and the task is still held.
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
        let told = format!("{:?} bytes, or others", seen.as_ref().map(anyqueue::Bytes::len));
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

/// A message that is taken out of the dead letters leaves no end: it had died before.
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

/// If a ledger is not declared, each of its calls is refused, and so is a queue that keeps ends.
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
