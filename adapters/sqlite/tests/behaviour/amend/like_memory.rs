//! Random plans, carried out here and in memory: both must deliver the same messages in the same order.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use anyqueue::adapter::{Action, PullRequest, RawDelivery, Settlement, Storage, Successor};
use anyqueue::{ManualClock, MessageData, OnDuplicate, Page};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

/// Unless the variable says how many.
const PLANS: u64 = 30;
const PLANS_VARIABLE: &str = "ANYQUEUE_TEST_PLANS";
const STEPS: u32 = 120;

/// Both storages, on one clock, and what was done with them.
struct Plan {
    dice: Dice,
    clock: ManualClock,
    both: [Arc<dyn Storage>; 2],
    dir: tempfile::TempDir,
    p: PartitionId,
    ids: Vec<MessageId>,
    held: [Vec<RawDelivery>; 2],
    /// Moments are told apart by it, so that it is certain what is due first.
    moments: u64,
    log: Vec<String>,
}

impl Plan {
    async fn new(seed: u64) -> Self {
        let (bed, clock) = Bed::still().await;
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
        Self {
            dice: Dice::new(seed),
            clock,
            both: [Arc::new(memory), Arc::new(bed.queue)],
            dir: bed.dir,
            p: part("p"),
            ids: Vec::new(),
            held: Default::default(),
            moments: 0,
            log: Vec::new(),
        }
    }

    /// Up to twenty seconds. The clock goes in whole ones, so that none ends at the moment at which it is looked at.
    fn later(&mut self) -> Duration {
        self.moments += 1;
        Duration::from_millis(self.dice.below(20) * 1000 + 100 + self.moments % 800)
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, memory: &T, here: &T) {
        assert_eq!(memory, here, "after\n{}", self.log.join("\n"));
    }

    fn message(&mut self) -> MessageData {
        let mut message = MessageData::new(format!("{}", self.log.len()));
        message = message.with_priority(u8::try_from(self.dice.below(3)).unwrap());
        if self.dice.once_in(2) {
            message = message.with_group(self.dice.pick(&["g", "h"]));
        }
        if self.dice.once_in(4) {
            let every = [OnDuplicate::Keep, OnDuplicate::Replace, OnDuplicate::Earlier, OnDuplicate::Behind];
            message = message.with_dedup_key(self.dice.pick(&["k", "l"]));
            message = message.with_on_duplicate(self.dice.pick(&every));
        }
        // One that is due at once may make one due that is set aside: where that stands is not promised.
        if self.dice.once_in(4) || message.options().on_duplicate == OnDuplicate::Earlier {
            message = message.with_delay(self.later());
        }
        if self.dice.once_in(4) {
            message = message.with_urgent_after(self.later());
        }
        message
    }

    fn change(&mut self) -> Amend {
        let mut change = Amend::new();
        if self.dice.once_in(4) {
            change = change.with_priority(u8::try_from(self.dice.below(4)).unwrap());
        }
        if self.dice.once_in(4) {
            let delay = if self.dice.once_in(2) { Duration::ZERO } else { self.later() };
            change = change.due_in(delay);
        }
        if self.dice.once_in(4) {
            let group = self.dice.pick(&[Some("g"), Some("h"), None]);
            change = group.map_or(change.clone().without_group(), |group| change.with_group(group));
        }
        if change.is_empty() || self.dice.once_in(4) {
            change.disabled = Some(self.dice.once_in(2));
        }
        if change.delay(std::time::UNIX_EPOCH) == Some(Duration::ZERO) {
            change.disabled = Some(false); // where it stands if that comes later is not promised
        }
        change
    }

    fn some_ids(&mut self) -> Vec<MessageId> {
        let count = self.dice.below(3) + 1;
        let recent = self.ids.split_at(self.ids.len().saturating_sub(10)).1.to_vec();
        (0..count).filter(|_| !recent.is_empty()).map(|_| self.dice.pick(&recent)).collect()
    }

    async fn step(&mut self) {
        match self.dice.below(20) {
            0..=5 => self.push().await,
            6..=11 => self.amend().await,
            12..=14 => self.pull().await,
            15..=17 => self.settle().await,
            18 => {
                let seconds = self.dice.pick(&[1, 3, 10, 31]);
                self.log.push(format!("{seconds} s pass"));
                self.clock.advance(Duration::from_secs(seconds));
            }
            _ => self.delete().await,
        }
    }

