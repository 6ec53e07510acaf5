//! One run of a handler, watched, and what its end means for the task.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyqueue::{Clock, Delivery, EndState, QueueMessageStatus};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, CatchUnwind};
use tracing::Instrument;

use crate::context::{Role, TaskContext};
use crate::error::{ErrorClass, TaskResult};
use crate::handler::{Route, Run};
use crate::panics;
use crate::permits::{Admission, Permit};
use crate::settle::expired;
use crate::shared::{Shared, Stage};
use crate::stop::CancelReason;
use crate::summary::Outcome;
use crate::work::{Decision, Done, Verdict, Work};

/// How long a task is deferred if an earlier run of it, which lost its lease, has not ended.
pub(crate) const ALREADY_HERE: Duration = Duration::from_secs(1);

/// The run of a handler, with its panics caught.
pub(crate) type Caught<T = TaskResult> = CatchUnwind<AssertUnwindSafe<BoxFuture<'static, T>>>;

/// How a run ended.
pub(crate) enum End<T = TaskResult> {
    Returned(T),
    Panicked(String),
    /// The handler did not stop in time when asked, and was dropped; with the panic's text if it panicked
    /// then.
    Dropped(Option<String>),
    /// The payload cannot be read: the handler did not run.
    Unreadable(String),
}

/// Takes a delivery up to its settlement.
pub(crate) async fn decide(shared: Arc<Shared>, mut work: Work) -> Done {
    let (decision, attempts) = match &work.verdict {
        Verdict::Run(route) => {
            let route = route.clone();
            attempt(&shared, &mut work, &route).await
        }
        Verdict::End(status, outcome) => (Decision::settle(status.clone(), *outcome), 0),
    };
    work.permit.settling();
    Done { work, decision, attempts }
}

/// Runs the handler once. Returns how to settle the delivery, and the number of this attempt.
async fn attempt(shared: &Shared, work: &mut Work, route: &Route) -> (Decision, u32) {
    if let Some(decision) = unstartable(shared, work) {
        return (decision, 0);
    }
    if let Some(decision) = admit(shared, work).await {
        return (decision, 0);
    }
    let delivery = &work.delivery;
    let clock = shared.queue.clock();
    let begin = clock.now();
    let attempt = shared.attempts(delivery).saturating_add(1);
    let limit = shared.timeout(work.permit.partition, route, delivery.message());
    let deadline = limit.and_then(|limit| begin.checked_add(limit));
    let retries = shared.retries(work.permit.partition, route, delivery.message());
    let task = TaskContext::new(&shared.queue, delivery, (attempt, retries), deadline, Role::Alone);
    if !work.permit.list(task.clone()) {
        let status = shared.deferred(ALREADY_HERE);
        return (Decision::settle(status, Outcome::Deferred), 0);
    }
    work.series.started((attempt == 1).then(|| waited(delivery, begin - work.claimed_at)));
    let span = tracing::info_span!(
        "anyqueue.task",
        partition = %task.partition(),
        kind = task.kind(),
        id = %task.id(),
        attempt,
        traceparent = task.message().headers().get(anyqueue::header::TRACEPARENT),
    );
    let end = run(shared, work, route, &task).instrument(span).await;
    let took = clock.now().saturating_duration_since(begin);
    work.series.ran(took);
    let decision = conclude(shared, work.permit.partition, delivery, route, &task, end);
    (decision.of_attempt(attempt, took), attempt)
}

/// Asks the limits that depend on the message. If the task has to wait, returns how to postpone it.
pub(crate) async fn admit(shared: &Shared, work: &mut Work) -> Option<Decision> {
    let permits = shared.config.permits.as_ref().filter(|permits| permits.looks_at_messages())?;
    match permits.admit(work.delivery.message()).await {
        Admission::Open(tickets) => {
            work.permit.keep(tickets);
            unstartable(shared, work) // that may have taken its time
        }
        Admission::Closed(delay) => Some(Decision::settle(shared.deferred(delay), Outcome::Deferred)),
    }
}

