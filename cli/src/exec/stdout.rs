//! A command's standard output, kept as the result of its task.

use std::time::Duration;

use anyqueue::{Bytes, MAX_RESULT_BYTES};
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::task::JoinHandle;

/// The last output can arrive a little after the command has ended; processes that it left behind can write forever.
const REST: Duration = Duration::from_millis(500);
/// How many bytes are read at once.
const READ_BYTES: usize = 8 << 10;

/// The standard output of one command.
#[derive(Debug)]
pub(super) struct Kept(JoinHandle<Written>);

/// What a command wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    All(Bytes),
    /// More than is kept.
    TooMuch,
    /// A process that the command left behind may still write.
    Unfinished,
}

impl Kept {
    pub(super) fn read(from: ChildStdout) -> Self {
        Self(tokio::spawn(read_all(from)))
    }

    /// What was written, once the command has ended.
    pub(super) async fn written(mut self) -> Written {
        match tokio::time::timeout(REST, &mut self.0).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) | Err(_) => Written::Unfinished,
        }
    }
}

/// Reads to the end, even what is not kept: the command must not be killed when it writes.
async fn read_all(mut from: ChildStdout) -> Written {
    let (mut all, mut bytes, mut is_too_much) = (Vec::new(), vec![0; READ_BYTES], false);
    while let Ok(read) = from.read(&mut bytes).await
        && read > 0
    {
        is_too_much |= all.len() + read > MAX_RESULT_BYTES;
        if is_too_much {
            all = Vec::new();
        } else {
            all.extend_from_slice(bytes.get(..read).unwrap_or_default());
        }
    }
    if is_too_much { Written::TooMuch } else { Written::All(all.into()) }
}
