//! One worker process, which is killed and frozen.

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

/// The partition of the tasks under the limit.
pub(super) const TASKS: &str = "tasks";
/// Their kind.
pub(super) const KIND: &str = "run";
/// The maximum number of tasks that one process runs at once.
pub(super) const SLOTS: usize = 4;
/// The time between two beats.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// How long after its last sign of life a process counts as alive, and its permits as its own.
pub(super) const VALID: Duration = Duration::from_secs(6);

/// In no run is a task killed with its process more often than this.
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

/// What a task does.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Job {
    /// How long it takes.
    pub(super) ms: u64,
    /// Whether it fails for good at the end.
    pub(super) dies: bool,
}

/// Returns the name of a process in the registry.
pub(super) fn name(number: u32) -> String {
    format!("worker-{number}")
}

/// Works until SIGTERM.
pub(crate) async fn work(arguments: &Arguments) -> Result<()> {
    end_with_parent();
    let (queue, home) = loop {
        match open(&arguments.places).await {
            Ok(opened) => break opened,
            // A server may be down at the moment.
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

/// Ends this process when standard input closes: it is a pipe from the soak, which closes when that ends in
/// whatever way.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}
