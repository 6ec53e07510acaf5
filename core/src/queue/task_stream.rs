//! A stream of the tasks that match a filter, read from the storage page by page.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use futures_util::{StreamExt as _, stream};

use super::handle::Queue;
use crate::clock::{Clock, far};
use crate::error::Result;
use crate::inspect::Page;
use crate::ledger::{EndedCursor, EndedTask, Task, TaskFilter};
use crate::message::MessageId;
use crate::partition::PartitionId;

/// How many tasks a [`TaskStream`] reads at once and holds in memory.
pub(super) const PAGE: usize = 200;
/// The number of places where tasks are: among those that live, the dead, and those that ended.
const PLACES: usize = 3;

/// A place where tasks are, and how far it has been read.
#[derive(Debug)]
pub(super) enum Side {
    Messages(PartitionId, Option<MessageId>),
    /// Tasks that live or are dead, as a ledger beside the queue knows them.
    Recorded(PartitionId, Option<EndedCursor>),
    Ended(PartitionId, Option<EndedCursor>),
}

/// A walk over the places where tasks can be.
pub(super) struct Walk {
    queue: Queue,
    filter: TaskFilter,
    sides: VecDeque<Side>,
    page: VecDeque<Task>,
    /// How many tasks were on the page just read; reported once all of them have been looked at.
    has_read: Option<usize>,
    /// How far back the last page goes, if it was one of ends.
    reached: Option<SystemTime>,
}

/// The result of one step of a walk.
enum Step {
    /// A task that matches.
    Found(Box<Task>),
    /// A whole page has been looked at. If it was one of ends, so has everything that ended after `reached`.
    Read { reached: Option<SystemTime>, is_full: bool },
}

impl Walk {
    pub(super) fn new(queue: Queue, sides: VecDeque<Side>, filter: TaskFilter) -> Self {
        Self { queue, filter, sides, page: VecDeque::new(), has_read: None, reached: None }
    }

    /// Returns `None` at the end.
    async fn step(&mut self) -> Result<Option<Step>> {
        loop {
            while let Some(task) = self.page.pop_front() {
                if self.filter.matches(&task) {
                    return Ok(Some(Step::Found(Box::new(task))));
                }
            }
            if let Some(read) = self.has_read.take() {
                return Ok(Some(Step::Read { reached: self.reached, is_full: read >= PAGE }));
            }
            if self.sides.is_empty() {
                return Ok(None);
            }
            self.read().await?;
        }
    }

    /// Reads the next page, or notes the end of the current place.
    async fn read(&mut self) -> Result<()> {
        match self.sides.front_mut() {
            None => {}
            Some(Side::Messages(partition, after)) => {
                let page = self.queue.browse(&*partition, Page::of(PAGE).after(*after)).await?;
                let now = self.queue.clock().wall();
                *after = page.last().map(|browsed| browsed.message.id());
                let partition = partition.clone();
                self.page.extend(page.into_iter().map(|browsed| Task::of_message(&partition, browsed, now)));
            }
            Some(Side::Recorded(partition, after)) => {
                let page = self.queue.recorded_page(partition, *after).await?;
                *after = page.next;
                self.page.extend(page.tasks);
                if after.is_some() {
                    // There may be more tasks, even if all of this page have ended since.
                    self.has_read = Some(self.page.len());
                    return Ok(());
                }
            }
            Some(Side::Ended(partition, after)) => {
                let query = self.filter.ended_query().unwrap_or_default();
                let page = self.queue.ended_page(partition, query, *after).await?;
                *after = page.last().map(EndedTask::cursor);
                self.reached = after.map(|last| last.ended_at).or(self.reached);
                let partition = partition.clone();
                let listed =
                    page.into_iter().map(|ended| Task::ended(partition.clone(), ended).without_log());
                self.page.extend(listed);
            }
        }
        if self.page.is_empty() {
            self.sides.pop_front();
        } else {
            self.has_read = Some(self.page.len());
        }
        Ok(())
    }
}

