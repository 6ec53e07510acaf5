//! Two backends, right and wrong, and short names for what is done to them.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, InspectQueueStorage, PauseQueueStorage, PullRequest, RawDelivery, Settlement, Storage,
};
use anyqueue::{Browsed, ExtendOutcome, Headers, MessageData, Page, PartitionId, PushOutcome, SettleOutcome};
use anyqueue_conformance::{Fault, Harness as _};
use anyqueue_faults::FaultyHarness;
use anyqueue_memory::MemoryQueue;

pub const MINUTE: Duration = Duration::from_mins(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const SHORT: Duration = Duration::from_millis(20);

/// How often the steps are begun anew: many of them prove nothing where the machine stood still meanwhile.
const TIMES: usize = 5;

/// Runs the steps on both backends. `right` and `wrong` are what they show.
pub async fn differs(fault: Fault, right: &str, wrong: &str, steps: impl AsyncFn(Lab) -> String) {
    shows(right, "memory", async || steps(Lab::right()).await).await;
    shows(wrong, &format!("{fault:?}: {}", fault.what()), async || steps(Lab::wrong(fault)).await).await;
}

/// Runs the steps until they show this, each time on a new backend.
async fn shows(what: &str, backend: &str, steps: impl AsyncFn() -> String) {
    let mut seen = Vec::new();
    while seen.len() < TIMES {
        let now = steps().await;
        if now == what {
            return;
        }
        seen.push(now);
    }
    panic!("{backend}: never {what:?}, but {seen:?}");
}

/// One test for each fault, and the list of them.
macro_rules! seen {
    ($($fault:ident: $right:expr, not $wrong:expr, $steps:expr;)+) => {
        pub const SEEN: &[Fault] = &[$(Fault::$fault),+];
        $(
            #[tokio::test]
            #[allow(non_snake_case, reason = "named after the fault")]
            async fn $fault() {
                differs(Fault::$fault, $right, $wrong, $steps).await;
            }
        )+
    };
}

/// A storage that clients can be opened of.
pub enum Lab {
    Right(MemoryQueue),
    Wrong(FaultyHarness),
}

impl Lab {
    pub fn right() -> Self {
        Self::Right(MemoryQueue::new())
    }

    pub fn wrong(fault: Fault) -> Self {
        Self::Wrong(FaultyHarness::new(fault))
    }

    pub async fn open(&self) -> LabClient {
        match self {
            Self::Right(queue) => LabClient(Arc::new(queue.client())),
            Self::Wrong(harness) => LabClient(harness.open("lab").await.unwrap()),
        }
    }
}

/// One client, with calls that are of the partition `jobs` where they do not say otherwise.
pub struct LabClient(pub Arc<dyn Storage>);

impl LabClient {
    pub async fn push(&self, messages: impl AsRef<[MessageData]>) -> String {
        self.push_to(&jobs(), messages).await
    }

    pub async fn push_to(&self, partition: &PartitionId, messages: impl AsRef<[MessageData]>) -> String {
        let answers = self.0.push(partition, messages.as_ref()).await;
        let words = answers.into_iter().map(|answer| match answer.unwrap() {
            PushOutcome::Stored(_) => "stored",
            PushOutcome::Duplicate(_) => "duplicate",
            PushOutcome::Replaced(_) => "replaced",
        });
        words.collect::<Vec<_>>().join(" ")
    }

    pub async fn pull(&self, max: usize) -> Vec<RawDelivery> {
        self.pull_from(&jobs(), max).await
    }

    pub async fn pull_from(&self, partition: &PartitionId, max: usize) -> Vec<RawDelivery> {
        self.0.pull(partition, PullRequest::new(max, Duration::ZERO, MINUTE)).await.unwrap()
    }

    pub async fn pull_for(&self, lease: Duration, max: usize) -> Vec<RawDelivery> {
        self.0.pull(&jobs(), PullRequest::new(max, Duration::ZERO, lease)).await.unwrap()
    }

    /// The only message there is.
    pub async fn one(&self) -> RawDelivery {
        self.pull(1).await.pop().unwrap()
    }

    /// The only message there will be.
    pub async fn wait_one(&self) -> RawDelivery {
        self.0.pull(&jobs(), PullRequest::new(1, MINUTE, MINUTE)).await.unwrap().pop().unwrap()
    }

    /// All that is ready, in order. It stays leased.
    pub async fn all(&self) -> String {
        names(&self.pull(1000).await)
    }

    pub async fn all_of(&self, partition: &PartitionId) -> String {
        names(&self.pull_from(partition, 1000).await)
    }

    /// What comes within a second.
    pub async fn wait(&self) -> String {
        self.wait_for(&jobs()).await
    }

    pub async fn wait_for(&self, partition: &PartitionId) -> String {
        let request = PullRequest::new(1, Duration::from_secs(1), MINUTE);
        names(&self.0.pull(partition, request).await.unwrap())
    }

    pub async fn settle(&self, delivery: &RawDelivery, action: Action) -> SettleOutcome {
        let settlement = Settlement::new(delivery.lease.clone(), action);
        *self.0.settle(&[settlement]).await[0].as_ref().unwrap()
    }

    pub async fn settle_all<'a>(&self, all: impl IntoIterator<Item = (&'a RawDelivery, Action)>) -> String {
        let settlement =
            |(delivery, action): (&RawDelivery, _)| Settlement::new(delivery.lease.clone(), action);
        let answers = self.0.settle(&all.into_iter().map(settlement).collect::<Vec<_>>()).await;
        shown(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>())
    }

    pub async fn extend(&self, delivery: &RawDelivery, duration: Duration) -> ExtendOutcome {
        *self.0.extend(&[Extension { lease: delivery.lease.clone(), duration }]).await[0].as_ref().unwrap()
    }

    pub async fn exchange(
        &self,
        delivery: &RawDelivery,
        action: Action,
        from: &PartitionId,
        wait: u64,
    ) -> String {
        let settlement = Settlement::new(delivery.lease.clone(), action);
        let request = PullRequest::new(10, Duration::from_millis(wait), MINUTE);
        names(&self.0.exchange(&[settlement], from, request).await.1.unwrap())
    }

    pub fn inspect(&self) -> &dyn InspectQueueStorage {
        self.0.inspect().unwrap()
    }

    pub async fn browse(&self) -> Vec<Browsed> {
        self.inspect().browse(&jobs(), Page::of(1000)).await.unwrap()
    }

    /// Ready, delayed, leased, dead.
    pub async fn counts(&self) -> String {
        let counts = self.inspect().counts(&jobs()).await.unwrap();
        shown([counts.ready, counts.delayed, counts.leased, counts.dead].map(Option::unwrap))
    }

    pub fn pauser(&self) -> &dyn PauseQueueStorage {
        self.0.pause().unwrap()
    }

    pub async fn set_paused(&self, paused: bool) {
        self.pauser().set_paused(&jobs(), paused).await.unwrap();
    }
}