/// If a task can no longer start, returns how to end it.
pub(crate) fn unstartable(shared: &Shared, work: &Work) -> Option<Decision> {
    let delivery = &work.delivery;
    let now = shared.queue.clock().now();
    // The process may have been stopped since the pull, and then the heartbeat may not have noticed yet that
    // the lease is lost.
    if delivery.is_lost() || delivery.lease_until().is_none_or(|until| until <= now) {
        return Some(Decision::lost());
    }
    if expired(delivery, now.saturating_duration_since(work.claimed_at)) {
        // The next pull treats the message as the queue treats expired messages.
        return Some(Decision::settle(QueueMessageStatus::Waiting, Outcome::Deferred));
    }
    let is_cancelled = delivery.cancel_requested().is_cancelled();
    is_cancelled.then(|| cancelled("cancelled before it ran"))
}

/// The end of a task that is no longer wanted.
fn cancelled(when: &str) -> Decision {
    let decision = Decision::settle(QueueMessageStatus::Cancelled, Outcome::Cancelled);
    decision.ended_as(EndState::Cancelled, when)
}

/// How long a message was ready before it ran.
pub(crate) fn waited(delivery: &Delivery, held: Duration) -> Duration {
    let delay = delivery.message().delay(delivery.received_at());
    delivery.age().saturating_sub(delay) + held
}

async fn run(shared: &Shared, work: &Work, route: &Route, task: &TaskContext) -> End {
    let start = || route.start(work.delivery.payload_bytes(), task, &shared.config.wraps);
    match panics::caught(start) {
        Ok(Ok(run)) => watch(shared, work, task, run).await,
        Ok(Err(unreadable)) => End::Unreadable(unreadable),
        Err(text) => End::Panicked(text),
    }
}

/// Runs the handler to its end, and asks it to stop when there is a reason.
async fn watch(shared: &Shared, work: &Work, task: &TaskContext, run: Run) -> End {
    let mut run = AssertUnwindSafe(run).catch_unwind();
    // Many handlers end at the first poll. They need no timers, and this keeps their tasks small.
    match poll_fn(|cx| Poll::Ready(Pin::new(&mut run).poll(cx))).await {
        Poll::Ready(end) => ended(run, end),
        Poll::Pending => Box::pin(watch_on(shared, work, task, run)).await,
    }
}

async fn watch_on(shared: &Shared, work: &Work, task: &TaskContext, mut run: Caught) -> End {
    let (delivery, held) = (&work.delivery, work.permit.held());
    let clock = shared.queue.clock();
    let mut stage = shared.stage.subscribe();
    // While the handler blocked its thread, the fetch loop may have asked it to stop.
    let mut drop_at = task.asked_to_stop().and_then(|asked| asked.checked_add(shared.config.cancel_grace));
    loop {
        let asked = task.cancel_reason();
        let reason = tokio::select! {
            biased;
            end = &mut run => return ended(run, end),
            () = at(clock, drop_at) => return End::Dropped(dropped(run).err()),
            () = delivery.lost().cancelled(), if asked.is_none() => CancelReason::LeaseLost,
            () = delivery.cancel_requested().cancelled(), if asked.is_none() => CancelReason::CancelRequested,
            () = at(clock, task.deadline()), if asked.is_none() => CancelReason::Timeout,
            _ = stage.wait_for(|stage| *stage == Stage::Cancelling), if asked.is_none() => CancelReason::Shutdown,
            () = work.permit.revoked(), if asked.is_none() => CancelReason::PermitLost,
        };
        task.cancel(reason);
        drop_at = drop_at.or_else(|| clock.now().checked_add(shared.grace(reason, held)));
    }
}

impl Shared {
    /// How long a handler may take to stop. If its permit is lost, others may soon have it.
    pub(crate) fn grace(&self, reason: CancelReason, held: Option<&Permit>) -> Duration {
        let of_permit =
            held.filter(|_| reason == CancelReason::PermitLost).map_or(Duration::MAX, Permit::grace);
        self.config.cancel_grace.min(of_permit)
    }
}

