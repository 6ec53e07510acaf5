//! Tasks that take longer than they may: a worker elsewhere that extends them all the same is not trusted to stop.

use std::time::{Duration, SystemTime};

use anyqueue::{EndState, ExtendOutcome, MessageData, Result, TaskReport};
use anyqueue_worker::{FailureKind, TaskError};
use futures_util::future::join_all;

use crate::app::App;
use crate::fate::failed;
use crate::held::Held;

/// For how long beyond its time a task is left to its worker, which ends it itself if it is in order: as long as a worker of this library gives a handler that it
/// has asked to stop. It also bears clocks of instances that differ a little.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Who holds tasks, and whether those whose time is over are tried again.
#[derive(Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) worker: Option<&'a str>,
    pub(crate) retries: bool,
}

/// For how long it may be held, where its pusher said so, and for how long it has been. By the time of day, since another instance may have handed it out: a
/// clock that was set back counts as no time.
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

/// Ends it as timed out, over the head of its worker, if its time is over. Nothing if it is not.
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
    // The worker itself may have settled it just now: then this changes nothing, and it has lost it all the same.
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

/// Ends those whose time is over. For each of them the answer, `Lost` or why it could not be ended; for the others nothing.
pub(crate) async fn end(app: &App, all: &[&Held], by: Holder<'_>) -> Vec<Option<Result<ExtendOutcome>>> {
    join_all(all.iter().map(|held| end_one(app, held, by))).await
}

/// Extends leases, but for those of tasks whose time is over: those are ended, and their workers have lost them.
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
