//! A stream's own pulls.
//!
//! A broker that sends what its consumers have room for works while they wait: as long as its queue is known
//! to have more, the next pulls are already in flight. Elsewhere there is one pull at a time: the other
//! deliveries come with settlements, or each pull costs a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{RwLockWriteGuard, mpsc};
use tokio::task::coop::{Unconstrained, unconstrained};

use super::source::Batch;
use crate::capabilities::{Capabilities, LeaseKind};
use crate::error::{ErrorKind, Result, RetryClass};
use crate::queue::delivery::{Delivery, HandlerFeed, Slot};

/// How long a stream's pull waits if no other is in flight. Pushes wake it; this bounds one call.
const POLL_WAIT: Duration = Duration::from_secs(20);
/// How many pulls a stream makes at once; each has at least a quarter of the window.
const MOST_PULLS: usize = 4;
/// The pause of a stream after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause of a stream after errors; the pause doubles with each error in a row.
const MAX_ERROR_PAUSE: Duration = Duration::from_secs(5);

/// Pulls for a stream until it is dropped or its queue closed.
pub(crate) async fn run(feed: Arc<HandlerFeed>, batches: mpsc::Sender<Batch<Delivery>>) {
    let clock = &feed.queue.0.caller.clock;
    let several = if is_broker(&feed.queue.0.capabilities) { MOST_PULLS } else { 1 };
    let mut pulls = FuturesUnordered::new();
    // As soon as one brings less than it asked for, several are of no use.
    let mut most = 1;
    let mut pause = ERROR_PAUSE;
    let mut paused: Option<Instant> = None;
    loop {
        let alone = pulls.is_empty();
        tokio::select! {
            biased;
            Some(pulled) = pulls.next() => {
                let Pulled { answer, room, turn: _turn } = pulled;
                match answer {
                    Ok(handlers) => {
                        most = if handlers.len() == room.len() { several } else { 1 };
                        pause = ERROR_PAUSE;
                        if !handlers.is_empty() && batches.send(Ok(feed.batch(handlers, room))).await.is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Closed => return,
                    // Of pulls that fail at the same time only one error is reported.
                    Err(error) if paused.is_some() => tracing::debug!(%error, "another pull of a stream failed"),
                    Err(error) => {
                        most = 1;
                        paused = Some(clock.now() + pause);
                        pause = (pause * 2).min(MAX_ERROR_PAUSE);
                        let last = error.retry() == RetryClass::Never && error.kind() == ErrorKind::InvalidInput;
                        if batches.send(Err(error)).await.is_err() || last {
                            return;
                        }
                    }
                }
            }
            () = clock.sleep_until(paused.unwrap_or_else(|| clock.now())), if paused.is_some() => paused = None,
            room = feed.room(alone), if paused.is_none() && pulls.len() < most => {
                let wait = if alone { POLL_WAIT } else { Duration::ZERO };
                pulls.push(heard_when_answered(pull(&feed, room, wait)));
            }
        }
    }
}

/// Processes several pulls in the order in which they return, which is that of their claims. Otherwise tokio
/// might hold back one that has returned, for the sake of other tasks, behind those that returned after it.
fn heard_when_answered<F: Future>(pull: F) -> Unconstrained<F> {
    unconstrained(pull)
}

/// Whether the server is a broker and settlements bring no deliveries.
fn is_broker(capabilities: &Capabilities) -> bool {
    !capabilities.exchange && capabilities.lease.kind == LeaseKind::Connection
}

/// The result of a pull, and the room that it was made for.
struct Pulled<'a> {
    answer: Result<Vec<Delivery>>,
    room: Vec<Slot>,
    turn: Option<RwLockWriteGuard<'a, ()>>,
}

async fn pull(feed: &Arc<HandlerFeed>, room: Vec<Slot>, wait: Duration) -> Pulled<'_> {
    let turn = if feed.queue.0.capabilities.exchange { Some(feed.turns.alone().await) } else { None };
    let terms = &feed.terms;
    let pull = feed.queue.pull(&terms.partition).max(room.len()).wait(wait);
    let answer = pull.lease(terms.lease).keep_alive(terms.keep_alive).await;
    Pulled { answer, room, turn }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use tokio::sync::oneshot;
    use tokio::task::coop;

    use super::*;

    /// Uses up the task's budget.
    async fn exhaust() {
        std::future::poll_fn(|cx| {
            while let Poll::Ready(turn) = coop::poll_proceed(cx) {
                turn.made_progress();
            }
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn answers_are_heard_in_their_order_by_a_task_that_has_done_much() {
        let (answers, asked): (Vec<_>, Vec<_>) = (0..4).map(|_| oneshot::channel()).unzip();
        let mut pulls: FuturesUnordered<_> = asked.into_iter().map(heard_when_answered).collect();
        assert!(futures_util::poll!(pulls.next()).is_pending());
        for (number, answer) in answers.into_iter().enumerate() {
            answer.send(number).unwrap();
        }
        exhaust().await;
        let mut heard = Vec::new();
        while let Some(Ok(number)) = pin!(&mut pulls).next().await {
            heard.push(number);
        }
        assert_eq!(heard, [0, 1, 2, 3]);
    }
}
