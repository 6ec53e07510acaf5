//! Random plans, carried out here and in memory: the members of each group must come in the same order, and as many at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, Extension, PullRequest, RawDelivery, Settlement, Storage};
use anyqueue::{Amend, MessageData, MessageId, Page, PartitionId};
use anyqueue_memory::MemoryQueue;
use fastrand::Rng;

use crate::common::{Bed, LEASE, part};

const PLANS: u64 = 40;
const STEPS: usize = 80;
const MOMENT: Duration = Duration::from_millis(1);

/// Both storages, and what was done with them. Some plans are about one group, and cut their pulls anywhere. In others all that is on
/// offer is pulled: which group comes first is not compared.
struct Plan {
    dice: Rng,
    both: [Arc<dyn Storage>; 2],
    p: PartitionId,
    groups: &'static [&'static str],
    pushed: Vec<MessageData>,
    held: [BTreeMap<MessageId, RawDelivery>; 2],
    log: Vec<String>,
}

impl Plan {
    fn new(seed: u64, bed: &anyqueue_redis::RedisQueue) -> Self {
        let groups: &[&str] = if seed.is_multiple_of(2) { &["g"] } else { &["g", "h", "i"] };
        Self {
            dice: Rng::with_seed(seed),
            both: [Arc::new(MemoryQueue::new()), Arc::new(bed.clone())],
            p: part(&format!("p{seed}")),
            groups,
            pushed: Vec::new(),
            held: Default::default(),
            log: Vec::new(),
        }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, both: &[T]) {
        assert_eq!(both[0], both[1], "in {} after\n{}", self.p.name(), self.log.join("\n"));
    }

    async fn step(&mut self) {
        match self.dice.u8(..20) {
            0..=6 => self.push().await,
            7..=11 => self.pull().await,
            12..=15 => self.settle().await,
            16..=17 => self.amend().await,
            18 => self.delete().await,
            _ => self.end_leases().await,
        }
    }

    async fn push(&mut self) {
        let group = self.dice.choice(self.groups).unwrap();
        let message = MessageData::new(self.pushed.len().to_string()).with_group(*group);
        let message = message.with_priority(self.dice.u8(..3));
        self.log.push(format!("push {} {:?}", message.id(), message.options()));
        for storage in &self.both {
            storage.push(&self.p, std::slice::from_ref(&message)).await.remove(0).unwrap();
        }
        self.pushed.push(message);
    }

    async fn pull(&mut self) {
        let max = if self.groups.len() > 1 { 1000 } else { self.dice.usize(1..6) };
        let members = self.dice.usize(1..5);
        self.take(max, members).await;
    }

