//! Removing workers that are silent, and telling what they held.

use std::time::{Duration, SystemTime};

use anyqueue::Result;
use anyqueue::control::{Applied, Change, Entry, Expect, Key};
use serde::{Deserialize, Serialize};

use super::record::{HeldTask, WorkerInfo};
use super::{MAX_WORKERS, Registry, WORKERS, name_of};
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
        let seen = worker.seen_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            format: FORMAT,
            name: worker.name.clone(),
            host: worker.host.clone(),
            pid: worker.pid,
            held: worker.held.clone(),
            running: worker.running,
            seen_ms: u64::try_from(seen.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Registry {
    /// Removes the workers that have been silent for longer than their beats count, and returns those that this call removed: of several that sweep at
    /// once, one returns each. Members do this by themselves now and then.
    ///
    /// # Errors
    /// The server's. What was removed before is in [`lost`](Self::lost).
    pub async fn sweep(&self) -> Result<Vec<LostWorker>> {
        let found = self.store.list_all(WORKERS, MAX_WORKERS).await?;
        let mut lost = Vec::new();
        for entry in &found.value {
            let Ok(worker) = WorkerInfo::of(name_of(&entry.key), entry) else { continue };
            if worker.is_lost(found.now) {
                lost.extend(self.bury(entry, &worker).await?);
            }
        }
        Ok(lost)
    }

    /// The workers that were lost within the last hour, as far as they can be read.
    ///
    /// # Errors
    /// The server's.
    pub async fn lost(&self) -> Result<Vec<LostWorker>> {
        let found = self.store.list_all(LOST, MAX_WORKERS).await?.value;
        Ok(found.iter().filter_map(|entry| decode(entry).ok()).collect())
    }

    /// Removes one, unless it has been heard of since or somebody else did. What it held is noted before, so that no crash in between hides it.
    pub(super) async fn bury(&self, entry: &Entry, worker: &WorkerInfo) -> Result<Option<LostWorker>> {
        let lost = LostWorker::of(worker);
        // The version of its last beat is never that of another one's.
        let note = Key::new(format!("{LOST}{:016x}/{}", entry.version.get(), worker.name))?;
        let told = Change::put(note.clone(), Expect::Absent, encode(&lost)?).with_ttl(TOLD_FOR);
        let untold = Change::delete(note, Expect::Version(version_of(&told)));
        let removed = Change::delete(entry.key.clone(), Expect::Version(entry.version));
        let outcomes = self.store.apply_all(vec![told, removed]).await?.value;
        match outcomes.last() {
            Some(Applied::Done) => {}
            // It lives, and this is not to be told; or another one's note stands here, with another version.
            Some(Applied::Conflict(Some(_))) => {
                let _ = self.store.apply(untold).await?;
                return Ok(None);
            }
            _ => return Ok(None),
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
