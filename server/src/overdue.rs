//! Tasks that take longer than they may: a worker elsewhere that keeps extending them is not trusted to stop.

use std::time::{Duration, SystemTime};

use anyqueue::{EndState, ExtendOutcome, MessageData, Result, TaskReport};
use anyqueue_worker::{FailureKind, TaskError};
use futures_util::future::join_all;

use crate::app::App;
use crate::fate::failed;
use crate::held::Held;

/// How long a task is left to its worker after its time is over; a worker in good order ends it itself. It is
/// as long as a worker of this library gives a handler that it has asked to stop, and it tolerates clocks of
/// instances that differ a little.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Who holds the tasks, and whether tasks whose time is over are retried.
#[derive(Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) worker: Option<&'a str>,
    pub(crate) retries: bool,
}

/// Returns how long the task may be held, if its pusher set a limit, and how long it has been held. Uses the
/// time of day, since another instance may have handed it out: if the clock was set back, no time has passed.
async fn times(app: &App, held: &Held) -> Option<(Duration, Duration)> {
    let of = |message: &MessageData, received: SystemTime| {
        let most = message.options().max_duration?;
        Some((most, app.queue.clock().wall().duration_since(received).unwrap_or_default()))
    };
    match held {
        Held::Detached(delivery) => of(delivery.message_without_payload(), delivery.received_at()),
        Held::Pinned(pin) => {
            let pinned = app.pins.get(*pin)?;
            let delivery = pinned.lock().await;
            of(delivery.message(), delivery.received_at())
        }
    }
}

/// Ends the task as timed out, without its worker, if its time is over. Otherwise returns `None`.
async fn end_one(app: &App, held: &Held, by: Holder<'_>) -> Option<Result<ExtendOutcome>> {
    let (most, has_run) = times(app, held).await?;
    if has_run <= most.saturating_add(GRACE) {
        return None;
    }
    let text = format!("it ran for longer than {}", humantime::format_duration(most));
    let error = if by.retries { TaskError::retry(text) } else { TaskError::permanent(text) };
    let (status, attempt) = failed(app, held, FailureKind::TimedOut, &error).await;
    let mut report = TaskReport::new().with_state(EndState::TimedOut).with_attempt(attempt);
    if let Some(worker) = by.worker {
        report = report.with_worker(worker);
    }
    // The worker itself may have settled it just now: then this changes nothing, and the worker has lost it
    // all the same.
    let settled = app.settle(held, status, report).await;
    if settled.is_ok() {
        tracing::warn!(
            worker = by.worker,
            ?most,
            "a task ran for longer than it may, and was ended without its worker"
        );
    }
    Some(settled.map(|_| ExtendOutcome::Lost))
}

/// Ends the tasks whose time is over. Returns for each of them `Lost`, or why it could not be ended, and
/// `None` for the others.
pub(crate) async fn end(app: &App, all: &[&Held], by: Holder<'_>) -> Vec<Option<Result<ExtendOutcome>>> {
    join_all(all.iter().map(|held| end_one(app, held, by))).await
}

/// Extends the leases, except for tasks whose time is over: those are ended, and their workers have lost
/// them.
pub(crate) async fn extend(
    app: &App,
    all: &[(&Held, Duration)],
    by: Holder<'_>,
) -> Vec<Result<ExtendOutcome>> {
    let held: Vec<&Held> = all.iter().map(|(held, _)| *held).collect();
    let ended = end(app, &held, by).await;
    let others: Vec<(&Held, Duration)> =
        all.iter().zip(&ended).filter(|(_, ended)| ended.is_none()).map(|(one, _)| *one).collect();
    let mut extended = app.extend(&others).await.into_iter();
    ended
        .into_iter()
        .map(|ended| ended.unwrap_or_else(|| extended.next().unwrap_or(Ok(ExtendOutcome::Lost))))
        .collect()
}
