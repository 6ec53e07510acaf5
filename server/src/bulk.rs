//! One action on many tasks: on each that matches, once, at the pace at which the client reads.
//!
//! Memory holds one page of tasks, and the id of each task that was handled: a task that changes meanwhile,
//! also through the action itself, can turn up again among the waiting, the dead or the ended tasks. A task
//! that moves back among those that were already passed is found by a second scan.

use std::collections::HashSet;

use anyqueue::{MessageId, PartitionId, Queue, Task, TaskFilter, TaskState, TaskStream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::manage;
use crate::problem::{Answer, Problem};

/// What is done with each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// A task that waits is removed; the worker of one that runs is asked to stop.
    Cancel,
    /// A task that is dead is put back; one that is delayed is due now.
    Retry,
    /// Its message is deleted unless somebody holds it.
    Delete,
}

impl Action {
    pub(crate) const ALL: [Self; 3] = [Self::Cancel, Self::Retry, Self::Delete];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Delete => "delete",
        }
    }

    /// Whether the action does anything with a task in any of these states, or in any state if none is named.
    pub(crate) fn concerns_any(self, states: &[TaskState]) -> bool {
        states.is_empty() || states.iter().any(|state| self.concerns(*state))
    }

    /// Whether the action does anything with a task in this state.
    fn concerns(self, state: TaskState) -> bool {
        match self {
            Self::Cancel => state.ended().is_none(),
            Self::Retry => matches!(state, TaskState::Failed | TaskState::Scheduled),
            Self::Delete => state.ended().is_none() || state == TaskState::Failed,
        }
    }
}

/// What happened to one task.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BulkLine {
    /// The id of its message.
    id: String,
    /// Its state before.
    state: &'static str,
    /// `removed`, `requested`, `put_back`, `due_now` or `deleted`; `would` in a dry run; `changed` if it no
    /// longer matched when its turn came; otherwise why it failed: `conflict` or `not_found`.
    pub(crate) outcome: String,
    /// Why it failed, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The tasks that are still to be handled.
pub(crate) struct Bulk {
    queue: Queue,
    partition: PartitionId,
    filter: TaskFilter,
    action: Action,
    dry_run: bool,
    left: u64,
    found: TaskStream,
    looked_twice: bool,
    handled: HashSet<MessageId>,
}

impl Bulk {
    /// # Errors
    /// If the action does nothing with tasks in the named states, or the backend cannot find tasks.
    pub(crate) fn new(
        queue: Queue,
        partition: PartitionId,
        mut filter: TaskFilter,
        action: Action,
        limit: u64,
        dry_run: bool,
    ) -> Answer<Self> {
        let named = std::mem::take(&mut filter.states);
        let wanted =
            |state: &TaskState| (named.is_empty() || named.contains(state)) && action.concerns(*state);
        filter.states = TaskState::ALL.into_iter().filter(wanted).collect();
        if filter.states.is_empty() {
            let text = format!("the action {action:?} does nothing with tasks in these states");
            return Err(Problem::invalid(text.to_lowercase()));
        }
        let found = queue.tasks(&partition, filter.clone())?;
        let handled = HashSet::new();
        Ok(Self {
            queue,
            partition,
            filter,
            action,
            dry_run,
            left: limit,
            found,
            looked_twice: false,
            handled,
        })
    }

    /// How many tasks were handled.
    pub(crate) fn count(&self) -> usize {
        self.handled.len()
    }

    /// Handles the next task, and returns what became of it.
    ///
    /// # Errors
    /// The server's; then the outcome of this task is unknown.
    pub(crate) async fn next(&mut self) -> Answer<Option<BulkLine>> {
        while self.left > 0 {
            let Some(task) = self.found.next().await else {
                if std::mem::replace(&mut self.looked_twice, true) {
                    return Ok(None);
                }
                self.found = self.queue.tasks(&self.partition, self.filter.clone())?;
                continue;
            };
            let task = task?;
            // A failed task that is no dead letter is gone.
            if self.action != Action::Cancel && task.state == TaskState::Failed && !task.is_dead() {
                continue;
            }
            if self.handled.insert(task.id) {
                self.left -= 1;
                return self.outcome(&task).await.map(Some);
            }
        }
        Ok(None)
    }

    async fn outcome(&mut self, task: &Task) -> Answer<BulkLine> {
        let (outcome, detail) = match self.act(task.id).await {
            Ok(done) => (done.to_owned(), None),
            Err(problem) if matches!(problem.status, 404 | 409) => (problem.kind, Some(problem.detail)),
            Err(problem) => return Err(problem),
        };
        Ok(BulkLine { id: task.id.to_string(), state: task.state.as_str(), outcome, detail })
    }

