//! The worker in shell, run against a service.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::bed::{Bed, memory};

/// No run takes as long; one that does has hung.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long a pull of the worker waits, less what its end may take: one that ends within is not waiting for the end of a pull.
const AT_ONCE: Duration = Duration::from_secs(15);

fn worker_at(address: &str, options: &[&str], command: &[&str]) -> Child {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../clients/shell/worker.sh");
    Command::new("sh")
        .arg(script)
        .args(["-u", &format!("http://{address}"), "-q", "jobs"])
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

fn worker(bed: &Bed, options: &[&str], command: &[&str]) -> Child {
    worker_at(&bed.client.0.to_string(), options, command)
}

/// Its exit code, and what it wrote to its standard error.
async fn ended(child: Child) -> (Option<i32>, String) {
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("an end").unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn in_order() -> (Option<i32>, String) {
    (Some(0), String::new())
}

fn terminate(child: &Child) {
    let pid = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
}

async fn task(bed: &Bed, id: &str) -> Value {
    bed.client.get(&format!("/v1/tasks/{id}?partition=jobs")).await.ok()
}

/// Waits until a task is in this state: no request waits for a beginning.
async fn until(bed: &Bed, id: &str, state: &str) {
    let deadline = Instant::now() + PATIENCE;
    while task(bed, id).await["state"] != state {
        assert!(Instant::now() < deadline, "not {state} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn each_message_is_worked_on_by_the_command_and_settled_as_it_ends() {
    let bed = Bed::new().await;
    let odd = "it's \"odd\"\n$(touch x) `id` \\ % \u{1f980}";
    let text = bed.push("jobs", json!({ "payload": odd, "kind": "echo" })).await;
    let bytes = bed.push("jobs", json!({ "payload_base64": "/wAB", "kind": "count" })).await;
    let dead = bed.push("jobs", json!({ "payload": "x", "kind": "bad" })).await;
    let failed = bed.push("jobs", json!({ "payload": "x", "kind": "fails", "max_retries": 3 })).await;
    let large = bed.push("jobs", json!({ "payload": "x", "kind": "large" })).await;
    let script = r#"case $ANYQUEUE_KIND in
        echo) cat ;;
        count) wc -c ;;
        bad) echo why >&2; exit 65 ;;
        large) head -c 3000000 /dev/zero | tr '\0' x ;;
        *) echo "broke $ANYQUEUE_MESSAGE_ID" >&2; exit 1 ;;
    esac"#;
    assert_eq!(ended(worker(&bed, &["-1"], &["sh", "-c", script])).await, in_order());
    let done = task(&bed, &text).await;
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!(odd)));
    assert_eq!(task(&bed, &bytes).await["result"].as_str().unwrap().trim(), "3");
    let died = task(&bed, &dead).await;
    assert_eq!(died["state"], "failed", "{died}");
    assert!(died.to_string().contains("exit code 65: why"), "{died}");
    let again = task(&bed, &failed).await;
    assert_eq!(again["state"], "scheduled", "{again}");
    assert!(again.to_string().contains(&format!("broke {failed}")), "{again}");
    assert_eq!(task(&bed, &large).await["result"].as_str().unwrap().len(), 40_000, "its beginning");
}

#[tokio::test]
async fn a_worker_that_is_told_to_end_finishes_what_it_has_and_begins_nothing() {
    let bed = Bed::new().await;
    let ids = [
        bed.push("jobs", json!({ "payload": "1" })).await,
        bed.push("jobs", json!({ "payload": "2" })).await,
    ];
    let child = worker(&bed, &["-n", "w"], &["sh", "-c", "sleep 2; echo done"]);
    until(&bed, &ids[0], "running").await;
    terminate(&child);
    assert_eq!(ended(child).await, in_order());
    let first = task(&bed, &ids[0]).await;
    assert_eq!((&first["result"], &first["worker"]), (&json!("done\n"), &json!("w")));
    assert_eq!(task(&bed, &ids[1]).await["state"], "queued");
}

