//! A stream of a million tasks.

use std::time::{Duration, Instant};

use anyqueue_testkit::ends::PARTITION;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bed::Bed;

const TASKS: usize = 1_000_000;
/// Before it is measured, so that all is there that any stream needs.
const WARM_UP: usize = 20_000;
/// What it may take, of which one page is in memory at a time.
const MOST_BYTES: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_mins(8);
const EVERY_READS: usize = 16;

/// The resident memory of this process: the service and the client that reads.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

/// Reads so many tasks. Returns the most memory that was resident meanwhile.
async fn read(bed: &Bed, tasks: usize) -> usize {
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    let request = format!(
        "GET /v1/tasks?partition={PARTITION}&limit={tasks} HTTP/1.1\r\nhost: {}\r\naccept: application/x-ndjson\r\nconnection: close\r\n\r\n",
        bed.client.0
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut some, mut lines, mut last, mut most) = (vec![0; 64 << 10], 0, Vec::new(), 0);
    for number in 0.. {
        let size = stream.read(&mut some).await.unwrap();
        if size == 0 {
            break;
        }
        lines += some[..size].windows(2).filter(|two| two == b"}\n").count();
        last.extend_from_slice(&some[..size]);
        last.drain(..last.len().saturating_sub(200));
        if number % EVERY_READS == 0 {
            most = most.max(resident());
        }
    }
    let end = String::from_utf8_lossy(&last).into_owned();
    assert!(end.contains(&format!("{{\"count\":{tasks},\"end\":true}}")), "{end}");
    // A line that ends where a read does is not seen.
    assert!(lines > tasks * 9 / 10, "{lines}");
    most
}

pub(crate) async fn a_million_take_little_memory(bed: &Bed) {
    read(bed, WARM_UP).await;
    let (before, began) = (resident(), Instant::now());
    let most = timeout(PATIENCE, read(bed, TASKS)).await.expect("the end of the stream");
    let added = most.saturating_sub(before);
    println!("{TASKS} tasks streamed in {:?} with {} KiB more than before", began.elapsed(), added >> 10);
    assert!(added <= MOST_BYTES, "{added} bytes more");
}
