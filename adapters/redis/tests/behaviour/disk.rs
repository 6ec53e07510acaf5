//! A disk that is full: what is said, and that nothing acknowledged is lost.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PushQueueStorage, QueueStorage};
use anyqueue::{Error, ErrorKind, MessageData, MessageId, PushOutcome};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::Redis;

use crate::common::{Bed, SOON, part, pull, push, settle};

/// A file system of its own, as small as the test needs it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount one, which is said.
    fn mount(bytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "anyqueue-test"]).arg(dir.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("NOT RUN: a test of a full disk (mounting a tmpfs needs root)");
        }
        mounted.then_some(Self(dir))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

/// A server that keeps its data there, where half of the room is taken.
async fn server(disk: &SmallDisk, appendfsync: &str) -> Option<Bed> {
    std::fs::write(disk.file("filler"), vec![0; 4 * 1024 * 1024]).unwrap();
    let redis = Redis::new().setting("dir", disk.0.path().to_str().unwrap());
    Bed::with(redis.setting("appendfsync", appendfsync).setting("auto-aof-rewrite-percentage", "0")).await
}

/// Pushes until an error comes.
async fn push_until_refused(queue: &RedisQueue) -> (Vec<MessageId>, Error) {
    let mut stored = Vec::new();
    loop {
        match queue.push(&part("p"), &[MessageData::new(vec![b'.'; 100_000])]).await.remove(0) {
            Ok(PushOutcome::Stored(id)) => stored.push(id),
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (stored, error),
        }
        assert!(stored.len() < 10_000, "never full");
    }
}

/// Takes and removes all that is there.
async fn drain(queue: &RedisQueue) -> Vec<MessageId> {
    let mut seen = Vec::new();
    loop {
        let held = pull(queue, &part("p"), 10).await;
        if held.is_empty() {
            return seen;
        }
        seen.extend(held.iter().map(|delivery| delivery.lease.id));
        settle(queue, &held, Action::Remove).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_again() {
    let Some(disk) = SmallDisk::mount(8 * 1024 * 1024) else { return };
    let Some(bed) = server(&disk, "everysec").await else { return };
    let queue = bed.open().await;
    let (stored, error) = push_until_refused(&queue).await;
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("disk"), "{error}");
    let warnings = queue.check().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("append-only file")), "{warnings:?}");
    std::fs::remove_file(disk.file("filler")).unwrap();
    let freed = Instant::now();
    while bed.text_info("aof_last_write_status").await != "ok" {
        assert!(freed.elapsed() < SOON, "the server does not notice the room");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    push(&queue, &part("p"), &[MessageData::new("after")]).await;
    let seen = drain(&queue).await;
    assert_eq!(seen[..stored.len()], stored, "what was acknowledged comes, once and in order");
    assert_eq!(seen.len(), stored.len() + 1, "what was refused does not come");
}

#[tokio::test]
async fn a_server_that_must_flush_and_cannot_loses_nothing_acknowledged() {
    let Some(disk) = SmallDisk::mount(8 * 1024 * 1024) else { return };
    let Some(bed) = server(&disk, "always").await else { return };
    let queue = bed.open().await;
    // It ends itself rather than to answer what is not true.
    let (stored, error) = push_until_refused(&queue).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!stored.is_empty());
    std::fs::remove_file(disk.file("filler")).unwrap();
    bed.server.kill().await.unwrap();
    bed.server.restart().await.unwrap();
    let seen = drain(&queue).await;
    assert!(stored.iter().all(|id| seen.contains(id)), "acknowledged messages were lost");
    assert!(seen.len() <= stored.len() + 1, "more came than were pushed");
}
