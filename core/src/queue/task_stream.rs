//! Tasks that match a filter, read a page of the storage at a time.

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

/// Tasks read at once by a [`TaskStream`]: what it holds in memory.
pub(super) const PAGE: usize = 200;
/// Where tasks are: among those that live, the dead, and those that ended.
const PLACES: usize = 3;

/// A place where tasks are, and how far it has been read.
#[derive(Debug)]
pub(super) enum Side {
    Messages(PartitionId, Option<MessageId>),
    /// Those that live or are dead, as a ledger beside the queue was told.
    Told(PartitionId, Option<EndedCursor>),
    Ended(PartitionId, Option<EndedCursor>),
}

/// A walk over the places where tasks can be.
pub(super) struct Walk {
    queue: Queue,
    filter: TaskFilter,
    sides: VecDeque<Side>,
    page: VecDeque<Task>,
    /// How many tasks were on a page that was read, of which all is looked at once it is empty.
    has_read: Option<usize>,
    /// How far back the page goes that was read last, if it is one of ends.
    reached: Option<SystemTime>,
}

/// What a step of a walk brought.
enum Step {
    /// One that matches.
    Found(Box<Task>),
    /// All of a page was looked at: so all that ended after this moment, once what ended is looked at.
    Read { reached: Option<SystemTime>, is_full: bool },
}

impl Walk {
    pub(super) fn new(queue: Queue, sides: VecDeque<Side>, filter: TaskFilter) -> Self {
        Self { queue, filter, sides, page: VecDeque::new(), has_read: None, reached: None }
    }

    /// Nothing at the end.
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

    /// The next page, or the end of where it was read.
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
            Some(Side::Told(partition, after)) => {
                let page = self.queue.told_page(partition, *after).await?;
                *after = page.next;
                self.page.extend(page.tasks);
                if after.is_some() {
                    // There may be more, though all of this page may have ended since.
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

/// Some of the tasks that match, as many as there was room or time for: see [`TaskStream::page`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskPage {
    /// Those that were found.
    pub tasks: Vec<Task>,
    /// Whether there are more for certain: as many were found as were asked for, and one more.
    pub more: bool,
    /// Whether the time was over before all had been read. The same stream goes on where it stopped.
    pub unfinished: bool,
    /// All that ended after this moment was read, and older ends were perhaps not. With a filter for what ended
    /// [before](TaskFilter::before) a millisecond later, also another stream goes on there. Nothing as long as only what has not ended was read.
    pub reached: Option<SystemTime>,
}

/// Tasks that match a filter, read a page at a time: see [`Queue::tasks`].
#[must_use = "a stream does nothing until it is polled"]
pub struct TaskStream {
    steps: Pin<Box<dyn Stream<Item = Result<Step>> + Send>>,
    /// Found already, and not yet returned.
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

    /// The next task, or `None` after the last: for those who have no crate for streams.
    ///
    /// # Errors
    /// The server's, after which there is no further task.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    #[allow(clippy::should_implement_trait, reason = "it is the asynchronous one, as streams call it")]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<Task>>> {
        poll_fn(move |cx| Pin::new(&mut *self).poll_next(cx))
    }

    /// The next tasks: at most `limit`, which is at least one, and no more than are found until `patience` is over. A filter that [scans](TaskFilter::scans) may have
    /// to read millions of tasks for a few that match, or none; somebody who waits for the answer gets what was found so far.
    ///
    /// Between two reads of the storage, of 200 tasks each, it looks at the time, and at least one is made: so it takes longer by a read or a few.
    ///
    /// # Errors
    /// The server's, after which there is no further task; those that were found in this call are lost.
    ///
    /// # Cancellation
    /// Those that were found are lost when the future is dropped.
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
                    // A page that is not full is the last one of its place: so few tasks are read to their end, however late it is.
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
