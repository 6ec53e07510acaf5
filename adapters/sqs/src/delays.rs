//! Delays. The server itself supports only short ones.

use std::time::Duration;

use crate::in_flight::whole_secs;

/// The longest delay that the server accepts for a message.
const MAX_SEND_DELAY_SECS: u64 = 900;

/// Returns the delay for the server in seconds and, if the server's limit is too low, the whole delay for the
/// body.
pub(crate) fn delays(delay: Duration) -> (i32, u64) {
    let secs = whole_secs(delay);
    let kept = i32::try_from(secs.min(MAX_SEND_DELAY_SECS)).unwrap_or(i32::MAX);
    (kept, if secs > MAX_SEND_DELAY_SECS { secs } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up_and_what_the_server_cannot_keep_is_said() {
        assert_eq!(delays(Duration::ZERO), (0, 0));
        assert_eq!(delays(Duration::from_millis(1)), (1, 0));
        assert_eq!(delays(Duration::from_mins(15)), (900, 0));
        assert_eq!(delays(Duration::from_millis(900_001)), (900, 901));
    }
}
