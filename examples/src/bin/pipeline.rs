//! A pipeline: tasks push tasks into other partitions until all the work is done. `pipeline [URL]`
//!
//! A text is split into lines, lines into words, and the words are counted. A task is settled when its
//! handler has returned, and the handler returns when its children are stored, so a crash at any moment loses
//! no work. A handler may run again after a crash. Its children then have the same ids as before, and the
//! queue keeps only one copy of those that still wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyqueue::{MessageData, MessageId, Queue, Result};
use anyqueue_worker::{Partition, TaskContext, TaskResult, Worker, task};

const TEXT: &str =
    "the queue loses nothing\nthe worker hoards nothing\nthe queue and the worker share the work";

/// The words that were seen, by the ids of their tasks, so that a task that runs twice counts once.
type Words = Arc<Mutex<BTreeMap<MessageId, String>>>;

/// Creates a child whose id follows from its parent's id and its position, so it is the same in every run of
/// the parent.
fn child(parent: &TaskContext, kind: &str, number: usize, text: &str) -> Result<MessageData> {
    let made = parent.child(kind, &text)?;
    let id = MessageId::from_foreign(&format!("{}/{number}", parent.id()));
    Ok(MessageData::with_id(id, made.payload_bytes()).with_headers(made.headers().clone()))
}

async fn push_children<'a>(
    parent: &TaskContext,
    to: &str,
    kind: &str,
    parts: impl Iterator<Item = &'a str>,
) -> TaskResult {
    let children = parts.enumerate().map(|(number, part)| child(parent, kind, number, part));
    let children = children.collect::<Result<Vec<_>>>()?;
    for result in parent.queue().push_many(to, children).await? {
        result?; // stored, or already there
    }
    Ok(())
}

async fn split_text(text: String, task: TaskContext) -> TaskResult {
    push_children(&task, "lines", "split_line", text.lines()).await
}

async fn split_line(line: String, task: TaskContext) -> TaskResult {
    push_children(&task, "words", "count_word", line.split_whitespace()).await
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    if let Err(error) = run(&url).await {
        eprintln!("pipeline: {error}");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}

async fn run(url: &str) -> Result<()> {
    let queue = Queue::new(anyqueue_backends::open(url).await?)?;
    queue.init().await?;
    queue.push("texts", task("split_text", &TEXT)?).await?;

    let words = Words::default();
    let seen = words.clone();
    let count_word = move |word: String, task: TaskContext| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).insert(task.id(), word);
        async { Ok(()) }
    };
    let worker = Worker::builder(queue.clone())
        // The partition nearest to the end has the highest weight, so that little waits in between.
        .partition(Partition::new("words").weight(4))
        .partition(Partition::new("lines").weight(2))
        .partition(Partition::new("texts"))
        .handler("split_text", split_text)
        .handler("split_line", split_line)
        .handler("count_word", count_word)
        .build()?;
    // Returns when every partition is empty, and no task is running that could push more.
    let summary = worker.run_once().await?;
    println!("{} tasks", summary.processed);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for word in words.lock().unwrap_or_else(PoisonError::into_inner).values() {
        *counts.entry(word.clone()).or_default() += 1;
    }
    for (word, count) in counts {
        println!("{count} {word}");
    }
    queue.close().await
}
