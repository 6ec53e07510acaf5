//! The oldest task of several queues.

use std::cmp::Reverse;
use std::time::Duration;

use anyqueue::{Delivery, MessageState, Page, PartitionId, Queue};
use futures_util::future::join_all;

use crate::access;
use crate::app::App;
use crate::problem::Answer;
use crate::wire::partition;

/// The most kinds of one worker, and the most queues of a worker that names none.
pub(crate) const MAX_KINDS: usize = 64;
/// How many pages of queue names are searched for those that the token covers, and the length of a page.
const MAX_PAGES: usize = 10;
const PAGE: usize = 100;
/// How many messages are examined to find the oldest: they come in the order in which they were pushed, but
/// some wait for their time.
const LOOKED_AT: usize = 5;

/// The queues of a worker: those that it named, or the first ones that the caller may touch.
pub(crate) async fn served(app: &App, named: &[String]) -> Answer<Vec<PartitionId>> {
    if !named.is_empty() {
        return named.iter().map(|name| partition(name)).collect();
    }
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page = app.queue.partitions(Page::of(PAGE).after(after)).await?;
        let is_last = page.len() < PAGE;
        after = page.last().cloned();
        all.extend(page.into_iter().filter(|one| access::covers(one.name())));
        if is_last || all.len() >= MAX_KINDS {
            break;
        }
    }
    all.truncate(MAX_KINDS);
    Ok(all)
}

/// Pulls the oldest task. Where queues cannot be browsed, pulls from the first one that has any.
pub(crate) async fn oldest(
    queue: &Queue,
    kinds: &[PartitionId],
    lease: Duration,
) -> Answer<Option<Delivery>> {
    let mut kinds = kinds.to_vec();
    if kinds.len() > 1 && queue.capabilities().inspect.browse {
        let waits = join_all(kinds.iter().map(|kind| age(queue, kind))).await;
        let mut known: Vec<_> = waits.into_iter().zip(kinds).collect();
        // Queues of which nothing is known come last, and are tried all the same.
        known.sort_by_key(|(age, _)| Reverse(*age));
        kinds = known.into_iter().map(|(_, kind)| kind).collect();
    }
    for kind in &kinds {
        let pulled = queue.pull(kind).max(1).lease(lease).keep_alive(false).await?;
        if let Some(delivery) = pulled.into_iter().next() {
            return Ok(Some(delivery));
        }
    }
    Ok(None)
}

/// How long the oldest message that can be pulled has waited.
async fn age(queue: &Queue, kind: &PartitionId) -> Option<Duration> {
    let first = queue.browse(kind, Page::of(LOOKED_AT)).await.ok()?;
    let ready = first.iter().filter(|found| found.state == MessageState::Ready);
    ready.map(|found| found.age).max()
}
