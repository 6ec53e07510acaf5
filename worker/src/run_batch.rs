//! One run of a batch handler, watched, and what its end means for each task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use anyqueue::QueueMessageStatus;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use crate::batch_context::BatchContext;
use crate::context::{Role, TaskContext};
use crate::error::{TaskError, TaskResult};
use crate::execute::{ALREADY_HERE, Caught, End, admit, at, conclude, dropped, ended, unstartable, waited};
use crate::handler::{BatchRun, ReadBatch, Route};
use crate::panics;
use crate::settle::settle;
use crate::shared::{Shared, Stage};
use crate::stop::CancelReason;
use crate::summary::Outcome;
use crate::work::{Decision, Done, Verdict, Work};

/// Tasks of one kind that share a slot, in the order of their group.
pub(crate) struct Batch {
    pub(crate) route: Arc<Route>,
    pub(crate) works: Vec<Work>,
}

/// A task that is part of the run.
struct Member {
    work: Work,
    task: TaskContext,
}

/// A batch that is ready to run, and the tasks that are not part of that run.
struct Prepared {
    members: Vec<Member>,
    done: Vec<Done>,
    run: Option<Result<BatchRun, String>>,
    context: BatchContext,
}

/// Runs a batch in a task of its own and settles it.
pub(crate) fn spawn(shared: &Arc<Shared>, batch: Batch) {
    let shared = shared.clone();
    tokio::spawn(async move {
        let route = batch.route.clone();
        let (batch, kept_back) = admit_all(&shared, batch).await;
        let Some(mut prepared) = prepare(&shared, batch) else {
            settle(&shared, kept_back).await;
            return;
        };
        prepared.done.extend(kept_back);
        let done = attempt(&shared, &route, prepared).await;
        if let Some(done) = done.first() {
            done.work.permit.settling();
        }
        settle(&shared, done).await;
    });
    // A thread of Tokio keeps the task that it spawned last for itself, and a handler may block that thread
    // next.
    tokio::spawn(async {});
}

/// Asks the limits that depend on the message about each task. A task that has to wait keeps back those
/// behind it.
async fn admit_all(shared: &Shared, batch: Batch) -> (Batch, Vec<Done>) {
    let Batch { route, works } = batch;
    let (mut admitted, mut done) = (Vec::with_capacity(works.len()), Vec::new());
    for mut work in works {
        let decision = match &work.verdict {
            _ if !done.is_empty() => Some(kept_back()),
            Verdict::Run(_) => admit(shared, &mut work).await,
            Verdict::End(..) => None,
        };
        match decision {
            Some(decision) => done.push(Done { work, decision, attempts: 0 }),
            None => admitted.push(work),
        }
    }
    (Batch { route, works: admitted }, done)
}

/// Sorts out which tasks can run, reads the payloads, and starts the handler. A task that has to wait keeps
/// back those behind it, so that none overtakes it. Returns `None` if there is no task.
fn prepare(shared: &Shared, batch: Batch) -> Option<Prepared> {
    let Batch { route, works } = batch;
    let first = works.first()?;
    let (partition, id) = (first.permit.partition, first.delivery.partition().clone());
    let (runnable, mut done) = sort_out(shared, works);
    let payloads = runnable.iter().map(|work| work.delivery.payload_bytes()).collect();
    let ReadBatch { readable, unreadable, start } = route.read(payloads);
    let limits = runnable
        .iter()
        .take(readable)
        .filter_map(|work| shared.timeout(partition, &route, work.delivery.message()));
    let deadline = limits.min().and_then(|limit| shared.queue.clock().now().checked_add(limit));
    let context = BatchContext::new(&shared.queue, &id, &route.kind.name, deadline);
    let mut members = Vec::with_capacity(readable);
    let mut unreadable = unreadable.filter(|_| readable == 0);
    let mut is_cut = false;
    for (position, mut work) in runnable.into_iter().enumerate() {
        if is_cut || position >= readable {
            let decision = match unreadable.take() {
                Some(text) => {
                    shared.unknown_task(&work.delivery, &format!("its payload cannot be read: {text}"))
                }
                None => kept_back(),
            };
            done.push(Done { work, decision, attempts: 0 });
            continue;
        }
        let role = if members.is_empty() { Role::First(context.clone()) } else { Role::Behind };
        let attempt = shared.attempts(&work.delivery).saturating_add(1);
        let retries = shared.retries(partition, &route, work.delivery.message());
        let task = TaskContext::new(&shared.queue, &work.delivery, (attempt, retries), deadline, role);
        if work.permit.list(task.clone()) {
            members.push(Member { work, task });
        } else {
            is_cut = true;
            let decision = Decision::settle(shared.deferred(ALREADY_HERE), Outcome::Deferred);
            done.push(Done { work, decision, attempts: 0 });
        }
    }
    let tasks: Vec<_> = members.iter().map(|member| member.task.clone()).collect();
    let run = (!tasks.is_empty()).then(|| panics::caught(|| start(tasks, context.clone())));
    Some(Prepared { members, done, run, context })
}

