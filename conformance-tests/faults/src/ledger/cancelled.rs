//! Cancellations that store wrong ends.

use std::sync::Arc;

use anyqueue::adapter::{Cancelled, LedgerQueueStorage as _, TaskEnd, async_trait};
use anyqueue::{CancelOutcome, EndState, MessageState, PartitionId, Result};
use anyqueue_conformance::Fault;

use super::store::{BREAKS, overwrite};
use crate::quirk::{Client, Entry, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::CancelForgetsEnd, BREAKS, || Arc::new(Instead(forgotten))),
    subtle(Fault::CancelForgetsDelayedEnd, BREAKS, || Arc::new(ForgetsDelayed)),
    plain(Fault::CancelEndsHeld, BREAKS, || Arc::new(Stores(CancelOutcome::Requested))),
    plain(Fault::CancelEndsUnknown, BREAKS, || Arc::new(Stores(CancelOutcome::NotFound))),
    plain(Fault::CancelUnasked, BREAKS, || Arc::new(Instead(unasked))),
    plain(Fault::CancelEndsOfFirst, BREAKS, || Arc::new(Instead(of_first))),
];

/// Stores other ends than those that came with the cancellation.
#[derive(Debug)]
struct Instead(fn(&[Cancelled]) -> Vec<Option<Arc<TaskEnd>>>);

fn forgotten(tasks: &[Cancelled]) -> Vec<Option<Arc<TaskEnd>>> {
    vec![None; tasks.len()]
}

fn unasked(tasks: &[Cancelled]) -> Vec<Option<Arc<TaskEnd>>> {
    let made = || Arc::new(TaskEnd::new(EndState::Cancelled));
    tasks.iter().map(|task| Some(task.end.clone().unwrap_or_else(made))).collect()
}

fn of_first(tasks: &[Cancelled]) -> Vec<Option<Arc<TaskEnd>>> {
    let first = tasks.iter().find_map(|task| task.end.clone());
    tasks.iter().map(|task| task.end.as_ref().and(first.clone())).collect()
}

#[async_trait]
impl Quirk for Instead {
    async fn cancel_tasks(
        &self,
        client: &Client,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Vec<Result<CancelOutcome>> {
        let ends = (self.0)(tasks);
        let instead = tasks.iter().zip(ends).map(|(task, end)| Cancelled { id: task.id, end });
        client.right.cancel(partition, &instead.collect::<Vec<_>>()).await
    }
}

#[derive(Debug)]
struct ForgetsDelayed;

#[async_trait]
impl Quirk for ForgetsDelayed {
    async fn cancel_tasks(
        &self,
        client: &Client,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Vec<Result<CancelOutcome>> {
        let mut instead = Vec::with_capacity(tasks.len());
        for task in tasks {
            let found = client.find(partition, task.id).await;
            let is_delayed = found.is_some_and(|found| found.state == MessageState::Delayed);
            instead.push(Cancelled { end: task.end.clone().filter(|_| !is_delayed), ..task.clone() });
        }
        client.right.cancel(partition, &instead).await
    }
}

/// Stores an end although nothing was removed, with this outcome.
#[derive(Debug)]
struct Stores(CancelOutcome);

#[async_trait]
impl Quirk for Stores {
    async fn cancel_tasks(
        &self,
        client: &Client,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Vec<Result<CancelOutcome>> {
        let answers = client.right.cancel(partition, tasks).await;
        for (task, answer) in tasks.iter().zip(&answers) {
            if let Some(end) =
                task.end.as_ref().filter(|_| answer.as_ref().is_ok_and(|outcome| *outcome == self.0))
            {
                let _ = overwrite(client, partition, task.id, end).await;
            }
        }
        answers
    }
}
