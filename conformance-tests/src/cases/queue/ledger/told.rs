//! What is returned for tasks that have ended, to whom, and until when.

use std::time::{Duration, Instant};

use anyqueue::{
    CancelOutcome, Keep, MessageId, QueueMessageStatus as Status, SettleOutcome, TaskCount, TaskFilter,
    TaskReport, TaskState, header,
};
use futures_util::future::join;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

use super::{LOOK, MANY, MINUTE, NEEDS, end, ended, keeping, listed, queue, state, stored, task};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Queue, "queue_ledger.wait_for", [EndedTold], wait_for)
        .needs(NEEDS)
        .kills(&[Fault::EndedFoundWithoutResult, Fault::EndResultForgotten]),
    case!(Queue, "queue_ledger.wait_is_over", [EndedTold], wait_is_over)
        .needs(&[Need::Ledger, Need::Browse])
        .kills(&[Fault::EndedMessageStays]),
    case!(Queue, "queue_ledger.keep", [EndStored, EndedTold], keep)
        .needs(NEEDS)
        .kills(&[Fault::EndForeverLapses, Fault::EndLapsesEarly]),
    case!(Queue, "queue_ledger.lapses", [EndedTold, EndsRemoved], lapses).needs(NEEDS).kills(&[
        Fault::LapsedListed,
        Fault::LapsedFound,
        Fault::LapsedCounted,
        Fault::EndPurgeFreesNothing,
    ]),
    case!(Queue, "queue_ledger.expired", [EndStored, Expiry], expired)
        .needs(NEEDS)
        .kills(&[Fault::EndsForgotten]),
    case!(Queue, "queue_ledger.cancelled", [EndsRemoved, Deletion], cancelled)
        .needs(&[Need::Ledger, Need::Cancel])
        .kills(&[Fault::EndsForgotten, Fault::EndLate]),
    case!(Queue, "queue_ledger.filters", [EndedTold, EndsRemoved], filters)
        .needs(NEEDS)
        .deadline(MINUTE)
        .kills(&[
            Fault::EndedSinceExclusive,
            Fault::EndedBeforeInclusive,
            Fault::EndedCountIgnoresStates,
            Fault::EndedCountIgnoresTimes,
            Fault::DeletesAllEnds,
            Fault::DeletesFirstEnd,
        ]),
    case!(Queue, "queue_ledger.many_at_once", [EndStored], many_at_once)
        .needs(NEEDS)
        .deadline(MINUTE)
        .kills(&[Fault::EndsForgotten, Fault::EndResultForgotten]),
];

/// A caller that waits for a task soon sees the end that another client settles, with its result.
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

/// When the wait is over, the call returns the task in its current state, or nothing for an unknown task.
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

/// The task, or else the partition, or else the queue determines how long an end is kept; if for no time, it
/// is not stored.
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

/// When its time is over, nothing is known about a task, and its space can be freed.
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

/// A task that expires while it waits has timed out.
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

/// A task that is cancelled while it waits has ended as cancelled; a held one ends as its holder says; an
/// unknown one leaves nothing.
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

/// Lists, counts and deletions by a filter select the same tasks.
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

/// Tasks that end at once, with joined settlements, each have their own result.
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
