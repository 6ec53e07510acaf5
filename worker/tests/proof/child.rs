//! The worker process that the kill proof starts, several times, and kills.

use std::process::ExitCode;
use std::time::Duration;

use anyqueue_worker::{Partition, TaskContext, Worker};

use crate::actor::{self, ACTOR};
use crate::grounds::{PARTITION, open};
use crate::say::say;
use crate::sets::{self, SET};

/// Names the queue's URL where this process is a child.
pub(crate) const CHILD: &str = "ANYQUEUE_WORKER_CHILD";
/// How many tasks one child runs at once.
pub(crate) const SLOTS: usize = 8;
/// How long each of its tasks takes.
const TAKES: Duration = Duration::from_millis(100);

/// Works until it is killed or its parent has gone. Each task is told when it begins (`B`) and when its effect is there (`E`).
pub(crate) fn run_if_child() -> Option<ExitCode> {
    if let Ok(part) = std::env::var(ACTOR) {
        runtime().block_on(actor::act(&part));
        return Some(ExitCode::SUCCESS);
    }
    let set = std::env::var(SET);
    let url = set.clone().or_else(|_| std::env::var(CHILD)).ok()?;
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    runtime().block_on(async {
        if set.is_ok() {
            return sets::work(&url).await;
        }
        let queue = open(&url).await;
        let handler = |number: u32, _: TaskContext| async move {
            say('B', number);
            tokio::time::sleep(TAKES).await;
            say('E', number);
            Ok(())
        };
        let builder = Worker::builder(queue).partition(Partition::new(PARTITION)).slots(SLOTS);
        let worker = builder.max_crashes(100).handler("k", handler).build().unwrap();
        worker.run_until(std::future::pending()).await.unwrap();
    });
    Some(ExitCode::SUCCESS)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
