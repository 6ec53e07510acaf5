//! A process that pushes or works, stands still at a step, and is killed there, or goes on while a server is killed.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::Queue;
use anyqueue_worker::{Partition, TaskContext, TaskError, Worker, task};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::grounds::{PARTITION, with_ledger};
use crate::say::tell;
use crate::steps::{Gate, Order, Step, Stops, tell_ids};

/// Has a [`Part`] where this process is one.
pub(crate) const ACTOR: &str = "ANYQUEUE_WORKER_ACTOR";
/// How many tasks an actor pushes, or has in its hands, at once.
pub(crate) const BATCH: usize = 4;
/// The pause after a push that failed: its server is away.
const PAUSE: Duration = Duration::from_millis(50);

/// What a process does, and where it stands still.
#[derive(Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) url: String,
    /// Where the ledger is, if that is not in the queue.
    pub(crate) ledger: Option<String>,
    pub(crate) step: String,
}

/// Tells its steps, and does as it is told, until it is killed or its parent has gone.
pub(crate) async fn act(part: &str) {
    let part: Part = serde_json::from_str(part).unwrap();
    let step: Step = part.step.parse().unwrap();
    let gate = Gate::new(step, orders());
    let storage = anyqueue_backends::open(&part.url).await.unwrap();
    let ledger = match &part.ledger {
        Some(url) => Some(anyqueue_backends::open(url).await.unwrap()),
        None => None,
    };
    let queue = with_ledger(Arc::new(Stops::new(storage, Arc::clone(&gate))), ledger).await;
    if step == Step::Pushed {
        push(&queue, &gate).await;
        gate.told(Order::End).await;
    } else {
        work(&queue, &gate).await;
    }
    queue.close().await.unwrap();
}

/// What the parent says, line by line. Where it says no more it is gone, and so is this process.
fn orders() -> watch::Receiver<Order> {
    let (say, said) = watch::channel(Order::StandStill);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            say.send_replace(if line == "go on" { Order::GoOn } else { Order::End });
        }
        std::process::exit(1);
    });
    said
}

/// Pushes until it has stood still, and once more afterwards.
async fn push(queue: &Queue, gate: &Gate) {
    loop {
        let goes_on = gate.was_told_to_go_on();
        let messages: Vec<_> = (0..BATCH).map(|_| task("k", &false).unwrap()).collect();
        let ids: Vec<_> = messages.iter().map(anyqueue::MessageData::id).collect();
        tell_ids("pushes", ids.iter().copied());
        let answers = queue.push_many(PARTITION, messages).await.unwrap();
        let stored: Vec<_> =
            ids.iter().zip(&answers).filter(|(_, it)| it.is_ok()).map(|(id, _)| *id).collect();
        tell_ids("pushed", stored.iter().copied());
        match (goes_on, stored.len()) {
            (true, BATCH) => return tell("goes on"),
            (_, 0) => tokio::time::sleep(PAUSE).await,
            _ => {}
        }
    }
}

/// Runs tasks until it is told to end. Those that are to die do.
async fn work(queue: &Queue, gate: &Arc<Gate>) {
    let at = Arc::clone(gate);
    let handler = move |dies: bool, task: TaskContext| {
        let gate = Arc::clone(&at);
        async move {
            gate.enter().await;
            tell_ids("begins", [task.id()]);
            gate.pass(Step::Ran, vec![task.id()]).await;
            if dies { Err(TaskError::permanent("it was to die")) } else { Ok(()) }
        }
    };
    let builder = Worker::builder(queue.clone()).partition(Partition::new(PARTITION)).slots(BATCH);
    let worker = builder.max_crashes(100).handler("k", handler).build().unwrap();
    worker.run_until(gate.told(Order::End)).await.unwrap();
}
