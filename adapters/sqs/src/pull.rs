//! Pulling: a poll of all levels, then long polls while there are no messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Extension, PullQueueStorage, PullRequest, RawDelivery, Settlement, async_trait};
use anyqueue::{Error, ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};

use crate::SqsQueue;
use crate::entries::ChangeVisibility;
use crate::error::{ERRORS, NAME};
use crate::in_flight::whole_secs;
use crate::limits::LEASE;
use crate::names::LevelQueue;
use crate::poll_state::{LongPoll, PollState, Waiting};
use crate::receive::ReceiveRequest;
use crate::received::Received;
use crate::shared::Inner;

/// How long surplus messages of a poll are buffered for this handle's next pull before they are released.
const BUFFERED_FOR: Duration = Duration::from_millis(250);
/// How much longer than its wait a pull waits for a poll that is about to end, since polls last whole
/// seconds.
const LAST_POLL: Duration = Duration::from_millis(1300);

/// The longest wait. It is limited so that times can be added.
const LONGEST_WAIT: Duration = Duration::from_hours(365 * 24);

/// The request of a pull, and when it started.
pub(crate) struct PullContext {
    started: Instant,
    pub(crate) request: PullRequest,
}

impl PullContext {
    /// Whether the pull must end early.
    pub(crate) fn is_stopped(&self, inner: &Inner) -> bool {
        self.request.stop.is_cancelled() || inner.closed.is_cancelled()
    }
}

#[async_trait]
impl PullQueueStorage for SqsQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
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

    /// Settles, then pulls, since the service has no request for both.
    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let settled = self.settle(settlements).await;
        (settled, self.pull(partition, request).await)
    }
}

impl SqsQueue {
    async fn pull_messages(
        &self,
        partition: &PartitionId,
        mut request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Pull));
        }
        let inner = &self.inner;
        request.check(&LEASE).map_err(stamp)?;
        request.wait = request.wait.min(LONGEST_WAIT);
        let context = PullContext { started: Instant::now(), request };
        // Boxed, because the types of the futures are deeply nested.
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
    /// Waits until messages come, the wait is over, or the pull is stopped.
    async fn wait(self: &Arc<Self>, partition: &PartitionId, context: &PullContext) -> Result<Vec<Received>> {
        let request = &context.request;
        let deadline = context.started + request.wait;
        let waiting = self.poll_states.of(partition, self.config.levels).join(request.max);
        loop {
            let changed = waiting.poll_state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before looking, so that nothing is missed in between
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

    /// Takes what long polls have brought, highest level first.
    async fn take_waited(&self, poll_state: &PollState, context: &PullContext) -> Vec<Received> {
        let mut buffered = Vec::new();
        for level in (0..self.config.levels).rev() {
            buffered.extend(poll_state.take_buffered(level, context.request.max - buffered.len()));
        }
        self.renew(buffered, context).await
    }

    /// Starts long polls at all levels without one.
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

    /// Starts long polls for one message at each level that was empty many times in a row, so that pulls need
    /// not ask these levels.
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

    /// Runs one long poll, which is never cancelled. Its messages are buffered for a pull, or released if
    /// none takes them in time.
    async fn poll(&self, poll_state: &PollState, level_queue: &LevelQueue, poll: LongPoll, lease: Duration) {
        let answer = self.poll_once(poll_state, level_queue, poll, lease).await;
        let brought = answer.as_ref().is_ok_and(|received| !received.is_empty());
        poll_state.finish_poll(poll, answer);
        if brought {
            self.release_unwanted(poll_state).await;
        }
    }

    /// Buffers surplus messages for the next pull of this handle. They are released if no pull takes them in time.
    pub(crate) fn buffer(self: &Arc<Self>, poll_state: &Arc<PollState>, received: Vec<Received>) {
        if received.is_empty() {
            return;
        }
        poll_state.buffer(received);
        let (inner, poll_state) = (self.clone(), poll_state.clone());
        self.long_polls.spawn(async move { inner.release_unwanted(&poll_state).await });
    }

    /// Releases the messages that are buffered now, unless a pull takes them in time.
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
        // Limits the number of connections, however many partitions are waited for.
        let _permit = self.long_poll_permits.acquire().await;
        let url = if self.queues.creates_missing() {
            Some(self.queues.find_or_create(&self.server, level_queue).await?)
        } else {
            self.queues.find(&self.server, level_queue).await?
        };
        let Some(url) = url else {
            // The queue is looked up again after this wait.
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

    /// Renews messages that were received before this pull began, or that have lost much of their lease.
    /// Messages that cannot be renewed are delivered again when their leases end.
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

    /// Releases messages that no pull wants, and those held behind them.
    pub(crate) async fn release(&self, mut unwanted: Vec<Received>) {
        let followers: Vec<_> =
            unwanted.iter().flat_map(|received| self.group_backlog.take_group(&received.claim)).collect();
        unwanted.extend(followers);
        // Messages that cannot be released at once were also received without being seen.
        self.unseen_receives.note_all(&unwanted);
        self.change_visibility(&unwanted, 0).await;
    }

    /// Releases the followers of messages that are lost. No handler has seen any of them.
    async fn release_followers(&self, lost: Vec<Received>) {
        self.unseen_receives.note_all(&lost);
        let followers: Vec<_> =
            lost.iter().flat_map(|received| self.group_backlog.take_group(&received.claim)).collect();
        if !followers.is_empty() {
            self.release(followers).await;
        }
    }

    /// Changes the visibility timeouts of messages. Returns for each whether that succeeded.
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

/// Returns how long a poll may take. A lease counts from the start of the poll, so a poll may take only a
/// part of it.
fn longest_poll_secs(lease: Duration) -> u64 {
    (lease / 3).as_secs()
}

/// A repetition is safe, since a failed pull holds nothing that is known.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Pull)
}
