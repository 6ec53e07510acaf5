//! A separate ledger, beside the messages of a correct backend.

use std::sync::Arc;

use anyqueue::adapter::{
    Cancelled, EndedCursor, EndedQuery, EndedTask, InspectQueueStorage as _, PullQueueStorage as _,
    Settlement, TaskEnd, async_trait,
};
use anyqueue::{CancelOutcome, MessageId, Page, PartitionId, Result};

use super::rules::{Call, RIGHT, Row, Rules};
use super::store::{is_settled, with_end};
use crate::quirk::{Client, Found, Kept, Quirk, Settled};

/// Ends of tasks that are kept by these rules. The ledger is correct if the rules are.
#[derive(Debug)]
pub(super) struct Model {
    rules: Rules,
    rows: Kept<Vec<Row>>,
}

/// Returns a ledger whose rules are correct except for those that are changed.
pub(super) fn but(change: impl FnOnce(&mut Rules)) -> Arc<dyn Quirk> {
    let mut rules = RIGHT;
    change(&mut rules);
    Arc::new(Model { rules, rows: Kept::default() })
}

impl Model {
    fn store(&self, client: &Client, partition: &PartitionId, id: MessageId, end: &Arc<TaskEnd>) {
        let ended_at = (self.rules.stamp)(client);
        let expires_at = (self.rules.expires)(ended_at, end.keep);
        let ended = EndedTask::new(id, ended_at, expires_at, Arc::clone(end));
        let mut rows = self.rows.lock();
        rows.retain(|row| row.ended.id != id || row.partition != *partition);
        rows.push(Row { partition: partition.clone(), by: client.number, ended });
    }

    /// Returns the ends that a call for this partition sees, in the order in which they were stored.
    fn seen(&self, client: &Client, call: Call, partition: &PartitionId) -> Vec<EndedTask> {
        let now = (self.rules.now)(client);
        let tells_lapsed = self.rules.sees_lapsed.contains(&call);
        let is_seen = |row: &&Row| {
            (self.rules.is_here)(call, partition, &row.partition)
                && (tells_lapsed || !row.has_lapsed(now))
                && (self.rules.is_seen)(client, row)
        };
        self.rows.lock().iter().filter(is_seen).map(|row| row.ended.clone()).collect()
    }

    fn find(&self, client: &Client, call: Call, partition: &PartitionId, id: MessageId) -> Option<EndedTask> {
        self.seen(client, call, partition).into_iter().find(|ended| ended.id == id)
    }

    fn matching(
        &self,
        client: &Client,
        call: Call,
        partition: &PartitionId,
        query: &EndedQuery,
    ) -> Vec<EndedTask> {
        let mut seen = self.seen(client, call, partition);
        seen.retain(|ended| (self.rules.matches)(call, query, ended));
        seen
    }
}

#[async_trait]
impl Quirk for Model {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let bare: Vec<_> = settlements.iter().map(|settlement| with_end(settlement, None)).collect();
        let answers = client.right.settle(&bare).await;
        for (settlement, answer) in settlements.iter().zip(&answers) {
            if let Some(end) = settlement.end.as_ref().filter(|_| is_settled(answer)) {
                self.store(client, &settlement.lease.partition, settlement.lease.id, end);
            }
        }
        answers
    }

    async fn record_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        for (id, end) in ends {
            let former = self.find(client, Call::Record, partition, *id);
            if former.is_none_or(|former| former.end.rank() < end.rank()) {
                self.store(client, partition, *id, end);
            }
        }
        vec![Ok(()); ends.len()]
    }

    async fn ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let mut listed = self.matching(client, Call::List, partition, query);
        listed.sort_by(|one, other| (self.rules.order)(&one.cursor(), &other.cursor()));
        listed.retain(|ended| {
            page.after.is_none_or(|after| {
                let in_order = (self.rules.order)(&ended.cursor(), &after);
                (self.rules.is_later)(in_order, after.ended_at.cmp(&ended.ended_at))
            })
        });
        Ok(listed.iter().take(page.limit).map(self.rules.listed).collect())
    }

    async fn count_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        query: &EndedQuery,
        cap: u64,
    ) -> Result<u64> {
        let matching = self.matching(client, Call::Count, partition, query);
        Ok((self.rules.counted)(matching.len() as u64, cap))
    }

    async fn find_ended(&self, client: &Client, partition: &PartitionId, ids: &[MessageId]) -> Found {
        let find = |id| self.find(client, Call::Find, partition, id).as_ref().map(self.rules.found);
        ids.iter().map(|id| Ok(find(*id))).collect()
    }

    async fn delete_ended(
        &self,
        client: &Client,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Vec<Result<bool>> {
        let delete = |id: &MessageId| {
            let was_there = self.find(client, Call::Delete, partition, *id).is_some();
            let is_meant = |row: &Row| {
                row.ended.id == *id && (self.rules.is_here)(Call::Delete, partition, &row.partition)
            };
            self.rows.lock().retain(|row| !is_meant(row));
            Ok(was_there)
        };
        ids.iter().map(delete).collect()
    }

    async fn purge_ended(&self, client: &Client, limit: usize) -> Result<usize> {
        let now = (self.rules.now)(client);
        Ok((self.rules.purge)(&mut self.rows.lock(), now, limit))
    }

    async fn cancel_tasks(
        &self,
        client: &Client,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Vec<Result<CancelOutcome>> {
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        let answers = client.right.request_cancel(partition, &ids).await;
        for (task, answer) in tasks.iter().zip(&answers) {
            if let (Some(end), Ok(CancelOutcome::Removed)) = (&task.end, answer) {
                self.store(client, partition, task.id, end);
            }
        }
        answers
    }

    async fn before_init(&self, client: &Client) {
        (self.rules.at_init)(client, &mut self.rows.lock());
    }

    async fn before_close(&self, client: &Client) {
        (self.rules.at_close)(client, &mut self.rows.lock());
    }
}
