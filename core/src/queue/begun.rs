//! Settlements that were handed over and whose outcome nobody has seen yet.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::keeper::Held;
use super::settle::{Reply, SettleRequest};
use super::{Shared, runtime_gone};
use crate::error::Result;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// What became of a settlement; and of which, if one was asked for behind another.
pub(crate) struct Ended {
    pub(crate) status: Option<QueueMessageStatus>,
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
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn ended(&mut self) -> Ended {
        // What is there is taken without waiting: the answers to a batch would use up what a task may do at a time, and the
        // next call would have to be begun by another thread.
        if let Some(ended) = self.ended_already() {
            return ended;
        }
        match self {
            Self::Alone(reply) => reply.await.map_or_else(|_| Ended::gone(), Ended::alone),
            Self::Behind(told) => told.await.unwrap_or_else(|_| Ended::gone()),
        }
    }

    /// The end, if it has come.
    pub(crate) fn ended_already(&mut self) -> Option<Ended> {
        match self {
            Self::Alone(reply) => taken(reply.try_recv().map(Ended::alone)),
            Self::Behind(told) => taken(told.try_recv()),
        }
    }

    /// Lets another settlement follow this one, which was made with the status `before`.
    pub(crate) fn followed(
        mut self,
        before: QueueMessageStatus,
        status: QueueMessageStatus,
        request: SettleRequest,
        shared: &Arc<Shared>,
        held: &Arc<Held>,
    ) -> Self {
        let (say, told) = oneshot::channel();
        let (queue, held) = (shared.clone(), held.clone());
        // For `close` to wait for.
        let active = shared.active.token();
        shared.exec.spawn(async move {
            let first = self.ended().await;
            let ended = match first.answer {
                Ok(_) => Ended { status: first.status.or(Some(before)), ..first },
                // Its error is nobody's any more: the new settlement takes its place.
                Err(_) if held.is_lost() => Ended { status: Some(status), answer: Ok(SettleOutcome::Lost) },
                Err(_) => {
                    let answer = queue.hand_over(request).await.unwrap_or_else(|_| Err(runtime_gone()));
                    Ended { status: Some(status), answer }
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
        Self { status: None, answer }
    }

    fn gone() -> Self {
        Self::alone(Err(runtime_gone()))
    }
}

fn taken(received: std::result::Result<Ended, TryRecvError>) -> Option<Ended> {
    match received {
        Ok(ended) => Some(ended),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => Some(Ended::gone()),
    }
}
