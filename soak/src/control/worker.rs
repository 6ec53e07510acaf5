//! One worker process: what is killed and frozen.

use std::path::PathBuf;
use std::time::Duration;

use anyqueue::{CancellationToken, Queue};
use anyqueue_control::limits::{Limits, PermitOptions};
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_worker::{Partition, TaskContext, TaskError, Worker};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::record::Writer;
use crate::backends::Result;
use crate::open::Places;

/// Where tasks under the limit are.
pub(super) const TASKS: &str = "tasks";
/// Their kind.
pub(super) const KIND: &str = "run";
/// Tasks that one process runs at once, at most.
pub(super) const SLOTS: usize = 4;
/// From one beat to the next.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// How long a process counts as alive, and its permits as its own, after it was heard of last.
pub(super) const VALID: Duration = Duration::from_secs(6);

/// A task is killed with its process more often than this in no run.
const CRASHES: u32 = 1000;
/// The pause between two attempts to reach the servers at the beginning.
const AGAIN: Duration = Duration::from_millis(300);

/// Works until it is told to end, or is alone.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    places: Places,
    /// Which of the processes it is
    #[arg(long)]
    number: u32,
    /// Where it notes what it runs
    #[arg(long)]
    record: PathBuf,
}

/// What a task is to do.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Job {
    /// How long it takes.
    pub(super) ms: u64,
    /// Whether it fails for good in the end.
    pub(super) dies: bool,
}

/// What the registry calls a process.
pub(super) fn name(number: u32) -> String {
    format!("worker-{number}")
}

/// Works until SIGTERM.
pub(crate) async fn work(arguments: &Arguments) -> Result<()> {
    end_with_parent();
    let (queue, home) = loop {
        match open(&arguments.places).await {
            Ok(opened) => break opened,
            // A server may be down just now.
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    };
    let store = home.control()?;
    let writer = Writer::open(&arguments.record, arguments.number)?;
    let options = PermitOptions::default().with_every(BEAT).with_valid_for(VALID);
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new(TASKS))
        .handler(KIND, move |job: Job, context: TaskContext| run(writer.clone(), job, context))
        .name(name(arguments.number))
        .slots(SLOTS)
        .max_crashes(CRASHES)
        .permits(Limits::new(store.clone()).permits(options)?)
        .build()?;
    let scheduler = arguments.places.scheduler(&queue, &home)?;
    let options = MemberOptions::default().with_every(BEAT).with_valid_for(VALID);
    let member = Registry::new(store).join(&worker, options).await?;
    let stop = CancellationToken::new();
    let work = async {
        let _stops_them = stop.clone().drop_guard();
        member.during(worker.run()).await.0
    };
    let (ended, ()) = tokio::join!(work, scheduler.run(stop.cancelled()));
    ended?;
    queue.close().await?;
    if arguments.places.store_url.is_some() {
        home.close().await?;
    }
    Ok(())
}

async fn open(places: &Places) -> Result<(Queue, Queue)> {
    let queue = places.open_to_work().await?;
    let home = places.open_control(&queue).await?;
    Ok((queue, home))
}

async fn run(writer: Writer, job: Job, context: TaskContext) -> std::result::Result<(), TaskError> {
    let running = writer.begin(context.id());
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(job.ms)) => running.done(),
        _ = context.cancelled() => return Err(TaskError::retry("it was asked to stop")),
    }
    if job.dies { Err(TaskError::permanent("its payload says so")) } else { Ok(()) }
}

/// Standard input is a pipe from the soak, which closes when that ends in whatever way.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}
