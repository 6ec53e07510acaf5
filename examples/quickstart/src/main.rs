//! The tutorial: the SHA-256 sums of all files in a directory, computed through a queue in an SQLite file.
//!
//! Kill it at any moment and run it again with the same arguments: it resumes. There are three reasons. The id of a message is
//! made from its file's path, so the queue refuses a second push as a duplicate. A sum is pushed, into a partition of its own,
//! before its file is settled. And the files that a killed run held come back when their leases end.

mod args;
mod line;

use std::ffi::{OsStr, OsString};
use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
use std::path::{Path, PathBuf};
use std::{collections::HashMap, error::Error, fs::File, process::ExitCode, time::Duration};

use anyqueue::{Delivery, MessageData, MessageId, Page, Queue, QueueMessageStatus as Status};
use anyqueue_sqlite::SqliteQueue;
use clap::Parser as _;
use futures_util::{StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
/// Lines of the list, by the ids of their messages.
type Sums = HashMap<MessageId, Vec<u8>>;

/// How long a file stays with a process that died. A living one renews its leases, however long a file takes.
const LEASE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let all = run(args::Args::parse()).await.inspect_err(|error| eprintln!("quickstart: {error}"));
    // As with sha256sum, an unreadable file is a failure, although the list is written.
    if matches!(all, Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether everything could be read.
async fn run(args: args::Args) -> Result<bool> {
    let args::Args { dir, out, queue: file, redrive } = &args;
    dir.read_dir().map_err(|error| format!("{}: {error}", dir.display()))?;
    // Two runs would each finish the list without the other's sums.
    let lock = File::options().append(true).create(true).open(file);
    let lock = lock.map_err(|error| format!("{}: {error}", file.display()))?;
    lock.try_lock().map_err(|error| format!("{}: another run uses it: {error}", file.display()))?;
    let queue = Queue::new(SqliteQueue::open(file).await?)?;
    queue.init().await?;
    // A storage has as many partitions as you name.
    let [files, sums] = &["files", "sums"].map(|what| format!("{what}-of-{}", id("", dir)));
    if *redrive {
        queue.dead_letters(files)?.redrive().await?;
    }
    let done = finished(&queue, sums).await?;
    let own = ["", "-wal", "-shm"].map(|end| OsString::from_iter([file.as_os_str(), end.as_ref()]).into());
    let all_seen = push(&queue, files, dir, &done, &[&own[..], std::slice::from_ref(out)].concat()).await?;
    let done = done.len() as u64;
    let bar = ProgressBar::new(done + unsettled(&queue, files).await?).with_position(done);
    let all_settled = async {
        while unsettled(&queue, files).await.is_ok_and(|left| left > 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let held = queue.stream(files).window(64).lease(LEASE).build()?.take_until(all_settled);
    held.err_into().try_for_each_concurrent(64, |file| work(&queue, sums, &bar, file)).await?;
    bar.finish_and_clear();
    let mut lines: Vec<_> = finished(&queue, sums).await?.into_values().collect();
    lines.sort_by(|one, other| one.get(64..).cmp(&other.get(64..)));
    std::fs::write(out, lines.concat())?;
    File::open(out)?.sync_all()?;
    let dead = queue.dead_letters(files)?.list(Page::of(1000)).await?;
    for letter in &dead {
        let path = OsStr::from_bytes(letter.message.payload()).display();
        eprintln!("quickstart: {path}: {}", letter.reason.as_deref().unwrap_or("no reason given"));
    }
    if dead.is_empty() && all_seen {
        queue.purge(sums).await?; // the list has them
    } else {
        eprintln!("quickstart: once this can be read, run it again with --redrive");
    }
    queue.close().await?;
    Ok(dead.is_empty() && all_seen)
}

/// Returns the id of a message about a path.
fn id(about: &str, path: &Path) -> MessageId {
    let hash = Sha256::digest([about.as_bytes(), path.as_os_str().as_bytes()].concat());
    MessageId::from_bytes(hash.first_chunk().copied().unwrap_or_default())
}

/// Returns the lines of the files that are done.
async fn finished(queue: &Queue, sums: &str) -> Result<Sums> {
    let (mut all, mut last) = (Sums::new(), None);
    loop {
        let page = queue.browse(sums, Page::of(1000).after(last)).await?;
        let Some(end) = page.last() else { return Ok(all) };
        last = Some(end.message.id());
        all.extend(page.into_iter().map(|sum| (sum.message.id(), sum.message.payload().to_vec())));
    }
}

/// Pushes the files that are not done, including links that lead nowhere, so that reading them fails later. Returns whether all
/// directories could be read.
async fn push(queue: &Queue, files: &str, dir: &Path, done: &Sums, own: &[PathBuf]) -> Result<bool> {
    let inode = |path: &Path| path.metadata().map(|m| (m.is_file(), m.dev(), m.ino()));
    let own: Vec<_> = own.iter().filter_map(|path| inode(path).ok()).collect();
    let (mut messages, mut all_seen) = (Vec::new(), true);
    for entry in walkdir::WalkDir::new(dir) {
        match entry {
            Ok(entry) => {
                let path = entry.path();
                let is_file = inode(path).map_or(true, |it| it.0 && !own.contains(&it));
                if is_file && !done.contains_key(&id("sum", path)) {
                    // The payload is the path's bytes, which need not be text.
                    let payload = path.as_os_str().as_bytes().to_vec();
                    messages.push(MessageData::with_id(id("file", path), payload));
                }
            }
            Err(error) => {
                eprintln!("quickstart: {error}");
                all_seen = false;
            }
        }
    }
    for result in queue.push_many(files, messages).await? {
        result?; // stored, or a duplicate from an earlier run
    }
    Ok(all_seen)
}

/// Returns how many files are in the queue, including held ones, but not dead letters.
async fn unsettled(queue: &Queue, files: &str) -> Result<u64> {
    let counts = queue.counts(files).await?;
    Ok([counts.ready, counts.delayed, counts.leased].into_iter().flatten().sum())
}

/// Sums one file. Many tasks do this at the same time, and their pushes and settlements share transactions.
async fn work(queue: &Queue, sums: &str, bar: &ProgressBar, mut file: Delivery) -> Result<()> {
    let path = PathBuf::from(OsStr::from_bytes(file.payload()));
    let sum = id("sum", &path);
    // Reading files blocks. On another thread it does not keep the runtime from its other work.
    let status = match tokio::task::spawn_blocking(move || line::line(&path)).await? {
        Ok(line) => {
            queue.push(sums, MessageData::with_id(sum, line)).await?;
            Status::Processed
        }
        Err(error) => Status::poisonous(error.to_string()),
    };
    bar.inc(1);
    file.settle(status).await?; // if the lease was lost, another process sums it too
    Ok(())
}