/// Some of the matching tasks, as many as there was room or time for: see [`TaskStream::page`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks that were found.
    pub tasks: Vec<Task>,
    /// Whether there are certainly more: `limit` tasks were found, and one more.
    pub more: bool,
    /// Whether the time was over before everything had been read. The same stream continues where it stopped.
    pub unfinished: bool,
    /// Everything that ended after this moment has been read; older ends may not have been. Another stream,
    /// with a filter for what ended [before](TaskFilter::before) one millisecond later, can continue from
    /// there. `None` as long as only tasks that have not ended were read.
    pub reached: Option<SystemTime>,
}

/// A stream of the tasks that match a filter, read page by page: see [`Queue::tasks`].
#[must_use = "a stream does nothing until it is polled"]
pub struct TaskStream {
    steps: Pin<Box<dyn Stream<Item = Result<Step>> + Send>>,
    /// A task that was found but not returned yet.
    ahead: Option<Task>,
    reached: Option<SystemTime>,
    clock: Clock,
}

impl TaskStream {
    pub(super) fn new(walk: Walk) -> Self {
        let clock = walk.queue.clock().clone();
        let steps = stream::unfold(Some(walk), |walk| async move {
            let mut walk = walk?;
            match walk.step().await {
                Ok(step) => step.map(|step| (Ok(step), Some(walk))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Self { steps: Box::pin(steps.fuse()), ahead: None, reached: None, clock }
    }

    /// Returns the next task, or `None` after the last. For callers without a crate for streams.
    ///
    /// # Errors
    /// The server's error, after which no further task follows.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    #[allow(clippy::should_implement_trait, reason = "it is the asynchronous one, as streams call it")]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<Task>>> {
        poll_fn(move |cx| Pin::new(&mut *self).poll_next(cx))
    }

    /// Returns the next tasks: at most `limit` (at least one), and only those found before `patience` is
    /// over. A filter that [scans](TaskFilter::scans) may have to read millions of tasks to find a few
    /// matches, or none; this way, someone who waits for the result gets what was found so far.
    ///
    /// The time is checked between reads of the storage, which fetch 200 tasks each. At least one read is
    /// made, so the call takes longer than `patience` by one read or a few.
    ///
    /// # Errors
    /// The server's error, after which no further task follows; the tasks found in this call are lost.
    ///
    /// # Cancellation
    /// If the future is dropped, the tasks found in this call are lost.
    pub async fn page(&mut self, limit: usize, patience: Duration) -> Result<TaskPage> {
        let (until, limit) = (far(self.clock.now(), patience), limit.max(1));
        let (mut page, mut short) = (TaskPage::default(), 0);
        page.tasks.extend(self.ahead.take());
        loop {
            match poll_fn(|cx| self.steps.as_mut().poll_next(cx)).await.transpose()? {
                None => break,
                Some(Step::Found(task)) if page.tasks.len() < limit => page.tasks.push(*task),
                Some(Step::Found(task)) => {
                    self.ahead = Some(*task);
                    page.more = true;
                    break;
                }
                Some(Step::Read { reached, is_full }) => {
                    self.reached = reached;
                    short += usize::from(!is_full);
                    // A page that is not full is the last one of its place, so a small number of tasks is
                    // read to the end even if the time is over.
                    if self.clock.now() >= until && (is_full || short > PLACES) {
                        page.unfinished = true;
                        break;
                    }
                }
            }
        }
        page.reached = self.reached;
        Ok(page)
    }
}

impl Stream for TaskStream {
    type Item = Result<Task>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(task) = self.ahead.take() {
            return Poll::Ready(Some(Ok(task)));
        }
        loop {
            return Poll::Ready(match ready!(self.steps.as_mut().poll_next(cx)) {
                None => None,
                Some(Err(error)) => Some(Err(error)),
                Some(Ok(Step::Found(task))) => Some(Ok(*task)),
                Some(Ok(Step::Read { reached, .. })) => {
                    self.reached = reached;
                    continue;
                }
            });
        }
    }
}

impl fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStream").finish_non_exhaustive()
    }
}
