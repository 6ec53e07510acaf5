//! The readings of a queue that take queries of their own.

use std::time::{Duration, SystemTime};

use anyqueue::{MessageState, Page, Queue, TaskFilter, TaskState};
use futures_util::future::join_all;

use crate::history::Reading;
use crate::queues::QueueInfo;

/// Ends are counted with this delay: by then they are stored, even by a clock that is late.
const LATE: Duration = Duration::from_secs(2);
/// The most ends that are counted, per queue and sample.
const MAX_COUNTED: u64 = 100_000;
/// How many messages are examined to find the oldest: they come in the order in which they were pushed, but
/// some wait for their time.
const LOOKED_AT: usize = 5;

/// Returns the readings of each of these queues, since the previous sample.
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
