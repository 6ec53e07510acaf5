//! Messages that are not due yet: nobody can pull them, so they are copied with what is left of their delay, then deleted.

use std::time::Duration;

use anyqueue::{Browsed, DeleteOutcome, MAX_PAGE, MessageId, MessageState, When};

use super::account::Account;
use super::copies::copy;
use super::run::{Route, SHOWN_REFUSALS, Transfer, Verdict};
use crate::failure::Result;

/// What falls due sooner is left to be pulled: copying it would only race with its consumers.
const SOON: Duration = Duration::from_secs(2);

impl Transfer<'_> {
    /// Moves what is delayed, where the source can browse, tells when each is due, and deletes by id.
    pub(super) async fn run_delayed(&self, route: &Route, account: &mut Account) -> Result {
        let can = self.source.capabilities().inspect;
        if route.from.is_dead_letters() || !can.browse || !can.delete {
            return Ok(());
        }
        let mut after = None;
        while !*self.stop.borrow() {
            let page = self.source.browse(&route.from, after, MAX_PAGE).await?;
            after = page.last().map(|browsed| browsed.message.id());
            let last = page.len() < MAX_PAGE;
            let delayed: Vec<_> = page.into_iter().filter(|browsed| due(browsed) > SOON).collect();
            for part in delayed.chunks(self.batch) {
                self.batch_of_delayed(route, part, account).await?;
            }
            if last {
                break;
            }
        }
        Ok(())
    }

    async fn batch_of_delayed(&self, route: &Route, delayed: &[Browsed], account: &mut Account) -> Result {
        let copies = delayed.iter().map(|browsed| {
            let copy = copy(&browsed.message, browsed.age, self.without);
            let mut options = copy.options().clone();
            options.delay = Some(When::In(due(browsed)));
            copy.with_options(options)
        });
        let answers = self.push(route, copies.collect()).await?;
        let mut there = Vec::new();
        let mut end = Ok(());
        for (browsed, answer) in delayed.iter().zip(answers) {
            let id = browsed.message.id();
            match Verdict::of(id, answer) {
                Verdict::Stored => there.push((id, false)),
                Verdict::Already => there.push((id, true)),
                Verdict::Refused(why) => {
                    account.refused += 1;
                    if account.refused <= SHOWN_REFUSALS as u64 {
                        self.output.warn(&format!("{id} stays: {why}"));
                    }
                }
                Verdict::Failed(error) => end = Err(error.into()),
            }
        }
        self.delete(route, &there, account).await?;
        end
    }

    /// Deletes from the source what is at the target. What fell due meanwhile and was taken at the source is taken back from the
    /// target.
    async fn delete(&self, route: &Route, there: &[(MessageId, bool)], account: &mut Account) -> Result {
        let ids: Vec<_> = there.iter().map(|(id, _)| *id).collect();
        let mut taken = Vec::new();
        for ((id, already), outcome) in there.iter().zip(self.source.delete(&route.from, &ids).await?) {
            match outcome? {
                DeleteOutcome::Deleted if *already => account.already_there += 1,
                DeleteOutcome::Deleted => account.moved += 1,
                DeleteOutcome::Leased | DeleteOutcome::NotFound => taken.push(*id),
            }
        }
        if taken.is_empty() {
            return Ok(());
        }
        if !self.target.capabilities().inspect.delete {
            account.in_both += taken.len() as u64;
            return Ok(());
        }
        for outcome in self.target.delete(&route.to, &taken).await? {
            account.in_both += u64::from(outcome? != DeleteOutcome::Deleted);
        }
        Ok(())
    }
}

/// How long until it is due; zero if it is not delayed, or that is unknown.
fn due(browsed: &Browsed) -> Duration {
    let due_in = browsed.due_in.filter(|_| browsed.state == MessageState::Delayed);
    due_in.unwrap_or_default()
}
