//! The signals that ask a command to stop.

use anyqueue_worker::shutdown_signal;
use tokio::sync::watch;

/// Completes at the first SIGTERM or SIGINT, or when the terminal is closed.
///
/// # Errors
/// If signals cannot be received.
pub(crate) async fn end_signal() -> anyqueue::Result<()> {
    tokio::select! { heard = shutdown_signal() => heard, () = hangup() => Ok(()) }
}

/// Becomes true at the first SIGTERM or SIGINT, and when the terminal is closed.
pub(crate) fn stop_on_signal() -> watch::Receiver<bool> {
    let (give, take) = watch::channel(false);
    tokio::spawn(async move {
        if end_signal().await.is_ok() {
            give.send_replace(true);
        }
        // Without signals the command continues, and can be killed like any program.
        give.closed().await;
    });
    take
}

/// Completes when the terminal is closed (SIGHUP), unless the command was started to outlive that, as with
/// `nohup`.
#[cfg(target_os = "linux")]
pub(crate) async fn hangup() {
    use tokio::signal::unix::{SignalKind, signal};
    if !is_ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
        && let Ok(mut hangups) = signal(SignalKind::hangup())
    {
        hangups.recv().await;
        return;
    }
    std::future::pending::<()>().await;
}

/// Elsewhere there is no way to know whether the signal is ignored.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn hangup() {
    std::future::pending::<()>().await;
}

/// Whether a process with this status ignores SIGHUP, whose number is 1. Listening for it would stop ignoring it.
#[cfg(target_os = "linux")]
fn is_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::is_ignored;

    #[test]
    fn a_hangup_that_is_ignored_stays_so() {
        assert!(is_ignored("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!is_ignored("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!is_ignored(""));
    }
}
