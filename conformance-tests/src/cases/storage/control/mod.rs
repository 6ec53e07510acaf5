//! The control store: small shared entries with versions and times to live.

pub(super) mod apart;
pub(super) mod compared;
pub(super) mod kept;
pub(super) mod killed;
pub(super) mod lapsed;
pub(super) mod listed;
pub(super) mod raced;

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{ControlStorage, Storage};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped, Version};
use anyqueue::{Bytes, Page};

use crate::clause::Clause;
use crate::context::{Client, Context};
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

const NEEDS: &[Need] = &[Need::Control];

/// A time to live that a case waits for; not a multiple of a whole second.
const BRIEF: Duration = Duration::from_millis(350);

/// A time to live that outlasts the case.
const LONG: Duration = Duration::from_hours(1);

/// The pause between two checks for something that must come.
const LOOK: Duration = Duration::from_millis(5);

/// The control store, as one client sees it. An answer that no correct backend returns ends the case.
#[derive(Clone, Copy)]
struct Entries<'a> {
    c: &'a Context,
    storage: &'a dyn ControlStorage,
}

impl<'a> Entries<'a> {
    fn over(c: &'a Context, storage: &'a dyn Storage) -> CaseResult<Self> {
        let missing =
            || c.failed(Clause::EntryKept, &[], "a control store, as declared", "`control()` returns None");
        Ok(Self { c, storage: storage.control().ok_or_else(missing)? })
    }

    fn of(c: &'a Context, client: &'a Client) -> CaseResult<Self> {
        Self::over(c, &**client.storage())
    }

    /// Returns the store of the first client.
    fn first(c: &'a Context) -> CaseResult<Self> {
        Self::of(c, c.client())
    }

    /// Returns what is under these keys, in order, and when.
    async fn get(&self, keys: &[Key]) -> CaseResult<Stamped<Vec<Option<Entry>>>> {
        let found = self.c.ok(Clause::EntryKept, "reading entries", self.storage.get(keys).await)?;
        self.c.equal(Clause::EntryKept, &[], "how many are returned:", &keys.len(), &found.value.len())?;
        for (key, entry) in keys.iter().zip(&found.value) {
            if let Some(entry) = entry {
                self.c.equal(Clause::EntryKept, &[], "the key:", key, &entry.key)?;
                self.lives(found.now, entry)?;
            }
        }
        Ok(found)
    }

    async fn one(&self, key: &Key) -> CaseResult<Option<Entry>> {
        Ok(self.get(std::slice::from_ref(key)).await?.value.pop().flatten())
    }

    /// Returns the server's time.
    async fn now(&self) -> CaseResult<SystemTime> {
        Ok(self.get(&[]).await?.now)
    }

