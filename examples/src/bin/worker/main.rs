//! A worker as it would be deployed: typed tasks, retries, dead letters, a metrics endpoint, an orderly
//! shutdown.
//!
//! `worker [URL] [METRICS ADDRESS]` runs until SIGTERM or Ctrl-C. It pushes a few tasks itself, so that there
//! is something to see.

mod metrics;

use std::time::Duration;

use anyqueue::{Error, Page, Queue, Result};
use anyqueue_worker::{Partition, Retry, TaskContext, TaskError, TaskResult, Worker, history, task};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

#[derive(Serialize, Deserialize)]
struct Report {
    month: u8,
}

/// A task runs at least once. A real one would pass the task's id to the mail server, so that no mail is sent
/// twice.
async fn send_mail(mail: Mail, task: TaskContext) -> TaskResult {
    match mail.to.as_str() {
        "nobody" => Err(TaskError::permanent("there is no such mailbox")),
        "busy@example.org" if task.attempt() == 1 => Err(TaskError::retry("the mail server is busy")),
        to => {
            println!("sent to {to} in attempt {}", task.attempt());
            Ok(())
        }
    }
}

/// A long task checks now and then whether it should stop. What it has not done is done when the task runs
/// again.
async fn write_report(report: Report, task: TaskContext) -> TaskResult {
    for page in 1..=3 {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            reason = task.cancelled() => return Err(TaskError::retry(format!("stopped at page {page}: {reason}"))),
        }
    }
    println!("report of month {} written", report.month);
    Ok(())
}

fn main() -> std::process::ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("worker: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let end = runtime.block_on(work());
    // Do not wait for a handler that blocks its thread: its task runs again when its lease ends.
    runtime.shutdown_background();
    end
}

async fn work() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    if let Err(error) = run(&url, &address).await {
        eprintln!("worker: {error}");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}

async fn run(url: &str, address: &str) -> Result<()> {
    // The recorder is installed first, because it does not see metrics that were registered before it.
    let served =
        metrics::serve(address).await.map_err(|error| Error::invalid(format!("no metrics: {error}")))?;
    println!("metrics: http://{served}/metrics");
    let queue = Queue::new(anyqueue_backends::open(url).await?)?;
    queue.init().await?;
    push_some(&queue).await?;

    let retry = Retry::exponential(Duration::from_millis(200)).max(3);
    let worker = Worker::builder(queue.clone())
        .partition(Partition::new("mail").weight(3).retry(retry))
        .partition(Partition::new("reports").concurrency(2).timeout(Duration::from_mins(5)))
        .handler("send_mail", send_mail)
        .handler("write_report", write_report)
        .slots(8)
        .build()?;
    let summary = worker.run().await?;

    println!("processed {}, retried {}, dead {}", summary.processed, summary.retried, summary.dead);
    for dead in queue.dead_letters("mail")?.list(Page::of(100)).await? {
        let reason = dead.reason.as_deref().unwrap_or("unknown");
        println!("dead: {reason} (failures before: {})", history(dead.message.headers()).len());
    }
    queue.close().await
}

async fn push_some(queue: &Queue) -> Result<()> {
    for to in ["a@example.org", "busy@example.org", "nobody"] {
        queue.push("mail", task("send_mail", &Mail { to: to.to_owned() })?).await?;
    }
    queue.push("reports", task("write_report", &Report { month: 7 })?).await?;
    Ok(())
}
