//! Pulling: a look at the levels, and long polls at all of them while there is nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Delivery, Extension, PullQueueStorage, PullRequest, Settlement, async_trait};
use anyqueue::{Error, ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};

use crate::SqsQueue;
use crate::entries::Show;
use crate::error::{NAME, closed, invalid, repeatable};
use crate::held::whole_secs;
use crate::limits::check_lease;
use crate::lines::{Line, Poll, Waiting};
use crate::names::Place;
use crate::receive::Ask;
use crate::shared::Inner;
use crate::taken::Taken;

/// How long what a poll brought for nobody is kept for the next pull of this handle, before it is released.
const KEPT_FOR: Duration = Duration::from_millis(250);
/// How much longer than its wait a pull stays for a poll that is about to end: polls last whole seconds.
const LAST_POLL: Duration = Duration::from_millis(1300);

/// A wait without end is taken for this one, so that there is room to reckon.
const LONGEST_WAIT: Duration = Duration::from_hours(365 * 24);

/// What a pull asks for, and since when.
pub(crate) struct Terms {
    began: Instant,
    pub(crate) request: PullRequest,
}

impl Terms {
    /// Whether somebody said stop.
    pub(crate) fn is_over(&self, inner: &Inner) -> bool {
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
        let terms = Terms { began: Instant::now(), request };
        // Boxed, for the types of what it awaits are nested deeply.
        let mut taken = Box::pin(inner.sweep(partition, &terms)).await.map_err(stamp)?;
        if taken.is_empty() && !terms.request.wait.is_zero() {
            taken = inner.wait(partition, &terms).await.map_err(stamp)?;
        } else if taken.is_empty() && terms.request.thorough {
            taken = Box::pin(inner.make_sure(partition, &terms)).await.map_err(stamp)?;
        }
        Ok(taken.into_iter().map(|taken| taken.deliver(&inner.ledger)).collect())
    }
}

