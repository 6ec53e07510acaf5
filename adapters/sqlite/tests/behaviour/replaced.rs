//! Another file in the place of the one that is open: nothing is acknowledged that nobody will see.

use std::path::{Path, PathBuf};

use crate::common::*;
use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage,
    Settlement,
};
use anyqueue::{Error, ErrorKind, Result};
use anyqueue_sqlite::SqliteQueue;

/// Moves a database with its logs.
fn rename(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::rename(name(from), name(to)).unwrap();
    }
}

/// Puts another queue file, as from a backup, in the place of the one that is open. Returns where that one is kept.
async fn replace(path: &Path) -> PathBuf {
    let (other, kept) = (path.with_file_name("other.db"), path.with_file_name("kept.db"));
    SqliteQueue::open(&other).await.unwrap().close().await.unwrap();
    rename(path, &kept);
    std::fs::rename(&other, path).unwrap();
    kept
}

async fn push_one(queue: &SqliteQueue, text: &str) -> Result<()> {
    queue.push(&part("p"), &[message(text)]).await.remove(0).map(drop)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, says: &str) {
    let error: Error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn nothing_is_acknowledged_while_another_file_has_the_place() {
    let bed = Bed::new().await;
    let p = part("p");
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let held = pull(&bed.queue, &p, 1).await.remove(0);
    let kept = replace(&bed.path()).await;
    let says = "another file";
    refused(push_one(&bed.queue, "lost").await, says);
    refused(bed.queue.pull(&p, PullRequest::new(1, SOON, LEASE)).await, says);
    let settlement = Settlement::new(held.lease.clone(), Action::Remove);
    refused(bed.queue.settle(&[settlement]).await.remove(0), says);
    let extension = Extension { lease: held.lease.clone(), duration: LEASE };
    refused(bed.queue.extend(&[extension]).await.remove(0), says);
    refused(bed.queue.counts(&p).await, says);
    refused(bed.queue.check().await, says);
    refused(bed.queue.init().await, says);
    let other = bed.other().await;
    assert_eq!(other.counts(&p).await.unwrap().ready, Some(0), "the other file is as it was");
    other.close().await.unwrap();
    // The same file again: all is as before.
    rename(&kept, &bed.path());
    bed.queue.check().await.unwrap();
    push_one(&bed.queue, "c").await.unwrap();
    assert_eq!(drain(&bed.queue, &p).await, ["b", "c"]);
}

#[tokio::test]
async fn a_pull_that_waits_is_told() {
    let bed = Bed::new().await;
    let (queue, p) = (bed.queue.clone(), part("p"));
    let waiting = tokio::spawn(async move { queue.pull(&p, PullRequest::new(1, 6 * SOON, LEASE)).await });
    replace(&bed.path()).await;
    let told = tokio::time::timeout(SOON, waiting).await.expect("it waits for a file that nobody sees");
    refused(told.unwrap(), "another file");
}

#[tokio::test]
async fn a_file_that_is_gone_is_not_made_anew() {
    let bed = Bed::new().await;
    std::fs::remove_file(bed.path()).unwrap();
    refused(push_one(&bed.queue, "lost").await, "gone");
    refused(bed.queue.init().await, "gone");
    refused(bed.queue.counts(&part("p")).await, "gone");
    bed.queue.close().await.unwrap();
    assert!(!bed.path().exists());
}

#[tokio::test]
async fn a_log_that_is_gone_or_replaced_takes_no_push() {
    for (suffix, refuses_pushes) in [("-wal", true), ("-shm", false)] {
        let bed = Bed::new().await;
        push_one(&bed.queue, "kept").await.unwrap();
        let log = PathBuf::from(format!("{}{suffix}", bed.path().display()));
        let away = bed.dir.path().join("away");
        std::fs::rename(&log, &away).unwrap();
        for there in [false, true] {
            if there {
                std::fs::copy(&away, &log).unwrap();
            }
            if refuses_pushes {
                refused(push_one(&bed.queue, "lost?").await, "log was replaced");
            }
            refused(bed.queue.check().await, "log was replaced");
        }
        std::fs::rename(&away, &log).unwrap();
        push_one(&bed.queue, "too").await.unwrap();
        let all = drain(&bed.queue, &part("p")).await;
        assert_eq!((all.first().unwrap().as_str(), all.last().unwrap().as_str()), ("kept", "too"));
    }
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_by_now_is_noticed() {
    let bed = Bed::new().await;
    let link = bed.dir.path().join("link.db");
    std::os::unix::fs::symlink(bed.path(), &link).unwrap();
    let queue = SqliteQueue::open(&link).await.unwrap();
    push_one(&queue, "kept").await.unwrap();
    std::fs::remove_file(&link).unwrap();
    let other = bed.dir.path().join("other.db");
    SqliteQueue::open(&other).await.unwrap().close().await.unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    refused(push_one(&queue, "lost").await, "another file");
    assert_eq!(drain(&bed.queue, &part("p")).await, ["kept"]);
}

#[tokio::test]
async fn one_builder_opens_what_has_the_name_by_then() {
    let bed = Bed::new().await;
    let builder = SqliteQueue::builder(bed.path());
    let before = builder.clone().open().await.unwrap();
    replace(&bed.path()).await;
    refused(push_one(&before, "lost").await, "another file");
    push_one(&builder.open().await.unwrap(), "kept").await.unwrap();
}
