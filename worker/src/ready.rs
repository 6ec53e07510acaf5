//! What is held and has not started: started when a slot is free, released when none comes free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyqueue::{QueueMessageHandler, QueueMessageStatus};

use crate::fetch::{Fetch, SATURATED, is};
use crate::handler::Route;
use crate::lane::{Ready, waits_for_kind};
use crate::pool::Ticket;
use crate::schedule::Claim;
use crate::shared::Shared;
use crate::summary::Outcome;
use crate::work::{Verdict, Work};

/// How long a task is put off whose kind runs as often as it may.
const KIND_FULL: Duration = Duration::from_secs(1);

impl Fetch {
    /// Starts what is held, as far as slots are free.
    pub(crate) fn start_ready(&mut self) {
        let mut begun = Vec::new();
        let held = |index: &usize| self.lanes.get(*index).is_some_and(|lane| !lane.ready.is_empty());
        let lanes: Vec<usize> = (0..self.lanes.len()).filter(held).collect();
        while self.shared.pool.occupied() < self.shared.config.slots {
            let next = if let [only] = lanes.as_slice() {
                self.ready_claim(*only).filter(|claim| claim.used < claim.cap).map(|claim| claim.partition)
            } else {
                let claims: Vec<Claim> = lanes.iter().filter_map(|index| self.ready_claim(*index)).collect();
                self.schedule.next(&claims)
            };
            let Some((index, ready)) = next.and_then(|index| Some((index, self.take_startable(index)?)))
            else {
                break;
            };
            begun.extend(self.start(index, ready));
        }
        self.shared.runs.add(&self.shared, begun);
        for lane in self.lanes.iter_mut().filter(|lane| !lane.ready.is_empty() || lane.parked > 0) {
            lane.count_parked(&self.shared.routes);
        }
        let waits = self.lanes.iter().any(|lane| !lane.ready.is_empty());
        self.shared.pool.eager.store(waits || self.burst, Ordering::SeqCst);
    }

    /// The claim of a lane that holds something that could start.
    fn ready_claim(&self, index: usize) -> Option<Claim> {
        let lane = self.lanes.get(index).filter(|lane| !lane.ready.is_empty())?;
        lane.startable(&self.shared.routes)?;
        Some(Claim { partition: index, used: self.shared.pool.in_lane(index), cap: self.cap(index) })
    }

    /// The most slots of a lane.
    pub(crate) fn cap(&self, index: usize) -> usize {
        self.shared.lanes.get(index).map_or(0, |lane| lane.concurrency)
    }

    fn take_startable(&mut self, index: usize) -> Option<Ready> {
        let lane = self.lanes.get_mut(index)?;
        let position = lane.startable(&self.shared.routes)?;
        lane.ready.remove(position)
    }

    /// Gives a message a slot.
    fn start(&mut self, index: usize, ready: Ready) -> Option<Work> {
        self.schedule.started(index);
        let lane = self.shared.lanes.get(index)?;
        let route = self.shared.routes.of(ready.delivery.message()).cloned();
        let kind = route.as_ref().map(|route| route.kind.name.as_str());
        let series = self.book.series(index, lane.id.name(), kind);
        Some(Work {
            ticket: Ticket::new(&self.shared.pool, index, route.clone()),
            verdict: self.shared.judge(&ready.delivery, route),
            delivery: ready.delivery,
            claimed_at: ready.claimed_at,
            series,
        })
    }

    /// Releases what no slot came free for, and puts off what there is too much of.
    pub(crate) fn give_back_overdue(&mut self, now: Instant, quiet: &[bool]) {
        let mut overdue = Vec::new();
        for index in 0..self.lanes.len() {
            let ttl = if is(quiet, index) { Duration::ZERO } else { self.hold(index) };
            let Some(lane) = self.lanes.get_mut(index) else { continue };
            overdue.extend(lane.take_overdue(now, ttl).into_iter().map(|ready| (index, ready)));
            // Beyond as many as there are slots, parking would be hoarding.
            let excess = lane.take_overparked(&self.shared.routes, self.shared.config.slots, now);
            overdue.extend(excess.into_iter().map(|ready| (index, ready)));
        }
        for (index, ready) in overdue {
            if waits_for_kind(&ready, &self.shared.routes) {
                let status = self.shared.put_off(KIND_FULL);
                self.end(index, ready, status, Outcome::PutOff);
            }
            // Anything else is released by being dropped.
            self.given_back_at = Some(self.shared.pool.ended());
        }
    }

    /// How long a lane may hold what does not start.
    pub(crate) fn hold(&self, index: usize) -> Duration {
        let parked = self.lanes.get(index).is_some_and(|lane| lane.parked > 0);
        if parked && self.burst {
            Duration::MAX
        } else if parked || self.shared.config.prefetch > 0 {
            self.shared.config.prefetch_ttl
        } else {
            SATURATED
        }
    }

    /// Settles a message that is not to run.
    fn end(&mut self, index: usize, ready: Ready, status: QueueMessageStatus, outcome: Outcome) {
        let Some(lane) = self.shared.lanes.get(index) else { return };
        let work = Work {
            ticket: Ticket::new(&self.shared.pool, index, None),
            verdict: Verdict::End(status, outcome),
            delivery: ready.delivery,
            claimed_at: ready.claimed_at,
            series: self.book.series(index, lane.id.name(), None),
        };
        self.shared.runs.add(&self.shared, [work]);
    }
}

impl Shared {
    /// Whether a delivery may run.
    fn judge(&self, delivery: &QueueMessageHandler, route: Option<Arc<Route>>) -> Verdict {
        let crashes = self.crashes(delivery);
        if crashes > self.config.max_crashes {
            let reason = format!("lost {crashes} times with the process that ran it");
            return Verdict::End(QueueMessageStatus::poisonous(reason), Outcome::Dead);
        }
        if let Some(route) = route {
            return Verdict::Run(route);
        }
        let kind = crate::context::kind(delivery.message());
        self.missed(delivery, &format!("its kind {kind:?} has no handler here")).into_verdict()
    }
}