/// Sleeps until that moment; forever if there is none.
pub(crate) async fn at(clock: &Clock, moment: Option<Instant>) {
    match moment {
        Some(moment) => clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Turns the outcome of a run into its end.
pub(crate) fn ended<T>(run: Caught<T>, end: std::thread::Result<T>) -> End<T> {
    let end = end.map_err(panics::text);
    match (end, dropped(run)) {
        (Ok(result), Ok(())) => End::Returned(result),
        (Err(text), _) | (_, Err(text)) => End::Panicked(text),
    }
}

/// Drops what is left of a run. A panic during that must not reach the runner; the error is its text.
pub(crate) fn dropped<T>(run: Caught<T>) -> Result<(), String> {
    panics::caught(|| drop(run))
}

/// How to count a run of a work set that got past at least one item. If it failed then, the next run begins
/// with the failed item, and counts the failure.
fn how_far(end: &End, task: &TaskContext) -> Outcome {
    match (end, task.cancel_reason()) {
        (_, Some(CancelReason::Shutdown | CancelReason::PermitLost)) => Outcome::Interrupted,
        (End::Returned(Ok(())), _) => Outcome::Processed,
        _ => Outcome::Retried,
    }
}

/// What the end of a run means for the task, with the notes of its handler and its progress. A settlement
/// under a lost lease has no effect and is counted as lost.
pub(crate) fn conclude(
    shared: &Shared,
    partition: usize,
    delivery: &Delivery,
    route: &Route,
    task: &TaskContext,
    end: End,
) -> Decision {
    if !task.claim_end() {
        return Decision::lost(); // it was ended as timed out while its handler blocked its thread
    }
    let decision = without_notes(shared, partition, delivery, route, task, end);
    decision.with_log(task.log_text()).with_progress(task.progress())
}

fn without_notes(
    shared: &Shared,
    partition: usize,
    delivery: &Delivery,
    route: &Route,
    task: &TaskContext,
    end: End,
) -> Decision {
    use crate::message::FailureKind::{Failed, Panicked, TimedOut};
    let failed = |kind, class, text: &str| {
        shared.failed(partition, delivery.into(), route, task.attempt(), kind, class, text)
    };
    let is_over =
        matches!(task.cancel_reason(), Some(CancelReason::LeaseLost | CancelReason::CancelRequested));
    if let Some(cursor) = task.cursor().filter(|_| !is_over) {
        return shared.goes_on(delivery, cursor, how_far(&end, task));
    }
    match (end, task.cancel_reason()) {
        (End::Returned(Ok(())), _) => {
            let decision = Decision::settle(QueueMessageStatus::Processed, Outcome::Processed);
            decision.then(task.take_successors()).with_result(task.take_result())
        }
        (End::Unreadable(text), _) => {
            shared.unknown_task(delivery, &format!("its payload cannot be read: {text}"))
        }
        (_, Some(CancelReason::LeaseLost)) => Decision::lost(),
        (_, Some(CancelReason::Shutdown | CancelReason::PermitLost)) => {
            Decision::settle(QueueMessageStatus::Running, Outcome::Interrupted)
        }
        (_, Some(CancelReason::CancelRequested)) => cancelled("cancelled while it ran"),
        (End::Returned(Err(error)), None) => failed(Failed, error.class(), &error.to_string()),
        (End::Returned(Err(error)), Some(CancelReason::Timeout)) => {
            failed(TimedOut, error.class(), &error.to_string())
        }
        (End::Dropped(None), _) => failed(TimedOut, ErrorClass::Retry, "it ran longer than it may"),
        (End::Dropped(Some(text)), _) => {
            let text = format!("it ran longer than it may, and panicked when it was dropped: {text}");
            failed(TimedOut, ErrorClass::Retry, &text)
        }
        (End::Panicked(text), Some(CancelReason::Timeout)) => {
            failed(TimedOut, ErrorClass::Retry, &format!("it panicked: {text}"))
        }
        (End::Panicked(text), _) => failed(Panicked, ErrorClass::Retry, &text),
    }
}
