//! The request that a handler stop, and its reason.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyqueue::Clock;
use tokio_util::sync::CancellationToken;

/// Why a handler was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The handler has run longer than it may.
    Timeout,
    /// The message no longer belongs to this process: another worker may be processing it. The result will
    /// not be settled.
    LeaseLost,
    /// [`Queue::request_cancel`](anyqueue::Queue::request_cancel) was called for the task.
    CancelRequested,
    /// The worker is shutting down. The task is released, and the attempt is not counted.
    Shutdown,
    /// The [permit](crate::Permits) to run the task cannot be kept: others may already run as many tasks as
    /// the limit allows. The task is released, and the attempt is not counted.
    PermitLost,
}

impl CancelReason {
    const ALL: [Self; 5] =
        [Self::Timeout, Self::LeaseLost, Self::CancelRequested, Self::Shutdown, Self::PermitLost];

    /// The name used in logs and metrics, in `snake_case`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::LeaseLost => "lease_lost",
            Self::CancelRequested => "cancel_requested",
            Self::Shutdown => "shutdown",
            Self::PermitLost => "permit_lost",
        }
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The request to stop. The first reason is kept.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The reason as its position in [`CancelReason::ALL`] + 1; 0 is none.
    reason: AtomicU8,
    /// Made on first use: most handlers never ask for it.
    token: OnceLock<CancellationToken>,
    asked_at: Mutex<Option<Instant>>,
}

impl Stop {
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        let position = self.reason.load(Ordering::SeqCst).checked_sub(1)?;
        CancelReason::ALL.get(usize::from(position)).copied()
    }

    /// Waits until the handler is asked to stop.
    pub(crate) async fn asked(&self) -> CancelReason {
        loop {
            if let Some(reason) = self.reason() {
                return reason;
            }
            self.token().cancelled().await;
        }
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        // The reason may have come before the token existed; `ask` sets the reason before it looks for the
        // token.
        if self.reason.load(Ordering::SeqCst) != 0 {
            token.cancel();
        }
        token
    }

    pub(crate) fn ask(&self, reason: CancelReason, clock: &Clock) {
        let position = CancelReason::ALL.iter().position(|known| *known == reason).unwrap_or(0);
        let code = u8::try_from(position + 1).unwrap_or(u8::MAX);
        if self.reason.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock.now());
        }
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    /// Since when the handler should have stopped.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
