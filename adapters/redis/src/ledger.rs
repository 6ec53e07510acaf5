//! The ledger of task ends.

use std::future::Future;
use std::sync::Arc;

use anyqueue::adapter::{
    Cancelled, EndWatch, EndedCursor, EndedQuery, EndedTask, LedgerQueueStorage, SeriesCell, SeriesKey,
    TaskEnd, async_trait, is_of_facts,
};
use anyqueue::{Bytes, CancelOutcome, EndState, MessageId, Operation, Page, PartitionId, Result};
use redis::Value;

use crate::RedisQueue;
use crate::ends::{self, StoredEnd, decode, moment};
use crate::error::{ERRORS, unexpected_reply};
use crate::inspect::{IDS_PER_CALL, stamp};
use crate::limits::RESULT_BYTES;
use crate::link::Call;
use crate::names::partition_kind;
use crate::reply::{bytes, count, exactly, list, optional_bytes};
use crate::script;

/// How many ends one call reads for a list.
const LISTED_PER_CALL: usize = 250;

/// The bounds of moments and ids, and the states, in the form that scripts expect.
struct Range {
    upper: Vec<u8>,
    lower: Vec<u8>,
    states: Vec<u8>,
}

impl Range {
    fn new(query: &EndedQuery, after: Option<EndedCursor>) -> Self {
        let until = [query.before.map(|before| moment(before).0.to_vec()), after.map(place)];
        // Everything that begins with exactly this moment sorts after it.
        let upper = until.into_iter().flatten().min();
        let states = EndState::ALL.into_iter();
        let states = states.filter(|state| query.states.is_empty() || query.states.contains(state));
        Self {
            upper: upper.map_or_else(|| b"+".to_vec(), |upper| before(&upper)),
            lower: query.since.map_or_else(|| b"-".to_vec(), |since| [b"[", &moment(since).0[..]].concat()),
            states: states.map(|state| b'0' + state.code()).collect(),
        }
    }

    fn add_to<'c>(&self, call: &'c mut Call) -> &'c mut Call {
        call.arg(&self.upper).arg(&self.lower).arg(&self.states)
    }
}

/// Returns the position at which a page ended, in the form of the lists. A cursor between two milliseconds
/// sorts before everything at the second one.
fn place(EndedCursor { ended_at, id }: EndedCursor) -> Vec<u8> {
    let (at, is_exact) = moment(ended_at);
    if is_exact { [&at[..], id.as_bytes()].concat() } else { at.to_vec() }
}

/// Returns the upper bound of everything before this position.
fn before(place: &[u8]) -> Vec<u8> {
    [b"(", place].concat()
}

/// Collects the results of several calls, each with some of the items. `batch` returns how many of the
/// remaining items go into the next call.
async fn in_calls<'i, I, T, F>(
    items: &'i [I],
    batch: impl Fn(&[I]) -> usize,
    call: impl Fn(&'i [I]) -> F,
) -> Vec<Result<T>>
where
    F: Future<Output = Result<Vec<Result<T>>>>,
{
    let mut results = Vec::with_capacity(items.len());
    while let Some(left) = items.get(results.len()..).filter(|left| !left.is_empty()) {
        let some = left.get(..batch(left).max(1)).unwrap_or(left);
        match call(some).await {
            Ok(mut more) => {
                more.truncate(some.len());
                results.extend(more.drain(..).map(|result| result.map_err(stamp)));
            }
            Err(error) => results.extend(some.iter().map(|_| Err(stamp(error.clone())))),
        }
    }
    results
}

/// Returns how many ids fit into one call.
fn some_ids<T>(_: &[T]) -> usize {
    IDS_PER_CALL
}

/// Returns how many ends fit into one call.
fn some_ends(ends: &[(MessageId, Arc<TaskEnd>)]) -> usize {
    let mut size = 0;
    let has_room = |(_, end): &&(MessageId, Arc<TaskEnd>)| {
        size += end.result.as_ref().map_or(0, Bytes::len);
        size <= RESULT_BYTES
    };
    ends.iter().take(IDS_PER_CALL).take_while(has_room).count()
}