/// Separates the tasks that can run from those that end without running. A lost task comes again, so it keeps
/// back those behind it.
fn sort_out(shared: &Shared, works: Vec<Work>) -> (Vec<Work>, Vec<Done>) {
    let (mut runnable, mut done) = (Vec::with_capacity(works.len()), Vec::new());
    let mut is_cut = false;
    for work in works {
        let decision = match &work.verdict {
            _ if is_cut => Some(kept_back()),
            Verdict::End(status, outcome) => Some(Decision::settle(status.clone(), *outcome)),
            Verdict::Run(_) => unstartable(shared, &work),
        };
        match decision {
            Some(decision) => {
                is_cut |= decision.outcome == Outcome::Lost;
                done.push(Done { work, decision, attempts: 0 });
            }
            None => runnable.push(work),
        }
    }
    (runnable, done)
}

/// The end of a task that is behind one that has to wait.
fn kept_back() -> Decision {
    Decision::settle(QueueMessageStatus::Waiting, Outcome::Deferred)
}

/// Runs the handler once. Returns how to settle each task.
async fn attempt(shared: &Shared, route: &Route, prepared: Prepared) -> Vec<Done> {
    let Prepared { members, mut done, run, context } = prepared;
    let Some(run) = run else { return done };
    let clock = shared.queue.clock();
    let begin = clock.now();
    for Member { work, task } in &members {
        let held = begin.saturating_duration_since(work.claimed_at);
        work.series.started((task.attempt() == 1).then(|| waited(&work.delivery, held)));
    }
    let span = tracing::info_span!(
        "anyqueue.batch",
        partition = %context.partition(),
        kind = context.kind(),
        tasks = members.len(),
        id = members.first().map(|first| tracing::field::display(first.task.id())),
    );
    let end = match run {
        Ok(run) => watch(shared, &members, &context, run).instrument(span).await,
        Err(text) => End::Panicked(text),
    };
    let took = clock.now().saturating_duration_since(begin);
    let ends = ends(end, members.len());
    for (Member { work, task }, end) in members.into_iter().zip(ends) {
        work.series.ran(took);
        let decision = conclude(shared, work.permit.partition, &work.delivery, route, &task, end);
        let decision = decision.of_attempt(task.attempt(), took);
        done.push(Done { work, decision, attempts: task.attempt() });
    }
    done
}

/// Translates the end of the run into one end for each task.
fn ends(end: End<Vec<TaskResult>>, tasks: usize) -> Vec<End> {
    let all = |end: &dyn Fn() -> End| (0..tasks).map(|_| end()).collect();
    match end {
        End::Returned(results) if results.len() == tasks => results.into_iter().map(End::Returned).collect(),
        End::Returned(results) => {
            let text = format!("the batch handler returned {} results for {tasks} tasks", results.len());
            all(&|| End::Returned(Err(TaskError::retry(text.clone()))))
        }
        End::Panicked(text) => all(&|| End::Panicked(text.clone())),
        End::Dropped(text) => all(&|| End::Dropped(text.clone())),
        End::Unreadable(text) => all(&|| End::Unreadable(text.clone())),
    }
}

/// Runs the handler to its end, and asks it to stop when there is a reason.
async fn watch(
    shared: &Shared,
    members: &[Member],
    batch: &BatchContext,
    run: BatchRun,
) -> End<Vec<TaskResult>> {
    let mut run: Caught<Vec<TaskResult>> = AssertUnwindSafe(run).catch_unwind();
    let clock = shared.queue.clock();
    let mut stage = shared.stage.subscribe();
    let held = members.first().and_then(|first| first.work.permit.held());
    let mut gone: FuturesUnordered<_> = members.iter().map(gone).collect();
    let mut revoked: FuturesUnordered<_> =
        members.iter().map(|member| member.work.permit.revoked()).collect();
    // While the handler blocked its thread, the fetch loop may have asked it to stop.
    let mut drop_at = batch.asked_at().and_then(|asked| asked.checked_add(shared.config.cancel_grace));
    loop {
        let asked = batch.cancel_reason();
        let reason = tokio::select! {
            biased;
            end = &mut run => return ended(run, end),
            () = at(clock, drop_at) => return End::Dropped(dropped(run).err()),
            Some((task, reason)) = gone.next() => {
                task.cancel(reason);
                if !gone.is_empty() {
                    continue; // the others are still worth the work
                }
                reason
            }
            () = at(clock, batch.deadline()), if asked.is_none() => CancelReason::Timeout,
            _ = stage.wait_for(|stage| *stage == Stage::Cancelling), if asked.is_none() => CancelReason::Shutdown,
            Some(()) = revoked.next(), if asked.is_none() => CancelReason::PermitLost,
        };
        batch.cancel(reason);
        for member in members {
            member.task.cancel(reason);
        }
        drop_at = drop_at.or_else(|| clock.now().checked_add(shared.grace(reason, held)));
    }
}

/// Waits until this one task is no longer worth doing.
async fn gone(member: &Member) -> (&TaskContext, CancelReason) {
    let delivery = &member.work.delivery;
    let reason = tokio::select! {
        biased;
        () = delivery.lost().cancelled() => CancelReason::LeaseLost,
        () = delivery.cancel_requested().cancelled() => CancelReason::CancelRequested,
    };
    (&member.task, reason)
}
