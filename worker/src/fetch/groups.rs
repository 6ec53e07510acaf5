//! Groups that were pulled whole, and the batches made of them.

use std::sync::Arc;
use std::time::Instant;

use anyqueue::{Delivery, GroupDelivery};

use super::partition::Ready;
use super::state::Fetch;
use crate::context::kind;
use crate::handler::Route;
use crate::pool::SlotPermit;
use crate::run_batch::{self, Batch};
use crate::shared::Shared;
use crate::telemetry::Series;
use crate::work::Work;

/// What to run of each group: the tasks of one kind at its front. The others are dropped, which releases
/// them.
pub(super) fn batches(shared: &Shared, groups: Vec<GroupDelivery>, now: Instant) -> Vec<Ready> {
    let batch = |group: GroupDelivery| {
        let mut members = group.into_members();
        members.truncate(run_length(shared, &members));
        let mut members = members.into_iter();
        let first = Ready::alone(members.next()?, &shared.routes, now);
        Some(Ready { behind: members.collect(), ..first })
    };
    groups.into_iter().filter_map(batch).collect()
}

/// How many tasks run together. A task that was lost with its process runs alone: if it is the cause, it does
/// not take the others along again.
fn run_length(shared: &Shared, members: &[Delivery]) -> usize {
    let Some(first) = members.first() else { return 0 };
    let takes_batches = shared.routes.of(first.message()).is_some_and(|route| route.takes_batches());
    if !takes_batches || shared.crashes(first) > 0 {
        return 1;
    }
    let joins = |one: &&Delivery| kind(one.message()) == kind(first.message()) && shared.crashes(one) == 0;
    members.iter().take_while(joins).count()
}

impl Fetch {
    /// Starts a batch in the slots that it was given.
    pub(super) fn start_batch(
        &self,
        permit: SlotPermit,
        ready: Ready,
        route: &Arc<Route>,
        series: &Arc<Series>,
    ) {
        let claimed_at = ready.claimed_at;
        let permits = permit.split(ready.len());
        let works = ready.into_deliveries().zip(permits).map(|(delivery, permit)| Work {
            permit,
            verdict: self.shared.judge(&delivery, Some(route.clone())),
            delivery,
            claimed_at,
            series: series.clone(),
        });
        let works = works.collect();
        run_batch::spawn(&self.shared, Batch { route: route.clone(), works });
    }
}
