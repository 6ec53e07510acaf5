//! Queries about tasks: where they stand and how they ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::guard;
use super::handle::Queue;
use super::task_stream::{PAGE, Side, TaskStream, Walk};
use crate::clock::far;
use crate::end_watches::{EndWatch, SAY_AGAIN};
use crate::error::{Operation, Result};
use crate::inspect::{Browsed, MAX_PAGE, Page};
use crate::ledger::{
    EndState, EndedCursor, EndedTask, LedgerQueueStorage, LivePage, Task, TaskCount, TaskFilter, TaskState,
};
use crate::message::MessageId;
use crate::partition::{IntoPartitionId, PartitionId};
use crate::storage::Storage;

/// The first pause between two checks of [`Queue::wait_for`], which doubles up to the last.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_millis(500);

impl Queue {
    /// Returns a task by the id of its message: where it stands if it lives, otherwise how it ended, with its
    /// result. `None` if nothing is known of it: it was never pushed, it was deleted, or its record is no
    /// longer kept.
    ///
    /// A live task takes precedence over a dead letter, and a dead letter over a task that has ended: if an
    /// id was pushed again, this returns the latest state.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend can neither browse nor keep ends;
    /// otherwise the server's error.
    pub async fn task(&self, partition: impl IntoPartitionId, id: MessageId) -> Result<Option<Task>> {
        let partition = partition.into_partition_id()?.live();
        let can_browse = self.capabilities().inspect.browse;
        if !can_browse && !self.has_ledger() {
            return Err(self.no_ledger());
        }
        // If it is found nowhere, look again: it may have moved from one place to another in between.
        for _ in 0..2 {
            if can_browse {
                for side in [partition.clone(), partition.dead_letters()] {
                    if let Some(task) = self.browsed(&side, id).await? {
                        return Ok(Some(task));
                    }
                }
            } else if let Some(task) = self.told(&partition, id).await? {
                return Ok(Some(task));
            }
            if self.has_ledger()
                && let Some(ended) = self.find_ended(&partition, id).await?
            {
                return Ok(Some(Task::ended(partition, ended)));
            }
        }
        Ok(None)
    }

    /// Waits until a task has ended or is dead, and returns it with its result. When the time is over,
    /// returns the task as it stands; `None` if nothing is known of it then.
    ///
    /// An end that this queue itself settles is noticed at once. One of another process is noticed as soon as
    /// the server announces it, which PostgreSQL and Redis can. In any case this looks again within half a
    /// second.
    ///
    /// # Errors
    /// As for [`task`](Self::task).
    pub async fn wait_for(
        &self,
        partition: impl IntoPartitionId,
        id: MessageId,
        longest: Duration,
    ) -> Result<Option<Task>> {
        let partition = partition.into_partition_id()?;
        let clock = self.clock().clone();
        let until = far(clock.now(), longest);
        let mut pause = FIRST_LOOK;
        // Before looking, so that no end falls between the two.
        let here = self.0.caller.end_watches.watch(id);
        let mut elsewhere = (self.watch_ended(id), clock.now());
        loop {
            let task = self.task(&partition, id).await?;
            let has_ended = task.as_ref().is_some_and(|task| task.state.ended().is_some());
            let now = clock.now();
            if has_ended || now >= until {
                return Ok(task);
            }
            tokio::select! {
                () = here.ended() => {}
                () = elsewhere.0.ended() => {}
                () = clock.sleep_until(until.min(far(now, pause))) => {}
                () = self.0.closing.cancelled() => return Err(self.0.refusal(Operation::Inspect)),
            }
            pause = (pause * 2).min(LAST_LOOK);
            if clock.now() - elsewhere.1 >= SAY_AGAIN {
                elsewhere = (self.watch_ended(id), clock.now());
            }
        }
    }

    /// Asks the storage to announce the end of a task.
    fn watch_ended(&self, id: MessageId) -> EndWatch {
        let ledger = self.storage().ledger().filter(|_| self.has_ledger());
        ledger.map_or_else(EndWatch::silent, |ledger| ledger.watch_ended(id))
    }

