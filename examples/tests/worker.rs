//! Checks that the examples of the worker do what they say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Reads until a line begins with `begin`. Returns the rest of that line.
fn read_until(lines: &mut Lines<BufReader<ChildStdout>>, begin: &str) -> String {
    loop {
        let line = lines.next().unwrap_or_else(|| panic!("it ended before it said {begin:?}")).unwrap();
        if let Some(rest) = line.strip_prefix(begin) {
            return rest.to_owned();
        }
    }
}

#[test]
fn the_worker_retries_buries_serves_metrics_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let program = env!("CARGO_BIN_EXE_worker");
    let mut worker =
        Command::new(program).args([&url, "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    let metrics = read_until(&mut lines, "metrics: http://");
    read_until(&mut lines, "sent to busy@example.org in attempt 2");

    let (address, path) = metrics.split_once('/').unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET /{path} HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let series = "anyqueue_worker_ended_total{partition=\"mail\",kind=\"send_mail\",outcome=\"dead\"} 1";
    assert!(answer.contains(series), "{answer}");

    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    assert_eq!(read_until(&mut lines, "processed "), "3, retried 1, dead 1");
    let dead = read_until(&mut lines, "dead: ");
    assert_eq!(dead, "failed permanently in attempt 1: there is no such mailbox (failures before: 0)");
    assert!(worker.wait().unwrap().success());
}

#[test]
fn the_pipeline_works_all_that_its_tasks_push() {
    let output = Command::new(env!("CARGO_BIN_EXE_pipeline")).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A text, three lines and sixteen words.
    let expected = [
        "20 tasks",
        "1 and",
        "1 hoards",
        "1 loses",
        "2 nothing",
        "2 queue",
        "1 share",
        "5 the",
        "1 work",
        "2 worker",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}
