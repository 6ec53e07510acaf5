//! How large a round is, and what all scenarios have in common.

use std::time::Duration;

/// Tasks that work side by side in the concurrent scenarios.
pub(super) const TASKS: usize = 64;
/// Messages in one call of the batch scenarios.
pub(super) const BATCH: usize = 100;
/// How long one round of one side should take, if it is as fast as the warm-up.
const ROUND: Duration = Duration::from_millis(700);
/// More messages would measure the memory of this machine.
const MAX_MESSAGES: usize = 500_000;

/// How large one round is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) messages: usize,
    pub(crate) payload_bytes: usize,
}

impl Size {
    /// Returns the size that takes about [`ROUND`] at this rate.
    pub(crate) fn for_a_round(self, per_second: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped right after")]
        let messages = (per_second * ROUND.as_secs_f64()) as usize;
        Self { messages: messages.clamp(BATCH, MAX_MESSAGES).next_multiple_of(BATCH), ..self }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
pub(super) fn per_second(messages: usize, took: Duration) -> f64 {
    messages as f64 / took.as_secs_f64()
}
