//! Removing workers that are silent, and telling what they held.

use std::time::{Duration, SystemTime};

use anyqueue::control::{Applied, Change, Entry, Expect, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Page, Result};
use serde::{Deserialize, Serialize};

use super::record::{HeldTask, Record, WorkerInfo};
use super::usage::{Elsewhere, add};
use super::{MAX_WORKERS, Registry, WORKERS, key_of, name_of};
use crate::entry::{FORMAT, decode, encode, version_of};

const LOST: &str = "lost/";
/// For how long it is told which workers were lost.
const TOLD_FOR: Duration = Duration::from_hours(1);

/// A worker that was silent for too long, and what it held then. The leases of these tasks end by themselves; then others run them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LostWorker {
    format: u32,
    /// Its name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The number of its process there.
    pub pid: u32,
    /// What it ran when it was heard of last, at most 512 tasks.
    pub held: Vec<HeldTask>,
    /// How many it ran.
    pub running: usize,
    /// When it was heard of last, in milliseconds of Unix time by the server's clock.
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

/// What a look through one page of entries came to.
#[derive(Debug)]
pub(super) struct Seen {
    /// Those that this look has removed.
    pub(super) lost: Vec<LostWorker>,
    /// How many others live.
    pub(super) living: usize,
    /// In how long the first of them will have been silent for too long.
    pub(super) first_lapse: Option<Duration>,
    /// What those use.
    pub(super) elsewhere: Elsewhere,
    /// After which entry the next page begins; `None`: from the beginning.
    pub(super) next: Option<Key>,
}

impl Registry {
    /// Removes the workers that have been silent for longer than their beats count, and returns those that this call removed: of several that sweep at
    /// once, one returns each. Members do this by themselves now and then.
    ///
    /// # Errors
    /// The server's. What was removed before is in [`lost`](Self::lost).
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

    /// The same with one page of entries, from that after `after`. The entry at `own` is left alone.
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
                // A name that no worker can have was put there by somebody else.
                _ if key_of(name).is_err() => {}
                _ => seen.lost.extend(self.bury(entry, &worker).await?),
            }
        }
        Ok(seen)
    }

    /// Lets the last beat of a worker count from now on, unless it has been heard of since. Returns until when it does.
    async fn count_from_now(&self, entry: &Entry, now: SystemTime) -> Result<SystemTime> {
        let mut record: Record = decode(entry)?;
        record.seen_ms = Some(millis(now));
        let change = Change::put(entry.key.clone(), Expect::Version(entry.version), encode(&record)?);
        let _ = self.store.apply(change.with_ttl(record.ttl())).await?;
        Ok(now.checked_add(Duration::from_millis(record.valid_ms)).unwrap_or(now))
    }

    /// The workers that were lost within the last hour, as far as they can be read; the latest first.
    ///
    /// # Errors
    /// The server's.
    pub async fn lost(&self) -> Result<Vec<LostWorker>> {
        let found = self.store.list_all(LOST, MAX_WORKERS).await?.value;
        let mut lost: Vec<LostWorker> = found.iter().filter_map(|entry| decode(entry).ok()).collect();
        lost.sort_by_key(|lost| std::cmp::Reverse(lost.seen_ms));
        Ok(lost)
    }

    /// Removes one, unless it has been heard of since or somebody else did. What it held is noted before, so that no crash in between hides it. Whoever
    /// notes it is the one who returns it: a note is known by its version, also if the call was repeated because its answer was lost.
    pub(super) async fn bury(&self, entry: &Entry, worker: &WorkerInfo) -> Result<Option<LostWorker>> {
        let lost = LostWorker::of(worker);
        // The version of its last beat is never that of another one's.
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
            "a worker is silent and taken for dead; what it held comes back when its leases end"
        );
        Ok(Some(lost))
    }
}

/// Whether its last beat is of a time that is yet to come: then the server's clock was put back, and one that is dead would count until that time.
fn is_of_later(worker: &WorkerInfo, now: SystemTime) -> bool {
    let valid = worker.valid_until.duration_since(worker.seen_at).unwrap_or_default();
    now.checked_add(valid).is_some_and(|latest| worker.seen_at > latest)
}

/// Whether the entry that was to be removed is there and of this worker: it has been heard of since, or something was said to it. One of another session is
/// its successor's, and it itself is gone.
fn is_still(worker: &WorkerInfo, removed: &Applied) -> bool {
    let Applied::Conflict(Some(entry)) = removed else { return false };
    WorkerInfo::of(&worker.name, entry).is_ok_and(|there| there.session == worker.session)
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
