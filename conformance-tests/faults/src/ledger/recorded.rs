//! Ends that are recorded and merged in the wrong way.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{LedgerQueueStorage as _, TaskEnd, async_trait};
use anyqueue::{MessageId, PartitionId, Result};
use anyqueue_conformance::Fault;

use super::model::but;
use super::rules::Call;
use super::store::{BREAKS, find, overwrite};
use crate::quirk::{Client, Entry, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::LastRecordedStays, BREAKS, || Arc::new(Instead(|_, _| true))),
    plain(Fault::FirstRecordedStays, BREAKS, || Arc::new(Instead(|_, _| false))),
    subtle(Fault::EqualRankRecorded, BREAKS, || Arc::new(Instead(|former, end| former.rank() <= end.rank()))),
    plain(Fault::RecordedByState, BREAKS, || {
        Arc::new(Instead(|former, end| former.state.code() < end.state.code()))
    }),
    subtle(Fault::RecordRace, BREAKS, || Arc::new(Race)),
    plain(Fault::RecordsFirstOnly, BREAKS, || Arc::new(FirstOnly)),
    plain(Fault::RecordedWithoutResult, BREAKS, || Arc::new(WithoutResult)),
    subtle(Fault::LapsedOutranks, BREAKS, || but(|rules| rules.sees_lapsed = &[Call::Record])),
];

/// Decides in another way whether an end replaces the former one.
#[derive(Debug)]
struct Instead(fn(former: &TaskEnd, end: &TaskEnd) -> bool);

#[async_trait]
impl Quirk for Instead {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let mut answers = Vec::with_capacity(ends.len());
        for (id, end) in ends {
            let former = find(client, partition, *id).await;
            let goes = former.is_none_or(|former| (self.0)(&former, end));
            answers.push(if goes { overwrite(client, partition, *id, end).await } else { Ok(()) });
        }
        answers
    }
}

/// Lesser ends take longer, so that they are written last.
#[derive(Debug)]
struct Race;

#[async_trait]
impl Quirk for Race {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let mut greater = Vec::new();
        for (id, end) in ends {
            let former = find(client, partition, *id).await;
            if former.is_none_or(|former| former.rank() < end.rank()) {
                greater.push((*id, end));
            }
        }
        let attempt = ends.iter().map(|(_, end)| u64::from(end.attempt)).max().unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(40_u64.saturating_sub(attempt))).await;
        for (id, end) in greater {
            let _ = overwrite(client, partition, id, end).await;
        }
        vec![Ok(()); ends.len()]
    }
}

#[derive(Debug)]
struct FirstOnly;

#[async_trait]
impl Quirk for FirstOnly {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let (first, rest) = ends.split_at(ends.len().min(1));
        let mut answers = client.right.record_ended(partition, first).await;
        answers.extend(rest.iter().map(|_| Ok(())));
        answers
    }
}

#[derive(Debug)]
struct WithoutResult;

#[async_trait]
impl Quirk for WithoutResult {
    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        let without = |(id, end): &(MessageId, Arc<TaskEnd>)| {
            let mut end = TaskEnd::clone(end);
            end.result = None;
            (*id, Arc::new(end))
        };
        client.right.record_ended(partition, &ends.iter().map(without).collect::<Vec<_>>()).await
    }
}
