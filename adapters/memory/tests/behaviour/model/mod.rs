//! Random commands against a naive model.

use std::time::Duration;

use anyqueue::adapter::{
    Action, AmendQueueStorage, Extension, InspectQueueStorage, PauseQueueStorage, PullQueueStorage,
    PullRequest, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{MessageData, Page, PartitionId};
use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::sample::Index;

mod command;
mod naive;

use crate::fixture::{Fixture, secs};
use command::{Command, Fate, Pull, command};
use naive::Model;

/// The backend and the model side by side.
struct Pair {
    real: Fixture,
    model: Model,
    pushed: Vec<MessageData>,
    /// Every delivery there ever was, stale ones too, and which pull it came from.
    deliveries: Vec<(RawDelivery, usize)>,
    pulls: usize,
}

/// Every call but a waiting pull is done when it is first polled.
fn done<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("done at once")
}

impl Pair {
    fn new() -> Self {
        let real = Fixture::new();
        Self { real, model: Model::default(), pushed: Vec::new(), deliveries: Vec::new(), pulls: 0 }
    }

    fn partition(&self, dead: bool) -> PartitionId {
        if dead { self.real.jobs.dead_letters() } else { self.real.jobs.clone() }
    }

    fn run(&mut self, command: &Command) {
        match *command {
            Command::Push { dead, priority, group, key, delay, urgent } => {
                let mut message = MessageData::new("x").with_priority(priority).with_delay(secs(delay));
                if let Some(group) = group {
                    message = message.with_group(format!("g{group}"));
                }
                if let Some(key) = key {
                    message = message.with_dedup_key(format!("k{key}"));
                }
                self.pushed.push(message.clone());
                let urging = urgent.map_or(message.clone(), |wait| message.with_urgent_after(secs(wait)));
                self.push(dead, urging, delay, urgent);
            }
            Command::PushAgain(which) if !self.pushed.is_empty() => {
                self.push(false, which.get(&self.pushed).clone().with_delay(Duration::ZERO), 0, None);
            }
            Command::Pull(pull) => self.pull(pull),
            Command::Settle(which, fate) if !self.deliveries.is_empty() => self.settle(which, fate),
            Command::Extend(which, seconds) if !self.deliveries.is_empty() => {
                let (delivery, claim) = which.get(&self.deliveries);
                let extension = Extension { lease: delivery.lease.clone(), duration: secs(seconds) };
                let real = done(self.real.queue.extend(&[extension])).remove(0).unwrap();
                assert_eq!(real, self.model.extend(&delivery.lease, *claim, seconds));
            }
            Command::Amend(which, ref change) if !self.pushed.is_empty() => {
                let id = which.get(&self.pushed).id();
                let real = done(self.real.queue.amend(&self.real.jobs, &[id], change)).remove(0).unwrap();
                assert_eq!(real, self.model.amend(id, change), "{change:?}");
            }
            Command::Delete(dead, which) if !self.pushed.is_empty() => {
                let id = which.get(&self.pushed).id();
                let real = done(self.real.queue.delete(&self.partition(dead), &[id])).remove(0).unwrap();
                assert_eq!(real, self.model.delete(dead, id));
            }
            Command::Cancel(dead, which) if !self.pushed.is_empty() => {
                let id = which.get(&self.pushed).id();
                let real =
                    done(self.real.queue.request_cancel(&self.partition(dead), &[id])).remove(0).unwrap();
                assert_eq!(real, self.model.cancel(dead, id));
            }
            Command::Purge { dead } => {
                let real = done(self.real.queue.purge(&self.partition(dead), 1000)).unwrap();
                assert_eq!(real, self.model.purge(dead));
            }
            Command::Pause { dead, paused } => {
                done(self.real.queue.set_paused(&self.partition(dead), paused)).unwrap();
                self.model.paused[usize::from(dead)] = paused;
            }
            Command::Advance(seconds) => {
                self.real.time.advance(secs(seconds));
                self.model.advance(seconds);
            }
            _ => {} // there is nothing yet to do it to
        }
    }

    fn push(&mut self, dead: bool, message: MessageData, delay: u64, urgent: Option<u64>) {
        let real = done(self.real.queue.push(&self.partition(dead), std::slice::from_ref(&message)))
            .remove(0)
            .unwrap();
        assert_eq!(real, self.model.push(dead, message, delay, urgent));
    }

    fn pull(&mut self, pull: Pull) {
        self.pulls += 1;
        let request = PullRequest::new(pull.max, Duration::ZERO, secs(pull.lease));
        let request = request.with_group_members(pull.members);
        let real = done(self.real.queue.pull(&self.partition(pull.dead), request)).unwrap();
        let seen: Vec<_> = real.iter().map(|d| (d.lease.id, d.delivery_count.unwrap(), d.age)).collect();
        assert_eq!(seen, self.model.pull(pull, self.pulls));
        self.deliveries.extend(real.into_iter().map(|delivery| (delivery, self.pulls)));
    }

    fn settle(&mut self, which: Index, fate: Fate) {
        let (delivery, claim) = which.get(&self.deliveries);
        let action = match fate {
            Fate::Remove => Action::Remove,
            Fate::Release => Action::Release,
            Fate::Retry => Action::Retry,
            Fate::Postpone(delay) => Action::Postpone { delay: secs(delay), headers: None },
            Fate::Move { dead } => Action::Move { to: self.partition(dead), headers: None },
        };
        let settlement = Settlement::new(delivery.lease.clone(), action);
        let real = done(self.real.queue.settle(&[settlement])).remove(0).unwrap();
        assert_eq!(real, self.model.settle(&delivery.lease, *claim, fate));
    }

    fn compare(&self) {
        for dead in [false, true] {
            let page = done(self.real.queue.browse(&self.partition(dead), Page::of(1000))).unwrap();
            let page: Vec<_> = page.iter().map(|b| (b.message.id(), b.state, b.delivery_count)).collect();
            assert_eq!(page, self.model.browse(dead));
        }
        assert_eq!(done(self.real.counts()), self.model.counts());
        let listed = done(self.real.queue.partitions(Page::of(10))).unwrap();
        let exists = !self.model.messages.is_empty() || self.model.paused.contains(&true);
        assert_eq!(listed.len(), usize::from(exists));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_backend_does_what_the_naive_model_does(commands in prop::collection::vec(command(), 1..120)) {
        let mut pair = Pair::new();
        for command in &commands {
            pair.run(command);
            pair.compare();
        }
    }
}
