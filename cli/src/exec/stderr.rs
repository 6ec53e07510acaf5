//! A command's standard error: passed on, with its last line kept as the reason for a failure.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

/// How many bytes of the end are kept.
const KEPT_BYTES: usize = 1000;
/// The last output can arrive a little after the command has ended; processes that it left behind can write forever.
const REST: Duration = Duration::from_millis(200);
/// How many bytes are read at once.
const READ_BYTES: usize = 8 << 10;

/// The standard error of one command.
#[derive(Debug)]
pub(super) struct Stderr {
    end: Arc<Mutex<Vec<u8>>>,
    /// Runs for as long as any process has the other end open: a process that was left behind must not be
    /// killed when it writes.
    passing: JoinHandle<()>,
}

impl Stderr {
    pub(super) fn pass_on(from: ChildStderr) -> Self {
        let end = Arc::new(Mutex::default());
        Self { passing: tokio::spawn(pass(from, Arc::clone(&end))), end }
    }

    /// The last line that is not blank, once the command has ended.
    pub(super) async fn last_line(mut self) -> Option<String> {
        // Whether or not processes are left behind, only what has been written by now counts.
        let _ = tokio::time::timeout(REST, &mut self.passing).await;
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        last_line(&end)
    }
}

async fn pass(mut from: ChildStderr, end: Arc<Mutex<Vec<u8>>>) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(read) = from.read(&mut bytes).await
        && read > 0
    {
        let new = bytes.get(..read).unwrap_or_default();
        keep(&mut end.lock().unwrap_or_else(PoisonError::into_inner), new);
        let said = new.to_vec();
        // If nobody reads the worker's standard error, the command need not know.
        let _ = tokio::task::spawn_blocking(move || std::io::stderr().write_all(&said)).await;
    }
}

fn keep(end: &mut Vec<u8>, new: &[u8]) {
    end.extend_from_slice(new.get(new.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default());
    end.drain(..end.len().saturating_sub(KEPT_BYTES));
}

fn last_line(end: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(end);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_kept_and_no_more_than_the_end() {
        let mut end = Vec::new();
        assert_eq!(last_line(&end), None);
        keep(&mut end, b"Traceback:\n  in x\nconnection ref");
        keep(&mut end, b"used \r\n\n");
        assert_eq!(last_line(&end).as_deref(), Some("connection refused"));
        keep(&mut end, &[b'a'; 3 * KEPT_BYTES]);
        assert_eq!(end, [b'a'; KEPT_BYTES]);
        keep(&mut end, b"\xffz");
        assert_eq!((end.len(), end.ends_with(b"a\xffz")), (KEPT_BYTES, true));
    }
}
