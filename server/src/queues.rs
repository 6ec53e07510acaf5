//! How full queues are.

use anyqueue::{Page, PartitionId, Queue};
use futures_util::future::join_all;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Answer;

/// The most queues on one page.
pub(crate) const MAX_PAGE: usize = 100;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct QueueInfo {
    /// Its name.
    pub(crate) partition: String,
    /// Messages that can be pulled; nothing where the backend does not know.
    pub(crate) ready: Option<u64>,
    /// Messages that wait for their time.
    pub(crate) delayed: Option<u64>,
    /// Messages that somebody holds.
    pub(crate) leased: Option<u64>,
    /// Messages that are disabled.
    pub(crate) disabled: Option<u64>,
    /// Dead letters.
    pub(crate) dead: Option<u64>,
    /// Whether it delivers nothing until it is resumed; nothing where it cannot be paused.
    pub(crate) paused: Option<bool>,
}

/// A page of queues.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Partitions {
    /// The queues, in the order of their names.
    pub(crate) partitions: Vec<QueueInfo>,
    /// Where to go on; nothing on the last page.
    pub(crate) next: Option<String>,
}

/// The queues after this one, with their counts.
pub(crate) async fn page_of(queue: &Queue, after: Option<PartitionId>, limit: usize) -> Answer<Partitions> {
    let limit = limit.clamp(1, MAX_PAGE);
    let names = queue.partitions(Page::of(limit).after(after)).await?;
    let next = names.last().filter(|_| names.len() == limit).map(|name| name.name().to_owned());
    let all = join_all(names.iter().map(|name| of(queue, name))).await;
    Ok(Partitions { partitions: all.into_iter().collect::<Answer<_>>()?, next })
}

/// How full a queue is.
pub(crate) async fn of(queue: &Queue, name: &PartitionId) -> Answer<QueueInfo> {
    let counts = queue.counts(name).await?;
    let paused = if queue.capabilities().pause { Some(queue.is_paused(name).await?) } else { None };
    Ok(QueueInfo {
        partition: name.name().to_owned(),
        ready: counts.ready,
        delayed: counts.delayed,
        leased: counts.leased,
        disabled: counts.disabled,
        dead: counts.dead,
        paused,
    })
}
