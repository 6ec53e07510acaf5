//! Operations on tasks that both the requests and the pages use.

use anyqueue::{Amend, AmendOutcome, CancelOutcome, DeleteOutcome, MessageId, PartitionId, Queue, TaskState};
use anyqueue_control::limits::{LimitInfo, Scope};
use axum::http::StatusCode;

use crate::access;
use crate::noted;
use crate::problem::{Answer, Problem};

/// The problem for a task of which nothing is known.
pub(crate) fn unknown(id: MessageId) -> Problem {
    Problem::not_found(format!(
        "nothing is known of the task {id}: it was never pushed there, was deleted, or its end is not kept any more"
    ))
}

pub(crate) fn conflict(why: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, "conflict", why)
}

/// How many of the named ids are noted in the audit trail: as many as a detail has room for.
const MAX_NOTED_IDS: usize = 6;

/// Notes in the audit trail which dead letters are meant.
pub(crate) fn note_dead(ids: Option<&[MessageId]>, reason: Option<&str>) {
    if let Some(ids) = ids {
        let first: Vec<_> = ids.iter().take(MAX_NOTED_IDS).map(ToString::to_string).collect();
        let more = if ids.len() > MAX_NOTED_IDS { ", …" } else { "" };
        noted::detail("filter ids", format!("{}: {}{more}", ids.len(), first.join(", ")));
    }
    if let Some(reason) = reason {
        noted::detail("filter reason", reason);
    }
    if ids.is_none() && reason.is_none() {
        noted::detail("filter", "all");
    }
}

/// Cancels a task: `removed`, or `requested` from the worker that runs it.
pub(crate) async fn cancel(queue: &Queue, partition: &PartitionId, id: MessageId) -> Answer<&'static str> {
    match first(queue.request_cancel(partition, &[id]).await?)? {
        CancelOutcome::Removed => Ok("removed"),
        CancelOutcome::Requested => Ok("requested"),
        CancelOutcome::NotFound => Err(unknown(id)),
    }
}

/// Retries a task: `put_back` if it was dead, `due_now` if it waited for its time.
pub(crate) async fn retry(queue: &Queue, partition: &PartitionId, id: MessageId) -> Answer<&'static str> {
    let task = queue.task(partition, id).await?.ok_or_else(|| unknown(id))?;
    match task.state {
        TaskState::Failed if task.is_dead() => {
            let dead = queue.dead_letters(partition)?;
            let done = dead.redrive().filter(move |dead| dead.id() == id).limit(1).await?;
            if done.moved > 0 { Ok("put_back") } else { Err(conflict("it is no longer dead")) }
        }
        TaskState::Scheduled => {
            let outcome = first(queue.amend(partition, &[id], Amend::new().now()).await?)?;
            let is_due = outcome == AmendOutcome::Amended;
            if is_due { Ok("due_now") } else { Err(conflict("it is no longer waiting")) }
        }
        TaskState::Queued => Err(conflict("it already waits for a worker")),
        TaskState::Running => Err(conflict("a worker has it")),
        TaskState::Disabled => Err(conflict("it is disabled")),
        _ => Err(conflict("it has ended, and its message is gone: push it again")),
    }
}

/// Deletes a task's message, from the queue or else from its dead letters: `deleted`.
pub(crate) async fn delete(queue: &Queue, partition: &PartitionId, id: MessageId) -> Answer<&'static str> {
    for place in [partition.clone(), partition.dead_letters()] {
        match first(queue.delete(&place, &[id]).await?)? {
            DeleteOutcome::Deleted => return Ok("deleted"),
            DeleteOutcome::NotFound => {}
            DeleteOutcome::Leased => return Err(conflict("somebody holds it: cancel it instead")),
        }
    }
    Err(unknown(id))
}

/// Returns the only outcome.
pub(crate) fn first<T>(outcomes: Vec<anyqueue::Result<T>>) -> Answer<T> {
    let first = outcomes.into_iter().next();
    Ok(first.ok_or_else(|| Problem::busy("the backend gave no answer: try again"))??)
}

/// Whether the caller may see a limit; a limit for something unknown may concern any queue.
pub(crate) fn sees_limit(info: &LimitInfo) -> bool {
    match &info.of {
        Scope::Partition(name) => access::covers(name),
        _ => access::covers_all(),
    }
}

/// Refuses a limit of a queue that the caller may not touch.
pub(crate) fn check_limit(info: &LimitInfo) -> Answer<()> {
    if sees_limit(info) {
        Ok(())
    } else {
        Err(access::forbidden("this token is not for the queue of this limit"))
    }
}
