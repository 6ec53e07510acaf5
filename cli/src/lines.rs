//! Reads lines in batches, without waiting for a batch to fill.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use tokio::sync::mpsc;

/// The most lines in a batch.
const BATCH_LINES: usize = 1000;
/// A batch with this many bytes is full.
const BATCH_BYTES: usize = 4 << 20;
/// The longest line.
const LINE_BYTES: usize = 64 << 20;
/// How many batches may wait.
const WAITING: usize = 2;

/// A line without its line ending, and its number from 1.
pub(crate) type Numbered = (u64, Result<Vec<u8>, TooLong>);

/// Lines that have arrived, or the error that ended the reading.
pub(crate) type Batch = Result<Vec<Numbered>, Unread>;

/// A line was too long, and skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it has more than {LINE_BYTES} bytes, the limit for any message: store the data elsewhere and push a reference"
        )
    }
}

/// The line at which reading failed.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) line: u64,
    pub(crate) error: io::Error,
}

/// Reads lines on a thread of its own. A batch contains what has arrived, so that the lines of a slow writer
/// do not wait for more. Empty lines are skipped. An error comes last.
pub(crate) fn batches(source: impl Read + Send + 'static) -> mpsc::Receiver<Batch> {
    let (give, take) = mpsc::channel(WAITING);
    // Not a task: reading a terminal or pipe cannot be interrupted, and must not delay the end of the program.
    std::thread::spawn(move || {
        let mut reader = BufReader::with_capacity(256 << 10, source);
        let mut number = 0;
        loop {
            let (lines, read) = batch(&mut reader, &mut number);
            let last = lines.is_empty() || read.is_err();
            // What was read before the error is sent before it.
            if !lines.is_empty() && give.blocking_send(Ok(lines)).is_err() {
                return;
            }
            if let Err(error) = read {
                let _ = give.blocking_send(Err(Unread { line: number + 1, error }));
            }
            if last {
                return;
            }
        }
    });
    take
}

/// Returns what has arrived, which is at least one line, or nothing at the end; and whether reading
/// succeeded.
fn batch<R: Read>(reader: &mut BufReader<R>, number: &mut u64) -> (Vec<Numbered>, io::Result<()>) {
    let mut lines = Vec::new();
    let mut bytes = 0;
    while lines.len() < BATCH_LINES && bytes < BATCH_BYTES {
        let line = match line(reader) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => return (lines, Err(error)),
        };
        *number += 1;
        if !matches!(&line, Ok(line) if line.is_empty()) {
            bytes += line.as_ref().map_or(0, Vec::len);
            lines.push((*number, line));
        }
        if !lines.is_empty() && !reader.buffer().contains(&b'\n') {
            break; // the next line has not arrived yet
        }
    }
    (lines, Ok(()))
}

fn line<R: Read>(reader: &mut BufReader<R>) -> io::Result<Option<Result<Vec<u8>, TooLong>>> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read > LINE_BYTES {
        drop(line);
        reader.skip_until(b'\n')?;
        return Ok(Some(Err(TooLong)));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(Ok(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines, and the error after them.
    fn all(source: impl Read) -> (Vec<Numbered>, Option<io::Error>) {
        let mut reader = BufReader::new(source);
        let (mut number, mut all) = (0, Vec::new());
        loop {
            let (lines, read) = batch(&mut reader, &mut number);
            let last = lines.is_empty() || read.is_err();
            all.extend(lines);
            if last {
                return (all, read.err());
            }
        }
    }

    fn whole(number: u64, line: &[u8]) -> Numbered {
        (number, Ok(line.to_vec()))
    }

    /// Fails like a broken disk.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is broken"))
        }
    }

    #[test]
    fn lines_come_with_their_numbers_and_empty_ones_not() {
        let (lines, error) = all(b"one\r\n\ntwo\nlast".as_slice());
        assert_eq!(lines, [whole(1, b"one"), whole(3, b"two"), whole(4, b"last")]);
        assert!(error.is_none());
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_is_read() {
        let read = |length: usize| {
            let long = io::repeat(b'x').take(length as u64);
            let (mut lines, _) = all(b"one\n".chain(long).chain(b"\nlast".as_slice()));
            assert_eq!((lines.remove(2), lines.remove(0)), (whole(3, b"last"), whole(1, b"one")));
            lines.remove(0).1.map(|line| line.len())
        };
        assert_eq!(read(LINE_BYTES), Ok(LINE_BYTES));
        assert_eq!(read(LINE_BYTES + 1), Err(TooLong));
        assert_eq!(read(2 * LINE_BYTES), Err(TooLong));
    }

    #[test]
    fn what_was_read_before_an_error_comes_before_it() {
        let mut batches = batches(b"one\n\nhalf".chain(Broken));
        assert_eq!(batches.blocking_recv().unwrap().unwrap(), [whole(1, b"one")]);
        let unread = batches.blocking_recv().unwrap().unwrap_err();
        assert_eq!((unread.line, unread.error.to_string().as_str()), (3, "the disk is broken"));
        assert!(batches.blocking_recv().is_none());
    }

    #[test]
    fn a_batch_is_what_has_arrived() {
        let (read, mut write) = io::pipe().unwrap();
        let mut batches = batches(read);
        io::Write::write_all(&mut write, b"now\nlat").unwrap();
        let first = batches.blocking_recv().unwrap().unwrap();
        assert_eq!(first, [whole(1, b"now")]);
        io::Write::write_all(&mut write, b"er\n").unwrap();
        drop(write);
        assert_eq!(batches.blocking_recv().unwrap().unwrap(), [whole(2, b"later")]);
        assert!(batches.blocking_recv().is_none());
    }
}
