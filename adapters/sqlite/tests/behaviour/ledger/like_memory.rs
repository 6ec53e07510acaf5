//! Random plans with ends, carried out here and in memory: both must tell the same of what has ended.

use super::*;
use anyqueue::adapter::{EndedCursor, Storage};
use anyqueue::{ManualClock, MessageData};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

/// Unless the variable says how many.
const PLANS: u64 = 30;
const PLANS_VARIABLE: &str = "ANYQUEUE_TEST_PLANS";
const STEPS: u32 = 100;

/// Both storages, on one clock, and what was done with them.
struct Plan {
    dice: Dice,
    clock: ManualClock,
    both: [Arc<dyn Storage>; 2],
    partitions: [PartitionId; 2],
    /// Of each partition.
    ids: [Vec<MessageId>; 2],
    held: [Vec<RawDelivery>; 2],
    log: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Plan {
    async fn new(seed: u64) -> Self {
        let (bed, clock) = Bed::still().await;
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
        Self {
            dice: Dice::new(seed),
            clock,
            both: [Arc::new(memory), Arc::new(bed.queue)],
            partitions: [part("p"), part("q")],
            ids: Default::default(),
            held: Default::default(),
            log: Vec::new(),
            _dir: bed.dir,
        }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, [memory, here]: [T; 2]) {
        assert_eq!(memory, here, "after\n{}", self.log.join("\n"));
    }

    fn end(&mut self) -> TaskEnd {
        let state = self.dice.pick(&EndState::ALL);
        let mut end = TaskEnd::new(state).with_attempt(u32::try_from(self.dice.below(4)).unwrap());
        end.keep =
            self.dice.pick(&[None, Some(SECOND), Some(5 * SECOND), Some(60 * SECOND), Some(Duration::MAX)]);
        end.ran = Duration::from_micros(self.dice.below(1 << 40));
        end.reason = Some(format!("{}", self.log.len()).into());
        if self.dice.once_in(3) {
            end = end.with_result(vec![7; usize::try_from(self.dice.below(10_000)).unwrap()]);
        }
        end
    }

    fn maybe_end(&mut self) -> Option<Arc<TaskEnd>> {
        (!self.dice.once_in(4)).then(|| Arc::new(self.end()))
    }

    /// Of the last ones of a partition.
    fn some_ids(&mut self, at: usize) -> Vec<MessageId> {
        let recent = self.ids[at].split_at(self.ids[at].len().saturating_sub(8)).1.to_vec();
        recent.into_iter().filter(|_| self.dice.once_in(4)).collect()
    }

    async fn step(&mut self) {
        let at = self.dice.pick(&[0, 1]);
        let p = self.partitions[at].clone();
        match self.dice.below(20) {
            0..=5 => self.push(at, &p).await,
            6..=8 => self.pull(&p).await,
            9..=12 => self.settle().await,
            13..=14 => self.record(at, &p).await,
            15..=16 => self.cancel(at, &p).await,
            17 => self.delete(at, &p).await,
            18 => {
                let time = self.dice.pick(&[Duration::from_micros(700), SECOND, 7 * SECOND, 31 * SECOND]);
                self.log.push(format!("{time:?} pass"));
                self.clock.advance(time);
            }
            _ => self.purge().await,
        }
    }

    /// A new message, or one that was there before: then it is in neither place now, or is left out of both.
    async fn push(&mut self, at: usize, p: &PartitionId) {
        let repeated = self.some_ids(at).pop().filter(|_| self.dice.once_in(3));
        let message = MessageData::with_id(repeated.unwrap_or_else(MessageId::new), "m");
        self.ids[at].push(message.id());
        self.log.push(format!("push {} into {}", message.id(), p.name()));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            outcomes.push(storage.push(p, std::slice::from_ref(&message)).await.remove(0).unwrap());
        }
        self.same(outcomes.try_into().unwrap());
    }

