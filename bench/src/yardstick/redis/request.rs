//! What a client asks of its pump.

use anyqueue::MessageId;
use tokio::sync::{mpsc, oneshot};

use super::delivery::RawDelivery;

/// The number of settlements that share a call.
pub(super) const GATHERED: usize = 1024;
/// Cycles under way at once: while the server works on one, the callers answered by the other one work.
pub(super) const CYCLES: usize = 2;

pub(super) enum Request {
    Settle(Settle),
    Feed(Feeder),
}

/// A removal, and the caller that waits for it.
pub(super) struct Settle {
    pub(super) id: MessageId,
    pub(super) token: [u8; 16],
    pub(super) done: oneshot::Sender<bool>,
}

/// A puller's window.
pub(super) struct Feeder {
    pub(super) window: usize,
    pub(super) held: usize,
    /// Whether the last claim found less than it wanted.
    pub(super) dry: bool,
    pub(super) to: mpsc::Sender<RawDelivery>,
}

impl Feeder {
    pub(super) fn new(window: usize, to: mpsc::Sender<RawDelivery>) -> Self {
        Self { window, held: 0, dry: false, to }
    }

    /// Returns how many messages are worth claiming: what is free, unless that is little, and no more than
    /// one cycle's share.
    pub(super) fn wanted(&self) -> usize {
        let free = (self.window - self.held).min(self.window.div_ceil(CYCLES));
        if free >= (self.window / 4).max(1) { free } else { 0 }
    }
}
