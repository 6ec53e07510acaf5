//! What a partition's task is asked for, and what a pull among that is answered.

use std::time::Instant;

use anyqueue::adapter::Delivery;
use anyqueue::{MessageId, Result};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::record::Record;
use crate::token::Tag;

/// What a task is asked for.
pub(crate) enum Command {
    /// A pull.
    Pull(WaitingPull),
    /// A pull was asked to end early.
    Stop,
    /// Ends of deliveries, answered in order.
    Settle(Vec<(MessageId, Tag, Disposition)>, oneshot::Sender<Vec<Settled>>),
    /// Whether a copy was made of a message that [`Settled::Copy`] was answered for.
    Copied(Tag, bool),
    /// Which of these are held.
    Holds(Vec<(MessageId, Tag)>, oneshot::Sender<Vec<bool>>),
    /// Deliveries that reached nobody.
    Requeue(Vec<Tag>),
    /// A level that exists.
    Level(u8),
}

/// What is to become of a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disposition {
    /// It is gone.
    Ack,
    /// To the front of its queue.
    Requeue,
    /// A copy of it goes elsewhere; then it is gone.
    Copy,
}

/// What became of it.
pub(crate) enum Settled {
    Done,
    Lost,
    /// To be copied, then [`Command::Copied`].
    Copy(Box<Record>),
}

/// A pull that waits for its answer.
pub(crate) struct WaitingPull {
    pub(crate) max: usize,
    pub(crate) until: Instant,
    /// Nothing was looked for yet.
    pub(crate) fresh: bool,
    /// A channel broke over it, and it is tried once more.
    pub(crate) is_retried: bool,
    /// Fires when nobody waits any more.
    pub(crate) stop: CancellationToken,
    pub(crate) reply: oneshot::Sender<Result<Claim>>,
}

impl WaitingPull {
    /// Whether the wait is over, with or without an answer.
    pub(crate) fn is_over(&self) -> bool {
        self.until <= Instant::now() || self.stop.is_cancelled()
    }
}

/// Deliveries on their way to a pull. If nobody takes them they are given back.
pub(crate) struct Claim {
    deliveries: Vec<Delivery>,
    back: mpsc::Sender<Command>,
}

impl Claim {
    pub(crate) fn new(deliveries: Vec<Delivery>, back: mpsc::Sender<Command>) -> Self {
        Self { deliveries, back }
    }

    pub(crate) fn take(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let tags: Vec<Tag> =
            self.deliveries.iter().filter_map(|delivery| Tag::of(&delivery.lease.token)).collect();
        if tags.is_empty() {
            return;
        }
        let command = Command::Requeue(tags);
        if let Err(mpsc::error::TrySendError::Full(command)) = self.back.try_send(command)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let back = self.back.clone();
            runtime.spawn(async move { back.send(command).await });
        }
    }
}
