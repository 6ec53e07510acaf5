//! Random plans, carried out here and in memory: the same ends must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Cancelled, EndedQuery, EndedTask, PullRequest, RawDelivery, Settlement, Storage, Successor,
    TaskEnd,
};
use anyqueue::{EndState, MessageData, MessageId, Page, PartitionId};
use anyqueue_memory::MemoryQueue;
use fastrand::Rng;

use crate::common::{Bed, LEASE, part};

const PLANS: u64 = 30;
const STEPS: usize = 60;

/// Both storages, and what was done with them.
struct Plan {
    dice: Rng,
    both: [Arc<dyn Storage>; 2],
    p: PartitionId,
    ids: Vec<MessageId>,
    held: [BTreeMap<MessageId, RawDelivery>; 2],
    log: Vec<String>,
}

impl Plan {
    fn new(seed: u64, queue: &anyqueue_redis::RedisQueue) -> Self {
        Self {
            dice: Rng::with_seed(seed),
            both: [Arc::new(MemoryQueue::new()), Arc::new(queue.clone())],
            p: part(&format!("p{seed}")),
            ids: (0..12).map(|_| MessageId::new()).collect(),
            held: Default::default(),
            log: Vec::new(),
        }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, both: &[T]) {
        assert_eq!(both[0], both[1], "in {} after\n{}", self.p.name(), self.log.join("\n"));
    }

    async fn step(&mut self) {
        match self.dice.u8(..20) {
            0..=5 => self.push().await,
            6..=8 => self.pull().await,
            9..=13 => self.settle().await,
            14..=16 => self.record().await,
            17 => self.delete().await,
            18 => self.cancel().await,
            _ => self.purge().await,
        }
    }

    fn id(&mut self) -> MessageId {
        *self.dice.choice(&self.ids).unwrap()
    }

    /// Some have lapsed when they are looked at.
    fn end(&mut self) -> Option<Arc<TaskEnd>> {
        let state = self.dice.choice(EndState::ALL).unwrap();
        let keep = self.dice.choice([None, Some(LEASE), Some(Duration::ZERO), Some(10 * LEASE)]).unwrap();
        let mut end = TaskEnd::new(state).with_keep(keep).with_attempt(self.dice.u32(..3));
        end.result = self.dice.bool().then(|| vec![b'r'; self.dice.usize(..9)].into());
        (self.dice.u8(..5) > 0).then(|| Arc::new(end))
    }

    async fn push(&mut self) {
        let mut message = MessageData::with_id(self.id(), "x");
        if self.dice.bool() {
            let key = message.id().to_string();
            message = message.with_dedup_key(key);
        }
        self.log.push(format!("push {} {:?}", message.id(), message.options()));
        for storage in &self.both {
            drop(storage.push(&self.p, std::slice::from_ref(&message)).await);
        }
    }