    /// Returns a stream of the tasks of a partition that match a filter, with one page in memory at a time:
    /// first those that live, then the dead letters, both in the order of their ids, then those that have
    /// ended, newest first, without their [results](Task::result). A task that changes its state meanwhile
    /// may appear twice, or not at all.
    ///
    /// If the backend cannot browse, tasks that live or are dead are listed as far as a [ledger beside the
    /// queue](crate::Beside) knows them, the most recently reported first; without such a ledger they are
    /// left out. If no ends are kept, tasks that have ended are left out.
    ///
    /// ```
    /// use anyqueue::{Keep, MessageData, Queue, QueueMessageStatus::Processed, TaskFilter, TaskState};
    /// use futures_util::TryStreamExt;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let queue = Queue::builder(anyqueue_memory::MemoryQueue::new()).ledger(Keep::default()).build()?;
    /// queue.push_many("mail", ["first", "second"].map(MessageData::new).into()).await?;
    /// queue.pull("mail").await?[0].settle(Processed).await?;
    ///
    /// let tasks: Vec<_> = queue.tasks("mail", TaskFilter::new())?.try_collect().await?;
    /// let states: Vec<_> = tasks.iter().map(|task| task.state).collect();
    /// assert_eq!(states, [TaskState::Queued, TaskState::Succeeded]);
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for states that the backend cannot list;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a bad name. The server's errors are items, after
    /// which the stream ends.
    pub fn tasks(&self, partition: impl IntoPartitionId, filter: TaskFilter) -> Result<TaskStream> {
        let partition = partition.into_partition_id()?.live();
        let sides = self.sides(&partition, &filter)?;
        Ok(TaskStream::new(Walk::new(self.clone(), sides, filter)))
    }

    /// Counts the tasks of a partition that match a filter, up to `cap`: so asking "are there more than a
    /// thousand?" costs a thousand, however many there are.
    ///
    /// # Errors
    /// As for [`tasks`](Self::tasks), and the server's error.
    pub async fn count_tasks(
        &self,
        partition: impl IntoPartitionId,
        filter: &TaskFilter,
        cap: u64,
    ) -> Result<TaskCount> {
        let partition = partition.into_partition_id()?.live();
        let sides = self.sides(&partition, filter)?;
        let mut value = 0;
        for side in sides {
            let left = cap.saturating_sub(value);
            if left == 0 {
                return Ok(TaskCount { value, exact: false });
            }
            let counted =
                if filter.scans() { None } else { self.count_by_index(&side, filter, left).await? };
            value += match counted {
                Some(counted) => counted.min(left),
                None => self.count_by_scan(side, filter, left).await?,
            };
        }
        Ok(TaskCount { value, exact: value < cap })
    }

    /// Frees the space of ends whose time is over, in all partitions, at most `limit`, and returns how many
    /// were freed. Such ends no longer appear in any result, purged or not, but their space has to be freed
    /// now and then; a worker does this by itself. This also frees [counts](Self::series) that are no longer
    /// kept; they are neither subject to the limit nor part of the result.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if no ends are kept; otherwise the server's error.
    pub async fn purge_ended(&self, limit: u64) -> Result<u64> {
        let mut purged = 0;
        while purged < limit {
            let room = usize::try_from(limit - purged).unwrap_or(MAX_PAGE).min(MAX_PAGE);
            let page = self.ledger(move |ledger| Box::pin(ledger.purge_ended(room))).await?;
            purged += page as u64;
            if page < room {
                break;
            }
        }
        Ok(purged)
    }

    /// Returns whether this queue keeps the ends of tasks, that is, whether it was built with a
    /// [ledger](crate::QueueBuilder::ledger).
    #[must_use]
    pub fn keeps_ends(&self) -> bool {
        self.0.options.ledger.is_some()
    }

    pub(super) fn has_ledger(&self) -> bool {
        self.capabilities().ledger.is_some() && self.storage().ledger().is_some()
    }

    pub(super) fn no_ledger(&self) -> crate::error::Error {
        self.0.stamp(guard::unsupported("ledger of the ends of tasks"), Operation::Inspect)
    }