impl Inner {
    /// Waits until something comes, the time is over, or somebody says stop.
    async fn wait(self: &Arc<Self>, partition: &PartitionId, terms: &Terms) -> Result<Vec<Taken>> {
        let request = &terms.request;
        let deadline = terms.began + request.wait;
        let waiting = self.lines.of(partition, self.config.levels).join(request.max);
        loop {
            let changed = waiting.line.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before looking, so that nothing comes unseen in between
            let taken = self.take_waited(&waiting.line, terms).await;
            if !taken.is_empty() {
                return Ok(taken);
            }
            if let Some(error) = waiting.failure() {
                return Err(error);
            }
            let (now, last) = (Instant::now(), deadline + LAST_POLL);
            let until = if now < deadline {
                self.begin_polls(&waiting, partition, request.lease, deadline - now);
                deadline
            } else if now < last && waiting.line.polls_end().is_some_and(|ends| ends <= last) {
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
    async fn take_waited(&self, line: &Line, terms: &Terms) -> Vec<Taken> {
        let mut kept = Vec::new();
        for level in (0..self.config.levels).rev() {
            kept.extend(line.take_kept(level, terms.request.max - kept.len()));
        }
        self.refresh(kept, terms).await
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
        self.poll_all(&waiting.line, waiting.line.arm(longest), partition, lease);
    }

    /// Long polls for one message each at the levels that were empty for long, so that pulls that find enough elsewhere need not ask them.
    pub(crate) fn watch(self: &Arc<Self>, line: &Arc<Line>, partition: &PartitionId, lease: Duration) {
        if !self.closed.is_cancelled() {
            self.poll_all(line, line.watch(longest_poll_secs(lease)), partition, lease);
        }
    }

    fn poll_all(
        self: &Arc<Self>,
        line: &Arc<Line>,
        polls: Vec<Poll>,
        partition: &PartitionId,
        lease: Duration,
    ) {
        for poll in polls {
            let (inner, line) = (self.clone(), line.clone());
            let place = Place::new(partition, poll.level);
            self.polls.spawn(async move { inner.poll(&line, &place, poll, lease).await });
        }
    }

    /// One long poll, never cancelled: what it selects is handed on, or released if nobody wants it in time.
    async fn poll(&self, line: &Line, place: &Place, poll: Poll, lease: Duration) {
        let answer = self.poll_once(line, place, poll, lease).await;
        let brought = answer.as_ref().is_ok_and(|taken| !taken.is_empty());
        line.landed(poll, answer);
        if brought {
            self.let_go_unwanted(line).await;
        }
    }

    /// What a pull took too much is for the next one here, or is released if there is none in time.
    pub(crate) fn keep(self: &Arc<Self>, line: &Arc<Line>, taken: Vec<Taken>) {
        if taken.is_empty() {
            return;
        }
        line.keep(taken);
        let (inner, line) = (self.clone(), line.clone());
        self.polls.spawn(async move { inner.let_go_unwanted(&line).await });
    }

    /// Releases in time what is kept now and nobody takes.
    async fn let_go_unwanted(&self, line: &Line) {
        let kept_at = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(KEPT_FOR) => {}
                () = self.closed.cancelled() => {}
            }
            let _giving_back = line.giving_back.lock().await;
            if let Some(unwanted) = line.unwanted(kept_at) {
                return self.let_go(unwanted).await;
            }
        }
    }

    async fn poll_once(&self, line: &Line, place: &Place, poll: Poll, lease: Duration) -> Result<Vec<Taken>> {
        // There is an end to connections, however many partitions are waited for.
        let _room = self.poll_room.acquire().await;
        let url = if self.queues.makes() {
            Some(self.queues.make(&self.server, place).await?)
        } else {
            self.queues.find(&self.server, place).await?
        };
        let Some(url) = url else {
            // It is looked for again when this wait is over.
            tokio::time::sleep(Duration::from_secs(poll.wait_secs)).await;
            return Ok(Vec::new());
        };
        self.receive(place, &url, Ask { max: line.full(poll.max), wait_secs: poll.wait_secs, lease }).await
    }

    /// Renews what was claimed before this pull began, or has lost much of its lease on the way. What cannot be renewed is left to
    /// whoever gets it when its lease ends.
    pub(crate) async fn refresh(&self, taken: Vec<Taken>, terms: &Terms) -> Vec<Taken> {
        let lease = terms.request.lease;
        let is_good = |taken: &Taken| {
            let lasts = taken.claim.until > Instant::now() + lease / 2;
            taken.lease == lease && taken.claim.claimed >= terms.began && lasts
        };
        let (mut good, stale): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_good);
        if !stale.is_empty() {
            let (asked, mut lost) = (Instant::now(), Vec::new());
            let renewed = self.change(&stale, whole_secs(lease)).await;
            for (mut taken, renewed) in stale.into_iter().zip(renewed) {
                if renewed {
                    taken.lease = lease;
                    taken.claim.until = asked + lease;
                    good.push(taken);
                } else {
                    lost.push(taken);
                }
            }
            self.let_go_behind(lost).await;
            good.sort_by_key(|taken| std::cmp::Reverse(taken.claim.place.level));
        }
        good
    }

    /// Releases what nobody wants, and what is held behind it.
    pub(crate) async fn let_go(&self, mut unwanted: Vec<Taken>) {
        let behind: Vec<_> = unwanted.iter().flat_map(|taken| self.behind.take(&taken.claim)).collect();
        unwanted.extend(behind);
        // Also what cannot be shown at once was received for nobody.
        self.given_back.note_all(&unwanted);
        self.change(&unwanted, 0).await;
    }

    /// Releases what is behind messages that are lost, unseen.
    async fn let_go_behind(&self, lost: Vec<Taken>) {
        self.given_back.note_all(&lost);
        let behind: Vec<_> = lost.iter().flat_map(|taken| self.behind.take(&taken.claim)).collect();
        if !behind.is_empty() {
            self.let_go(behind).await;
        }
    }

    /// Makes messages visible after so many seconds. Whether each was done.
    async fn change(&self, taken: &[Taken], secs: u64) -> Vec<bool> {
        let shown =
            taken.iter().map(|taken| (taken.claim.place.clone(), Show(taken.claim.receipt.clone(), secs)));
        self.request_all(shown.collect()).await.into_iter().map(|answer| answer.is_ok()).collect()
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
