//! Putting, listing and deleting schedules.

use std::time::SystemTime;

use anyqueue::adapter::{Dedup, validate};
use anyqueue::control::Change;
use anyqueue::{Error, ErrorKind, MessageId, Result};

use super::record::{Record, SCHEDULES, ScheduleInfo, key_of, name_of};
use super::schedule::{Running, Schedule};
use super::scheduler::{Scheduler, Shared};
use super::task::task;
use crate::entry::{unchanged, update};
use crate::precondition::{Deleted, Precondition};

/// The largest number of schedules that one list returns.
pub const MAX_SCHEDULES: usize = 10_000;

/// All schedules that can be read, and the names of the others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Schedules {
    /// The schedules, in the order of their names.
    pub schedules: Vec<ScheduleInfo>,
    /// The names of schedules that cannot be read, and why.
    pub unreadable: Vec<(String, Error)>,
    /// The time, by the server's clock.
    pub now: SystemTime,
}

impl Scheduler {
    /// Stores a schedule, in place of any schedule of the same name. It counts from now on: times that were
    /// due before are not run by it. If the schedule is already there with the same content, it continues
    /// undisturbed, so a program can put its schedules whenever it starts. A paused schedule stays paused.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput), [`TooLarge`](ErrorKind::TooLarge) or
    /// [`Unsupported`](ErrorKind::Unsupported) if the schedule is wrong or the backend cannot run it; then
    /// nothing is changed. After an error of the server the schedule may be stored or not, and putting it
    /// again is safe.
    ///
    /// # Cancellation
    /// Dropping the future leaves the schedule stored or not.
    pub async fn put(&self, schedule: &Schedule) -> Result<ScheduleInfo> {
        let refused = || Error::new(ErrorKind::Internal, "a schedule that may replace anything was refused");
        self.put_if(schedule, &Precondition::Anything).await?.ok_or_else(refused)
    }

    /// Stores a schedule like [`put`](Self::put), if what is there is as expected. Returns what this call
    /// stored, even if somebody else has changed it since; `None` if what was there was not as expected, and
    /// nothing was changed.
    ///
    /// # Errors
    /// As [`put`](Self::put). After an error that may have stored the schedule, the same precondition may no
    /// longer hold.
    ///
    /// # Cancellation
    /// As [`put`](Self::put).
    pub async fn put_if(&self, schedule: &Schedule, expected: &Precondition) -> Result<Option<ScheduleInfo>> {
        self.store(schedule, None, expected).await
    }

    /// Stores a schedule like [`put_if`](Self::put_if), and in the same step whether it is paused: a schedule
    /// that should be paused does not run even for a moment.
    ///
    /// # Errors
    /// As [`put_if`](Self::put_if).
    ///
    /// # Cancellation
    /// As [`put`](Self::put).
    pub async fn set_if(
        &self,
        schedule: &Schedule,
        paused: bool,
        expected: &Precondition,
    ) -> Result<Option<ScheduleInfo>> {
        self.store(schedule, Some(paused), expected).await
    }

    /// If `paused` is `None`, that is left as it is.
    async fn store(
        &self,
        schedule: &Schedule,
        paused: Option<bool>,
        expected: &Precondition,
    ) -> Result<Option<ScheduleInfo>> {
        let (shared, name) = (&self.0, &schedule.name);
        self.check(schedule)?;
        let mut same = None;
        let stored = shared
            .renew(name, |there| {
                same = None;
                let before = there.value.as_ref().and_then(|entry| Record::of(entry).ok());
                let revision = before.as_ref().map(|before| before.revision.as_str());
                if !expected.holds(there.value.is_some(), revision) {
                    return Ok(None);
                }
                let was_paused = before.as_ref().is_some_and(|before| before.paused);
                let paused = paused.unwrap_or(was_paused);
                let is_so = |before: &&Record| is_same(before, schedule) && before.paused == paused;
                if let Some(before) = before.as_ref().filter(is_so) {
                    same = Some((before.clone(), there.now));
                    return Ok(None);
                }
                let mut record = Record::new(schedule, there.now);
                record.paused = paused;
                if let Some(before) = before {
                    (record.last, record.pushed) = (before.last, before.pushed);
                }
                Ok(Some(record))
            })
            .await?;
        if let Some((record, now)) = same.as_ref().filter(|(record, _)| !record.started) {
            shared.start(name, record, *now).await?;
        }
        stored.or(same).map(|(record, now)| record.info(name, now)).transpose()
    }

