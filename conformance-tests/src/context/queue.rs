//! The portable `Queue`, as cases use it.

use std::collections::HashMap;
use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Lease, Strictness};
use anyqueue::{
    Delivery, MessageData, MessageId, PartitionId, PartitionOptions, PushOutcome, Queue, QueueBuilder,
    QueueMessageStatus, Result, SettleOutcome,
};

use super::{Client, Context};
use crate::clause::Clause;
use crate::history::Op;
use crate::verdict::{CaseResult, Stop};

/// The pause between two checks for something that must come.
const LOOK: Duration = Duration::from_millis(2);

/// A failure names at most this many messages of a kind.
const SHOWN: usize = 5;

/// If two orders differ, this many places are shown.
const NEAR: usize = 20;

/// A future that will be dropped is first polled this often without a pause, for futures that need no I/O.
const POLLS_AT_ONCE: usize = 4;

impl Context {
    /// Creates a queue over the first client, whose leases outlive the case.
    ///
    /// # Errors
    /// Fails the case if it cannot be created.
    pub fn queue(&self) -> CaseResult<Queue> {
        self.queue_over(self.client(), |builder| builder)
    }

    /// Creates a queue over another, independent client.
    ///
    /// # Errors
    /// Fails the case if it cannot be created.
    pub async fn fresh_queue(&self) -> CaseResult<Queue> {
        let client = self.fresh().await?;
        self.queue_over(&client, |builder| builder)
    }

    /// Creates a queue over the first client, with the case's own partition options.
    ///
    /// # Errors
    /// Fails the case if it cannot be created.
    pub fn queue_with(&self, options: PartitionOptions) -> CaseResult<Queue> {
        self.queue_over(self.client(), |builder| builder.defaults(options))
    }

    /// Creates a queue over this client, which the case configures further.
    ///
    /// # Errors
    /// Fails the case if it cannot be created.
    pub fn queue_over(
        &self,
        client: &Client,
        set_up: impl FnOnce(QueueBuilder) -> QueueBuilder,
    ) -> CaseResult<Queue> {
        let builder = Queue::builder(client.storage().clone()).defaults(self.long_options());
        self.ok(Clause::Unsupported, "a queue over this backend", set_up(builder).build())
    }

    /// Returns options whose leases outlive the case.
    pub fn long_options(&self) -> PartitionOptions {
        PartitionOptions::default().with_lease(self.timing().long_lease)
    }

