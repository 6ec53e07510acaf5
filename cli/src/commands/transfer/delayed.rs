//! Moves delayed messages: they cannot be pulled, so they are copied with the rest of their delay, then
//! deleted.

use std::time::Duration;

use anyqueue::{Browsed, DeleteOutcome, MAX_PAGE, MessageId, MessageState, Page, When};

use super::account::Account;
use super::copies::copy;
use super::route::Route;
use super::run::{PushVerdict, Transfer};
use crate::failure::Result;

/// Messages due sooner than this are left to be pulled: copying them would race with their consumers.
const SOON: Duration = Duration::from_secs(2);

impl Transfer<'_> {
    /// Moves delayed messages, if the source can be browsed and can delete by id.
    pub(super) async fn run_delayed(&self, route: &Route, account: &mut Account) -> Result {
        let can = self.source.capabilities().inspect;
        if route.from.is_dead_letters() || !can.browse || !can.delete {
            return Ok(());
        }
        let mut after = None;
        while !*self.stop.borrow() {
            let page = self.source.browse(&route.from, Page::of(MAX_PAGE).after(after)).await?;
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
        let results = self.push(route, copies.collect()).await;
        let mut there = Vec::new();
        let mut end = Ok(());
        for (browsed, result) in delayed.iter().zip(results) {
            let id = browsed.message.id();
            match PushVerdict::of(id, result) {
                PushVerdict::Stored => there.push((id, false)),
                PushVerdict::AlreadyThere => there.push((id, true)),
                PushVerdict::Refused(why) => account.refuse(id, &why, self.output),
                PushVerdict::Failed(error) => {
                    account.fail(1, &error);
                    end = Err(error.into());
                }
            }
        }
        self.delete(route, &there, account).await?;
        account.not_too_many_refusals()?;
        end
    }

    /// Deletes from the source what is at the target. A message that is gone may have become due and been
    /// taken, or another run of this move may have deleted it: its copy stays, as it may be the only one
    /// left.
    async fn delete(&self, route: &Route, there: &[(MessageId, bool)], account: &mut Account) -> Result {
        let ids: Vec<_> = there.iter().map(|(id, _)| *id).collect();
        let results = self.source.delete(&route.from, &ids).await;
        let results = results.unwrap_or_else(|error| vec![Err(error); ids.len()]);
        let mut end = Ok(());
        for ((_, already), outcome) in there.iter().zip(results) {
            match outcome {
                Ok(DeleteOutcome::Deleted) if *already => account.already_there += 1,
                Ok(DeleteOutcome::Deleted) => account.moved += 1,
                Ok(DeleteOutcome::Leased | DeleteOutcome::NotFound) => account.in_both += 1,
                Err(error) => {
                    account.in_both += 1;
                    end = Err(error.into());
                }
            }
        }
        end
    }
}

/// How long until the message is due; zero if it is not delayed, or if that is unknown.
fn due(browsed: &Browsed) -> Duration {
    let due_in = browsed.due_in.filter(|_| browsed.state == MessageState::Delayed);
    due_in.unwrap_or_default()
}
