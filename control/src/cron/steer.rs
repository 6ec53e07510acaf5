//! Pausing and resuming schedules, and running them outside their times.

use std::time::SystemTime;

use anyqueue::control::Change;
use anyqueue::{MessageId, PushOutcome, Result};

use super::earlier::earlier;
use super::record::{Record, ScheduleInfo, key_of};
use super::schedule::Running;
use super::scheduler::Scheduler;
use super::task::task;
use crate::entry::{encode, unchanged, update_at};
use crate::precondition::Precondition;

impl Scheduler {
    /// Pauses a schedule: its times pass without a task. Returns whether there is such a schedule.
    ///
    /// # Errors
    /// If it cannot be read, or an error of the server.
    pub async fn pause(&self, name: &str) -> Result<bool> {
        Ok(self.paused(name, &Precondition::Present).await?.is_some())
    }

    /// Pauses a schedule like [`pause`](Self::pause), if it is as expected, and returns it; `None` if it is
    /// not, or there is none.
    ///
    /// # Errors
    /// If it cannot be read, or an error of the server.
    pub async fn pause_if(&self, name: &str, expected: &Precondition) -> Result<Option<ScheduleInfo>> {
        info(name, self.paused(name, expected).await?)
    }

    async fn paused(&self, name: &str, expected: &Precondition) -> Result<Option<(Record, SystemTime)>> {
        let key = key_of(name)?;
        update_at(&self.0.store, &key, |there| {
            let Some(entry) = &there.value else { return Ok((None, None)) };
            let mut record = Record::of(entry)?;
            if !expected.holds(true, Some(&record.revision)) {
                return Ok((None, None));
            }
            let was_paused = std::mem::replace(&mut record.paused, true);
            let put = || Ok(Change::put(key.clone(), unchanged(Some(entry)), encode(&record)?));
            let change = if was_paused { None } else { Some(put()?) };
            Ok((change, Some((record, there.now))))
        })
        .await
    }

    /// Resumes a paused schedule. It counts from now on: times that were due in the meantime are not run.
    /// Returns whether there is such a schedule.
    ///
    /// # Errors
    /// If it cannot be read, or an error of the server.
    pub async fn resume(&self, name: &str) -> Result<bool> {
        Ok(self.resumed(name, &Precondition::Present).await?.is_some())
    }

    /// Resumes a schedule like [`resume`](Self::resume), if it is as expected, and returns it; `None` if it
    /// is not, or there is none.
    ///
    /// # Errors
    /// If it cannot be read, or an error of the server.
    pub async fn resume_if(&self, name: &str, expected: &Precondition) -> Result<Option<ScheduleInfo>> {
        info(name, self.resumed(name, expected).await?)
    }

    async fn resumed(&self, name: &str, expected: &Precondition) -> Result<Option<(Record, SystemTime)>> {
        let mut live = None;
        let renewed = self
            .0
            .renew(name, |there| {
                live = None;
                let Some(entry) = &there.value else { return Ok(None) };
                let record = Record::of(entry)?;
                if !expected.holds(true, Some(&record.revision)) {
                    return Ok(None);
                }
                if !record.paused {
                    live = Some((record, there.now));
                    return Ok(None);
                }
                let mut record = record.renewed(there.now);
                record.paused = false;
                Ok(Some(record))
            })
            .await?;
        Ok(renewed.or(live))
    }

    /// Pushes the task of a schedule now, in addition to its times, even if it is paused. If an earlier task
    /// is alive, the schedule's policy applies: either the result is [`Duplicate`](PushOutcome::Duplicate),
    /// or the earlier task is cancelled. Returns `None` if there is no such schedule.
    ///
    /// # Errors
    /// If the schedule cannot be read, or an error of the server; as [`Queue::push`](anyqueue::Queue::push).
    pub async fn run_now(&self, name: &str) -> Result<Option<PushOutcome>> {
        self.run_now_if(name, &Precondition::Present).await
    }

    /// Pushes the task of a schedule like [`run_now`](Self::run_now), if the schedule is as expected; returns
    /// `None` if it is not, or there is none.
    ///
    /// # Errors
    /// As [`run_now`](Self::run_now).
    pub async fn run_now_if(&self, name: &str, expected: &Precondition) -> Result<Option<PushOutcome>> {
        let found = self.0.store.get(&key_of(name)?).await?;
        let Some(entry) = found.value else { return Ok(None) };
        let record = Record::of(&entry)?;
        if !expected.holds(true, Some(&record.revision)) {
            return Ok(None);
        }
        let schedule = record.schedule(name)?;
        if schedule.running == Running::CancelOld {
            self.0.cancel(&schedule, &earlier(None, &record)).await?;
        }
        let id = MessageId::new();
        let pushed =
            self.0.tasks.push(&schedule.partition, task(&schedule, id, found.now, found.now)).await?;
        if schedule.running == Running::CancelOld {
            // The next time cancels this task.
            let note = |there: &mut Record| {
                there.pushed = Some(id.to_string());
                true
            };
            self.0.note(name, &record.revision, note).await?;
        }
        Ok(Some(pushed))
    }
}

fn info(name: &str, found: Option<(Record, SystemTime)>) -> Result<Option<ScheduleInfo>> {
    found.map(|(record, now)| record.info(name, now)).transpose()
}
