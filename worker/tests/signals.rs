//! Signals to a process whose handler blocks its thread.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyqueue::Queue;
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Partition, Worker, task};
use rustix::process::{Pid, Signal, kill_process};

/// Tells the copy of this program that is to be stopped.
const COPY: &str = "ANYQUEUE_TEST_BLOCKED";
const PATIENCE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_signal_ends_a_process_whose_worker_was_told_to_stop_and_whose_handler_blocks() {
    if std::env::var_os(COPY).is_some() {
        return block();
    }
    let name = "a_signal_ends_a_process_whose_worker_was_told_to_stop_and_whose_handler_blocks";
    let mut copy = Command::new(std::env::current_exe().unwrap());
    let copy = copy.args([name, "--exact", "--nocapture"]).env(COPY, "1").stdout(Stdio::piped()).spawn();
    let mut copy = Stopped(copy.unwrap());
    let mut lines = BufReader::new(copy.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut says = |text: &str| assert!(lines.any(|line| line.contains(text)), "it never said {text:?}");
    says("blocked");
    copy.signal(Signal::TERM);
    says("returned: 1 abandoned");
    copy.signal(Signal::TERM);
    assert_eq!(copy.end().code(), Some(143));
}

/// Works a task that never ends.
fn block() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let queue = Queue::new(MemoryQueue::new()).unwrap();
        queue.push("p", task("k", &()).unwrap()).await.unwrap();
        let worker = Worker::builder(queue)
            .partition(Partition::new("p"))
            .drain(SHORT, SHORT)
            .handler("k", |(): (), _| async {
                println!("blocked");
                std::thread::sleep(4 * PATIENCE);
                Ok(())
            })
            .build()
            .unwrap();
        let summary = worker.run().await.unwrap();
        println!("returned: {} abandoned", summary.abandoned);
    });
    drop(runtime); // as at the end of main: waits for the handler
}

/// A process that does not outlive the test.
struct Stopped(Child);

impl Stopped {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(end) = self.0.try_wait().unwrap() {
                return end;
            }
            assert!(since.elapsed() < PATIENCE, "it goes on");
            std::thread::sleep(SHORT);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