impl RedisQueue {
    async fn record_some(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Result<Vec<Result<()>>> {
        let stored: Vec<_> = ends.iter().map(|(_, end)| StoredEnd::encode(end)).collect();
        let readable =
            || ends.iter().zip(&stored).filter_map(|((id, _), end)| Some((*id, end.as_ref().ok()?)));
        if readable().any(|(_, end)| end.lapses) {
            self.enlist(partition).await;
        }
        if readable().next().is_some() {
            let (args, size) = ends::size(readable().map(|(_, end)| end));
            let mut call = self.new_call(&script::RECORD_ENDED, partition, args + 1, size);
            call.int(u64::from(!is_of_facts(partition)));
            ends::add_to(&mut call, readable().map(|(id, end)| (0, id, end)));
            self.run(&call, Operation::Inspect).await?;
        }
        Ok(stored.into_iter().map(|end| end.map(|_| ())).collect())
    }

    async fn list_ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        let (mut range, mut ended) = (Range::new(query, page.after), Vec::new());
        while ended.len() < page.limit {
            let wanted = LISTED_PER_CALL.min(page.limit - ended.len());
            let mut call = self.new_call(&script::LIST_ENDED, partition, 4, 96);
            range.add_to(call.int(wanted as u64));
            let mut found = list(self.run(&call, Operation::Inspect).await?)?.into_iter();
            let last = bytes(found.next().ok_or_else(unexpected_reply)?)?;
            while let (Some(id), Some(record)) = (found.next(), found.next()) {
                let id = MessageId::from_bytes(bytes(id)?.try_into().map_err(|_| unexpected_reply())?);
                ended.push(decode(id, &bytes(record)?, None)?);
            }
            if last.is_empty() {
                break;
            }
            range.upper = before(&last);
        }
        Ok(ended)
    }

    async fn count_ends(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        let (mut range, mut resume, mut counted) = (Range::new(query, None), Vec::new(), 0);
        while !range.states.is_empty() && counted < cap {
            let mut call = self.new_call(&script::COUNT_ENDED, partition, 5, 128);
            range.add_to(call.int(cap - counted)).arg(&resume);
            let [more, left, at] = exactly(self.run(&call, Operation::Inspect).await?)?;
            counted += count(&more)?;
            (range.states, resume) = (bytes(left)?, bytes(at)?);
        }
        Ok(counted.min(cap))
    }

    /// Returns the ends of the first ids, as many as fit into one answer.
    async fn find_some(
        &self,
        partition: &PartitionId,
        ids: &[MessageId],
    ) -> Result<Vec<Result<Option<EndedTask>>>> {
        let mut found =
            list(self.run(&self.call_with(&script::FIND_ENDED, partition, ids), Operation::Inspect).await?)?
                .into_iter();
        let passed = count(&found.next().ok_or_else(unexpected_reply)?)?;
        let passed = usize::try_from(passed).unwrap_or(usize::MAX);
        let mut next = || optional_bytes(found.next().unwrap_or(Value::Nil));
        let mut ended = Vec::with_capacity(ids.len());
        for id in ids.iter().take(passed.max(1)) {
            let (record, result) = (next()?, next()?);
            ended.push(record.map(|record| decode(*id, &record, result)).transpose());
        }
        Ok(ended)
    }

    async fn delete_some(&self, partition: &PartitionId, ids: &[MessageId]) -> Result<Vec<Result<bool>>> {
        let call = self.call_with(&script::DELETE_ENDED, partition, ids);
        let digits = bytes(self.run(&call, Operation::Inspect).await?)?;
        if digits.len() != ids.len() {
            return Err(unexpected_reply());
        }
        Ok(digits.into_iter().map(|digit| Ok(digit == b'1')).collect())
    }

