//! Removing silent workers, and recording what they held.

use std::time::{Duration, SystemTime};

use anyqueue::control::{Applied, Change, Entry, Expect, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Page, Result};
use serde::{Deserialize, Serialize};

use super::record::{HeldTask, Record, WorkerInfo};
use super::usage::{Elsewhere, add};
use super::{MAX_WORKERS, Registry, WORKERS, key_of, name_of};
use crate::entry::{FORMAT, decode, encode, version_of};

const LOST: &str = "lost/";
/// How long lost workers are remembered.
const TOLD_FOR: Duration = Duration::from_hours(1);

/// A worker that was silent for too long, and the tasks that it held then. The leases of these tasks end, and
/// then other workers run them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LostWorker {
    format: u32,
    /// The name of the worker.
    pub name: String,
    /// The machine that it ran on.
    pub host: String,
    /// Its process id on that machine.
    pub pid: u32,
    /// The tasks that it ran when it was last heard of, at most 512.
    pub held: Vec<HeldTask>,
    /// How many tasks it ran.
    pub running: usize,
    /// When it was last heard of, in milliseconds of Unix time by the server's clock.
    pub seen_ms: u64,
}

impl LostWorker {
    fn of(worker: &WorkerInfo) -> Self {
        Self {
            format: FORMAT,
            name: worker.name.clone(),
            host: worker.host.clone(),
            pid: worker.pid,
            held: worker.held.clone(),
            running: worker.running,
            seen_ms: millis(worker.seen_at),
        }
    }
}

/// The result of a look through one page of entries.
#[derive(Debug)]
pub(super) struct Seen {
    /// The workers that this look has removed.
    pub(super) lost: Vec<LostWorker>,
    /// How many other workers are alive.
    pub(super) living: usize,
    /// How long it takes until the first of them will have been silent for too long.
    pub(super) first_lapse: Option<Duration>,
    /// The slots that those use.
    pub(super) elsewhere: Elsewhere,
    /// The entry after which the next page begins; `None` if it begins at the start.
    pub(super) next: Option<Key>,
}

impl Registry {
    /// Removes the workers that have been silent for longer than their beats are valid, and returns those
    /// that this call removed: if several callers sweep at the same time, only one of them returns each
    /// worker. Members do this by themselves now and then.
    ///
    /// # Errors
    /// Errors of the server. Workers removed before the error are in [`lost`](Self::lost).
    pub async fn sweep(&self) -> Result<Vec<LostWorker>> {
        let (mut lost, mut after) = (Vec::new(), None);
        for _ in 0..MAX_WORKERS.div_ceil(MAX_CONTROL_CHANGES) {
            let page = self.sweep_page(after, None).await?;
            lost.extend(page.lost);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(lost)
    }

    /// Like [`sweep`](Self::sweep), for the page of entries after `after`. The entry at `own` is left alone.
    pub(super) async fn sweep_page(&self, after: Option<Key>, own: Option<&Key>) -> Result<Seen> {
        let found = self.store.list(WORKERS, Page::of(MAX_CONTROL_CHANGES).after(after)).await?;
        let is_last = found.value.len() < MAX_CONTROL_CHANGES;
        let next = found.value.last().filter(|_| !is_last).map(|entry| entry.key.clone());
        let elsewhere = Elsewhere::new();
        let mut seen = Seen { lost: Vec::new(), living: 0, first_lapse: None, elsewhere, next };
        for entry in found.value.iter().filter(|entry| Some(&entry.key) != own) {
            let name = name_of(&entry.key);
            let Ok(mut worker) = WorkerInfo::of(name, entry) else { continue };
            if is_of_later(&worker, found.now) {
                worker.valid_until = self.count_from_now(entry, found.now).await?;
            }
            match worker.valid_until.duration_since(found.now) {
                Ok(left) if !left.is_zero() => {
                    seen.living += 1;
                    add(&mut seen.elsewhere, &worker);
                    seen.first_lapse = Some(seen.first_lapse.map_or(left, |first| first.min(left)));
                }
                // A name that no worker can have was written by somebody else.
                _ if key_of(name).is_err() => {}
                _ => seen.lost.extend(self.bury(entry, &worker).await?),
            }
        }
        Ok(seen)
    }

    /// Makes the last beat of a worker count from now on, unless the worker has been heard of since. Returns
    /// until when it is valid.
    async fn count_from_now(&self, entry: &Entry, now: SystemTime) -> Result<SystemTime> {
        let mut record: Record = decode(entry)?;
        record.seen_ms = Some(millis(now));
        let change = Change::put(entry.key.clone(), Expect::Version(entry.version), encode(&record)?);
        let _ = self.store.apply(change.with_ttl(record.ttl())).await?;
        Ok(now.checked_add(Duration::from_millis(record.valid_ms)).unwrap_or(now))
    }

    /// Returns the workers that were lost within the last hour and whose entries can be read, the latest
    /// first.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn lost(&self) -> Result<Vec<LostWorker>> {
        let found = self.store.list_all(LOST, MAX_WORKERS).await?.value;
        let mut lost: Vec<LostWorker> = found.iter().filter_map(|entry| decode(entry).ok()).collect();
        lost.sort_by_key(|lost| std::cmp::Reverse(lost.seen_ms));
        Ok(lost)
    }

    /// Removes a worker, unless it has been heard of since or somebody else removed it. What it held is noted
    /// before, so that a crash in between does not hide it. Whoever writes the note returns the worker: a
    /// note is recognized by its version, even if the call was repeated because its response was lost.
    pub(super) async fn bury(&self, entry: &Entry, worker: &WorkerInfo) -> Result<Option<LostWorker>> {
        let lost = LostWorker::of(worker);
        // The version of its last beat is never that of another worker.
        let note = Key::new(format!("{LOST}{:016x}/{}", entry.version.get(), worker.name))?;
        let told = Change::put(note.clone(), Expect::Absent, encode(&lost)?).with_ttl(TOLD_FOR);
        let untold = Change::delete(note, Expect::Version(version_of(&told)));
        let removed = Change::delete(entry.key.clone(), Expect::Version(entry.version));
        let outcomes = self.store.apply_all(vec![told, removed]).await?.value;
        let [noted, removed] = outcomes.as_slice() else { return Ok(None) };
        if !noted.is_done() {
            return Ok(None);
        }
        if is_still(worker, removed) {
            let _ = self.store.apply(untold).await?;
            return Ok(None);
        }
        metrics::counter!("anyqueue_workers_lost_total").increment(1);
        tracing::warn!(
            worker = lost.name, host = lost.host, pid = lost.pid, running = lost.running,
            held = ?lost.held.iter().map(|task| &*task.id).collect::<Vec<_>>(),
            "a worker is silent and considered dead; what it held comes back when its leases end"
        );
        Ok(Some(lost))
    }
}

/// Whether its last beat has a time in the future. Then the server's clock was put back, and a dead worker
/// would be valid until that time.
fn is_of_later(worker: &WorkerInfo, now: SystemTime) -> bool {
    let valid = worker.valid_until.duration_since(worker.seen_at).unwrap_or_default();
    now.checked_add(valid).is_some_and(|latest| worker.seen_at > latest)
}

/// Whether the entry that should have been removed is there and belongs to this worker: then the worker has
/// been heard of since, or something was written for it. An entry of another session belongs to a successor,
/// and this worker is gone.
fn is_still(worker: &WorkerInfo, removed: &Applied) -> bool {
    let Applied::Conflict(Some(entry)) = removed else { return false };
    WorkerInfo::of(&worker.name, entry).is_ok_and(|there| there.session == worker.session)
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
