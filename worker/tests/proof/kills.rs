//! Five worker processes under load, of which one is killed every second.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::child::{CHILD, SLOTS};
use crate::grounds::{Ground, LEASE, kills};
use crate::load::{empty, push};

const WORKERS: usize = 5;
/// What a busy machine may add until those who are alive get their turn.
const LATE: Duration = Duration::from_secs(3);
/// Tasks pushed in each second.
const RATE: u32 = 300;

/// Something a worker process said.
struct Line {
    process: usize,
    effect: bool,
    at: Instant,
}

/// What was said about each task, in order.
type Said = Arc<Mutex<HashMap<u32, Vec<Line>>>>;

struct Process {
    number: usize,
    child: Child,
    _stdin: ChildStdin,
    reader: tokio::task::JoinHandle<()>,
}

fn spawn(url: &str, number: usize, said: &Said) -> Process {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let stdin = process.stdin.take().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let said = said.clone();
    let reader = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let (what, task) = line.split_once(' ').unwrap();
            let line = Line { process: number, effect: what == "E", at: Instant::now() };
            said.lock().unwrap().entry(task.parse().unwrap()).or_default().push(line);
        }
    });
    Process { number, child: process, _stdin: stdin, reader }
}

fn lines(said: &Said) -> usize {
    said.lock().unwrap().values().map(Vec::len).sum()
}

/// How many tasks have one.
fn effects(said: &Said) -> usize {
    said.lock().unwrap().values().filter(|lines| lines.iter().any(|line| line.effect)).count()
}

/// Every task's effect is there at least once, twice only where a kill happened, and what a killed process held runs again
/// within two leases and what the backend declares to be late by.
pub(crate) async fn killed_workers_lose_nothing(ground: Ground) {
    let kills = kills();
    let queue = ground.open().await;
    let said = Said::default();
    let mut living: Vec<Process> = (0..WORKERS).map(|number| spawn(&ground.url, number, &said)).collect();
    let mut killed: HashMap<usize, Instant> = HashMap::new();
    let mut next_task = 0;
    for kill in 0..kills {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            push(&queue, next_task..next_task + RATE / 20).await;
            next_task += RATE / 20;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut killed_worker = living.remove(fastrand::usize(..living.len()));
        killed.insert(killed_worker.number, Instant::now());
        killed_worker.child.kill().await.unwrap();
        killed_worker.reader.await.unwrap();
        living.push(spawn(&ground.url, WORKERS + kill as usize, &said));
    }
    empty(&queue, 1, || if effects(&said) == next_task as usize { lines(&said) } else { 0 }).await;
    for mut process in living {
        process.child.kill().await.unwrap();
        process.reader.await.unwrap();
    }
    let recovery = LEASE * 2 + queue.capabilities().slack;
    let (again, slowest) = check(&said.lock().unwrap(), next_task, &killed);
    let line = serde_json::json!({
        "backend": ground.backend, "workers": WORKERS, "slots": SLOTS, "kills": kills, "tasks": next_task,
        "ran_again": again, "last_ran_again_after_s": slowest.as_secs_f64(),
        "allowed_s": recovery.as_secs_f64(),
    });
    println!("{line}");
    assert!(again > 0, "no kill hit anything: this run proves nothing");
    assert!(again <= killed.len() * SLOTS, "{again} ran again");
    assert!(slowest <= recovery + LATE, "recovery took {slowest:?}");
}

/// Returns how many ran again, and how long after the kill the last of them.
fn check(said: &HashMap<u32, Vec<Line>>, tasks: u32, killed: &HashMap<usize, Instant>) -> (usize, Duration) {
    let mut again = 0;
    let mut slowest = Duration::ZERO;
    for task in 0..tasks {
        let lines = said.get(&task).unwrap_or_else(|| panic!("task {task} never ran"));
        assert!(lines.iter().any(|line| line.effect), "task {task} has no effect");
        let begins: Vec<&Line> = lines.iter().filter(|line| !line.effect).collect();
        for (earlier, later) in begins.iter().zip(begins.iter().skip(1)) {
            let Some(killed_at) = killed.get(&earlier.process) else {
                panic!("task {task} ran twice though process {} was not killed", earlier.process);
            };
            again += 1;
            slowest = slowest.max(later.at.saturating_duration_since(*killed_at));
        }
    }
    (again, slowest)
}