pub fn partition(name: &str) -> PartitionId {
    PartitionId::new(name).unwrap()
}

pub fn jobs() -> PartitionId {
    partition("jobs")
}

pub fn other() -> PartitionId {
    partition("other")
}

pub fn dead() -> PartitionId {
    jobs().dead_letters()
}

pub fn m(payload: &str) -> MessageData {
    MessageData::new(payload)
}

/// Messages named by number.
pub fn many(count: usize) -> Vec<MessageData> {
    (0..count).map(|number| m(&number.to_string())).collect()
}

pub fn postpone(delay: Duration) -> Action {
    Action::Postpone { delay, headers: None }
}

pub fn with_headers<const N: usize>(headers: [(&str, &str); N]) -> Action {
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Action::Postpone { delay: Duration::ZERO, headers: Some(Headers::from(headers)) }
}

pub fn move_to(to: &PartitionId) -> Action {
    Action::Move { to: to.clone(), headers: None }
}

pub fn name(delivery: &RawDelivery) -> String {
    String::from_utf8_lossy(delivery.message.payload()).into_owned()
}

pub fn names(deliveries: &[RawDelivery]) -> String {
    deliveries.iter().map(name).collect::<Vec<_>>().join(" ")
}

pub fn shown(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What nobody should notice a fault by.
pub async fn plain_use(lab: &Lab) -> String {
    let client = lab.open().await;
    client.0.init().await.unwrap();
    let mut seen = client.push([m("a").with_header("h", "v"), m("b"), m("c").with_priority(3)]).await;
    seen += &client.counts().await;
    let held = client.pull(2).await;
    seen += &names(&held);
    seen += &shown((held[0].delivery_count, held[1].message.headers(), client.counts().await));
    seen += &shown(client.extend(&held[0], MINUTE).await);
    seen += &shown(client.settle(&held[0], Action::Remove).await);
    seen += &shown(client.settle(&held[1], Action::Release).await);
    let last = client.wait_one().await;
    seen += &name(&last);
    seen += &shown(client.browse().await.iter().map(|it| it.state).collect::<Vec<_>>());
    seen += &shown(client.inspect().partitions(Page::of(10)).await.unwrap());
    seen += &shown(client.inspect().purge(&jobs(), 10).await.unwrap());
    seen += &shown(client.settle(&last, Action::Remove).await);
    client.0.close().await.unwrap();
    let again = lab.open().await;
    seen += &again.counts().await;
    again.push([m("d")]).await;
    seen + &again.wait().await
}
