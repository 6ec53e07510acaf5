//! Sending joined entries.

use std::sync::Arc;

use anyqueue::{ErrorKind, RetryClass};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::entries::Entries;
use crate::error::{ERRORS, Refused};
use crate::join::{Joined, Reply, Single};
use crate::names::LevelQueue;
use crate::shared::Inner;

impl Inner {
    /// Sends entries. Returns one result per entry, in order. Entries that do not fill a request share one
    /// with entries of other callers. An entry is left out if its caller goes away before it is sent.
    pub(crate) async fn request_joined<E: Single>(
        self: &Arc<Self>,
        entries: Vec<(LevelQueue, E)>,
    ) -> Entries {
        if !self.config.joins() {
            return self.request_all(entries).await;
        }
        let joined: Vec<_> =
            entries.into_iter().map(|(level_queue, entry)| self.join(level_queue, entry)).collect();
        let unanswered = |_| {
            let error = ERRORS.error(ErrorKind::Internal, "an entry was not answered: its runtime is gone");
            Err(error.with_retry(RetryClass::MayDuplicate).into())
        };
        join_all(joined).await.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Adds an entry to the others of its queue, and sends the group if it is full.
    fn join<E: Single>(
        self: &Arc<Self>,
        level_queue: LevelQueue,
        entry: E,
    ) -> oneshot::Receiver<Result<(), Refused>> {
        let (reply, answer) = oneshot::channel();
        match E::joins(&self.joins).add(&level_queue, entry, reply) {
            Joined::Waits => {}
            Joined::Full(group) => self.send_group(level_queue, group),
            Joined::First(mark) => {
                let inner = self.clone();
                self.calls.spawn(async move {
                    tokio::time::sleep(inner.config.linger).await;
                    let group = E::joins(&inner.joins).take(&level_queue, &mark);
                    inner.send_group(level_queue, group);
                });
            }
        }
        answer
    }

    fn send_group<E: Single>(self: &Arc<Self>, level_queue: LevelQueue, group: Vec<(E, Reply)>) {
        let inner = self.clone();
        self.calls.spawn(async move {
            let _permit = inner.joins.permits.acquire().await;
            let asked = group.into_iter().filter(|(_, reply)| !reply.is_closed());
            let (entries, replies): (Vec<_>, Vec<_>) =
                asked.map(|(entry, reply)| ((level_queue.clone(), entry), reply)).unzip();
            for (reply, answer) in replies.into_iter().zip(inner.request_all(entries).await) {
                let _ = reply.send(answer); // a caller that has gone away needs no answer
            }
        });
    }
}
