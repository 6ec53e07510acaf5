//! A storage that passes every call on unchanged and records it in the case's history.

use std::ops::Range;
use std::sync::Arc;

use anyqueue::adapter::{
    AmendQueueStorage, Cancelled, Capabilities, ControlStorage, EndedCursor, EndedQuery, EndedTask,
    Extension, InspectQueueStorage, LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, QueueStorage, RawDelivery, SeriesCell, SeriesKey, Settlement, Storage, TaskEnd,
    async_trait,
};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, Counts, DeleteOutcome, Error, ExtendOutcome, Health,
    MessageData, MessageId, Page, PartitionId, PushOutcome, Result, SettleOutcome,
};
use tokio_util::sync::CancellationToken;

use crate::history::{History, Op};

/// Sits between the suite and one client of the backend.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Arc<dyn Storage>,
    client: Arc<str>,
    history: Arc<History>,
}

impl Recorder {
    pub(crate) fn new(inner: Arc<dyn Storage>, client: Arc<str>, history: Arc<History>) -> Self {
        Self { inner, client, history }
    }

    /// Records something that is not a call.
    pub(crate) fn note(&self, op: Op) {
        let ticket = self.history.begin(&self.client, op);
        self.history.end(ticket, 0, |_| ());
    }

    fn know_successors(&self, settlements: &[Settlement]) {
        for successor in settlements.iter().flat_map(|settlement| &settlement.then) {
            self.history.know(&successor.message);
        }
    }

    fn inspector(&self) -> Result<&dyn InspectQueueStorage> {
        self.inner.inspect().ok_or_else(|| Error::unsupported("this backend has no inspection"))
    }

    fn pauser(&self) -> Result<&dyn PauseQueueStorage> {
        self.inner.pause().ok_or_else(|| Error::unsupported("this backend has no pause"))
    }

    fn keeper(&self) -> Result<&dyn LedgerQueueStorage> {
        self.inner.ledger().ok_or_else(|| Error::unsupported("this backend has no ledger"))
    }
}

#[async_trait]
impl QueueStorage for Recorder {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    async fn init(&self) -> Result<()> {
        self.inner.init().await
    }
    async fn check(&self) -> Result<Health> {
        self.inner.check().await
    }
    async fn close(&self) -> Result<()> {
        let ticket = self.history.begin(&self.client, Op::Close);
        let answer = self.inner.close().await;
        self.history.end(ticket, 0, |_| ());
        answer
    }
}

