//! New contents of schedules, and their first ticks.

use std::time::{Duration, SystemTime};

use anyqueue::control::{Applied, Change, Entry, Stamped};
use anyqueue::{DeleteOutcome, Error, ErrorKind, IntoPartitionId, MessageId, PushOutcome, Result};

use super::record::{Record, key_of};
use super::scheduler::Shared;
use super::tick::{TICKS, Tick, millis, time};
use crate::entry::{encode, unchanged, update};

/// How often a change is tried that conflicts with the changes of others.
const ROUNDS: usize = 16;

impl Shared {
    /// Gives a schedule the content that `decide` makes from the current entry; `None` leaves it as it is.
    /// Returns what was stored, and when.
    pub(super) async fn renew(
        &self,
        name: &str,
        mut decide: impl FnMut(&Stamped<Option<Entry>>) -> Result<Option<Record>>,
    ) -> Result<Option<(Record, SystemTime)>> {
        let key = key_of(name)?;
        let mut there = self.store.get(&key).await?;
        for _ in 0..ROUNDS {
            let Some(record) = decide(&there)? else { return Ok(None) };
            let expect = unchanged(there.value.as_ref());
            let applied = self.store.apply(Change::put(key.clone(), expect, encode(&record)?)).await?;
            match applied.value {
                Applied::Done => {
                    self.start(name, &record, applied.now).await?;
                    if let Some(gone) = there.value.and_then(|entry| Record::of(&entry).ok()) {
                        self.clear(name, &gone).await;
                    }
                    return Ok(Some((record, applied.now)));
                }
                Applied::Conflict(instead) => there = Stamped::new(applied.now, instead),
            }
        }
        let text = format!("others keep changing the schedule {name}: try again");
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    /// Pushes the first tick of a content, and notes it. May be interrupted anywhere and repeated by anybody:
    /// of several ticks of one content, only one is stored.
    ///
    /// `now` is a time of the server at which nobody could read the previous content any more. So everything
    /// that the previous content ran was due before that, and no time is due by both.
    pub(super) async fn start(&self, name: &str, record: &Record, now: SystemTime) -> Result<()> {
        let first = record.schedule(name)?.timetable.next_after(now).map(|occurrence| occurrence.at());
        if let Some(first) = first {
            let tick = Tick::new(name, &record.revision, first);
            let delay = first.duration_since(now).unwrap_or_default();
            let PushOutcome::Stored(_) = self.push_tick(&tick, delay).await? else {
                // Another tick is there already; its first run will note it.
                return Ok(());
            };
        }
        self.note(name, &record.revision, |there| {
            let is_first = !there.started;
            if is_first {
                (there.started, there.next_ms) = (true, first.map(millis));
            }
            is_first
        })
        .await
    }

    pub(super) async fn push_tick(&self, tick: &Tick, delay: Duration) -> Result<PushOutcome> {
        self.home.push(TICKS, tick.message(self.within_delays(delay))?).await
    }

    /// A delay that the backend accepts. A tick that comes too early is postponed again.
    pub(super) fn within_delays(&self, delay: Duration) -> Duration {
        self.home.capabilities().push_delay.map_or(delay, |allowed| delay.min(allowed.max))
    }

    /// Changes what is noted about a content, unless there is another content by now, or `change` returns
    /// that there is nothing to note.
    pub(super) async fn note(
        &self,
        name: &str,
        revision: &str,
        mut change: impl FnMut(&mut Record) -> bool,
    ) -> Result<()> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let Some(entry) = there else { return Ok((None, ())) };
            let mut record = Record::of(entry)?;
            if record.revision != revision || !change(&mut record) {
                return Ok((None, ()));
            }
            Ok((Some(Change::put(key.clone(), unchanged(Some(entry)), encode(&record)?)), ()))
        })
        .await
    }

    /// Deletes the tick of a content that was replaced, if the tick is waiting. A tick that is left does
    /// nothing when it comes.
    pub(super) async fn clear(&self, name: &str, gone: &Record) {
        let Some(next) = gone.next_ms.filter(|_| self.home.capabilities().inspect.delete) else { return };
        let id = Tick::new(name, &gone.revision, time(next)).id();
        if let Err(error) = self.delete_tick(TICKS, id).await {
            tracing::debug!(schedule = name, %error, "the tick of a replaced schedule is left, and will do nothing");
        }
    }

    pub(super) async fn delete_tick(
        &self,
        partition: impl IntoPartitionId,
        id: MessageId,
    ) -> Result<DeleteOutcome> {
        let deleted = self.home.delete(partition, &[id]).await?.into_iter().next();
        deleted.unwrap_or(Ok(DeleteOutcome::NotFound))
    }
}
