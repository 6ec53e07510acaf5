//! What it costs to work through a large table with a few messages: `work_set [BACKEND] [ROWS]`.
//!
//! The rows are in an SQLite table, the queue on the backend. Prints one line of JSON: the rate, the most messages that were in the
//! queue, and by how much the memory of this process grew from the first percent of the rows to its peak.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a program for measuring may stop at anything"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue_testkit::{Postgres, Redis, Server};
use anyqueue_worker::{Part, Partition, TaskContext, TaskError, WorkSet, WorkSource, Worker};
use rusqlite::{Connection, params};

const WIDTH: usize = 8;
const CHUNK: usize = 1000;

/// A table with a key and a text.
struct Table(PathBuf);

impl Table {
    fn make(path: &Path, rows: u64) -> Self {
        let mut table = Connection::open(path).unwrap();
        table
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE row (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
            )
            .unwrap();
        let filling = table.transaction().unwrap();
        {
            let mut insert = filling.prepare("INSERT INTO row (text) VALUES (?1)").unwrap();
            for number in 0..rows {
                insert.execute([format!("row number {number}, with some text that has to be read")]).unwrap();
            }
        }
        filling.commit().unwrap();
        Self(path.to_owned())
    }
}

impl WorkSource for Table {
    type Item = (i64, String);

    async fn next(
        &self,
        part: Part,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Self::Item)>, TaskError> {
        let (path, after) = (self.0.clone(), after.map_or(Ok(0), str::parse::<i64>)?);
        let (of, number, max) = (i64::try_from(part.of)?, i64::try_from(part.number)?, i64::try_from(max)?);
        let read = move || -> rusqlite::Result<Vec<_>> {
            let table = Connection::open(path)?;
            let mut rows = table
                .prepare("SELECT id, text FROM row WHERE id > ?1 AND id % ?2 = ?3 ORDER BY id LIMIT ?4")?;
            let rows = rows.query_map(params![after, of, number, max], |row| {
                let id: i64 = row.get(0)?;
                Ok((id.to_string(), (id, row.get(1)?)))
            })?;
            rows.collect()
        };
        Ok(tokio::task::spawn_blocking(read).await??)
    }
}

/// The memory of this process that is in use, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let backend = arguments.first().map_or("sqlite", String::as_str);
    let rows: u64 = arguments.get(1).map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let server = match backend {
        "postgres" => Some(Server::start(Postgres::new()).await.unwrap()),
        "redis" => Some(Server::start(Redis::new()).await.unwrap()),
        _ => None,
    };
    let file = format!("sqlite:{}", folder.path().join("queue.db").display());
    let url = server.as_ref().map_or(file, |server| server.url().to_owned());
    let queue = Queue::new(anyqueue_backends::open(&url).await.unwrap()).unwrap();
    queue.init().await.unwrap();

    let table = Table::make(&folder.path().join("rows.db"), rows);
    let set = WorkSet::new("rows", WIDTH, table).unwrap().chunk(CHUNK);
    set.start(&queue, "sets").await.unwrap();
    let (count, early, most) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (counted, early_kib) = (count.clone(), early.clone());
    let handler = move |(_, text): (i64, String), _: TaskContext| {
        assert!(text.starts_with("row number"));
        if counted.fetch_add(1, SeqCst) == rows / 100 {
            early_kib.store(resident_kib(), SeqCst);
        }
        async { Ok(()) }
    };
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("sets"))
        .work_set(set, handler)
        .build()
        .unwrap();
    let start = Instant::now();
    let peak = AtomicU64::new(0);
    let watching = async {
        while count.load(SeqCst) < rows {
            let counts = queue.counts("sets").await.unwrap();
            let there = [counts.ready, counts.delayed, counts.leased].into_iter().flatten().sum();
            most.fetch_max(there, SeqCst);
            peak.fetch_max(resident_kib(), SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    worker.run_until(watching).await.unwrap();
    let took = start.elapsed();
    let (early, peak) = (early.load(SeqCst), peak.load(SeqCst));
    assert_eq!(count.load(SeqCst), rows);
    let line = serde_json::json!({
        "backend": backend, "rows": rows, "width": WIDTH, "chunk": CHUNK, "most_messages": most.load(SeqCst),
        "rows_per_s": (rows as f64 / took.as_secs_f64()).round(), "peak_mib": peak / 1024,
        "grown_mib": peak.saturating_sub(early) / 1024,
    });
    println!("{line}");
}