    /// Waits until the server's clock shows this time. A clock that stands still ends the case.
    async fn until(&self, moment: SystemTime) -> CaseResult {
        let most = moment.duration_since(self.now().await?).unwrap_or_default();
        let start = Instant::now();
        while self.now().await? < moment {
            let late = start.elapsed() > self.c.timing().latest(most);
            self.c.check(Clause::EntryLapses, &[], !late, "the server's clock to go on", "it does not")?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Makes changes, and returns one result for each.
    async fn apply(&self, changes: &[Change]) -> CaseResult<Stamped<Vec<Applied>>> {
        let applied =
            self.c.ok(Clause::EntryCompared, "changing entries", self.storage.apply(changes).await)?;
        let count = applied.value.len();
        self.c.equal(Clause::EntryCompared, &[], "how many results:", &changes.len(), &count)?;
        for (change, result) in changes.iter().zip(&applied.value) {
            if let Applied::Conflict(Some(entry)) = result {
                self.c.equal(Clause::EntryCompared, &[], "the conflict's key:", change.key(), &entry.key)?;
                self.lives(applied.now, entry)?;
            }
        }
        Ok(applied)
    }

    /// Makes one change, whatever its result.
    async fn one_applied(&self, change: &Change) -> CaseResult<Applied> {
        let missing = || self.c.failed(Clause::EntryCompared, &[], "a result", "none");
        self.apply(std::slice::from_ref(change)).await?.value.pop().ok_or_else(missing)
    }

    /// Makes changes, all of which must be done.
    async fn done(&self, changes: &[Change]) -> CaseResult {
        for (change, result) in changes.iter().zip(self.apply(changes).await?.value) {
            let expected = format!("{} to be changed, which expects {:?}", change.key(), change.expect());
            self.c.check(Clause::EntryCompared, &[], result.is_done(), expected, short(&result))?;
        }
        Ok(())
    }

    /// Makes a change that must be a conflict, and returns what is there.
    async fn conflict(&self, change: &Change) -> CaseResult<Option<Entry>> {
        match self.one_applied(change).await? {
            Applied::Conflict(entry) => Ok(entry),
            Applied::Done => {
                let expected = format!("a conflict: {} expects {:?}", change.key(), change.expect());
                Err(self.c.failed(Clause::EntryCompared, &[], expected, "Done"))
            }
        }
    }

    /// Judges that the entry is there as it was written.
    async fn has(&self, clause: Clause, written: &Change) -> CaseResult {
        let found = self.one(written.key()).await?;
        self.same(clause, "found", written, found.as_ref())
    }

    /// Judges that an entry is as it was written.
    fn same(&self, clause: Clause, what: &str, written: &Change, seen: Option<&Entry>) -> CaseResult {
        let same = seen
            .is_some_and(|seen| Some(seen.version) == written.version() && seen.value == *value_of(written));
        let key = written.key();
        let expected = format!("{key} {what} as {}", sketch(written.version(), value_of(written)));
        self.c.check(clause, &[], same, expected, seen.map_or_else(|| "none".to_owned(), described))
    }

    /// Judges that nothing is there, and nothing is listed.
    async fn lacks(&self, clause: Clause, key: &Key, why: &str) -> CaseResult {
        let (found, listed) = (self.one(key).await?, self.pages(key.as_str(), 100).await?);
        let listed = listed.into_iter().find(|entry| entry.key == *key);
        let told = format!("nothing under {key}: {why}");
        let seen = found.or(listed);
        self.c.check(clause, &[], seen.is_none(), told, seen.as_ref().map_or_else(String::new, described))
    }

    /// Returns a page, which must be in order, begin after the key, and have the prefix.
    async fn page(&self, prefix: &str, limit: usize, after: Option<Key>) -> CaseResult<Stamped<Vec<Entry>>> {
        let page = self.storage.list(prefix, Page::of(limit).after(after.clone())).await;
        let page = self.c.ok(Clause::EntriesListed, "a page of entries", page)?;
        let told = format!("at most {limit} on a page");
        let seen = page.value.len();
        self.c.check(Clause::EntriesListed, &[], seen <= limit, told, seen.to_string())?;
        let keys: Vec<_> = after.iter().chain(page.value.iter().map(|entry| &entry.key)).collect();
        let ordered = keys.is_sorted_by(|one, other| one < other);
        let told = "the order of the keys' bytes, from the last page's end on";
        self.c.check(Clause::EntriesListed, &[], ordered, told, format!("{keys:?}"))?;
        for entry in &page.value {
            let right = entry.key.as_str().starts_with(prefix);
            let told = format!("what begins with {prefix:?}");
            self.c.check(Clause::EntriesListed, &[], right, told, format!("{:?}", entry.key))?;
            self.lives(page.now, entry)?;
        }
        Ok(page)
    }

    /// Returns all entries that begin with the prefix, in pages of this size. A page with fewer is the last.
    async fn pages(&self, prefix: &str, limit: usize) -> CaseResult<Vec<Entry>> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.key.clone());
            let page = self.page(prefix, limit, after).await?.value;
            let is_last = page.len() < limit;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
            tokio::task::yield_now().await; // for what others do between two pages
        }
    }

    /// Judges that these keys are listed for the prefix, in pages of this size.
    async fn lists(&self, prefix: &str, limit: usize, expected: &[Key]) -> CaseResult {
        let listed = keys_of(&self.pages(prefix, limit).await?);
        let what = format!("listed for {prefix:?} by pages of {limit}:");
        self.c.equal(Clause::EntriesListed, &[], &what, &expected.to_vec(), &listed)
    }

    /// Judges that an answer of this time may include the entry.
    fn lives(&self, now: SystemTime, entry: &Entry) -> CaseResult {
        let lives = entry.expires_at.is_none_or(|end| end > now);
        let expected = format!("nothing of what has lapsed at {now:?}");
        self.c.check(Clause::EntryLapses, &[], lives, expected, described(entry))
    }
}

fn key(text: &str) -> CaseResult<Key> {
    Key::new(text).map_err(|error| Stop::Inconclusive(error.to_string()))
}

/// Returns this many keys, in order.
fn numbered(prefix: &str, n: usize) -> CaseResult<Vec<Key>> {
    (0..n).map(|number| key(&format!("{prefix}{number:04}"))).collect()
}

/// An entry whose value is the key's own text.
fn put(key: &Key, expect: Expect) -> Change {
    Change::put(key.clone(), expect, key.as_str().to_owned())
}

/// A put with exactly this version.
fn versioned(key: &Key, version: u64, value: impl Into<Bytes>) -> Change {
    let version = Version::from_u64(version);
    Change::Put { key: key.clone(), expect: Expect::Any, version, value: value.into(), ttl: None }
}

/// Returns what a client expects that knows what this change wrote.
fn after(written: &Change) -> Expect {
    written.version().map_or(Expect::Absent, Expect::Version)
}

fn value_of(change: &Change) -> &Bytes {
    static NOTHING: Bytes = Bytes::new();
    if let Change::Put { value, .. } = change { value } else { &NOTHING }
}

fn keys_of(entries: &[Entry]) -> Vec<Key> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}

/// Describes an entry in a failure; a large value is not shown in full.
fn described(entry: &Entry) -> String {
    let text = sketch(Some(entry.version), &entry.value);
    format!("{:?}: {text}, until {:?}", entry.key, entry.expires_at)
}

fn sketch(version: Option<Version>, value: &Bytes) -> String {
    let start = value.slice(..value.len().min(32));
    format!("{} bytes, {start:?}, of version {:?}", value.len(), version.map(Version::get))
}

fn short(result: &Applied) -> String {
    match result {
        Applied::Done => "Done".to_owned(),
        Applied::Conflict(entry) => {
            format!("a conflict with {}", entry.as_ref().map_or_else(|| "nothing".to_owned(), described))
        }
    }
}