#[async_trait]
impl PushQueueStorage for Recorder {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        self.inner.encoded_len(message)
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        for message in messages {
            self.history.know(message);
        }
        let ids = messages.iter().map(MessageData::id).collect();
        let op = Op::Push { partition: partition.clone(), ids, outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = self.inner.push(partition, messages).await;
        self.history.end(ticket, 0, |op| {
            if let Op::Push { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }
}

#[async_trait]
impl PullQueueStorage for Recorder {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let ticket = self.history.begin(&self.client, pull_op(partition, &request));
        let stop = request.stop.clone();
        let answer = self.inner.pull(partition, request).await;
        self.history.end(ticket, seen(&answer), |op| put_pull(op, &answer, &stop));
        answer
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.know_successors(settlements);
        let op = Op::Settle { settlements: settlements.to_vec(), outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = self.inner.settle(settlements).await;
        self.history.end(ticket, answers.len(), |op| put_settle(op, &answers));
        answers
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        let op = Op::Extend { extensions: extensions.to_vec(), outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = self.inner.extend(extensions).await;
        self.history.end(ticket, answers.len(), |op| {
            if let Op::Extend { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.know_successors(settlements);
        let op = Op::Settle { settlements: settlements.to_vec(), outcomes: Vec::new() };
        let settling = self.history.begin_waiting(&self.client, op, request.wait);
        let pulling = self.history.begin(&self.client, pull_op(partition, &request));
        let stop = request.stop.clone();
        let (settled, pulled) = self.inner.exchange(settlements, partition, request).await;
        self.history.end(settling, settled.len(), |op| put_settle(op, &settled));
        self.history.end(pulling, seen(&pulled), |op| put_pull(op, &pulled, &stop));
        (settled, pulled)
    }
}

fn pull_op(partition: &PartitionId, request: &PullRequest) -> Op {
    Op::Pull {
        partition: partition.clone(),
        max: request.max,
        wait: request.wait,
        lease: request.lease,
        group_members: request.group_members,
        stopped: false,
        outcome: Ok(Vec::new()),
    }
}

fn put_pull(op: &mut Op, answer: &Result<Vec<RawDelivery>>, stop: &CancellationToken) {
    if let Op::Pull { outcome, stopped, .. } = op {
        *stopped = stop.is_cancelled();
        outcome.clone_from(answer);
    }
}

fn put_settle(op: &mut Op, answers: &[Result<SettleOutcome>]) {
    if let Op::Settle { outcomes, .. } = op {
        outcomes.extend_from_slice(answers);
    }
}

fn seen(answer: &Result<Vec<RawDelivery>>) -> usize {
    answer.as_ref().map_or(0, Vec::len)
}

impl Storage for Recorder {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        self.inner.inspect().is_some().then_some(self)
    }
    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        self.inner.pause().is_some().then_some(self)
    }
    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        self.inner.amend().is_some().then_some(self)
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        self.inner.ledger().is_some().then_some(self)
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        self.inner.control()
    }
}

#[async_trait]
impl AmendQueueStorage for Recorder {
    async fn amend(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
        change: &Amend,
    ) -> Vec<Result<AmendOutcome>> {
        let Some(inner) = self.inner.amend() else {
            return vec![Err(Error::unsupported("this backend has no amendment")); ids.len()];
        };
        let (partition_id, change_of) = (partition.clone(), change.clone());
        let op =
            Op::Amend { partition: partition_id, ids: ids.to_vec(), change: change_of, outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = inner.amend(partition, ids, change).await;
        self.history.end(ticket, answers.len(), |op| {
            if let Op::Amend { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }
}

#[async_trait]
impl InspectQueueStorage for Recorder {
    async fn partitions(&self, page: Page<PartitionId>) -> Result<Vec<PartitionId>> {
        let (after, limit) = (page.after.as_ref(), page.limit);
        self.inspector()?.partitions(Page::of(limit).after(after.cloned())).await
    }

    async fn counts(&self, partition: &PartitionId) -> Result<Counts> {
        let inspector = self.inspector()?;
        let op = Op::Counts { partition: partition.clone(), outcome: Ok(Counts::default()) };
        let ticket = self.history.begin(&self.client, op);
        let answer = inspector.counts(partition).await;
        self.history.end(ticket, 1, |op| {
            if let Op::Counts { outcome, .. } = op {
                outcome.clone_from(&answer);
            }
        });
        answer
    }

    async fn browse(&self, partition: &PartitionId, page: Page<MessageId>) -> Result<Vec<Browsed>> {
        let Page { after, limit } = page;
        let inspector = self.inspector()?;
        let (partition_id, from_start) = (partition.clone(), after.is_none());
        let op = Op::Browse { partition: partition_id, from_start, limit, outcome: Ok(Vec::new()) };
        let ticket = self.history.begin(&self.client, op);
        let answer = inspector.browse(partition, Page::of(limit).after(after)).await;
        self.history.end(ticket, 1, |op| {
            if let Op::Browse { outcome, .. } = op {
                outcome.clone_from(&answer);
            }
        });
        answer
    }

    async fn delete(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<DeleteOutcome>> {
        let inspector = match self.inspector() {
            Ok(inspector) => inspector,
            Err(error) => return vec![Err(error); ids.len()],
        };
        let op = Op::Delete { partition: partition.clone(), ids: ids.to_vec(), outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = inspector.delete(partition, ids).await;
        self.history.end(ticket, answers.len(), |op| {
            if let Op::Delete { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }

    async fn purge(&self, partition: &PartitionId, limit: usize) -> Result<usize> {
        let inspector = self.inspector()?;
        let op = Op::Purge { partition: partition.clone(), limit, outcome: Ok(0) };
        let ticket = self.history.begin(&self.client, op);
        let answer = inspector.purge(partition, limit).await;
        self.history.end(ticket, 1, |op| {
            if let Op::Purge { outcome, .. } = op {
                outcome.clone_from(&answer);
            }
        });
        answer
    }

    async fn request_cancel(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<CancelOutcome>> {
        let inspector = match self.inspector() {
            Ok(inspector) => inspector,
            Err(error) => return vec![Err(error); ids.len()],
        };
        let op = Op::Cancel { partition: partition.clone(), ids: ids.to_vec(), outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = inspector.request_cancel(partition, ids).await;
        self.history.end(ticket, answers.len(), |op| {
            if let Op::Cancel { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }
}

#[async_trait]
impl PauseQueueStorage for Recorder {
    async fn set_paused(&self, partition: &PartitionId, paused: bool) -> Result<()> {
        let inner = self.pauser()?;
        let op = Op::Pause { partition: partition.clone(), paused, outcome: Ok(()) };
        let ticket = self.history.begin(&self.client, op);
        let answer = inner.set_paused(partition, paused).await;
        self.history.end(ticket, 1, |op| {
            if let Op::Pause { outcome, .. } = op {
                outcome.clone_from(&answer);
            }
        });
        answer
    }

    async fn is_paused(&self, partition: &PartitionId) -> Result<bool> {
        self.pauser()?.is_paused(partition).await
    }
}

/// The cases themselves judge what the ledger keeps. The history records what happens to messages:
/// settlements, with their ends, and cancellations.
#[async_trait]
impl LedgerQueueStorage for Recorder {
    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        match self.keeper() {
            Ok(ledger) => ledger.record_ended(partition, ends).await,
            Err(error) => vec![Err(error); ends.len()],
        }
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        self.keeper()?.ended(partition, query, page).await
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.keeper()?.count_ended(partition, query, cap).await
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        match self.keeper() {
            Ok(ledger) => ledger.find_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        match self.keeper() {
            Ok(ledger) => ledger.delete_ended(partition, ids).await,
            Err(error) => vec![Err(error); ids.len()],
        }
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        self.keeper()?.purge_ended(limit).await
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.keeper()?.series(partition, minutes, page).await
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        let ledger = match self.keeper() {
            Ok(ledger) => ledger,
            Err(error) => return vec![Err(error); tasks.len()],
        };
        let ids = tasks.iter().map(|task| task.id).collect();
        let op = Op::Cancel { partition: partition.clone(), ids, outcomes: Vec::new() };
        let ticket = self.history.begin(&self.client, op);
        let answers = ledger.cancel(partition, tasks).await;
        self.history.end(ticket, answers.len(), |op| {
            if let Op::Cancel { outcomes, .. } = op {
                outcomes.clone_from(&answers);
            }
        });
        answers
    }
}
