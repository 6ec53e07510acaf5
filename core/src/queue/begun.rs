//! Settlements that were handed over and whose outcome has not been collected yet.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::keeper::Held;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::message::MessageId;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// Where the outcome of a settlement arrives. If this is dropped, the settlement is completed all the same.
pub(crate) type Reply = oneshot::Receiver<Result<SettleOutcome>>;

/// What a settlement asks for: asking for the same again returns the same outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) status: QueueMessageStatus,
    pub(super) successors: Box<[MessageId]>,
}

impl From<QueueMessageStatus> for Wanted {
    fn from(status: QueueMessageStatus) -> Self {
        Self { status, successors: Box::default() }
    }
}

/// The outcome of a settlement; and of which one, if another was asked for behind it.
pub(crate) struct Ended {
    pub(super) wanted: Option<Wanted>,
    pub(crate) answer: Result<SettleOutcome>,
}

/// A settlement of a delivery in flight.
pub(crate) enum Begun {
    Alone(Reply),
    /// One after the other: the second is sent only if the first fails, and even if nobody waits for it any
    /// more.
    Behind(oneshot::Receiver<Ended>),
}

impl Begun {
    /// Waits for the outcome.
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut) if nobody drives the queue's runtime. The outcome may still arrive.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub(crate) async fn ended(&mut self, shared: &Shared) -> Result<Ended> {
        // If the outcome is there, take it without waiting: awaiting the outcomes of a batch would use up the
        // task's budget, and another thread would have to begin the next call.
        if let Some(ended) = self.ended_already() {
            return Ok(ended);
        }
        let ended = match self {
            Self::Alone(reply) => shared.exec.answer(reply).await.map(Ended::alone),
            Self::Behind(told) => shared.exec.answer(told).await,
        };
        let stamp = |error: Error| shared.stamp(error, Operation::Settle);
        match ended {
            Err(error) if error.kind() != ErrorKind::TimedOut => Ok(Ended::alone(Err(stamp(error)))),
            ended => ended.map_err(stamp),
        }
    }

    /// Returns the outcome, if it has arrived.
    pub(crate) fn ended_already(&mut self) -> Option<Ended> {
        match self {
            Self::Alone(reply) => reply.try_recv().map(Ended::alone).ok(),
            Self::Behind(told) => told.try_recv().ok(),
        }
    }

    /// Lets another settlement follow this one, which asked for `before`; `hand_over` hands over the other.
    pub(super) fn followed(
        mut self,
        before: Wanted,
        wanted: Wanted,
        hand_over: impl FnOnce(&Shared) -> Reply + Send + 'static,
        shared: &Arc<Shared>,
        held: &Arc<Held>,
    ) -> Self {
        let (say, told) = oneshot::channel();
        let (queue, held) = (shared.clone(), held.clone());
        // For `close` to wait for.
        let active = shared.active.token();
        shared.exec.spawn(async move {
            let first = self.ended(&queue).await.unwrap_or_else(|error| Ended::alone(Err(error)));
            let ended = match first.answer {
                Ok(_) => Ended { wanted: first.wanted.or(Some(before)), ..first },
                // Nobody needs its error any more: the new settlement takes its place.
                Err(_) if held.is_lost() => Ended { wanted: Some(wanted), answer: Ok(SettleOutcome::Lost) },
                Err(_) => {
                    let mut reply = hand_over(&queue);
                    let answer = queue.exec.answer(&mut reply).await.unwrap_or_else(Err);
                    Ended { wanted: Some(wanted), answer }
                }
            };
            // Its handler may be gone; the settlement was completed all the same.
            let _ = say.send(ended);
            drop(active);
        });
        Self::Behind(told)
    }
}

impl Ended {
    fn alone(answer: Result<SettleOutcome>) -> Self {
        Self { wanted: None, answer }
    }
}
