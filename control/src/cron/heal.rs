//! Repairs what no tick sees: schedules without a tick, and ticks that would come too late.

use std::time::{Duration, SystemTime};

use anyqueue::control::{Entry, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Amend, AmendOutcome, DeleteOutcome, Page, PartitionId, PushOutcome, Result};

use super::record::{Record, SCHEDULES, name_of};
use super::scheduler::Shared;
use super::tick::{TICKS, Tick, millis, time};

/// How long a schedule may be overdue by its entry before its tick is looked for. A run takes this long only
/// if it met trouble.
const OVERDUE: Duration = Duration::from_secs(10);
/// How far the server's clock may be put back without a time coming again. Beyond that, what was done ahead
/// of the clock no longer counts.
const PUT_BACK: Duration = Duration::from_hours(24);

impl Shared {
    /// Looks at all schedules, with one page in memory at a time. A failure of one does not keep it from the
    /// others.
    pub(super) async fn heal(&self) -> Result<()> {
        let (mut after, mut first_failure): (Option<Key>, _) = (None, Ok(()));
        loop {
            let page = self.store.list(SCHEDULES, Page::of(MAX_CONTROL_CHANGES).after(after)).await?;
            for entry in &page.value {
                let healed = self.heal_one(entry, page.now).await;
                first_failure = first_failure.and(healed);
            }
            after = page.value.last().map(|entry| entry.key.clone());
            if page.value.len() < MAX_CONTROL_CHANGES {
                return first_failure;
            }
        }
    }

    async fn heal_one(&self, entry: &Entry, now: SystemTime) -> Result<()> {
        let name = name_of(&entry.key);
        let readable = Record::of(entry).and_then(|record| Ok((record.schedule(name)?, record)));
        let (schedule, record) = match readable {
            Ok(readable) => readable,
            Err(error) => {
                self.warn_once(name, &error);
                return Ok(());
            }
        };
        self.can_be_read(name);
        let far_ahead = |record: &Record, now: SystemTime| {
            time(record.noted_ms) > now.checked_add(PUT_BACK).unwrap_or(now)
        };
        if far_ahead(&record, now) {
            return self
                .renew(name, |there| {
                    let Some(entry) = &there.value else { return Ok(None) };
                    let record = Record::of(entry)?;
                    Ok(far_ahead(&record, there.now).then(|| record.renewed(there.now)))
                })
                .await
                .map(drop);
        }
        if !record.started {
            return self.start(name, &record, now).await;
        }
        let overdue = now.checked_sub(OVERDUE).map_or(0, millis);
        match record.next_ms.filter(|next| *next < overdue) {
            Some(next) => {
                let follows_runs = schedule.timetable.spec().pause().is_some();
                // The tick may have been a check on that task: then it is too early for the next one.
                let behind = record.pushed.as_deref().filter(|_| follows_runs);
                let tick = Tick::new(name, &record.revision, time(next));
                self.look_for(&tick.behind(behind.and_then(|id| id.parse().ok()))).await
            }
            None => Ok(()),
        }
    }

    /// Looks for a tick that should have come. A tick that is gone is pushed again, a tick that waits for a
    /// time that the server's clock has jumped over becomes due now, and a dead tick is replaced. If another
    /// tick is there already, nothing is done.
    async fn look_for(&self, tick: &Tick) -> Result<()> {
        if let PushOutcome::Stored(_) = self.push_tick(tick, Duration::ZERO).await? {
            tracing::warn!(schedule = tick.name, "the tick of a schedule was missing, and is restored");
            return Ok(());
        }
        let can = self.home.capabilities();
        if can.amend {
            let amended = self.home.amend(TICKS, &[tick.id()], Amend::new().now()).await?;
            if matches!(amended.first(), Some(Ok(AmendOutcome::Amended))) {
                return Ok(());
            }
        }
        if !can.inspect.delete {
            return Ok(());
        }
        let dead = PartitionId::new(TICKS)?.dead_letters();
        if self.delete_tick(dead, tick.id()).await? == DeleteOutcome::Deleted {
            self.push_tick(tick, Duration::ZERO).await?;
        }
        Ok(())
    }
}
