//! Pulling: a look at the levels, and long polls at all of them while there is nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Delivery, Extension, PullQueueStorage, PullRequest, Settlement, async_trait};
use anyqueue::{Error, ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};

use crate::SqsQueue;
use crate::entries::ChangeVisibility;
use crate::error::{NAME, closed, invalid, repeatable};
use crate::in_flight::whole_secs;
use crate::limits::check_lease;
use crate::names::LevelQueue;
use crate::poll_state::{LongPoll, PollState, Waiting};
use crate::receive::ReceiveRequest;
use crate::received::Received;
use crate::shared::Inner;

/// How long what a poll brought for nobody is kept for the next pull of this handle, before it is released.
const BUFFERED_FOR: Duration = Duration::from_millis(250);
/// How much longer than its wait a pull stays for a poll that is about to end: polls last whole seconds.
const LAST_POLL: Duration = Duration::from_millis(1300);

/// A wait without end is taken for this one, so that there is room to reckon.
const LONGEST_WAIT: Duration = Duration::from_hours(365 * 24);

/// What a pull asks for, and since when.
pub(crate) struct PullContext {
    started: Instant,
    pub(crate) request: PullRequest,
}

impl PullContext {
    /// Whether somebody said stop.
    pub(crate) fn is_stopped(&self, inner: &Inner) -> bool {
        self.request.stop.is_cancelled() || inner.closed.is_cancelled()
    }
}

#[async_trait]
impl PullQueueStorage for SqsQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<Delivery>> {
        let _call = self.inner.calls.token();
        self.pull_messages(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        let _call = self.inner.calls.token();
        self.settle_all(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let _call = self.inner.calls.token();
        self.extend_all(extensions).await
    }

    /// One after the other: the service has no request for both.
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<Delivery>>) {
        let settled = self.settle(settlements).await;
        (settled, self.pull(partition, request).await)
    }
}

impl SqsQueue {
    async fn pull_messages(
        &self,
        partition: &PartitionId,
        mut request: PullRequest,
    ) -> Result<Vec<Delivery>> {
        if self.is_closed() {
            return Err(closed(Operation::Pull));
        }
        let inner = &self.inner;
        check(&request).map_err(stamp)?;
        request.wait = request.wait.min(LONGEST_WAIT);
        let context = PullContext { started: Instant::now(), request };
        // Boxed, for the types of what it awaits are nested deeply.
        let mut received = Box::pin(inner.poll_levels(partition, &context)).await.map_err(stamp)?;
        if received.is_empty() && !context.request.wait.is_zero() {
            received = inner.wait(partition, &context).await.map_err(stamp)?;
        } else if received.is_empty() && context.request.thorough {
            received = Box::pin(inner.poll_thoroughly(partition, &context)).await.map_err(stamp)?;
        }
        Ok(received.into_iter().map(|received| received.deliver(&inner.in_flight)).collect())
    }
}

