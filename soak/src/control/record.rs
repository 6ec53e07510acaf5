//! A file in which worker processes note when they begin and end a task: whether a limit was exceeded is
//! known from those who ran the tasks.
//!
//! One line for each note: what happened, the task's id, the process's number, and the time in nanoseconds of
//! the clock that all processes of the machine share. A line is written with one call, so that lines of
//! several processes do not mix, and a process that is killed leaves no half line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyqueue::MessageId;
use rustix::time::{ClockId, clock_gettime};

use crate::backends::Result;

/// What happened to a run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Begun,
    Done,
    /// The run was asked to stop, or dropped, before it was done.
    Stopped,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) what: What,
    pub(crate) task: MessageId,
    pub(crate) process: u32,
    pub(crate) at_ns: u64,
}

/// Returns nanoseconds of the monotonic clock, which is the same for all processes.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let [seconds, nanoseconds] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanoseconds
}

/// The file, for writing.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    file: Arc<File>,
    process: u32,
}

/// A run under way. Unless it is marked as done, it counts as stopped.
#[derive(Debug)]
pub(crate) struct Running {
    writer: Writer,
    task: MessageId,
    is_done: bool,
}

impl Writer {
    pub(crate) fn open(path: &Path, process: u32) -> Result<Self> {
        let file = Arc::new(OpenOptions::new().create(true).append(true).open(path)?);
        Ok(Self { file, process })
    }

    pub(crate) fn begin(&self, task: MessageId) -> Running {
        self.note('B', task);
        Running { writer: self.clone(), task, is_done: false }
    }

    fn note(&self, what: char, task: MessageId) {
        let line = format!("{what} {task} {} {}\n", self.process, now_ns());
        if let Err(error) = (&*self.file).write_all(line.as_bytes()) {
            eprintln!("a run could not be noted: {error}");
        }
    }
}

impl Running {
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.writer.note(if self.is_done { 'D' } else { 'S' }, self.task);
    }
}

/// The file, for reading what has been added.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    rest: String,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self { file: File::open(path)?, rest: String::new() })
    }

    /// Returns what was noted since the last call.
    pub(crate) fn read(&mut self) -> Result<Vec<Note>> {
        self.file.read_to_string(&mut self.rest)?;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.rest.split_off(whole);
        let notes = self.rest.lines().map(parse).collect();
        self.rest = rest;
        notes
    }
}

fn parse(line: &str) -> Result<Note> {
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or_else(|| format!("`{line}` is no note of a run"));
    let what = match next()? {
        "B" => What::Begun,
        "D" => What::Done,
        "S" => What::Stopped,
        _ => return Err(format!("`{line}` is no note of a run").into()),
    };
    let (task, process, at_ns) = (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    Ok(Note { what, task, process, at_ns })
}
