//! The steps of a task's life between which a process stands still, so that it, or a server that it uses, can be killed there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyqueue::adapter::{Action, Forward, PullRequest, RawDelivery, Settlement, Storage, async_trait};
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, Result, SettleOutcome};
use tokio::sync::watch;

use crate::say::tell;

/// What is done whole before the step at which a process stands still.
const WHOLE: usize = 1;

/// Between two of the steps of push, pull, run, end, settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The queue has stored what was pushed; whoever pushed does not know, and neither does a ledger beside it.
    Pushed,
    /// The queue has handed out; nobody has begun.
    Pulled,
    /// The task has been run; no end is stored, and nothing is sent.
    Ran,
    /// No settlement is sent. Beside a queue, the ends are stored.
    Settling,
    /// The queue has settled; nobody knows.
    Settled,
}

impl Step {
    pub(crate) const ALL: [Self; 5] = [Self::Pushed, Self::Pulled, Self::Ran, Self::Settling, Self::Settled];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let step = Self::ALL.into_iter().find(|step| step.to_string() == name);
        step.ok_or_else(|| format!("there is no step {name:?}"))
    }
}

/// What a process was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    StandStill,
    GoOn,
    End,
}

/// Where a process stands still as a whole, once, until it is told to go on.
#[derive(Debug)]
pub(crate) struct Gate {
    at: Step,
    passed: AtomicUsize,
    stands: AtomicBool,
    orders: watch::Receiver<Order>,
}

impl Gate {
    pub(crate) fn new(at: Step, orders: watch::Receiver<Order>) -> Arc<Self> {
        Arc::new(Self { at, passed: AtomicUsize::new(0), stands: AtomicBool::new(false), orders })
    }

    /// While the process stands still, nothing else begins.
    pub(crate) async fn enter(&self) {
        if self.stands.load(SeqCst) {
            self.told(Order::GoOn).await;
        }
    }

    /// Says that this is where the process is to be killed, with these tasks in its hands, and waits.
    pub(crate) async fn pass(&self, step: Step, tasks: Vec<MessageId>) {
        if step != self.at || tasks.is_empty() || self.passed.fetch_add(1, SeqCst) != WHOLE {
            return;
        }
        self.stands.store(true, SeqCst);
        tell_ids(&format!("stands {step}"), tasks);
        self.told(Order::GoOn).await;
    }

    /// Waits until this was ordered.
    pub(crate) async fn told(&self, order: Order) {
        // Without a parent this process ends.
        let _ = self.orders.clone().wait_for(|last| *last >= order).await;
    }

    pub(crate) fn was_told_to_go_on(&self) -> bool {
        *self.orders.borrow() >= Order::GoOn
    }
}

pub(crate) fn tell_ids(what: &str, ids: impl IntoIterator<Item = MessageId>) {
    let ids: Vec<_> = ids.into_iter().map(|id| id.to_string()).collect();
    tell(&format!("{what} {}", ids.join(" ")));
}

/// A queue that passes a gate at its steps.
#[derive(Debug)]
pub(crate) struct Stops {
    inner: Arc<dyn Storage>,
    gate: Arc<Gate>,
}

impl Stops {
    pub(crate) fn new(inner: Arc<dyn Storage>, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }
}

#[async_trait]
impl Forward for Stops {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.gate.enter().await;
        let answers = self.inner.push(partition, messages).await;
        let stored = messages.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        self.gate.pass(Step::Pushed, stored.map(|(message, _)| message.id()).collect()).await;
        answers
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.gate.enter().await;
        let pulled = self.inner.pull(partition, request).await?;
        self.gate.pass(Step::Pulled, pulled.iter().map(|delivery| delivery.lease.id).collect()).await;
        Ok(pulled)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.gate.enter().await;
        let removes = |settlement: &&Settlement| settlement.action == Action::Remove;
        let all = settlements.iter().filter(removes).map(|it| it.lease.id).collect();
        self.gate.pass(Step::Settling, all).await;
        let answers = self.inner.settle(settlements).await;
        let settled = |answer: &Result<SettleOutcome>| matches!(answer, Ok(SettleOutcome::Settled));
        let all = settlements.iter().zip(&answers).filter(|(it, answer)| removes(it) && settled(answer));
        self.gate.pass(Step::Settled, all.map(|(it, _)| it.lease.id).collect()).await;
        answers
    }
}
