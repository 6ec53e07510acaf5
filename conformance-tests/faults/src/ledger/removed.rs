//! Ends that are deleted or freed in the wrong way.

use std::sync::Arc;

use anyqueue::adapter::{EndedQuery, LedgerQueueStorage as _, async_trait};
use anyqueue::{MAX_PAGE, MessageId, Page, PartitionId, Result};
use anyqueue_conformance::Fault;

use super::model::but;
use super::rules::{Call, purge};
use super::store::{BREAKS, find};
use crate::quirk::{Client, Entry, Quirk, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::UnknownEndDeleted, BREAKS, || Arc::new(Deletes::Unknown)),
    subtle(Fault::LapsedEndDeleted, BREAKS, || but(|rules| rules.sees_lapsed = &[Call::Delete])),
    plain(Fault::DeletesAllEnds, BREAKS, || Arc::new(Deletes::All)),
    plain(Fault::DeletesEndsAnywhere, BREAKS, || {
        but(|rules| rules.is_here = |call, asked, place| call == Call::Delete || asked == place)
    }),
    plain(Fault::DeletesFirstEnd, BREAKS, || Arc::new(Deletes::First)),
    plain(Fault::PurgesLivingEnds, BREAKS, || {
        but(|rules| rules.purge = |rows, _, limit| purge(rows, limit, |row| row.ended.expires_at.is_some()))
    }),
    plain(Fault::PurgesForeverEnds, BREAKS, || {
        but(|rules| {
            rules.purge = |rows, now, limit| {
                purge(rows, limit, |row| row.ended.expires_at.is_none() || row.has_lapsed(now))
            };
        })
    }),
    plain(Fault::EndPurgeIgnoresLimit, BREAKS, || {
        but(|rules| rules.purge = |rows, now, _| purge(rows, usize::MAX, |row| row.has_lapsed(now)))
    }),
    plain(Fault::EndPurgeOfOnePartition, BREAKS, || {
        but(|rules| {
            rules.purge = |rows, now, limit| {
                let first = rows.iter().find(|row| row.has_lapsed(now)).map(|row| row.partition.clone());
                purge(rows, limit, |row| row.has_lapsed(now) && Some(&row.partition) == first.as_ref())
            };
        })
    }),
    plain(Fault::EndPurgeTellsNothing, BREAKS, || {
        but(|rules| {
            rules.purge = |rows, now, limit| {
                purge(rows, limit, |row| row.has_lapsed(now));
                0
            };
        })
    }),
    plain(Fault::EndPurgeFreesNothing, BREAKS, || {
        but(|rules| {
            rules.purge =
                |rows, now, limit| rows.iter().filter(|row| row.has_lapsed(now)).take(limit).count();
        })
    }),
];

/// A deletion by id that does or returns something else.
#[derive(Clone, Copy, Debug)]
enum Deletes {
    Unknown,
    All,
    First,
}

#[async_trait]
impl Quirk for Deletes {
    async fn delete_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<bool>> {
        match self {
            Self::Unknown => {
                let answers = client.right.delete_ended(partition, ids).await;
                answers.into_iter().map(|answer| answer.map(|_| true)).collect()
            }
            Self::All => {
                let answers = client.right.delete_ended(partition, ids).await;
                if answers.iter().any(|answer| matches!(answer, Ok(true))) {
                    delete_all(client, partition).await;
                }
                answers
            }
            Self::First => {
                let (first, rest) = ids.split_at(ids.len().min(1));
                let mut answers = client.right.delete_ended(partition, first).await;
                for id in rest {
                    answers.push(Ok(find(client, partition, *id).await.is_some()));
                }
                answers
            }
        }
    }
}

async fn delete_all(client: &Client, partition: &PartitionId) {
    let any = EndedQuery::default();
    while let Ok(page) = client.right.ended(partition, &any, Page::of(MAX_PAGE)).await
        && !page.is_empty()
    {
        let ids: Vec<_> = page.iter().map(|ended| ended.id).collect();
        client.right.delete_ended(partition, &ids).await;
    }
}
