//! The counts of queues.

use anyqueue::{Page, PartitionId, Queue};
use futures_util::future::join_all;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::{Answer, Problem};

/// The most queues on one page.
pub(crate) const MAX_PAGE: usize = 100;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct QueueInfo {
    /// Its name.
    pub(crate) partition: String,
    /// Messages that can be pulled; null if the backend does not know.
    pub(crate) ready: Option<u64>,
    /// Messages that are delayed.
    pub(crate) delayed: Option<u64>,
    /// Messages that somebody holds.
    pub(crate) leased: Option<u64>,
    /// Messages that are disabled.
    pub(crate) disabled: Option<u64>,
    /// Dead letters.
    pub(crate) dead: Option<u64>,
    /// Whether it delivers nothing until it is resumed; null if it cannot be paused.
    pub(crate) paused: Option<bool>,
}

/// A page of queues.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Partitions {
    /// The queues, in the order of their names.
    pub(crate) partitions: Vec<QueueInfo>,
    /// The `after` of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// The most names that are searched for queues that the caller may see.
const MAX_LOOKED_AT: usize = 10_000;

/// Does the same as [`page_of`], for the queues that the caller may see.
pub(crate) async fn page_seen(
    queue: &Queue,
    mut after: Option<PartitionId>,
    limit: usize,
    sees: impl Fn(&str) -> bool,
) -> Answer<Partitions> {
    let limit = limit.clamp(1, MAX_PAGE);
    let (mut found, mut looked_at) = (Vec::new(), 0);
    while found.len() < limit {
        if looked_at >= MAX_LOOKED_AT {
            return Err(Problem::busy("too many queues that this token is not for: ask for one by its name"));
        }
        let names = queue.partitions(Page::of(MAX_PAGE).after(after)).await?;
        let is_last = names.len() < MAX_PAGE;
        looked_at += names.len();
        after = names.last().cloned();
        found.extend(names.into_iter().filter(|name| sees(name.name())));
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    let next = found.last().filter(|_| found.len() == limit).map(|name| name.name().to_owned());
    let all = join_all(found.iter().map(|name| of(queue, name))).await;
    Ok(Partitions { partitions: all.into_iter().collect::<Answer<_>>()?, next })
}

/// Returns the queues after this one, with their counts.
pub(crate) async fn page_of(queue: &Queue, after: Option<PartitionId>, limit: usize) -> Answer<Partitions> {
    let limit = limit.clamp(1, MAX_PAGE);
    let names = queue.partitions(Page::of(limit).after(after)).await?;
    let next = names.last().filter(|_| names.len() == limit).map(|name| name.name().to_owned());
    let all = join_all(names.iter().map(|name| of(queue, name))).await;
    Ok(Partitions { partitions: all.into_iter().collect::<Answer<_>>()?, next })
}

/// Returns the counts of a queue.
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