    /// Checks whether a schedule could be put, as far as that can be decided without the server.
    ///
    /// # Errors
    /// Those with which [`put`](Self::put) would refuse the schedule.
    pub fn check(&self, schedule: &Schedule) -> Result<()> {
        schedule.check()?;
        self.0.check_task(schedule)
    }

    /// Returns one schedule by its name.
    ///
    /// # Errors
    /// If it cannot be read, or an error of the server.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>> {
        let found = self.0.store.get(&key_of(name)?).await?;
        found.value.map(|entry| Record::of(&entry)?.info(name, found.now)).transpose()
    }

    /// Returns all schedules, up to [`MAX_SCHEDULES`].
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more, or an error of the server.
    pub async fn list(&self) -> Result<Schedules> {
        let found = self.0.store.list_all(SCHEDULES, MAX_SCHEDULES).await?;
        let mut all = Schedules { schedules: Vec::new(), unreadable: Vec::new(), now: found.now };
        for entry in &found.value {
            let name = name_of(&entry.key);
            match Record::of(entry).and_then(|record| record.info(name, found.now)) {
                Ok(info) => all.schedules.push(info),
                Err(error) => all.unreadable.push((name.to_owned(), error)),
            }
        }
        Ok(all)
    }

    /// Deletes a schedule, even one that cannot be read. Tasks that it has pushed stay. Returns whether there
    /// was one.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        Ok(self.delete_if(name, &Precondition::Anything).await? == Deleted::Done)
    }

    /// Deletes a schedule like [`delete`](Self::delete), if it is as expected.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn delete_if(&self, name: &str, expected: &Precondition) -> Result<Deleted> {
        let key = key_of(name)?;
        let (deleted, gone) = update(&self.0.store, &key, |there| {
            let gone = there.and_then(|entry| Record::of(entry).ok());
            let revision = gone.as_ref().map(|gone| gone.revision.as_str());
            let deleted = Deleted::of(there.is_some(), expected.holds(there.is_some(), revision));
            let doomed = there.filter(|_| deleted == Deleted::Done);
            Ok((doomed.map(|entry| Change::delete(key.clone(), unchanged(Some(entry)))), (deleted, gone)))
        })
        .await?;
        if let Some(gone) = gone.filter(|_| deleted == Deleted::Done) {
            self.0.clear(name, &gone).await;
        }
        Ok(deleted)
    }
}

impl Shared {
    /// Checks whether the backend accepts the schedule's tasks.
    fn check_task(&self, schedule: &Schedule) -> Result<()> {
        let can = self.tasks.capabilities().inspect;
        let unsupported = |text: &'static str| {
            Error::new(ErrorKind::Unsupported, text).with_backend(self.tasks.storage().name())
        };
        if schedule.running == Running::CancelOld && !can.cancel {
            return Err(unsupported(
                "the backend cannot cancel earlier tasks: choose another policy, such as `allow`",
            ));
        }
        let is_kept_out = matches!(schedule.running, Running::Skip | Running::BufferOne);
        if is_kept_out && self.tasks.capabilities().dedup != Dedup::WhileLive {
            return Err(unsupported(
                "the backend has no deduplication keys that last as long as a task: let it run beside an earlier one (`allow`)",
            ));
        }
        let keeps_ends = self.tasks.capabilities().ledger.is_some();
        if schedule.timetable.spec().pause().is_some() && !(can.browse && keeps_ends) {
            return Err(unsupported(
                "the backend cannot tell whether a task has ended, which `@after` counts from: give times instead",
            ));
        }
        let epoch = SystemTime::UNIX_EPOCH;
        let message = task(schedule, MessageId::new(), epoch, epoch);
        let storage = self.tasks.storage();
        let bytes = storage.encoded_len(&message);
        validate(&message, bytes, self.tasks.capabilities()).map_err(|error| {
            Error::new(error.kind(), format!("the task of a schedule: {}", error.message()))
                .with_backend(storage.name())
        })
    }
}

fn is_same(before: &Record, schedule: &Schedule) -> bool {
    before.schedule(&schedule.name).is_ok_and(|before| before == *schedule)
}
