//! Messages that are not due yet: nobody can pull them, so they are copied with what is left of their delay, then deleted.

use std::time::Duration;

use anyqueue::{Browsed, DeleteOutcome, MAX_PAGE, MessageId, MessageState, When};

use super::account::Account;
use super::copies::copy;
use super::route::Route;
use super::run::{Transfer, Verdict};
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
        let answers = self.push(route, copies.collect()).await;
        let mut there = Vec::new();
        let mut end = Ok(());
        for (browsed, answer) in delayed.iter().zip(answers) {
            let id = browsed.message.id();
            match Verdict::of(id, answer) {
                Verdict::Stored => there.push((id, false)),
                Verdict::Already => there.push((id, true)),
                Verdict::Refused(why) => account.refuse(id, &why, self.output),
                Verdict::Failed(error) => {
                    account.fail(1, &error);
                    end = Err(error.into());
                }
            }
        }
        self.delete(route, &there, account).await?;
        account.not_too_many_refusals()?;
        end
    }

    /// Deletes from the source what is at the target. One that is not there any more may have fallen due and been taken, or another
    /// run of this move may have deleted it: its copy stays, as it can be the only one left.
    async fn delete(&self, route: &Route, there: &[(MessageId, bool)], account: &mut Account) -> Result {
        let ids: Vec<_> = there.iter().map(|(id, _)| *id).collect();
        let answers = self.source.delete(&route.from, &ids).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); ids.len()]);
        let mut end = Ok(());
        for ((_, already), outcome) in there.iter().zip(answers) {
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

/// How long until it is due; zero if it is not delayed, or that is unknown.
fn due(browsed: &Browsed) -> Duration {
    let due_in = browsed.due_in.filter(|_| browsed.state == MessageState::Delayed);
    due_in.unwrap_or_default()
}
