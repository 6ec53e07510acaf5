//! What takes questions of its own to know of a queue.

use std::time::{Duration, SystemTime};

use anyqueue::{MessageState, Page, Queue, TaskFilter, TaskState};
use futures_util::future::join_all;

use crate::history::Reading;
use crate::queues::QueueInfo;

/// Ends are counted this much later than they come: until then they are stored, also by a clock that is late.
const LATE: Duration = Duration::from_secs(2);
/// Ends that are counted at most, of a queue and at a look.
const MAX_COUNTED: u64 = 100_000;
/// Among so many of its messages the oldest is looked for: they come in the order in which they were pushed, but some wait for their time.
const LOOKED_AT: usize = 5;

/// Of each of these queues, since the look before.
pub(crate) async fn readings(
    queue: &Queue,
    of: &[QueueInfo],
    since: Option<SystemTime>,
    now: SystemTime,
) -> Vec<Reading> {
    let all = of.iter().map(|info| async move {
        Reading {
            succeeded: succeeded(queue, &info.partition, since, now).await,
            oldest: oldest(queue, info).await,
        }
    });
    join_all(all).await
}

async fn succeeded(queue: &Queue, name: &str, since: Option<SystemTime>, now: SystemTime) -> Option<u64> {
    let since = since.filter(|_| queue.keeps_ends())?;
    let ended = TaskFilter::new().in_state(TaskState::Succeeded);
    let ended = ended.since(since.checked_sub(LATE)?).before(now.checked_sub(LATE)?);
    queue.count_tasks(name, &ended, MAX_COUNTED).await.ok().map(|count| count.value)
}

async fn oldest(queue: &Queue, info: &QueueInfo) -> Option<Duration> {
    if info.ready == Some(0) {
        return None;
    }
    let first = queue.browse(info.partition.as_str(), Page::of(LOOKED_AT)).await.ok()?;
    let waiting = first.iter().filter(|found| found.state == MessageState::Ready);
    waiting.map(|found| found.age).max()
}
