//! Three processes and ten thousand tasks: neither a cap nor a rate is ever exceeded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyqueue::{MessageData, Queue};
use anyqueue_control::limits::{Limit, Limits, PermitOptions};
use anyqueue_testkit::{Postgres, Redis, provide};
use anyqueue_worker::{Partition, TaskContext, Worker, task};

use crate::bed::millis;
use crate::servers::{LATE, open, place};

const CHILD: &str = "ANYQUEUE_TEST_LIMITS_CHILD_URL";
const REPORT: &str = "ANYQUEUE_TEST_LIMITS_CHILD_REPORT";
const TASKS: u64 = 10_000;
const PROCESSES: usize = 3;
const SLOTS: usize = 16;
/// Below what the slots of all are.
const CAP: usize = 12;
/// A second, and at once.
const RATE: (f64, u64) = (1000.0, 100);
const PATIENCE: Duration = Duration::from_mins(6);

/// One run of a task: its number, and its begin and end in nanoseconds of Unix time.
type Run = (u64, u128, u128);

fn now_ns() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// What each of the processes does; without them it does nothing.
#[tokio::test]
async fn one_process_works() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let queue = open(&url).await;
    let permits = Limits::new(queue.control().unwrap()).permits(PermitOptions::default()).unwrap();
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let noted = runs.clone();
    let run = move |number: u64, _: TaskContext| {
        let noted = noted.clone();
        async move {
            let begin = now_ns();
            tokio::time::sleep(millis(fastrand::u64(1..4))).await;
            noted.lock().unwrap().push((number, begin, now_ns()));
            Ok(())
        }
    };
    let builder = Worker::builder(queue).partition(Partition::new("mail")).handler("run", run);
    builder.slots(SLOTS).permits(permits).build().unwrap().run_once().await.unwrap();
    let mut report = String::new();
    for (number, begin, end) in &*runs.lock().unwrap() {
        writeln!(report, "{number} {begin} {end}").unwrap();
    }
    std::fs::write(std::env::var(REPORT).unwrap(), report).unwrap();
}

/// Lets processes do all that waits at this URL, and returns what each of them ran.
async fn work(url: &str) -> Vec<Vec<Run>> {
    let folder = tempfile::tempdir().unwrap();
    let reports: Vec<_> = (0..PROCESSES).map(|number| folder.path().join(number.to_string())).collect();
    let start = |report| {
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "processes::one_process_works"]).env(CHILD, url).env(REPORT, report);
        child.stdin(Stdio::null()).kill_on_drop(true).output()
    };
    let ended = futures_util::future::join_all(reports.iter().map(start));
    for output in tokio::time::timeout(PATIENCE, ended).await.unwrap() {
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let read = |line: &str| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u128>().unwrap());
        let mut next = || numbers.next().unwrap();
        (u64::try_from(next()).unwrap(), next(), next())
    };
    reports
        .iter()
        .map(|report| std::fs::read_to_string(report).unwrap().lines().map(read).collect())
        .collect()
}

/// The most that ran at once.
fn most_at_once(runs: &[Run]) -> usize {
    let begins = runs.iter().map(|(_, begin, _)| (*begin, true));
    let ends = runs.iter().map(|(_, _, end)| (*end, false));
    let mut all: Vec<_> = begins.chain(ends).collect();
    all.sort_unstable(); // of one moment the ends come first
    let (mut running, mut most) = (0_usize, 0);
    for (_, is_begin) in all {
        running = if is_begin { running + 1 } else { running - 1 };
        most = most.max(running);
    }
    most
}

/// By how much more has begun, counted from whichever moment to whichever other, than the rate alone allows: what is left for the burst.
fn most_beyond_rate(runs: &[Run], per_second: f64) -> f64 {
    let mut begins: Vec<u128> = runs.iter().map(|(_, begin, _)| *begin).collect();
    begins.sort_unstable();
    let (mut least, mut most) = (f64::MAX, 0.0_f64);
    for (count, begin) in begins.iter().enumerate() {
        let since = Duration::from_nanos(u64::try_from(begin - begins[0]).unwrap());
        let ahead = count as f64 - per_second * since.as_secs_f64();
        least = least.min(ahead);
        most = most.max(ahead - least + 1.0);
    }
    most
}

async fn three_processes_hold_a_cap_and_a_rate(url: &str) {
    let queue: Queue = open(url).await;
    let limits = Limits::new(queue.control().unwrap());
    let (per_second, burst) = RATE;
    let limit = Limit::partition("mail").unwrap().cap(CAP as u64).rate(per_second, burst);
    limits.put("l", &limit).await.unwrap();
    let all: Vec<MessageData> = (0..TASKS).map(|number| task("run", &number).unwrap()).collect();
    for pushed in queue.push_many("mail", all).await.unwrap() {
        pushed.unwrap();
    }
    let by_process = work(url).await;
    assert!(by_process.iter().all(|runs| !runs.is_empty()), "each had its part");
    let runs = by_process.concat();
    let numbers: BTreeSet<u64> = runs.iter().map(|(number, ..)| *number).collect();
    assert_eq!((numbers.len() as u64, runs.len() as u64), (TASKS, TASKS), "each task once");
    let (most, ahead) = (most_at_once(&runs), most_beyond_rate(&runs, per_second));
    let allowed = burst as f64 + per_second * LATE.as_secs_f64();
    assert!((CAP / 2..=CAP).contains(&most) && ahead <= allowed, "{most} at once, {ahead} ahead of the rate");
    assert!(limits.get("l").await.unwrap().unwrap().holders.is_empty(), "nothing leaks");
    queue.close().await.unwrap();
}

#[tokio::test]
async fn three_processes_and_ten_thousand_tasks_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("limits.db").display());
    three_processes_hold_a_cap_and_a_rate(&url).await;
}

#[tokio::test]
async fn three_processes_and_ten_thousand_tasks_on_postgres() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = place(&server, "schema", "processes") else { return };
    three_processes_hold_a_cap_and_a_rate(&url).await;
}

#[tokio::test]
async fn three_processes_and_ten_thousand_tasks_on_redis() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = place(&server, "prefix", "processes") else { return };
    three_processes_hold_a_cap_and_a_rate(&url).await;
}

#[test]
fn too_many_at_once_and_too_fast_is_seen() {
    let second = 1_000_000_000;
    let even: Vec<Run> = (0..10_u128).map(|n| (0, n * second / 2, (n + 1) * second / 2)).collect();
    assert_eq!(most_at_once(&even), 1);
    assert!((most_beyond_rate(&even, 2.0) - 1.0).abs() < 1e-6);
    let burst: Vec<Run> = (0..10).map(|n| (0, 5 * second + n, 9 * second)).collect();
    assert_eq!(most_at_once(&burst), 10);
    assert!((most_beyond_rate(&[even, burst].concat(), 2.0) - 10.0).abs() < 0.1);
}
