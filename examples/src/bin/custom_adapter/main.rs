//! A custom backend, used by an application that knows nothing about it.

mod adapter;
mod capabilities;

use std::time::Duration;

use adapter::ListQueue;
use anyqueue::{ErrorKind, MessageData, Page, Queue, QueueMessageStatus};

#[tokio::main]
async fn main() -> anyqueue::Result<()> {
    let storage = ListQueue::new();
    let colleague = Queue::new(storage.client())?;
    let queue = Queue::new(storage)?;

    // One client waits while another pushes.
    let pull = tokio::spawn(async move {
        let mut tasks = colleague.pull("greetings").wait(Duration::from_secs(5)).await?;
        for task in &mut tasks {
            println!("received {:?}", String::from_utf8_lossy(task.payload()));
            task.settle(QueueMessageStatus::poisonous("nobody to greet")).await?;
        }
        anyqueue::Result::Ok(tasks.len())
    });
    queue.push("greetings", MessageData::new(b"hello")).await?;
    match pull.await {
        Ok(received) => println!("{} received", received?),
        Err(panic) => println!("{panic}"),
    }

    // Core provides what the backend did not have to implement: dead letters,
    for dead in queue.dead_letters("greetings")?.list(Page::of(10)).await? {
        println!("dead: {}", dead.reason.unwrap_or_default());
    }
    println!("redriven: {}", queue.dead_letters("greetings")?.redrive().await?.moved);
    // the release of dropped deliveries,
    drop(queue.pull("greetings").await?);
    println!("back: {}", queue.pull("greetings").wait(Duration::from_secs(1)).await?.len());
    // and a clear refusal of whatever is not declared.
    let urgent = queue.push("greetings", MessageData::new(b"hello").with_priority(9)).await;
    if let Err(error) = urgent
        && error.kind() == ErrorKind::Unsupported
    {
        println!("refused: {error}");
    }
    queue.close().await
}