    fn call_with(&self, script: &'static script::Script, partition: &PartitionId, ids: &[MessageId]) -> Call {
        let mut call = self.new_call(script, partition, ids.len(), 32 * ids.len());
        for id in ids {
            call.arg(id.as_bytes());
        }
        call
    }

    async fn cancel_some(
        &self,
        partition: &PartitionId,
        tasks: &[Cancelled],
    ) -> Result<Vec<Result<CancelOutcome>>> {
        let mut stored = Vec::new();
        for (task, number) in tasks.iter().zip(1..) {
            if let Some(end) = &task.end {
                stored.push((number, task.id, StoredEnd::encode(end)?));
            }
        }
        if stored.iter().any(|(_, _, end)| end.lapses) {
            self.enlist(partition).await;
        }
        let (args, size) = ends::size(stored.iter().map(|(_, _, end)| end));
        let (args, size) = (args + tasks.len() + 2, size + 32 * tasks.len());
        let mut call = self.new_call(&script::CANCEL, partition, args, size);
        call.arg(&[partition_kind(partition)]).int(tasks.len() as u64);
        for task in tasks {
            call.arg(task.id.as_bytes());
        }
        ends::add_to(&mut call, stored.iter().map(|(number, id, end)| (*number, *id, end)));
        let letters = bytes(self.run(&call, Operation::Inspect).await?)?;
        if letters.len() != tasks.len() {
            return Err(unexpected_reply());
        }
        let outcome = |letter| match letter {
            b'g' => CancelOutcome::Removed,
            b'h' => CancelOutcome::Requested,
            _ => CancelOutcome::NotFound,
        };
        Ok(letters.into_iter().map(|letter| Ok(outcome(letter))).collect())
    }
}

#[async_trait]
impl LedgerQueueStorage for RedisQueue {
    fn watch_ended(&self, id: MessageId) -> EndWatch {
        self.inner.listen.cancel();
        self.inner.end_watches.watch(id)
    }

    fn note_ended(&self, ids: &[MessageId]) {
        self.inner.end_watches.ended(ids);
    }

    async fn record_ended(
        &self,
        partition: &PartitionId,
        ends: &[(MessageId, Arc<TaskEnd>)],
    ) -> Vec<Result<()>> {
        in_calls(ends, some_ends, |some| self.record_some(partition, some)).await
    }

    async fn ended(
        &self,
        partition: &PartitionId,
        query: &EndedQuery,
        page: Page<EndedCursor>,
    ) -> Result<Vec<EndedTask>> {
        self.list_ended(partition, query, page).await.map_err(stamp)
    }

    async fn count_ended(&self, partition: &PartitionId, query: &EndedQuery, cap: u64) -> Result<u64> {
        self.count_ends(partition, query, cap).await.map_err(stamp)
    }

    async fn find_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<Option<EndedTask>>> {
        in_calls(ids, some_ids, |some| self.find_some(partition, some)).await
    }

    async fn delete_ended(&self, partition: &PartitionId, ids: &[MessageId]) -> Vec<Result<bool>> {
        in_calls(ids, some_ids, |some| self.delete_some(partition, some)).await
    }

    async fn purge_ended(&self, limit: usize) -> Result<usize> {
        if self.is_closed() {
            return Err(ERRORS.closed(Operation::Inspect));
        }
        self.purge_ends(limit).await.map_err(stamp)
    }

    async fn series(
        &self,
        partition: &PartitionId,
        minutes: std::ops::Range<u64>,
        page: Page<SeriesKey>,
    ) -> Result<Vec<SeriesCell>> {
        self.series_page(partition, minutes, page).await.map_err(stamp)
    }

    async fn cancel(&self, partition: &PartitionId, tasks: &[Cancelled]) -> Vec<Result<CancelOutcome>> {
        in_calls(tasks, some_ids, |some| self.cancel_some(partition, some)).await
    }
}