    /// The page that listed the task may be old: the task is read again first.
    // `&mut self`, as the stream of tasks cannot be shared between threads.
    async fn act(&mut self, id: MessageId) -> Answer<&'static str> {
        if self.dry_run {
            return Ok("would");
        }
        match self.queue.task(&self.partition, id).await? {
            Some(task) if !self.filter.matches(&task) => return Ok("changed"),
            _ => {}
        }
        match self.action {
            Action::Cancel => manage::cancel(&self.queue, &self.partition, id).await,
            Action::Retry => manage::retry(&self.queue, &self.partition, id).await,
            Action::Delete => manage::delete(&self.queue, &self.partition, id).await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use anyqueue::{Keep, MessageData, QueueMessageStatus};
    use anyqueue_memory::MemoryQueue;

    use super::*;

    /// More than fit on a page.
    const MANY: usize = 450;

    async fn queue() -> (Queue, PartitionId, Vec<MessageId>) {
        let queue = Queue::builder(MemoryQueue::new()).ledger(Keep::default()).build().unwrap();
        let messages: Vec<_> = (0..MANY).map(|n| MessageData::new(n.to_string())).collect();
        let mut ids: Vec<_> = messages.iter().map(MessageData::id).collect();
        ids.sort_unstable();
        queue.push_many("p", messages).await.unwrap();
        (queue, PartitionId::new("p").unwrap(), ids)
    }

    async fn kill(queue: &Queue, count: usize) -> Vec<MessageId> {
        let mut dead = Vec::new();
        while dead.len() < count {
            for mut delivery in queue.pull("p").await.unwrap() {
                dead.push(delivery.id());
                delivery.settle(QueueMessageStatus::Poisonous { reason: "bad".into() }).await.unwrap();
            }
        }
        dead
    }

    fn bulk(queue: &Queue, partition: &PartitionId, filter: TaskFilter, action: Action) -> Bulk {
        Bulk::new(queue.clone(), partition.clone(), filter, action, 100_000, false).unwrap()
    }

    async fn rest(bulk: &mut Bulk) -> Vec<BulkLine> {
        let mut all = Vec::new();
        while let Some(outcome) = bulk.next().await.unwrap() {
            all.push(outcome);
        }
        all
    }

    fn ids(outcomes: &[BulkLine]) -> Vec<MessageId> {
        let mut ids: Vec<MessageId> = outcomes.iter().map(|outcome| outcome.id.parse().unwrap()).collect();
        ids.sort_unstable();
        ids
    }

    #[tokio::test]
    async fn who_dies_after_its_turn_is_not_dealt_with_again() {
        let (queue, p, all) = queue().await;
        // Somebody holds one: it is found, and not deleted. Then it dies, and is found among the dead.
        let mut held = queue.pull("p").await.unwrap();
        let mut bulk = bulk(&queue, &p, TaskFilter::new(), Action::Delete);
        let mut outcomes = Vec::new();
        while !outcomes.iter().any(|outcome: &BulkLine| outcome.id == held[0].id().to_string()) {
            outcomes.push(bulk.next().await.unwrap().unwrap());
        }
        assert_eq!(outcomes.last().unwrap().outcome, "conflict");
        held[0].settle(QueueMessageStatus::Poisonous { reason: "bad".into() }).await.unwrap();
        outcomes.extend(rest(&mut bulk).await);
        assert_eq!(ids(&outcomes), all, "each once");
    }

    #[tokio::test]
    async fn who_comes_back_from_the_dead_behind_the_place_is_not_skipped() {
        let (queue, p, all) = queue().await;
        let dead = kill(&queue, 1).await;
        let mut bulk = bulk(&queue, &p, TaskFilter::new(), Action::Delete);
        let mut outcomes = vec![];
        // The first pages of live tasks are already passed.
        for _ in 0..MANY - 10 {
            outcomes.push(bulk.next().await.unwrap().unwrap());
        }
        queue.dead_letters("p").unwrap().redrive().await.unwrap();
        outcomes.extend(rest(&mut bulk).await);
        assert!(ids(&outcomes).contains(&dead[0]));
        assert_eq!(ids(&outcomes), all, "each once");
        assert_eq!(queue.counts("p").await.unwrap().ready, Some(0));
    }

    #[tokio::test]
    async fn what_does_not_match_any_more_as_its_turn_comes_is_left_alone() {
        let (queue, p, _) = queue().await;
        let dead = kill(&queue, 3).await;
        let failed = TaskFilter::new().in_state(TaskState::Failed);
        let mut bulk = bulk(&queue, &p, failed, Action::Delete);
        let mut outcomes = vec![bulk.next().await.unwrap().unwrap()];
        let first: MessageId = outcomes[0].id.parse().unwrap();
        // The rest is already on its page, and somebody puts it back.
        queue.dead_letters("p").unwrap().redrive().await.unwrap();
        outcomes.extend(rest(&mut bulk).await);
        let said: Vec<_> = outcomes.iter().map(|outcome| outcome.outcome.as_str()).collect();
        assert!(said[0] == "deleted" && said[1..].iter().all(|said| *said == "changed"), "{said:?}");
        for id in dead.into_iter().filter(|id| *id != first) {
            assert_eq!(queue.task("p", id).await.unwrap().unwrap().state, TaskState::Queued);
        }
    }

    #[tokio::test]
    async fn a_retry_does_not_meet_again_what_it_put_back() {
        let (queue, p, _) = queue().await;
        let mut dead = kill(&queue, 3).await;
        dead.sort_unstable();
        let mut bulk = bulk(&queue, &p, TaskFilter::new(), Action::Retry);
        let mut outcomes = vec![bulk.next().await.unwrap().unwrap()];
        // It dies again at once, among the tasks that are still to come.
        kill(&queue, MANY - 2).await;
        outcomes.extend(rest(&mut bulk).await);
        let met = ids(&outcomes);
        assert_eq!(met.iter().filter(|id| outcomes[0].id == id.to_string()).count(), 1);
        assert_eq!(met.len(), MANY, "all of them died, each is met once");
    }
}