    async fn pull(&mut self) {
        self.log.push("pull".to_owned());
        let mut got = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let request = PullRequest::new(100, Duration::ZERO, LEASE);
            let some = storage.pull(&self.p, request).await.unwrap();
            got.push(some.iter().map(|one| one.lease.id).collect::<BTreeSet<_>>());
            held.extend(some.into_iter().map(|one| (one.lease.id, one)));
        }
        self.same(&got);
    }

    /// Settles some at once, by an exchange or not, some of them for the second time.
    async fn settle(&mut self) {
        let mut ids: Vec<_> = self.held[0].keys().copied().collect();
        self.dice.shuffle(&mut ids);
        ids.truncate(self.dice.usize(1..4));
        let (mut plan, is_exchange) = (Vec::new(), self.dice.bool());
        for id in ids {
            let action = self.dice.choice([Action::Remove, Action::Remove, Action::Retry]).unwrap();
            let end = self.end().filter(|_| action == Action::Remove);
            let then = self.dice.choice([None, Some(self.p.name()), Some("next")]).unwrap().map(part);
            plan.push((id, action, end, then, MessageId::new(), self.dice.bool()));
        }
        self.log.push(format!("settle {plan:?}, exchange: {is_exchange}"));
        let mut outcomes = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let settlement = |(id, action, end, then, child, _): &_| {
                let lease = held[id].lease.clone();
                let message = |partition: &PartitionId| Successor {
                    partition: PartitionId::clone(partition),
                    message: MessageData::with_id(*child, "child").with_delay(LEASE),
                };
                let then: &Option<PartitionId> = then;
                let end: &Option<Arc<TaskEnd>> = end;
                let action: &Action = action;
                Settlement::new(lease, action.clone())
                    .with_then(then.iter().map(message).collect())
                    .with_end(end.clone())
            };
            let settlements: Vec<_> = plan.iter().map(settlement).collect();
            let settled = if is_exchange {
                let request = PullRequest::new(100, Duration::ZERO, LEASE);
                let (settled, pulled) = storage.exchange(&settlements, &self.p, request).await;
                for (id, ..) in plan.iter().filter(|(.., is_kept)| !is_kept) {
                    held.remove(id);
                }
                held.extend(pulled.unwrap().into_iter().map(|one| (one.lease.id, one)));
                settled
            } else {
                for (id, ..) in plan.iter().filter(|(.., is_kept)| !is_kept) {
                    held.remove(id);
                }
                storage.settle(&settlements).await
            };
            outcomes.push(settled.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(&outcomes);
    }

    async fn record(&mut self) {
        let mut ends: BTreeMap<_, _> = BTreeMap::new();
        for _ in 0..self.dice.usize(1..4) {
            let (id, end) = (self.id(), self.end());
            ends.extend(end.map(|end| (id, end)));
        }
        let ends: Vec<_> = ends.into_iter().collect();
        self.log.push(format!("record {ends:?}"));
        for storage in &self.both {
            let recorded = storage.ledger().unwrap().record_ended(&self.p, &ends).await;
            assert!(recorded.iter().all(Result::is_ok));
        }
    }

    async fn delete(&mut self) {
        let ids = [self.id(), self.id()];
        self.log.push(format!("delete {ids:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let deleted = storage.ledger().unwrap().delete_ended(&self.p, &ids).await;
            outcomes.push(deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(&outcomes);
    }

    async fn cancel(&mut self) {
        let task = Cancelled { id: self.id(), end: self.end() };
        self.log.push(format!("cancel {task:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let task = std::slice::from_ref(&task);
            outcomes.push(storage.ledger().unwrap().cancel(&self.p, task).await.remove(0).unwrap());
        }
        self.same(&outcomes);
    }

    /// The memory queue frees some by itself.
    async fn purge(&mut self) {
        self.log.push("purge".to_owned());
        for storage in &self.both {
            storage.ledger().unwrap().purge_ended(100).await.unwrap();
        }
    }

    /// What is told of ends, but for moments, which are of two clocks: lists in the order of ids.
    async fn look(&mut self) {
        tokio::time::sleep(Duration::from_millis(1)).await; // for those that are kept for no time
        let states: Vec<_> = EndState::ALL.into_iter().filter(|_| self.dice.bool()).collect();
        let mut query = EndedQuery::default();
        query.states = states;
        let (size, mut shown) = (self.dice.usize(1..6), Vec::new());
        for storage in &self.both {
            let ledger = storage.ledger().unwrap();
            let told = |ended: &EndedTask| {
                let kept = ended.expires_at.map(|expires| expires.duration_since(ended.ended_at).unwrap());
                let mut end = TaskEnd::clone(&ended.end);
                end.keep = None;
                (ended.id, kept, end)
            };
            let (mut listed, mut page): (Vec<EndedTask>, _) = (Vec::new(), Page::of(size));
            loop {
                let some = ledger.ended(&self.p, &query, page).await.unwrap();
                let is_last = some.len() < size;
                listed.extend(some);
                if is_last {
                    break;
                }
                page = Page::of(size).after(listed.last().map(EndedTask::cursor));
            }
            assert!(listed.is_sorted_by(|one, next| one.cursor() > next.cursor()));
            let counted = ledger.count_ended(&self.p, &query, 100).await.unwrap();
            assert_eq!(counted, listed.len() as u64, "after\n{}", self.log.join("\n"));
            let mut listed: Vec<_> = listed.iter().map(told).collect();
            listed.sort_by_key(|(id, ..)| *id);
            let found = ledger.find_ended(&self.p, &self.ids).await;
            let found: Vec<_> = found.into_iter().map(|ended| ended.unwrap().as_ref().map(told)).collect();
            shown.push((listed, found));
        }
        self.same(&shown);
    }
}

#[tokio::test]
async fn random_plans_leave_the_same_ends_as_in_memory() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    for seed in 1..=PLANS {
        let mut plan = Plan::new(seed, &queue);
        for _ in 0..STEPS {
            plan.step().await;
            plan.look().await;
        }
    }
}
