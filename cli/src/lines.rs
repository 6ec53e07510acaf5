//! Reading lines in batches, without waiting for a batch to fill.

use std::io::{self, BufRead, BufReader, Read};

use tokio::sync::mpsc;

/// Lines of a batch at most.
const BATCH_LINES: usize = 1000;
/// A batch that has reached so many bytes is handed on.
const BATCH_BYTES: usize = 4 << 20;
/// The longest line.
const LINE_BYTES: usize = 64 << 20;
/// Batches that wait to be taken.
const WAITING: usize = 2;

/// A line without its end, and its number from 1.
pub(crate) type Numbered = (u64, Vec<u8>);

/// Reads lines on a thread of its own. A batch is what has arrived, so that a slow writer's lines do not wait for more. Empty
/// lines are left out. After an error nothing more comes.
pub(crate) fn batches(source: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Vec<Numbered>>> {
    let (give, take) = mpsc::channel(WAITING);
    // Not a task: a read of a terminal or pipe cannot be interrupted, and must not hold up the end of the program.
    std::thread::spawn(move || {
        let mut reader = BufReader::with_capacity(256 << 10, source);
        let mut number = 0;
        loop {
            let batch = batch(&mut reader, &mut number);
            let last = !matches!(&batch, Ok(lines) if !lines.is_empty());
            let empty = matches!(&batch, Ok(lines) if lines.is_empty());
            if (!empty && give.blocking_send(batch).is_err()) || last {
                return;
            }
        }
    });
    take
}

/// What has arrived, at least one line; nothing at the end.
fn batch<R: Read>(reader: &mut BufReader<R>, number: &mut u64) -> io::Result<Vec<Numbered>> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    while lines.len() < BATCH_LINES && bytes < BATCH_BYTES {
        let Some(line) = line(reader)? else { break };
        *number += 1;
        if !line.is_empty() {
            bytes += line.len();
            lines.push((*number, line));
        }
        if !lines.is_empty() && !reader.buffer().contains(&b'\n') {
            break; // the next line would have to be waited for
        }
    }
    Ok(lines)
}

fn line<R: Read>(reader: &mut BufReader<R>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if read > LINE_BYTES {
        return Err(io::Error::other(format!(
            "a line has more than {LINE_BYTES} bytes: push it from a file of its own"
        )));
    }
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_their_numbers_and_empty_ones_not() {
        let mut reader = BufReader::new(b"one\r\n\ntwo\nlast".as_slice());
        let mut number = 0;
        let mut all = Vec::new();
        loop {
            let lines = batch(&mut reader, &mut number).unwrap();
            if lines.is_empty() {
                break;
            }
            all.extend(lines);
        }
        assert_eq!(all, [(1, b"one".to_vec()), (3, b"two".to_vec()), (4, b"last".to_vec())]);
    }

    #[test]
    fn a_batch_is_what_has_arrived() {
        let (read, mut write) = io::pipe().unwrap();
        let mut batches = batches(read);
        io::Write::write_all(&mut write, b"now\nlat").unwrap();
        let first = batches.blocking_recv().unwrap().unwrap();
        assert_eq!(first, [(1, b"now".to_vec())]);
        io::Write::write_all(&mut write, b"er\n").unwrap();
        drop(write);
        assert_eq!(batches.blocking_recv().unwrap().unwrap(), [(2, b"later".to_vec())]);
        assert!(batches.blocking_recv().is_none());
    }
}