    async fn push(&mut self) {
        let message = self.message();
        self.ids.push(message.id());
        self.log.push(format!("push {} {:?}", message.id(), message.options()));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            outcomes.push(storage.push(&self.p, std::slice::from_ref(&message)).await.remove(0).unwrap());
        }
        self.same(&outcomes[0], &outcomes[1]);
    }

    async fn amend(&mut self) {
        let (mut ids, change) = (self.some_ids(), self.change());
        if change.due.is_some() {
            ids.truncate(1); // else several are due at one moment
        }
        self.log.push(format!("amend {ids:?} {change:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let amended = storage.amend().unwrap().amend(&self.p, &ids, &change).await;
            outcomes.push(amended.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(&outcomes[0], &outcomes[1]);
    }

    async fn pull(&mut self) {
        let max = usize::try_from(self.dice.below(4) + 1).unwrap();
        let members = if self.dice.once_in(2) { 1 } else { self.dice.pick(&[2, 3, 4]) };
        self.take(max, members).await;
    }

    /// Returns how many came.
    async fn take(&mut self, max: usize, members: usize) -> usize {
        let mut shown = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let request = PullRequest::new(max, Duration::ZERO, LEASE).with_group_members(members);
            let got = storage.pull(&self.p, request).await.unwrap();
            shown.push(
                got.iter()
                    .map(|it| (it.lease.id, it.delivery_count, shown_message(&it.message)))
                    .collect::<Vec<_>>(),
            );
            held.extend(got);
        }
        self.log.push(format!("pull {max}, {members} of a group: {:?}", shown[0]));
        self.same(&shown[0], &shown[1]);
        shown[0].len()
    }

    async fn settle(&mut self) {
        if self.held[0].is_empty() {
            return;
        }
        let which = usize::try_from(self.dice.below(self.held[0].len() as u64)).unwrap();
        let actions = [Action::Remove, Action::Release, Action::Retry, postpone(self.later())];
        let action = self.dice.pick(&actions);
        let then = self.dice.once_in(4).then(|| self.message());
        self.ids.extend(then.as_ref().map(MessageData::id));
        self.log.push(format!("settle {} {action:?} {then:?}", self.held[0][which].lease.id));
        let mut outcomes = Vec::new();
        for (storage, held) in self.both.iter().zip(&mut self.held) {
            let successor = |message| Successor { partition: self.p.clone(), message };
            let settlement = Settlement::new(held.remove(which).lease, action.clone());
            let settlement = settlement.with_then(then.clone().map(successor).into_iter().collect());
            outcomes.push(storage.settle(&[settlement]).await.remove(0).unwrap());
        }
        self.same(&outcomes[0], &outcomes[1]);
    }

    async fn delete(&mut self) {
        let ids = self.some_ids();
        self.log.push(format!("delete {ids:?}"));
        let mut outcomes = Vec::new();
        for storage in &self.both {
            let deleted = storage.inspect().unwrap().delete(&self.p, &ids).await;
            outcomes.push(deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        }
        self.same(&outcomes[0], &outcomes[1]);
    }

    async fn look(&self) {
        let mut shown = Vec::new();
        for storage in &self.both {
            let inspect = storage.inspect().unwrap();
            let page = inspect.browse(&self.p, Page::of(1000)).await.unwrap();
            let states: HashMap<_, _> = page
                .iter()
                .map(|it| {
                    let content = shown_message(&it.message);
                    // What is kept is in whole milliseconds, rounded up.
                    let due_in = it.due_in.map(|due_in| due_in.as_millis() / 10).filter(|due_in| *due_in > 0);
                    (it.message.id(), (format!("{:?}", it.state), due_in, it.delivery_count, content))
                })
                .collect();
            shown.push((inspect.counts(&self.p).await.unwrap(), states));
        }
        self.same(&shown[0], &shown[1]);
        assert_whole(&self.dir.path().join("q.db"));
    }

    /// Enables all, and takes all there is.
    async fn end(&mut self) {
        let ids = self.ids.clone();
        for storage in &self.both {
            storage.amend().unwrap().amend(&self.p, &ids, &Amend::new().enable()).await;
        }
        self.log.push("enable all".to_owned());
        self.clock.advance(LEASE + SECOND);
        loop {
            self.look().await;
            self.held = Default::default();
            if self.take(100, 1).await == 0 {
                break;
            }
            for (storage, held) in self.both.iter().zip(&self.held) {
                let remove = |held: &RawDelivery| Settlement::new(held.lease.clone(), Action::Remove);
                storage.settle(&held.iter().map(remove).collect::<Vec<_>>()).await;
            }
        }
        for storage in &self.both {
            let counts = storage.inspect().unwrap().counts(&self.p).await.unwrap();
            assert_eq!((counts.ready, counts.delayed, counts.leased), (Some(0), Some(0), Some(0)));
        }
    }
}

/// The text, and what amendments change of it.
fn shown_message(message: &MessageData) -> (String, u8, Option<Arc<str>>) {
    let options = message.options();
    let text = String::from_utf8(message.payload().to_vec()).unwrap();
    (text, options.priority, options.group.clone())
}

#[tokio::test]
async fn random_plans_with_amendments_come_to_the_same() {
    let plans = std::env::var(PLANS_VARIABLE).map_or(PLANS, |plans| plans.parse().unwrap());
    for seed in 1..=plans {
        let mut plan = Plan::new(seed).await;
        for _ in 0..STEPS {
            plan.step().await;
            plan.look().await;
        }
        plan.end().await;
    }
}
