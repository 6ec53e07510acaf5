//! Settlements that were handed over and whose outcome nobody has seen yet.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::keeper::Held;
use super::shared::Shared;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::message::MessageId;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// Where the outcome of a settlement arrives. Dropped, the settlement is carried through all the same.
pub(crate) type Reply = oneshot::Receiver<Result<SettleOutcome>>;

/// What a settlement asks for: who asks for the same again is told the same.
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

/// What became of a settlement; and of which, if one was asked for behind another.
pub(crate) struct Ended {
    pub(super) wanted: Option<Wanted>,
    pub(crate) answer: Result<SettleOutcome>,
}

/// A delivery's settlement under way.
pub(crate) enum Begun {
    Alone(Reply),
    /// One after the other: the second is sent only if the first fails, and also if nobody waits for it any more.
    Behind(oneshot::Receiver<Ended>),
}

impl Begun {
    /// Waits for the end.
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut) if nobody drives the queue's runtime. The end may still come.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn ended(&mut self, shared: &Shared) -> Result<Ended> {
        // What is there is taken without waiting: the answers to a batch would use up what a task may do at a time, and the
        // next call would have to be begun by another thread.
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

    /// The end, if it has come.
    pub(crate) fn ended_already(&mut self) -> Option<Ended> {
        match self {
            Self::Alone(reply) => reply.try_recv().map(Ended::alone).ok(),
            Self::Behind(told) => told.try_recv().ok(),
        }
    }

    /// Lets another settlement follow this one, which asked for `before`; `hand_over` hands it over.
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
                // Its error is nobody's any more: the new settlement takes its place.
                Err(_) if held.is_lost() => Ended { wanted: Some(wanted), answer: Ok(SettleOutcome::Lost) },
                Err(_) => {
                    let mut reply = hand_over(&queue);
                    let answer = queue.exec.answer(&mut reply).await.unwrap_or_else(Err);
                    Ended { wanted: Some(wanted), answer }
                }
            };
            // Its handler may be gone: it was carried through all the same.
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
