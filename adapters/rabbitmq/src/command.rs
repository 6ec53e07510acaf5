//! What a partition's task is asked for.

use anyqueue::MessageId;
use tokio::sync::oneshot;

use crate::claim::Waiting;
use crate::stored::Stored;
use crate::token::Tag;

/// What a task is asked for.
pub(crate) enum Command {
    /// A pull.
    Pull(Waiting),
    /// A pull was asked to end early.
    Stop,
    /// Ends of deliveries, answered in order.
    Settle(Vec<(MessageId, Tag, Verb)>, oneshot::Sender<Vec<Settled>>),
    /// Whether a copy was made of a message that [`Settled::Copy`] was answered for.
    Copied(Tag, bool),
    /// Which of these are held.
    Holds(Vec<(MessageId, Tag)>, oneshot::Sender<Vec<bool>>),
    /// Deliveries that reached nobody.
    Back(Vec<Tag>),
    /// A level that exists.
    Level(u8),
}

/// What is to become of a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    /// It is gone.
    Remove,
    /// To the front of its queue.
    Return,
    /// A copy of it goes elsewhere; then it is gone.
    Copy,
}

/// What became of it.
pub(crate) enum Settled {
    Done,
    Lost,
    /// To be copied, then [`Command::Copied`].
    Copy(Box<Stored>),
}
