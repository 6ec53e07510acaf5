//! The same program on any backend, chosen by URL: `swap_backend memory:` or `swap_backend sqlite:jobs.db`.

use std::time::Duration;

use anyqueue::{Error, MessageData, Queue, QueueMessageStatus, Result};
use tokio::task::JoinSet;

const TASKS: usize = 100;
const WORKERS: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    if let Err(error) = run(&url).await {
        eprintln!("swap_backend: {error}");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}

async fn run(url: &str) -> Result<()> {
    // The backends are features in the manifest, and are named nowhere else.
    let queue = Queue::new(anyqueue_backends::open(url).await?)?;
    queue.init().await?;
    println!("backend: {}", queue.storage().name());

    let tasks = (0..TASKS).map(|number| MessageData::new(number.to_string())).collect();
    for result in queue.push_many("numbers", tasks).await? {
        result?;
    }
    show("pushed", &queue).await?;

    let mut workers: JoinSet<_> = (0..WORKERS).map(|_| work(queue.clone())).collect();
    let mut processed = 0;
    while let Some(ended) = workers.join_next().await {
        processed += ended.map_err(|panic| Error::invalid("a worker panicked").with_source(panic))??;
    }
    println!("processed: {processed}");
    show("done", &queue).await?;
    queue.close().await
}

/// Processes tasks until there are none, and returns how many there were.
async fn work(queue: Queue) -> Result<usize> {
    let mut processed = 0;
    loop {
        let mut tasks = queue.pull("numbers").max(10).wait(Duration::from_millis(200)).await?;
        if tasks.is_empty() {
            return Ok(processed);
        }
        for task in &mut tasks {
            // The actual work would be done here.
            task.settle(QueueMessageStatus::Processed).await?;
            processed += 1;
        }
    }
}

async fn show(when: &str, queue: &Queue) -> Result<()> {
    let counts = queue.counts("numbers").await?;
    let shown = |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    println!("{when}: ready {}, leased {}", shown(counts.ready), shown(counts.leased));
    Ok(())
}