    async fn pull(&mut self, p: &PartitionId) {
        let max = usize::try_from(self.dice.below(4) + 1).unwrap();
        let mut came = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let got = storage.pull(p, PullRequest::new(max, Duration::ZERO, LEASE)).await.unwrap();
            came.push(got.iter().map(|it| it.lease.id).collect::<Vec<_>>());
            held.extend(got);
        }
        self.log.push(format!("pull {:?}", came[0]));
        self.same(came.try_into().unwrap());
    }

    /// A batch, in which one may come twice, some without an end, some that are only released, and some late.
    async fn settle(&mut self) {
        if self.held[0].is_empty() {
            return;
        }
        let mut batch = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let which = usize::try_from(self.dice.below(self.held[0].len() as u64)).unwrap();
            let action = self.dice.pick(&[Action::Remove, Action::Remove, Action::Release]);
            batch.push((which, action, self.maybe_end()));
        }
        self.log.push(format!("settle {batch:?}"));
        let mut outcomes = Vec::new();
        for (storage, held) in self.both.iter().zip(&self.held) {
            let settlement = |(which, action, end): &(usize, Action, Option<Arc<TaskEnd>>)| {
                Settlement::new(held[*which].lease.clone(), action.clone()).with_end(end.clone())
            };
            let settled = storage.settle(&batch.iter().map(settlement).collect::<Vec<_>>()).await;
            outcomes.push(settled.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(outcomes.try_into().unwrap());
    }

    async fn record(&mut self, at: usize, p: &PartitionId) {
        let mut ids = self.some_ids(at);
        ids.sort();
        ids.dedup();
        let ends: Vec<_> = ids.into_iter().map(|id| (id, Arc::new(self.end()))).collect();
        self.log.push(format!("record {ends:?}"));
        for storage in &self.both {
            let recorded = storage.ledger().unwrap().record_ended(p, &ends).await;
            assert!(recorded.iter().all(Result::is_ok));
        }
    }

    async fn cancel(&mut self, at: usize, p: &PartitionId) {
        let ids = self.some_ids(at);
        let tasks: Vec<_> = ids.into_iter().map(|id| Cancelled { id, end: self.maybe_end() }).collect();
        self.log.push(format!("cancel {tasks:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let cancelled = storage.ledger().unwrap().cancel(p, &tasks).await;
            outcomes.push(cancelled.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(outcomes.try_into().unwrap());
    }

    async fn delete(&mut self, at: usize, p: &PartitionId) {
        let ids = self.some_ids(at);
        self.log.push(format!("delete {ids:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let deleted = storage.ledger().unwrap().delete_ended(p, &ids).await;
            outcomes.push(deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(outcomes.try_into().unwrap());
    }

    /// How many is not the same: memory frees some by itself.
    async fn purge(&mut self) {
        self.log.push("purge".to_owned());
        for storage in &self.both {
            let ledger = storage.ledger().unwrap();
            while ledger.purge_ended(3).await.unwrap() == 3 {}
            assert_eq!(ledger.purge_ended(3).await.unwrap(), 0);
        }
    }

    fn query(&mut self, page: &[EndedTask]) -> EndedQuery {
        let mut query = EndedQuery::default();
        query.states = EndState::ALL.into_iter().filter(|_| self.dice.once_in(2)).collect();
        let moments: Vec<_> = page.iter().map(|ended| ended.ended_at).collect();
        if !moments.is_empty() {
            query.since = self.dice.once_in(2).then(|| self.dice.pick(&moments));
            query.before = self.dice.once_in(2).then(|| self.dice.pick(&moments));
        }
        query
    }

    async fn page(&self, p: &PartitionId, query: &EndedQuery, page: Page<EndedCursor>) -> Vec<EndedTask> {
        let mut pages = Vec::new();
        for storage in &self.both {
            let page = storage.ledger().unwrap().ended(p, query, page).await.unwrap();
            pages.push(page.into_iter().map(bare).collect::<Vec<_>>());
        }
        self.same(pages.clone().try_into().unwrap());
        pages.remove(0)
    }

    async fn look(&mut self) {
        for p in self.partitions.clone() {
            let all = self.page(&p, &EndedQuery::default(), Page::of(1000)).await;
            let query = self.query(&all);
            let first = self.page(&p, &query, Page::of(3)).await;
            if let Some(last) = first.last() {
                self.page(&p, &query, Page::of(3).after(last.cursor())).await;
            }
            let (ids, cap) = (self.ids.concat(), self.dice.below(9) + 1);
            let (mut counts, mut found) = (Vec::new(), Vec::new());
            for storage in &self.both {
                let ledger = storage.ledger().unwrap();
                counts.push(ledger.count_ended(&p, &query, cap).await.unwrap());
                let all = ledger.find_ended(&p, &ids).await;
                found.push(all.into_iter().map(|found| found.unwrap().map(bare)).collect::<Vec<_>>());
            }
            self.same(counts.try_into().unwrap());
            self.same(found.try_into().unwrap());
        }
    }
}

/// Without how long it was to be kept, which memory has still.
fn bare(mut ended: EndedTask) -> EndedTask {
    ended.end = Arc::new(TaskEnd::clone(&ended.end).with_keep(None));
    ended
}

#[tokio::test]
async fn random_plans_with_ends_come_to_the_same() {
    let plans = std::env::var(PLANS_VARIABLE).map_or(PLANS, |plans| plans.parse().unwrap());
    for seed in 1..=plans {
        let mut plan = Plan::new(seed).await;
        for _ in 0..STEPS {
            plan.step().await;
            plan.look().await;
        }
    }
}
