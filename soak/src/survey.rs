//! A look at all tasks at the end, in every way that the library offers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyqueue::adapter::{MoveGuarantee, SettleConfirm};
use anyqueue::{
    Delivery, EndState, MessageId, PartitionId, Queue, QueueMessageStatus::Processed, Task, TaskFilter,
    TaskState,
};
use futures_util::TryStreamExt;

use crate::account::{EndedTask, Found, Keeping};
use crate::backends::Result;

/// How many tasks are looked up one by one.
const SINGLY: usize = 300;
/// Deliveries in one pull.
const BATCH: usize = 500;

/// Returns all tasks of a partition, including its dead letters, and where the answers contradict each other.
/// Dead letters are drained.
pub(crate) async fn survey(queue: &Queue, partition: &str) -> Result<(Found, Vec<String>)> {
    let mut found = Found::default();
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, (TaskState, u64)> = BTreeMap::new();
    let mut tasks = queue.tasks(partition, TaskFilter::new())?;
    while let Some(task) = tasks.try_next().await? {
        counts.entry(task.state.as_str()).or_insert((task.state, 0)).1 += 1;
        if is_hearsay(queue, &task) {
            continue;
        }
        match task.state.ended() {
            None => found.live.push(task.id),
            Some(_) if task.message.is_some() => found.dead.push(task.id),
            Some(state) => found.ended.push(EndedTask { id: task.id, state, worker: task.worker }),
        }
    }
    for (name, (state, listed)) in counts {
        let filter = TaskFilter::new().in_state(state);
        let counted = queue.count_tasks(partition, &filter, u64::MAX).await?.value;
        if counted != listed {
            wrong.push(format!("{listed} tasks are listed as {name}, and {counted} counted"));
        }
    }
    let strays = look_singly(queue, partition, &found).await?;
    if strays > 0 {
        wrong.push(format!("{strays} tasks are otherwise by their ids than in the list"));
    }
    let drained = drain_dead_letters(queue, partition).await?;
    if queue.capabilities().inspect.browse && sorted(&drained) != sorted(&found.dead) {
        wrong.push(format!("{} dead letters are listed, and {} came", found.dead.len(), drained.len()));
    }
    found.dead = drained;
    Ok((found, wrong))
}

/// Returns whether this is only what a ledger beside the queue was told about a task that waits or is dead. A
/// killed process may have told nothing.
fn is_hearsay(queue: &Queue, task: &Task) -> bool {
    !queue.capabilities().inspect.browse && task.waited.is_none()
}

/// Returns how this queue keeps ends.
pub(crate) fn keeping(queue: &Queue) -> Keeping {
    let can = queue.capabilities();
    Keeping {
        is_atomic: can.ledger == Some(MoveGuarantee::Atomic),
        is_confirmed: can.settle_confirm == SettleConfirm::Confirmed,
    }
}

fn sorted(ids: &[MessageId]) -> Vec<MessageId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

/// Returns how many of some tasks, looked up by id, are in none of the states that the list has for them.
async fn look_singly(queue: &Queue, partition: &str, found: &Found) -> Result<usize> {
    let mut listed: HashMap<MessageId, Vec<Option<EndState>>> = HashMap::new();
    let ended = found.ended.iter().map(|task| (task.id, Some(task.state)));
    let dead = found.dead.iter().map(|id| (*id, Some(EndState::Failed)));
    for (id, end) in ended.chain(dead).chain(found.live.iter().map(|id| (*id, None))) {
        listed.entry(id).or_default().push(end);
    }
    let mut strays = 0;
    for (id, ends) in listed.into_iter().take(SINGLY) {
        let task = queue.task(partition, id).await?;
        let is_as_listed =
            task.is_some_and(|task| ends.contains(&task.state.ended()) || is_hearsay(queue, &task));
        strays += usize::from(!is_as_listed);
    }
    Ok(strays)
}

/// Removes the dead letters of a partition, and returns their ids.
pub(crate) async fn drain_dead_letters(queue: &Queue, partition: &str) -> Result<Vec<MessageId>> {
    let dead = queue.dead_letters(partition)?.partition().clone();
    let mut ids = Vec::new();
    drain(queue, &dead, |letter| ids.push(letter.id())).await?;
    Ok(ids)
}

/// Removes what is in a partition.
pub(crate) async fn drain(
    queue: &Queue,
    partition: &PartitionId,
    mut see: impl FnMut(&Delivery),
) -> Result<()> {
    loop {
        let mut held = queue.pull(partition).max(BATCH).wait(Duration::from_secs(1)).await?;
        if held.is_empty() {
            return Ok(());
        }
        held.iter().for_each(&mut see);
        for outcome in queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await {
            outcome?;
        }
    }
}
