//! Requests to a partition's task, and the answer to a pull.

use std::time::Instant;

use anyqueue::adapter::RawDelivery;
use anyqueue::{MessageId, Result};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::record::Record;
use crate::token::Tag;

/// A request to a partition's task.
pub(crate) enum Command {
    /// Pulls.
    Pull(WaitingPull),
    /// Wakes the task, because a pull was asked to end early.
    Stop,
    /// Settles deliveries. The answers are in the same order.
    Settle(Vec<(MessageId, Tag, Disposition)>, oneshot::Sender<Vec<Settled>>),
    /// Ends a delivery that was kept for its settlement. The answer says whether it was still held.
    End(Tag, Ending, oneshot::Sender<bool>),
    /// Asks which of these deliveries are held.
    Holds(Vec<(MessageId, Tag)>, oneshot::Sender<Vec<bool>>),
    /// Requeues deliveries that no caller received.
    Requeue(Vec<Tag>),
    /// Reports that a level exists.
    Level(u8),
}

/// What happens to a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disposition {
    /// Acknowledges it.
    Ack,
    /// Puts it back at the front of its queue.
    Requeue,
    /// Keeps it until everything that its settlement stores is published.
    Keep,
    /// Does the same as `Keep`, for a settlement that stores a copy of it.
    Copy,
}

/// How a delivery that was kept ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// Everything is published: it is acknowledged.
    Ack,
    /// Everything is published: it goes back to the front of its queue.
    Requeue,
    /// Something could not be published: it is held as before.
    Hold,
}

/// The outcome of a [`Disposition`].
pub(crate) enum Settled {
    Done,
    Lost,
    /// The caller must publish what its settlement stores, and then send [`Command::End`] with the way in
    /// which it ends. Contains the record, if a copy is stored.
    Kept(Tag, Option<Box<Record>>),
}

/// A pull that waits for messages.
pub(crate) struct WaitingPull {
    pub(crate) max: usize,
    pub(crate) until: Instant,
    /// Whether it has not looked for messages yet.
    pub(crate) fresh: bool,
    /// Whether it must not miss a ready message, whatever that costs.
    pub(crate) is_thorough: bool,
    /// Whether its channel broke once, and it is being tried again.
    pub(crate) is_retried: bool,
    /// Cancelled when the messages are not wanted any more.
    pub(crate) stop: CancellationToken,
    pub(crate) reply: oneshot::Sender<Result<Claim>>,
}

impl WaitingPull {
    /// Whether the wait is over, with or without an answer.
    pub(crate) fn is_over(&self) -> bool {
        self.until <= Instant::now() || self.stop.is_cancelled()
    }
}

/// Deliveries on their way to a pull. If the pull does not take them, they are requeued.
pub(crate) struct Claim {
    deliveries: Vec<RawDelivery>,
    back: mpsc::Sender<Command>,
}

impl Claim {
    pub(crate) fn new(deliveries: Vec<RawDelivery>, back: mpsc::Sender<Command>) -> Self {
        Self { deliveries, back }
    }

    pub(crate) fn take(mut self) -> Vec<RawDelivery> {
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
