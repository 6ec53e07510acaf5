//! How long the clients of a server have to recover from its absence.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::clause::Clause;
use crate::context::{Context, scheduling};
use crate::verdict::CaseResult;

/// How soon after the server's return its clients must work again.
pub(super) const RECOVERY: Duration = Duration::from_secs(5);

/// The pause between two attempts of a client that waits for the server's return.
pub(super) const AGAIN: Duration = Duration::from_millis(20);

/// The time that clients have to recover from a server's absence, from the moment of its return.
pub(super) struct Recovery(watch::Receiver<Instant>);

impl Recovery {
    pub(super) fn begins() -> Self {
        Self::since(&watch::Sender::new(Instant::now()))
    }

    /// Starts at the given moment, which may still change.
    pub(super) fn since(moment: &watch::Sender<Instant>) -> Self {
        Self(moment.subscribe())
    }

    /// Pauses before the next attempt; when the time is over, the case fails.
    pub(super) async fn again(&self, c: &Context, what: &str) -> CaseResult {
        let expected = format!("{what} within {RECOVERY:?} of the server's return, without a new client");
        if Instant::now() > *self.0.borrow() + RECOVERY + scheduling() {
            return Err(c.failed(Clause::Recovery, &[], expected, "it still fails"));
        }
        tokio::time::sleep(AGAIN).await;
        Ok(())
    }
}