    /// Pushes through the queue; each must be stored under its id.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn store(
        &self,
        queue: &Queue,
        partition: &PartitionId,
        messages: Vec<MessageData>,
    ) -> CaseResult<Vec<MessageId>> {
        let ids: Vec<_> = messages.iter().map(MessageData::id).collect();
        let answers = self.ok(Clause::BatchSizes, "push_many", queue.push_many(partition, messages).await)?;
        self.stored(&ids, &answers)?;
        Ok(ids)
    }

    /// Judges that each message was stored under its own id, in order.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub fn stored(&self, ids: &[MessageId], answers: &[Result<PushOutcome>]) -> CaseResult {
        self.equal(Clause::PushResults, ids, "the number of answers", &ids.len(), &answers.len())?;
        for (id, answer) in ids.iter().zip(answers) {
            let ok = matches!(answer, Ok(PushOutcome::Stored(stored)) if stored == id);
            self.check(
                Clause::PushResults,
                &[*id],
                ok,
                format!("{} stored", self.label(*id)),
                format!("{answer:?}"),
            )?;
        }
        Ok(())
    }

    /// Takes exactly `n` handlers, in as many pulls as necessary. If one message may come twice, it counts
    /// once: the repeated delivery is removed, as the first one will be.
    ///
    /// # Errors
    /// Fails the case if they do not come soon, if a pull returns too many, or if one does not have its own
    /// body.
    pub async fn hold(&self, queue: &Queue, partition: &PartitionId, n: usize) -> CaseResult<Vec<Delivery>> {
        let mut held = Vec::new();
        while held.len() < n {
            let left = n - held.len();
            let got = self.ok(
                Clause::PullBounds,
                "a pull",
                queue.pull(partition).max(left).wait(self.timing().soon).await,
            )?;
            let seen = || format!("{} more within {:?}, after {}", got.len(), self.timing().soon, held.len());
            let ok = (1..=left).contains(&got.len());
            self.check(Clause::PullBounds, &[], ok, format!("{n} deliveries from {partition}"), seen())?;
            for mut one in got {
                // Both can come in one pull, for which core makes several calls.
                if self.may_repeat() && held.iter().any(|known: &Delivery| known.id() == one.id()) {
                    let _ = one.settle(QueueMessageStatus::Processed).await;
                } else {
                    held.push(one);
                }
            }
        }
        held.iter().try_for_each(|handler| self.whole(handler))?;
        Ok(held)
    }

    /// Returns the one handler that must come.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub async fn hold_one(&self, queue: &Queue, partition: &PartitionId) -> CaseResult<Delivery> {
        let mut held = self.hold(queue, partition, 1).await?;
        held.pop().ok_or_else(|| self.failed(Clause::PullBounds, &[], "a delivery", "none"))
    }

    /// Takes everything that comes until a pull stays empty for `quiet`, and settles all of it as processed.
    ///
    /// # Errors
    /// Fails the case if a pull or a settlement fails.
    pub async fn drain(
        &self,
        queue: &Queue,
        partition: &PartitionId,
        quiet: Duration,
    ) -> CaseResult<Vec<MessageId>> {
        let mut drained = Vec::new();
        loop {
            let mut got =
                self.ok(Clause::PullBounds, "a pull", queue.pull(partition).max(100).wait(quiet).await)?;
            if got.is_empty() {
                return Ok(drained);
            }
            got.iter().try_for_each(|handler| self.whole(handler))?;
            drained.extend(handler_ids(&got));
            self.processed(queue, &mut got).await?;
        }
    }

    /// Settles all handlers as processed; each must return `Settled`.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn processed(&self, queue: &Queue, handlers: &mut [Delivery]) -> CaseResult {
        let ids = handler_ids(handlers);
        let all = handlers.iter_mut().map(|handler| (handler, QueueMessageStatus::Processed));
        let answers = queue.settle_many(all).await;
        self.equal(Clause::SettleOutcomes, &ids, "the number of outcomes", &ids.len(), &answers.len())?;
        for (id, answer) in ids.iter().zip(answers) {
            self.settled(Clause::SettleOutcomes, *id, &answer)?;
        }
        Ok(())
    }

    /// Settles one handler; it must return `Settled`.
    ///
    /// # Errors
    /// Fails the case on any other answer.
    pub async fn settle(&self, handler: &mut Delivery, status: QueueMessageStatus) -> CaseResult {
        let answer = handler.settle(status).await;
        self.settled(Clause::SettleOutcomes, handler.id(), &answer)
    }

    fn settled(&self, clause: Clause, id: MessageId, answer: &Result<SettleOutcome>) -> CaseResult {
        let ok = matches!(answer, Ok(SettleOutcome::Settled));
        self.check(clause, &[id], ok, "Settled, as it is held", format!("{answer:?}"))
    }

    /// Judges that settling returns `Lost`.
    ///
    /// # Errors
    /// Fails the case unless it does.
    pub async fn settle_lost(
        &self,
        clause: Clause,
        handler: &mut Delivery,
        status: QueueMessageStatus,
    ) -> CaseResult {
        let answer = handler.settle(status).await;
        let ok = matches!(answer, Ok(SettleOutcome::Lost));
        self.check(clause, &[handler.id()], ok, "Lost", format!("{answer:?}"))
    }

    /// Judges that each of these was the only delivery of its message, whatever the backend counts.
    ///
    /// # Errors
    /// Fails the case unless it was.
    pub fn delivered_once(&self, clause: Clause, told: &str, handlers: &[Delivery]) -> CaseResult {
        let events = self.history().events();
        let delivered: Vec<_> = events
            .iter()
            .filter_map(
                |event| if let Op::Pull { outcome: Ok(got), .. } = &event.op { Some(got) } else { None },
            )
            .flatten()
            .map(|delivery| delivery.lease.id)
            .collect();
        for id in handler_ids(handlers) {
            let times = delivered.iter().filter(|other| **other == id).count();
            self.check(clause, &[id], times == 1, told, format!("{times} deliveries"))?;
        }
        Ok(())
    }

    /// Waits until no pull of this client is under way: what is pushed from then on cannot come to it.
    ///
    /// # Errors
    /// Fails the case with clause 13 if one goes on.
    pub async fn pulls_end(&self, client: &Client) -> CaseResult {
        let deadline = Instant::now() + self.timing().soon;
        while self.history().is_pulling(client.name()) {
            let late = Instant::now() > deadline;
            let expected = "a pull that nobody waits for any more to end soon";
            self.check(
                Clause::DroppedPull,
                &[],
                !late,
                expected,
                format!("it went on for {:?}", self.timing().soon),
            )?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until a pull of this client is under way.
    ///
    /// # Errors
    /// Fails the case with clause 11 if none comes.
    pub async fn pull_begins(&self, client: &Client) -> CaseResult {
        let deadline = Instant::now() + self.timing().soon;
        while !self.history().is_pulling(client.name()) {
            self.check(Clause::PushWakes, &[], Instant::now() < deadline, "a pull under way", "none")?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn message_body(&self, id: MessageId) -> String {
        format!("{} {id}", self.case)
    }

    /// Judges that a handler has the body that belongs to its id.
    ///
    /// # Errors
    /// Fails the case unless it does.
    pub fn whole(&self, handler: &Delivery) -> CaseResult {
        let expected = self.message_body(handler.id());
        let seen = String::from_utf8_lossy(handler.payload()).into_owned();
        self.check(
            Clause::ContentIntact,
            &[handler.id()],
            expected == seen,
            format!("the body {expected:?}"),
            seen,
        )
    }

    /// Returns whether the backend declares that a message may come to two consumers at once.
    pub(super) fn may_repeat(&self) -> bool {
        self.capabilities().exclusive != Strictness::Strict
    }

    /// Judges that exactly these messages came, in any order, and each once if only one consumer can hold a
    /// message.
    ///
    /// # Errors
    /// Fails the case unless they did.
    pub fn same_ids(
        &self,
        clause: Clause,
        what: &str,
        expected: &[MessageId],
        seen: &[MessageId],
    ) -> CaseResult {
        let mut balance: HashMap<MessageId, i64> = HashMap::new();
        for id in expected {
            *balance.entry(*id).or_default() += 1;
        }
        for id in seen {
            match balance.get_mut(id) {
                Some(left) if *left <= 0 && self.may_repeat() => {}
                Some(left) => *left -= 1,
                None => drop(balance.insert(*id, -1)),
            }
        }
        let odd = |missing: bool| {
            let odd =
                balance.iter().filter(|(_, balance)| if missing { **balance > 0 } else { **balance < 0 });
            odd.map(|(id, _)| *id).take(SHOWN).collect::<Vec<_>>()
        };
        let (missing, surplus) = (odd(true), odd(false));
        let told = format!("{what}: {} messages, each once", expected.len());
        let labels = |ids: &[MessageId]| self.history().labels(ids);
        let saw = format!("{}; missing: {}; too many: {}", seen.len(), labels(&missing), labels(&surplus));
        let about: Vec<MessageId> = missing.iter().chain(&surplus).copied().collect();
        self.check(clause, &about, about.is_empty(), told, saw)
    }

    /// Judges that exactly these messages came, in this order if the backend keeps push order.
    ///
    /// # Errors
    /// Fails the case unless they did.
    pub fn same_order(
        &self,
        clause: Clause,
        what: &str,
        expected: &[MessageId],
        seen: &[MessageId],
    ) -> CaseResult {
        self.same_ids(clause, what, expected, seen)?;
        let differs = expected.iter().zip(seen).position(|(expected, seen)| expected != seen);
        let Some(at) = differs.filter(|_| self.capabilities().order == anyqueue::adapter::Order::PushOrder)
        else {
            return Ok(());
        };
        // If there are many, those around the first difference: otherwise neither the labels nor the history
        // would show it.
        let near = |ids: &[MessageId]| ids.iter().copied().skip(at).take(NEAR).collect::<Vec<_>>();
        let (expected, seen) = (near(expected), near(seen));
        let told =
            format!("{what}, in push order; from number {}: {}", at + 1, self.history().labels(&expected));
        self.check(Clause::Order, &expected, false, told, self.history().labels(&seen))
    }

    /// Returns the lease of the last delivery of this message, as the backend gave it, so that a case can act
    /// behind a handler's back.
    ///
    /// # Errors
    /// Inconclusive if it was never delivered.
    pub fn lease_of(&self, id: MessageId) -> CaseResult<Lease> {
        let events = self.history().events();
        let deliveries = events.iter().rev().filter_map(|event| match &event.op {
            Op::Pull { outcome: Ok(got), .. } => Some(got),
            _ => None,
        });
        let found = deliveries.flatten().find(|delivery| delivery.lease.id == id);
        found
            .map(|delivery| delivery.lease.clone())
            .ok_or_else(|| Stop::Inconclusive("never delivered".to_owned()))
    }

    /// Returns the lease of the delivery of this message, which must come soon.
    ///
    /// # Errors
    /// Fails the case with clause 18 if it does not come.
    pub async fn delivered(&self, id: MessageId) -> CaseResult<Lease> {
        let deadline = Instant::now() + self.timing().soon;
        loop {
            if let Ok(lease) = self.lease_of(id) {
                return Ok(lease);
            }
            let expected = format!("{} at one of those who wait", self.label(id));
            self.check(Clause::AllWaitersWake, &[id], Instant::now() < deadline, expected, "nobody got it")?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns how many extensions of this message the backend was asked for.
    pub fn extensions_of(&self, id: MessageId) -> usize {
        let events = self.history().events();
        let of_it = |event: &&crate::history::Event| match &event.op {
            Op::Extend { extensions, .. } => extensions.iter().any(|extension| extension.lease.id == id),
            _ => false,
        };
        events.iter().filter(of_it).count()
    }
}

/// Returns the ids of handlers, in their order.
pub(crate) fn handler_ids(handlers: &[Delivery]) -> Vec<MessageId> {
    handlers.iter().map(Delivery::id).collect()
}

/// Drives a future through this many steps, alternately a poll and a pause, then drops it: after a poll, or
/// after time for what the poll began. Returns its output if it completed before that.
pub(crate) async fn polled<T>(steps: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for step in 0..steps {
        if step % 2 == 0 {
            if let Poll::Ready(answer) = futures_util::poll!(&mut future) {
                return Some(answer);
            }
        } else if step / 2 < POLLS_AT_ONCE {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    None
}
