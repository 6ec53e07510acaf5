//! The tutorial: the SHA-256 sums of all files in a directory, worked through a queue in an SQLite file.
//!
//! Kill it at any moment and run it again with the same arguments: it goes on where it was. Three things make it so:
//! a message's id is made from its file's name, so that the queue refuses what is pushed again as a duplicate; sums are
//! on the disk before their messages are settled; and what a killed run held comes back when its lease ends.

mod list;

use std::{error::Error, ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};
use std::{process::ExitCode, sync::Arc, time::Duration};

use anyqueue::{MessageData, MessageId, Queue, QueueMessageStatus as Status};
use anyqueue_sqlite::SqliteQueue;
use clap::Parser;
use indicatif::ProgressBar;
use list::{List, beside, sum};
use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, task::JoinSet, task::spawn_blocking};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The partition. A storage has as many as you name.
const FILES: &str = "files";
/// How long a file stays with a process that died. A living one renews its leases, however long a file takes.
const LEASE: Duration = Duration::from_secs(5);

/// Writes the SHA-256 sums of all files in a directory, as sha256sum prints them.
#[derive(Parser)]
struct Args {
    /// The directory
    dir: PathBuf,
    /// Where the sums go; until all are done they are kept in FILE.partial
    #[arg(long, value_name = "FILE", default_value = "SHA256SUMS")]
    out: PathBuf,
    /// The queue, an SQLite file that belongs to this list [default: the --out FILE with .queue]
    #[arg(long, value_name = "FILE")]
    queue: Option<PathBuf>,
    /// Try again what earlier runs could not read
    #[arg(long)]
    redrive: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let all = run(Args::parse()).await.inspect_err(|error| eprintln!("quickstart: {error}"));
    // As with sha256sum: what could not be read is a failure, although the list is written.
    if matches!(all, Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Answers whether everything could be read.
async fn run(args: Args) -> Result<bool> {
    let file = args.queue.unwrap_or_else(|| beside(&args.out, ".queue"));
    let mut list = List::open(args.dir, args.out)?;
    let queue = Queue::new(SqliteQueue::open(&file).await?)?;
    queue.init().await?;
    list.leave_out(["", "-wal", "-shm"].map(|end| beside(&file, end)));
    if args.redrive {
        queue.dead_letters(FILES)?.redrive().await?;
    }
    push(&queue, &mut list).await?;
    let bar = ProgressBar::new(list.len() + waiting(&queue).await?).with_position(list.len());
    let list = Arc::new(Mutex::new(list));
    let consumers = std::thread::available_parallelism()?.get();
    let consume = |_| consume(queue.clone(), list.clone(), bar.clone(), consumers);
    let mut running: JoinSet<_> = (0..consumers).map(consume).collect();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    bar.finish_and_clear();
    let none_dead = report(&queue).await?;
    queue.close().await?;
    Ok(list.lock().await.finish(none_dead)? && none_dead)
}

/// Pushes the files that are not done yet. The payload is the path's bytes, which need not be text.
async fn push(queue: &Queue, list: &mut List) -> Result<()> {
    let mut messages = list.walk().map(|path| {
        let path = path.as_os_str().as_bytes();
        let id = Sha256::digest(path).first_chunk().copied().unwrap_or_default();
        MessageData::with_id(MessageId::from_bytes(id), path.to_vec())
    });
    loop {
        let batch: Vec<_> = messages.by_ref().take(1000).collect();
        if batch.is_empty() {
            return Ok(());
        }
        for answer in queue.push_many(FILES, batch).await? {
            answer?; // stored, or a duplicate of what an earlier run stored
        }
    }
}

/// How many files are in the queue: held ones too, dead letters not.
async fn waiting(queue: &Queue) -> Result<u64> {
    let counts = queue.counts(FILES).await?;
    Ok([counts.ready, counts.delayed, counts.leased].into_iter().flatten().sum())
}

/// Works files until none is left.
async fn consume(queue: Queue, list: Arc<Mutex<List>>, bar: ProgressBar, consumers: usize) -> Result<()> {
    loop {
        // Many at once while there are many, one by one at the end, so that all consumers end together.
        let left = usize::try_from(bar.length().unwrap_or(0).saturating_sub(bar.position()))?;
        let max = (left / consumers / 2).clamp(1, 32);
        let mut batch = queue.pull(FILES).max(max).wait(Duration::from_millis(250)).lease(LEASE).await?;
        if batch.is_empty() && waiting(&queue).await? == 0 {
            return Ok(());
        }
        let paths = batch.iter().map(|file| OsStr::from_bytes(file.payload()).into()).collect();
        let (list, bar) = (list.clone(), bar.clone());
        // Files block. On another thread they do not keep the runtime from renewing the leases.
        let statuses = spawn_blocking(move || work(&list, &bar, paths)).await??;
        for outcome in queue.settle_many(batch.iter_mut().zip(statuses)).await {
            outcome?; // settled, or lost: then somebody else has it, and finds it done
        }
    }
}

/// Sums files, and answers how to settle each. The sums are on the disk before it returns.
fn work(list: &Mutex<List>, bar: &ProgressBar, paths: Vec<PathBuf>) -> Result<Vec<Status>> {
    let status = |path: PathBuf| -> Result<Status> {
        bar.inc(1);
        // A run that was killed before it settled has it in the list already.
        if !list.blocking_lock().has(&path)? {
            match sum(&path) {
                Ok(sum) => list.blocking_lock().add(path, sum)?,
                Err(error) => return Ok(Status::poisonous(error.to_string())),
            }
        }
        Ok(Status::Processed)
    };
    let statuses = paths.into_iter().map(status).collect();
    list.blocking_lock().sync()?;
    statuses
}

/// Names what could not be read, up to a thousand files, and why. Answers whether there was nothing of the kind.
async fn report(queue: &Queue) -> Result<bool> {
    let dead = queue.dead_letters(FILES)?.list(None, 1000).await?;
    for letter in &dead {
        let path = OsStr::from_bytes(letter.message.payload()).display();
        eprintln!("quickstart: {path}: {}", letter.reason.as_deref().unwrap_or("no reason given"));
    }
    if !dead.is_empty() {
        eprintln!("quickstart: once this can be read, run it again with --redrive");
    }
    Ok(dead.is_empty())
}