    pub(super) async fn ledger<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn LedgerQueueStorage) -> BoxFuture<'_, Result<T>> + Send + 'static,
    ) -> Result<T> {
        if !self.has_ledger() {
            return Err(self.no_ledger());
        }
        let call = async move |storage: Arc<dyn Storage>| match storage.ledger() {
            Some(ledger) => call(ledger).await,
            None => Err(guard::unsupported("ledger of the ends of tasks")),
        };
        self.0.bounded(Operation::Inspect, call).await
    }

    /// Returns the message with this id, with its state, as a task.
    async fn browsed(&self, side: &PartitionId, id: MessageId) -> Result<Option<Task>> {
        let found = self.browse_one(side, id).await?;
        Ok(found.map(|browsed| Task::of_message(side, browsed, self.clock().wall())))
    }

    /// Returns the message with this id as browsing shows it.
    pub(super) async fn browse_one(&self, side: &PartitionId, id: MessageId) -> Result<Option<Browsed>> {
        let before = u128::from_be_bytes(*id.as_bytes()).checked_sub(1);
        let before = before.map(|before| MessageId::from_bytes(before.to_be_bytes()));
        let page = self.browse(side, Page::of(1).after(before)).await?;
        Ok(page.into_iter().next().filter(|browsed| browsed.message.id() == id))
    }

    async fn find_ended(&self, partition: &PartitionId, id: MessageId) -> Result<Option<EndedTask>> {
        let partition = partition.clone();
        let found = self
            .ledger(move |ledger| Box::pin(async move { Ok(ledger.find_ended(&partition, &[id]).await) }));
        found.await?.into_iter().next().unwrap_or(Ok(None))
    }

    /// Whether a ledger beside the queue records what the queue cannot show.
    fn is_told(&self) -> bool {
        let ledger = self.storage().ledger().filter(|_| self.has_ledger());
        !self.capabilities().inspect.browse && ledger.is_some_and(|ledger| ledger.live_tasks().is_some())
    }

    /// Returns the task with this id, if it lives or is dead, as the ledger knows it.
    async fn told(&self, partition: &PartitionId, id: MessageId) -> Result<Option<Task>> {
        if !self.is_told() {
            return Ok(None);
        }
        let partition = partition.clone();
        let found = self.ledger(move |ledger| {
            Box::pin(async move {
                let Some(live) = ledger.live_tasks() else { return Ok(Vec::new()) };
                Ok(live.find_live(&partition, &[id]).await)
            })
        });
        found.await?.into_iter().next().unwrap_or(Ok(None))
    }

    /// Returns a page of those tasks.
    pub(super) async fn recorded_page(
        &self,
        partition: &PartitionId,
        after: Option<EndedCursor>,
    ) -> Result<LivePage> {
        let (partition, page) = (partition.clone(), Page::of(PAGE).after(after));
        self.ledger(move |ledger| {
            Box::pin(async move {
                let Some(live) = ledger.live_tasks() else { return Ok(LivePage::default()) };
                live.live_page(&partition, page).await
            })
        })
        .await
    }

    pub(super) async fn ended_page(
        &self,
        partition: &PartitionId,
        query: crate::ledger::EndedQuery,
        after: Option<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let partition = partition.clone();
        let page = Page::of(PAGE).after(after);
        self.ledger(move |ledger| Box::pin(async move { ledger.ended(&partition, &query, page).await })).await
    }

    /// Returns the places where matching tasks can be.
    fn sides(&self, partition: &PartitionId, filter: &TaskFilter) -> Result<VecDeque<Side>> {
        let mut sides = VecDeque::new();
        let (can_browse, ended) = (self.capabilities().inspect.browse, filter.ended_query());
        if can_browse && filter.wants_live() {
            sides.push_back(Side::Messages(partition.clone(), None));
        }
        if can_browse && filter.wants_dead() {
            sides.push_back(Side::Messages(partition.dead_letters(), None));
        }
        if self.is_told() && (filter.wants_live() || filter.wants_dead()) {
            sides.push_back(Side::Recorded(partition.clone(), None));
        }
        if ended.is_some() && self.has_ledger() {
            sides.push_back(Side::Ended(partition.clone(), None));
        }
        let kept_nowhere = |state: &TaskState| {
            !self.has_ledger() && state.ended().is_some_and(|end| end != EndState::Failed)
        };
        let wants_messages = filter.wants_live() || filter.wants_dead();
        if filter.states.iter().any(kept_nowhere) || (sides.is_empty() && ended.is_some()) {
            return Err(self.no_ledger());
        }
        if sides.is_empty() && wants_messages {
            return Err(self.0.stamp(guard::unsupported("way to browse messages"), Operation::Inspect));
        }
        // A filter that nothing can match, such as one for waiting tasks that ended today, finds nothing.
        Ok(sides)
    }

    /// Returns the count that the backend knows by itself; `None` if the tasks have to be read and counted.
    async fn count_by_index(&self, side: &Side, filter: &TaskFilter, cap: u64) -> Result<Option<u64>> {
        match side {
            Side::Ended(partition, _) => {
                let Some(query) = filter.ended_query() else { return Ok(Some(0)) };
                let partition = partition.clone();
                let count = self.ledger(move |ledger| {
                    Box::pin(async move { ledger.count_ended(&partition, &query, cap).await })
                });
                count.await.map(Some)
            }
            // Some of them may have ended since, which only reading them shows.
            Side::Recorded(..) => Ok(None),
            Side::Messages(partition, _) => {
                let counts = self.counts(partition).await?;
                let is_dead = partition.is_dead_letters();
                if is_dead {
                    let bare = filter.since.is_none() && filter.before.is_none();
                    return Ok(counts.dead.filter(|_| bare));
                }
                let wanted = |state| filter.states.is_empty() || filter.states.contains(&state);
                let parts = [
                    (TaskState::Queued, counts.ready),
                    (TaskState::Scheduled, counts.delayed),
                    (TaskState::Running, counts.leased),
                    (TaskState::Disabled, counts.disabled),
                ];
                Ok(parts.into_iter().filter(|(state, _)| wanted(*state)).map(|(_, count)| count).sum())
            }
        }
    }

    async fn count_by_scan(&self, side: Side, filter: &TaskFilter, cap: u64) -> Result<u64> {
        let mut found = TaskStream::new(Walk::new(self.clone(), VecDeque::from([side]), filter.clone()));
        let mut count = 0;
        while count < cap
            && let Some(task) = found.next().await
        {
            task?;
            count += 1;
        }
        Ok(count)
    }
}