#[tokio::test]
async fn a_worker_that_waits_for_messages_ends_at_once_when_it_is_told_to() {
    let bed = Bed::new().await;
    let id = bed.push("jobs", json!({ "payload": "x" })).await;
    let child = worker(&bed, &[], &["true"]);
    until(&bed, &id, "succeeded").await;
    let begin = Instant::now();
    terminate(&child);
    assert_eq!(ended(child).await, in_order());
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_message_is_held_for_as_long_as_the_command_runs() {
    let bed = Bed::new().await;
    let id = bed.push("jobs", json!({ "payload": "x" })).await;
    let child = worker(&bed, &["-1", "-l", "6"], &["sleep", "9"]);
    assert_eq!(ended(child).await, in_order());
    let done = task(&bed, &id).await;
    assert_eq!((&done["state"], &done["attempt"]), (&json!("succeeded"), &json!(1)));
}

#[tokio::test]
async fn a_command_whose_task_is_cancelled_is_ended_also_one_that_does_not_listen() {
    let bed = Bed::new().await;
    let id = bed.push("jobs", json!({ "payload": "x" })).await;
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let child = worker(&bed, &["-1", "-l", "6"], &["sh", "-c", deaf]);
    until(&bed, &id, "running").await;
    bed.client.send("POST", &format!("/v1/tasks/{id}/cancel?partition=jobs"), &[], b"").await.ok();
    assert_eq!(ended(child).await, in_order());
    assert_eq!(task(&bed, &id).await["state"], "cancelled");
}

#[tokio::test]
async fn a_command_that_runs_for_longer_than_its_task_may_is_ended() {
    let bed = Bed::new().await;
    let item = json!({ "payload": "x", "max_duration_ms": 1500, "max_retries": 0 });
    let id = bed.push("jobs", item).await;
    assert_eq!(ended(worker(&bed, &["-1"], &["sleep", "100"])).await, in_order());
    let dead = task(&bed, &id).await;
    assert!(dead["state"] == "failed" && dead.to_string().contains("longer than its max_duration"), "{dead}");
}

/// More than any worker sends to a service that does not answer.
const REQUESTS: usize = 64;

/// A service that hands out this delivery and then hangs: each request after the pull is read and not answered, and comes out here.
async fn hangs_after_it_handed_out(delivery: Value) -> (String, mpsc::Receiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, requests) = mpsc::channel(REQUESTS);
    tokio::spawn(async move {
        let mut hung = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 65536];
            // What a worker sends is one small packet or two.
            let mut text = String::new();
            while !text.contains('}') {
                let read = stream.read(&mut request).await.unwrap_or(0);
                if read == 0 {
                    break;
                }
                text.push_str(&String::from_utf8_lossy(&request[..read]));
            }
            if text.starts_with("POST /v1/pull") && hung.is_empty() {
                let answer = json!({ "pull": "p", "deliveries": [delivery] }).to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
                stream.write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
            } else {
                hung.push(stream);
                let _ = asked.send(text).await;
            }
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_command_is_stopped_when_its_lease_has_ended_also_if_the_service_hangs() {
    let delivery =
        json!({ "delivery": "AQ", "partition": "jobs", "id": "7", "payload": "x", "lease_ms": 6000 });
    let (address, _requests) = hangs_after_it_handed_out(delivery).await;
    let began = Instant::now();
    let mut child = worker_at(&address, &["-l", "6"], &["sleep", "100"]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap().unwrap();
    assert!(line.starts_with("worker.sh: 7 is lost"), "{line}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    terminate(&child);
    assert_eq!(ended(child).await.0, Some(0));
}

#[tokio::test]
async fn a_time_limit_does_not_come_late_where_the_service_hangs() {
    let delivery = json!({
        "delivery": "AQ", "partition": "jobs", "id": "7", "payload": "x", "lease_ms": 12_000, "max_duration_ms": 4000
    });
    let (address, mut requests) = hangs_after_it_handed_out(delivery).await;
    let began = Instant::now();
    let child = worker_at(&address, &["-l", "9"], &["sleep", "100"]);
    let mut asked = String::new();
    while !asked.starts_with("POST /v1/settle") {
        asked = tokio::time::timeout(PATIENCE, requests.recv()).await.expect("a request").unwrap();
    }
    assert!(asked.contains("timed_out"), "{asked}");
    // The extension before it hangs for ten seconds if it may.
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    terminate(&child);
    assert_eq!(ended(child).await.0, Some(0), "once its lease has ended");
}

#[tokio::test]
async fn a_service_that_is_away_is_tried_again_and_the_worker_still_ends_when_it_is_told_to() {
    // Bound, so that it is given to nobody, and never listening.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap().to_string();
    let mut child = worker_at(&nobody, &[], &["true"]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for again in ["again in 1s", "again in 2s", "again in 4s"] {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap().unwrap();
        assert!(line.starts_with("worker.sh: to pull failed (000") && line.ends_with(again), "{line}");
    }
    terminate(&child);
    assert_eq!(ended(child).await.0, Some(0));
}

#[tokio::test]
async fn a_token_is_read_from_a_file_and_a_wrong_one_ends_the_worker() {
    let bed = Bed::with(memory(), |builder| builder.token("correct-horse-battery")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "correct-horse-battery\n").unwrap();
    assert_eq!(ended(worker(&bed, &["-1", "-t", path], &["true"])).await, in_order());
    std::fs::write(&file, "wrong-horse-battery\n").unwrap();
    let (code, said) = ended(worker(&bed, &["-1", "-t", path], &["true"])).await;
    assert!(
        code == Some(1) && said.contains("to pull is refused (401)") && !said.contains("horse"),
        "{said}"
    );
}

#[tokio::test]
async fn a_mistake_on_its_command_line_is_named() {
    let bed = Bed::new().await;
    let refused = async |options: &[&str], command: &[&str], why: &str| {
        let (code, said) = ended(worker(&bed, options, command)).await;
        assert!(code == Some(2) && said.contains(why), "{code:?}: {said}");
    };
    refused(&["-l", "soon"], &["true"], "-l soon").await;
    refused(&["-l", "2"], &["true"], "from 3 to 9999").await;
    refused(&[], &[], "name a command").await;
    refused(&["-t", "/nowhere"], &["true"], "cannot be read").await;
}
