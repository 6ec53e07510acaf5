//! The disk: what is said when it is full, and what is waited for before a push is acknowledged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage, RawDelivery, Settlement, Successor,
};
use anyqueue::{ErrorKind, MessageData, SettleOutcome};
use anyqueue_sqlite::SqliteQueue;

/// A file system of its own, as small as the test needs it.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount one.
    pub(crate) fn mount(bytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "anyqueue-test"]).arg(dir.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

#[tokio::test]
async fn a_full_disk_refuses_pushes_and_can_be_emptied() {
    let Some(disk) = SmallDisk::mount(1024 * 1024) else {
        eprintln!("NOT RUN: a_full_disk_refuses_pushes_and_can_be_emptied (mounting a tmpfs needs root)");
        return;
    };
    let queue = SqliteQueue::open(disk.0.path().join("q.db")).await.unwrap();
    let p = part("p");
    // Until not even a small one fits.
    let mut stored = 0;
    for bytes in [4000, 100] {
        let error = loop {
            match queue.push(&p, &[MessageData::new(vec![7; bytes])]).await.remove(0) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < 10_000, "a disk of one MiB cannot hold it");
        };
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains("free disk space"), "{error}");
    }
    assert!(stored > 10, "{stored}");
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(stored));
    let mut seen = 0;
    while seen < stored {
        let held = pull(&queue, &p, 10).await;
        assert!(!held.is_empty(), "{seen} of {stored}");
        seen += held.len() as u64;
        let leases: Vec<_> = held.into_iter().map(|delivery| delivery.lease).collect();
        let outcomes = settle_all(&queue, &leases, &Action::Remove).await;
        assert!(outcomes.iter().all(|outcome| *outcome == SettleOutcome::Settled));
    }
    assert_eq!(seen, stored, "what was acknowledged was there, once");
    assert!(queue.push(&p, &[MessageData::new(vec![7; 4000])]).await[0].is_ok(), "there is room again");
}

#[tokio::test]
async fn a_full_disk_refuses_successors_and_keeps_their_deliveries_held() {
    let Some(disk) = SmallDisk::mount(1024 * 1024) else {
        eprintln!(
            "NOT RUN: a_full_disk_refuses_successors_and_keeps_their_deliveries_held (mounting a tmpfs needs root)"
        );
        return;
    };
    let queue = SqliteQueue::open(disk.0.path().join("q.db")).await.unwrap();
    let p = part("p");
    push_text(&queue, &p, &["a", "b"]).await;
    let held = pull(&queue, &p, 2).await;
    while queue.push(&p, &[MessageData::new(vec![7; 4000])]).await[0].is_ok() {}
    let then = vec![Successor { partition: p.clone(), message: message("next") }];
    let end = |held: &RawDelivery| Settlement::new(held.lease.clone(), Action::Remove);
    let ends = [end(&held[0]).with_then(then), end(&held[1]), end(&held[0])];
    let settled = queue.settle(&ends).await;
    assert_eq!(settled[0].as_ref().unwrap_err().kind(), ErrorKind::Full);
    for settled in &settled[1..] {
        assert_eq!(*settled.as_ref().unwrap(), SettleOutcome::Settled, "the first end is still to come");
    }
}

#[tokio::test]
async fn a_disk_filled_by_others_is_full_until_there_is_room() {
    let Some(disk) = SmallDisk::mount(1024 * 1024) else {
        eprintln!(
            "NOT RUN: a_disk_filled_by_others_is_full_until_there_is_room (mounting a tmpfs needs root)"
        );
        return;
    };
    let queue = SqliteQueue::open(disk.0.path().join("q.db")).await.unwrap();
    let p = part("p");
    let stored = push_text(&queue, &p, &["a", "b", "c"]).await;
    let filler = disk.0.path().join("filler");
    assert!(std::fs::write(&filler, vec![0; 2 * 1024 * 1024]).is_err(), "not a byte is free now");
    for _ in 0..3 {
        let error = queue.push(&p, &[message("m")]).await.remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(stored.len() as u64));
    std::fs::remove_file(&filler).unwrap();
    // A child that another test starts in this moment holds the file, and so its room, until it runs its own program.
    let room = async {
        while let Err(error) = queue.push(&p, &[message("d")]).await.remove(0) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), room).await.expect("there is room again");
    assert_eq!(drain(&queue, &p).await, ["a", "b", "c", "d"]);
}

const LEVEL: &str = "ANYQUEUE_TEST_SYNCHRONOUS";
const FILE: &str = "ANYQUEUE_TEST_FILE";
const PUSHES: usize = 20;

/// What [`syncs`] watches; does nothing in a run of the tests.
#[tokio::test]
async fn pushes_one_by_one() {
    let (Ok(level), Ok(path)) = (std::env::var(LEVEL), std::env::var(FILE)) else { return };
    let builder = SqliteQueue::builder(PathBuf::from(path)).synchronous(level.parse().unwrap());
    let queue = builder.open().await.unwrap();
    for _ in 0..PUSHES {
        push_text(&queue, &part("p"), &["m"]).await;
        pull(&queue, &part("p"), 1).await; // needs no flush, and must not switch off that of the next push
    }
}

/// How often a process that pushes one by one waits for the disk; `None` where no process can be traced.
fn syncs(dir: &Path, level: &str) -> Option<usize> {
    let log = dir.join(level);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o"]).arg(&log);
    traced.arg(std::env::current_exe().unwrap()).args(["--exact", "disk::pushes_one_by_one"]);
    traced.env(LEVEL, level).env(FILE, dir.join(format!("{level}.db")));
    let ran = traced.output().is_ok_and(|output| output.status.success());
    let log = std::fs::read_to_string(log).ok().filter(|_| ran)?;
    Some(log.lines().filter(|line| line.contains("sync(") && line.contains("= 0")).count())
}

#[test]
fn every_push_waits_for_the_disk_unless_configured_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(full), Some(normal)) = (syncs(dir.path(), "full"), syncs(dir.path(), "normal")) else {
        eprintln!("NOT RUN: every_push_waits_for_the_disk_unless_configured_otherwise (needs strace)");
        return;
    };
    assert!(full >= PUSHES, "{PUSHES} pushes were acknowledged after {full} flushes");
    assert!(normal < PUSHES, "the check tells the weaker setting: {normal} flushes");
}