impl Inner {
    /// Waits until something comes, the time is over, or somebody says stop.
    async fn wait(self: &Arc<Self>, partition: &PartitionId, context: &PullContext) -> Result<Vec<Received>> {
        let request = &context.request;
        let deadline = context.started + request.wait;
        let waiting = self.poll_states.of(partition, self.config.levels).join(request.max);
        loop {
            let changed = waiting.poll_state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before looking, so that nothing comes unseen in between
            let received = self.take_waited(&waiting.poll_state, context).await;
            if !received.is_empty() {
                return Ok(received);
            }
            if let Some(error) = waiting.failure() {
                return Err(error);
            }
            let (now, last) = (Instant::now(), deadline + LAST_POLL);
            let until = if now < deadline {
                self.begin_polls(&waiting, partition, request.lease, deadline - now);
                deadline
            } else if now < last && waiting.poll_state.polls_end().is_some_and(|ends| ends <= last) {
                last
            } else {
                return Ok(Vec::new());
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until.into()) => {}
                () = request.stop.cancelled() => return Ok(Vec::new()),
                () = self.closed.cancelled() => return Ok(Vec::new()),
            }
        }
    }

    /// What polls have brought, highest level first.
    async fn take_waited(&self, poll_state: &PollState, context: &PullContext) -> Vec<Received> {
        let mut buffered = Vec::new();
        for level in (0..self.config.levels).rev() {
            buffered.extend(poll_state.take_buffered(level, context.request.max - buffered.len()));
        }
        self.renew(buffered, context).await
    }

    /// Long polls at all levels that have none.
    fn begin_polls(
        self: &Arc<Self>,
        waiting: &Waiting,
        partition: &PartitionId,
        lease: Duration,
        left: Duration,
    ) {
        let longest = whole_secs(left).min(longest_poll_secs(lease));
        self.poll_all(&waiting.poll_state, waiting.poll_state.start_polls(longest), partition, lease);
    }

    /// Long polls for one message each at the levels that were empty for long, so that pulls that find enough elsewhere need not ask them.
    pub(crate) fn watch(
        self: &Arc<Self>,
        poll_state: &Arc<PollState>,
        partition: &PartitionId,
        lease: Duration,
    ) {
        if !self.closed.is_cancelled() {
            self.poll_all(poll_state, poll_state.start_watches(longest_poll_secs(lease)), partition, lease);
        }
    }

    fn poll_all(
        self: &Arc<Self>,
        poll_state: &Arc<PollState>,
        polls: Vec<LongPoll>,
        partition: &PartitionId,
        lease: Duration,
    ) {
        for poll in polls {
            let (inner, poll_state) = (self.clone(), poll_state.clone());
            let level_queue = LevelQueue::new(partition, poll.level);
            self.long_polls.spawn(async move { inner.poll(&poll_state, &level_queue, poll, lease).await });
        }
    }

    /// One long poll, never cancelled: what it selects is handed on, or released if nobody wants it in time.
    async fn poll(&self, poll_state: &PollState, level_queue: &LevelQueue, poll: LongPoll, lease: Duration) {
        let answer = self.poll_once(poll_state, level_queue, poll, lease).await;
        let brought = answer.as_ref().is_ok_and(|received| !received.is_empty());
        poll_state.finish_poll(poll, answer);
        if brought {
            self.release_unwanted(poll_state).await;
        }
    }

    /// What a pull took too much is for the next one here, or is released if there is none in time.
    pub(crate) fn buffer(self: &Arc<Self>, poll_state: &Arc<PollState>, received: Vec<Received>) {
        if received.is_empty() {
            return;
        }
        poll_state.buffer(received);
        let (inner, poll_state) = (self.clone(), poll_state.clone());
        self.long_polls.spawn(async move { inner.release_unwanted(&poll_state).await });
    }

    /// Releases in time what is kept now and nobody takes.
    async fn release_unwanted(&self, poll_state: &PollState) {
        let buffered_at = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(BUFFERED_FOR) => {}
                () = self.closed.cancelled() => {}
            }
            let _releasing = poll_state.releasing.lock().await;
            if let Some(unwanted) = poll_state.take_unwanted(buffered_at) {
                return self.release(unwanted).await;
            }
        }
    }

    async fn poll_once(
        &self,
        poll_state: &PollState,
        level_queue: &LevelQueue,
        poll: LongPoll,
        lease: Duration,
    ) -> Result<Vec<Received>> {
        // There is an end to connections, however many partitions are waited for.
        let _permit = self.long_poll_permits.acquire().await;
        let url = if self.queues.creates_missing() {
            Some(self.queues.find_or_create(&self.server, level_queue).await?)
        } else {
            self.queues.find(&self.server, level_queue).await?
        };
        let Some(url) = url else {
            // It is looked for again when this wait is over.
            tokio::time::sleep(Duration::from_secs(poll.wait_secs)).await;
            return Ok(Vec::new());
        };
        self.receive(
            level_queue,
            &url,
            ReceiveRequest { max: poll_state.request_size(poll.max), wait_secs: poll.wait_secs, lease },
        )
        .await
    }

    /// Renews what was claimed before this pull began, or has lost much of its lease on the way. What cannot be renewed is left to
    /// whoever gets it when its lease ends.
    pub(crate) async fn renew(&self, received: Vec<Received>, context: &PullContext) -> Vec<Received> {
        let lease = context.request.lease;
        let is_good = |received: &Received| {
            let lasts = received.claim.until > Instant::now() + lease / 2;
            received.lease == lease && received.claim.received_at >= context.started && lasts
        };
        let (mut good, stale): (Vec<_>, Vec<_>) = received.into_iter().partition(is_good);
        if !stale.is_empty() {
            let (asked, mut lost) = (Instant::now(), Vec::new());
            let renewed = self.change_visibility(&stale, whole_secs(lease)).await;
            for (mut received, renewed) in stale.into_iter().zip(renewed) {
                if renewed {
                    received.lease = lease;
                    received.claim.until = asked + lease;
                    good.push(received);
                } else {
                    lost.push(received);
                }
            }
            self.release_followers(lost).await;
            good.sort_by_key(|received| std::cmp::Reverse(received.claim.level_queue.level));
        }
        good
    }

    /// Releases what nobody wants, and what is held behind it.
    pub(crate) async fn release(&self, mut unwanted: Vec<Received>) {
        let followers: Vec<_> =
            unwanted.iter().flat_map(|received| self.group_backlog.take_group(&received.claim)).collect();
        unwanted.extend(followers);
        // Also what cannot be shown at once was received for nobody.
        self.unseen_receives.note_all(&unwanted);
        self.change_visibility(&unwanted, 0).await;
    }

    /// Releases what is behind messages that are lost, unseen.
    async fn release_followers(&self, lost: Vec<Received>) {
        self.unseen_receives.note_all(&lost);
        let followers: Vec<_> =
            lost.iter().flat_map(|received| self.group_backlog.take_group(&received.claim)).collect();
        if !followers.is_empty() {
            self.release(followers).await;
        }
    }

    /// Makes messages visible after so many seconds. Whether each was done.
    async fn change_visibility(&self, received: &[Received], secs: u64) -> Vec<bool> {
        let changes = received.iter().map(|received| {
            (
                received.claim.level_queue.clone(),
                ChangeVisibility(received.claim.receipt_handle.clone(), secs),
            )
        });
        self.request_all(changes.collect()).await.into_iter().map(|answer| answer.is_ok()).collect()
    }
}

/// A lease counts from when the poll began, so a poll takes up no more than a part of it.
fn longest_poll_secs(lease: Duration) -> u64 {
    (lease / 3).as_secs()
}

fn check(request: &PullRequest) -> Result<()> {
    if request.max == 0 {
        return Err(invalid("max is 0: ask for at least 1 message"));
    }
    check_lease(request.lease)
}

/// Nothing is known to be claimed by a pull that failed, so it can be repeated.
fn stamp(error: Error) -> Error {
    repeatable(error).with_backend(NAME).with_operation(Operation::Pull)
}
