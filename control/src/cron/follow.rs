//! What a tick does about the task of an earlier time: it waits for its end, or cancels it.

use std::time::{Duration, SystemTime};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::{Delivery, MessageId, Result, SettleOutcome, Successors};

use super::earlier::{Earlier, earlier};
use super::fire::{Firing, is_refusal};
use super::pause::look;
use super::tick::{TICKS, Tick, millis};

impl Firing<'_> {
    /// For a schedule that counts from the end of its last run: if it is too early for the next run, returns
    /// when to look again, and the task that it waits for.
    pub(super) async fn waits(&self, pause: Duration) -> Result<Option<(SystemTime, Option<MessageId>)>> {
        let stands = self.shared.earlier(&self.schedule, &earlier(Some(&self.tick), &self.record)).await?;
        let now = self.now.max(self.tick.at());
        Ok(match stands {
            Earlier::Lives(id) => Some((now.checked_add(look(pause)).unwrap_or(now), Some(id))),
            // This tick was the check that found the end.
            Earlier::Ended(_) if self.tick.earlier.is_some() => {
                Some((stands.due(pause, now), None)).filter(|(due, _)| *due > now)
            }
            Earlier::Ended(_) | Earlier::None => None,
        })
    }

    /// Continues without a run.
    pub(super) async fn wait(
        &self,
        delivery: &mut Delivery,
        next: SystemTime,
        lives: Option<MessageId>,
    ) -> Result<()> {
        let tick = Tick::new(&self.tick.name, &self.tick.revision, next).behind(lives);
        let then = Successors::new().then(TICKS, self.delayed(&tick)?)?;
        if delivery.settle_with(Processed, then).await? == SettleOutcome::Lost {
            return Ok(());
        }
        let noted = self.shared.note(&self.tick.name, &self.tick.revision, |there| {
            let is_news = !there.is_done_with(self.tick.at_ms);
            if is_news {
                (there.started, there.next_ms) = (true, Some(millis(next)));
                there.noted_ms = millis(self.server_time());
            }
            is_news
        });
        self.is_noted(noted.await);
        Ok(())
    }

    /// Makes room for a new task. A task that can never be cancelled does not stop the schedule.
    pub(super) async fn cancel_old(&self) -> Result<()> {
        match self.shared.cancel(&self.schedule, &earlier(Some(&self.tick), &self.record)).await {
            Err(error) if is_refusal(&error) => {
                tracing::warn!(schedule = self.tick.name, %error, "the earlier task of a schedule cannot be cancelled");
                Ok(())
            }
            cancelled => cancelled,
        }
    }
}