    /// Returns how many came.
    async fn take(&mut self, max: usize, members: usize) -> usize {
        let (mut shown, mut count) = (Vec::new(), 0);
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let request = PullRequest::new(max, Duration::ZERO, LEASE).with_group_members(members);
            let got = storage.pull(&self.p, request).await.unwrap();
            let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for one in &got {
                let group = one.message.options().group.clone();
                groups.entry(group).or_default().push((one.lease.id, one.delivery_count));
            }
            shown.push(groups);
            count = got.len();
            held.extend(got.into_iter().map(|one| (one.lease.id, one)));
        }
        self.log.push(format!("pull {max}, {members} at once: {:?}", shown[0]));
        self.same(&shown);
        count
    }

    async fn settle(&mut self) {
        let ids: Vec<_> = self.held[0].keys().copied().collect();
        let Some(id) = self.dice.choice(ids) else { return };
        let postpone = |delay| Action::Postpone { delay, headers: None };
        let dead = Action::Move { to: self.p.dead_letters(), headers: None };
        let actions = [
            Action::Remove,
            Action::Remove,
            Action::Release,
            Action::Release,
            Action::Retry,
            postpone(Duration::ZERO),
            postpone(10 * LEASE),
            dead,
        ];
        let action = self.dice.choice(actions).unwrap();
        self.log.push(format!("settle {id} {action:?}"));
        let mut outcomes = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let settlement = Settlement::new(held.remove(&id).unwrap().lease, action.clone());
            outcomes.push(storage.settle(&[settlement]).await.remove(0).unwrap());
        }
        self.same(&outcomes);
    }

    fn change(&mut self) -> Amend {
        match self.dice.u8(..8) {
            0..=1 => Amend::new().disable(),
            2..=3 => Amend::new().enable(),
            4 => Amend::new().with_priority(self.dice.u8(..4)),
            5 => Amend::new().due_in(10 * LEASE).enable(),
            6 => Amend::new().now().enable(),
            _ => Amend::new().with_group(*self.dice.choice(self.groups).unwrap()),
        }
    }

    async fn amend(&mut self) {
        let (Some(id), change) = (self.some_id(), self.change()) else { return };
        self.log.push(format!("amend {id} {change:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            outcomes.push(storage.amend().unwrap().amend(&self.p, &[id], &change).await.remove(0).unwrap());
        }
        self.same(&outcomes);
    }

    fn some_id(&mut self) -> Option<MessageId> {
        let recent = self.pushed.len().saturating_sub(12);
        self.dice.choice(&self.pushed[recent..]).map(MessageData::id)
    }

    async fn delete(&mut self) {
        let Some(id) = self.some_id() else { return };
        self.log.push(format!("delete {id}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            outcomes.push(storage.inspect().unwrap().delete(&self.p, &[id]).await.remove(0).unwrap());
        }
        self.same(&outcomes);
    }

    /// Lets the leases of some end, in claims of their own.
    async fn end_leases(&mut self) {
        let mut ids: Vec<_> = self.held[0].keys().copied().collect();
        self.dice.shuffle(&mut ids);
        ids.truncate(self.dice.usize(1..4));
        self.log.push(format!("the leases of {ids:?} end"));
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let lease = |id| held.remove(id).unwrap().lease;
            let ends: Vec<_> =
                ids.iter().map(lease).map(|lease| Extension { lease, duration: MOMENT }).collect();
            storage.extend(&ends).await.into_iter().for_each(|outcome| assert!(outcome.is_ok()));
        }
        tokio::time::sleep(5 * MOMENT).await;
    }

    async fn look(&self) {
        let mut shown = Vec::new();
        for storage in &self.both {
            let inspect = storage.inspect().unwrap();
            let counts = inspect.counts(&self.p).await.unwrap();
            let page = inspect.browse(&self.p, Page::of(1000)).await.unwrap();
            let states: BTreeMap<_, _> =
                page.iter().map(|one| (one.message.id(), (one.state, one.delivery_count))).collect();
            shown.push((counts, states));
        }
        self.same(&shown);
    }

    /// Gives all back, makes all due, and takes all there is.
    async fn end(&mut self) {
        let held = self.held[0].len();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let release = |one: RawDelivery| Settlement::new(one.lease, Action::Release);
            let all: Vec<_> = std::mem::take(held).into_values().map(release).collect();
            storage.settle(&all).await.into_iter().for_each(|outcome| assert!(outcome.is_ok()));
        }
        self.log.push(format!("release {held}, enable all"));
        let ids: Vec<_> = self.pushed.iter().map(MessageData::id).collect();
        for change in [Amend::new().enable(), Amend::new().now()] {
            for id in &ids {
                for storage in &self.both {
                    storage.amend().unwrap().amend(&self.p, &[*id], &change).await.remove(0).unwrap();
                }
            }
        }
        while self.take(1000, 2).await > 0 {
            for (storage, held) in self.both.iter().zip(&mut self.held) {
                let remove = |one: RawDelivery| Settlement::new(one.lease, Action::Remove);
                let all: Vec<_> = std::mem::take(held).into_values().map(remove).collect();
                storage.settle(&all).await.into_iter().for_each(|outcome| assert!(outcome.is_ok()));
            }
        }
        self.look().await;
    }
}

#[tokio::test]
async fn random_plans_with_whole_groups_come_to_the_same_as_in_memory() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    for seed in 1..=PLANS {
        let mut plan = Plan::new(seed, &queue);
        for _ in 0..STEPS {
            plan.step().await;
            plan.look().await;
        }
        plan.end().await;
    }
}
