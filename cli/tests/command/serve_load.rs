//! `anyqueue serve` under load: what a thousand waiting workers cost, and what a kill leaves.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::bed::{Bed, PATIENCE, ended, signal, until};
use crate::serve::{Service, serve, serve_at};

const POLLS: usize = 1000;
/// How long each of them waits.
const WAIT: Duration = Duration::from_secs(30);
/// The most memory that an instance may take with them.
const MOST_MIB: u64 = 200;
/// Open files of a process with so many connections, and some.
const FILES: u64 = 4096;

/// The most resident memory that a process has had.
fn peak_mib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

fn open_files(child: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", child.id().unwrap())).unwrap().count()
}

/// Room for as many connections in this process, and in those that it starts.
fn allow_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    assert!(limit.maximum.is_none_or(|most| most >= FILES), "raise the hard limit of open files to {FILES}");
    if limit.current.is_some_and(|now| now < FILES) {
        limit.current = Some(FILES);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

/// A request of which the answer is still to be read.
async fn begin(address: &str, path: &str, body: &Value) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<Value> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).map_err(std::io::Error::other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_workers_that_wait_fit_into_200_mib_and_each_is_answered() {
    allow_connections();
    let bed = Bed::new();
    let service = serve(&bed, &["--max-connections", &(2 * POLLS + 2).to_string()]).await;
    let before = peak_mib(&service.child);
    let begun = Instant::now();
    let pull = json!({ "partitions": ["idle"], "wait_ms": WAIT.as_millis() });
    let mut polls = Vec::new();
    for _ in 0..POLLS {
        polls.push(timeout(PATIENCE, begin(&service.address, "/v1/pull", &pull)).await.unwrap().unwrap());
    }
    until("all are connected", async || (open_files(&service.child) >= POLLS).then_some(())).await;
    for poll in &polls {
        let early = poll.try_read(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "each of them waits");
    }
    let items: Vec<_> = (0..POLLS).map(|number| json!({ "payload": number.to_string() })).collect();
    service.post("/v1/partitions/idle/messages", json!(items)).await;
    let mut got = HashSet::new();
    for poll in polls {
        let pulled = timeout(PATIENCE, answer(poll)).await.expect("an answer in time").unwrap();
        for delivery in pulled["deliveries"].as_array().unwrap() {
            assert!(got.insert(delivery["payload"].as_str().unwrap().to_owned()), "delivered twice");
        }
    }
    let took = begun.elapsed();
    assert_eq!(
        got.len(),
        POLLS,
        "each of them got one; the first waited until {WAIT:?}, and this took {took:?}"
    );
    let after = peak_mib(&service.child);
    println!("{POLLS} waiting: {before} MiB before, {after} MiB at most, in {took:?}");
    assert!(after < MOST_MIB, "{after} MiB");
}

const TASKS: usize = 400;
const KILLS: usize = 4;
/// Each handler writes the id, so that a run that nobody heard of shows too.
const WORKER: &str = r#"
import sys, time
from anyqueue import Worker
worker = Worker(sys.argv[1], concurrency=4, lease=4.0, wait=2.0, timeout=5.0)
@worker.handler("load")
def run(task):
    with open("ran", "a") as file:
        file.write(f"{task.id}\n")
    time.sleep(0.01)
    return task.id
worker.run(handle_signals=True)
"#;

fn python(bed: &Bed, address: &str) -> Child {
    let client = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../clients/python");
    let mut command = Command::new("python3");
    bed.place(command.args(["-B", "-c", WORKER, &format!("http://{address}")]));
    command.env("PYTHONPATH", client).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A push that is repeated until it is answered: by its id, a message that is there is stored once.
async fn push(address: &str, id: &str) {
    let body = json!({ "payload": "x", "id": id, "max_retries": 50 });
    until("a push is answered", async || {
        let stream = begin(address, "/v1/partitions/load/messages", &body).await.ok()?;
        let answered = timeout(Duration::from_secs(5), answer(stream)).await.ok()?.ok()?;
        ["stored", "duplicate"].contains(&answered[0]["outcome"].as_str()?).then_some(())
    })
    .await;
}

fn runs(bed: &Bed) -> Vec<String> {
    let text = std::fs::read_to_string(bed.path("ran")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Kills it somewhere on the way, while messages are pushed, held and settled, again and again; returns the last one.
async fn killed_again_and_again(bed: &Bed, mut service: Service) -> Service {
    let address = service.address.clone();
    for kill in 1..=KILLS {
        let enough = TASKS * kill / (KILLS + 2);
        until("tasks are run", async || (runs(bed).len() >= enough).then_some(())).await;
        signal(&service.child, Signal::KILL);
        ended(service.child).await;
        // Another test may have the port for a moment.
        service = until("it listens again", async || serve_at(bed, &address, &["--ledger"]).await).await;
    }
    service
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_again_and_again_under_load_loses_nothing() {
    let bed = Bed::new();
    let first = serve(&bed, &["--ledger"]).await;
    let address = first.address.clone();
    let workers = [python(&bed, &address), python(&bed, &address)];
    let ids: Vec<String> = (0..TASKS).map(|_| anyqueue::MessageId::new().to_string()).collect();
    let pushing = async {
        for id in &ids {
            push(&address, id).await;
        }
    };
    let (service, ()) = tokio::join!(killed_again_and_again(&bed, first), pushing);
    let count = async |state: &str| {
        let path = format!("/v1/tasks/count?partition=load{state}");
        let (status, answer) = service.ask("GET", &path, "", "").await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["value"].as_u64().unwrap()
    };
    let all = TASKS as u64;
    until("all have succeeded, and nothing else is left", async || {
        (count("&state=succeeded").await == all && count("").await == all).then_some(())
    })
    .await;
    assert_eq!(bed.counts("load").await, [0, 0, 0, 0]);
    let ran = runs(&bed);
    assert_eq!(ran.iter().collect::<HashSet<_>>(), ids.iter().collect(), "each was run, and nothing else");
    println!("{TASKS} tasks, {} runs, {KILLS} kills", ran.len());
    for worker in workers {
        signal(&worker, Signal::TERM);
        ended(worker).await;
    }
}
