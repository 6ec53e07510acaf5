//! A file with ten million ends.

use std::path::Path;
use std::time::{Duration, Instant};

use anyqueue::{MessageData, Queue};
use anyqueue_testkit::ends;

use crate::bed::over;

/// How many tasks have ended.
pub(crate) const ENDED: u64 = 10_000_000;
/// What the file may take on the disk, so that the test can run beside others.
const MOST_BYTES: u64 = 5_000_000_000;

/// A new queue, with its ledger, and so many ends in it.
pub(crate) async fn filled(file: &Path) -> Queue {
    let open = async || over(anyqueue_backends::open(&format!("sqlite:{}", file.display())).await.unwrap());
    let queue = open().await;
    queue.init().await.unwrap();
    queue.push(ends::PARTITION, MessageData::new("waits")).await.unwrap();
    queue.close().await.unwrap();
    let (began, path) = (Instant::now(), file.to_owned());
    tokio::task::spawn_blocking(move || fill(&path)).await.unwrap();
    let bytes = std::fs::metadata(file).unwrap().len();
    println!("{ENDED} ends are {bytes} bytes, stored in {:?}", began.elapsed());
    assert!(bytes < MOST_BYTES, "{bytes}");
    open().await
}

fn fill(file: &Path) {
    let conn = rusqlite::Connection::open(file).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn.execute_batch(&ends::sqlite(ENDED)).unwrap();
}
