//! Claiming messages, and waiting for them.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{
    Decoded, Envelope, Extension, Hint, Lease, PullQueueStorage, PullRequest, RawDelivery, Settlement,
    Waiting, async_trait,
};
use anyqueue::{
    Bytes, Error, ErrorKind, ExtendOutcome, MessageData, MessageId, Operation, PartitionId, Result,
    SettleOutcome, header,
};
use sqlx::postgres::PgRow;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use crate::PostgresQueue;
use crate::claim::Claim;
use crate::error::{ERRORS, NAME};
use crate::limits::LEASE;
use crate::scan_starts::ScanRanges;
use crate::settle::{self, can_spoil, read_settled};
use crate::settle_query::bind_exchange;
use crate::settlements::{SettlementBatch, decode_headers};
use crate::sql::get;
use crate::token::{TupleId, token};

/// The approximate size of the messages that one pull returns. The schema has a function of the same name.
const PULL_BYTES: usize = 32 * 1024 * 1024;

#[async_trait]
impl PullQueueStorage for PostgresQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.pull_messages(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.settle_all(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.extend_all(extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.settle_and_pull(settlements, partition, request).await
    }
}

impl PostgresQueue {
    async fn pull_messages(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        request.check(&LEASE).map_err(stamp)?;
        let started = Instant::now();
        let waiting = (!request.wait.is_zero()).then(|| self.inner.waiters.join(partition));
        let deliveries = self.claim(partition, &request).await?;
        match waiting {
            Some(waiting) if deliveries.is_empty() => self.wait(partition, &request, started, waiting).await,
            _ => Ok(deliveries),
        }
    }

    /// Settles and pulls in one statement if all settlements are removals, which is the common case under load.
    async fn settle_and_pull(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let batch = SettlementBatch::new(settlements, &self.inner.config);
        if !batch.only_removes() || request.check(&LEASE).is_err() {
            return (self.settle_all(settlements).await, self.pull_messages(partition, request).await);
        }
        let started = Instant::now();
        let waiting = (!request.wait.is_zero()).then(|| self.inner.waiters.join(partition));
        let (done, claimed) = match self.exchange_once(&batch, partition, &request).await {
            Ok((done, deliveries)) => (Ok(done), deliveries.map_err(stamp)),
            Err(error) if can_spoil(&error, batch.removals()) => {
                drop(waiting);
                return (self.settle_all(settlements).await, self.pull_messages(partition, request).await);
            }
            Err(error) => (Err(settle::stamp(error.clone())), Err(stamp(error))),
        };
        let outcomes = batch.removed(&done);
        let pulled = match (claimed, waiting) {
            (Ok(deliveries), Some(waiting)) if deliveries.is_empty() => {
                self.wait(partition, &request, started, waiting).await
            }
            (claimed, _) => claimed,
        };
        (outcomes, pulled)
    }

    async fn exchange_once(
        &self,
        batch: &SettlementBatch<'_>,
        partition: &PartitionId,
        request: &PullRequest,
    ) -> Result<(Option<Vec<i32>>, Result<Vec<RawDelivery>>)> {
        let claim = Claim::new(self, partition, request);
        let text = claim.exchange_text(&self.inner.statements, batch);
        let query = bind_exchange(claim.bind(text.query_of(batch.removal_bytes())), batch.removals());
        let rows = self.fetch(claim.bind_members(query), Operation::Pull).await?;
        let (mut done, mut claimed) = (None, Vec::with_capacity(rows.len()));
        for row in &rows {
            if get::<Option<i32>>(row, 0)?.is_some() {
                claimed.push(row);
            } else {
                let advanced;
                (done, advanced) = read_settled(row, 9)?;
                self.hint_settled(batch.removals(), advanced);
            }
        }
        // The settlements are done, so a later error does not concern them.
        if claimed.is_empty() && claim.ranges.is_part() {
            return Ok((done, self.claim_anywhere(partition, request).await));
        }
        Ok((done, self.deliver(claimed, &claim)))
    }

    /// Tries again whenever it is woken, until the wait is over or the request is stopped.
    async fn wait(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
        started: Instant,
        waiting: Waiting,
    ) -> Result<Vec<RawDelivery>> {
        let inner = &self.inner;
        inner.listen.cancel(); // the listener starts when this is cancelled
        let left = request.wait.saturating_sub(started.elapsed());
        let claim = || async {
            let deliveries = self.claim(partition, request).await?;
            if deliveries.is_empty() {
                inner.waiters.found_nothing();
            }
            Ok(deliveries)
        };
        inner.waiters.found_nothing();
        waiting.claim(&inner.closed, &request.stop, tokio::time::sleep(left), claim).await
    }

    async fn claim(&self, partition: &PartitionId, request: &PullRequest) -> Result<Vec<RawDelivery>> {
        let claim = Claim::new(self, partition, request);
        let Some(rows) = self.fetch_claimed(&claim).await.map_err(stamp)? else { return Ok(Vec::new()) };
        if rows.is_empty() && claim.ranges.is_part() {
            return self.claim_anywhere(partition, request).await.map_err(stamp);
        }
        self.deliver(rows.iter().collect(), &claim).map_err(stamp)
    }

    /// Returns the rows that it claimed; `None` if the pull is stopped before it is sent.
    async fn fetch_claimed(&self, claim: &Claim<'_>) -> Result<Option<Vec<PgRow>>> {
        self.fetch_unless(&claim.request.stop, claim.query(&self.inner.statements), Operation::Pull).await
    }

    /// Claims from a scan of everything, however long that takes.
    async fn claim_anywhere(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        let claim = Claim { ranges: ScanRanges::all(), ..Claim::new(self, partition, request) };
        let Some(rows) = self.fetch_claimed(&claim).await? else { return Ok(Vec::new()) };
        self.deliver(rows.iter().collect(), &claim)
    }

    /// Reads claimed messages. One that cannot be read is delivered as it is stored; core handles it.
    fn deliver(&self, rows: Vec<&PgRow>, claim: &Claim<'_>) -> Result<Vec<RawDelivery>> {
        let Claim { partition, request, secret, before, ranges } = claim;
        // Measured by the server's clock, so that neither the network nor a flush counts. The server does not
        // report it without messages.
        let took = rows.first().map_or(Ok(Some(before.elapsed())), |row| looking_time(row, 10))?;
        let mut sorted = Vec::with_capacity(rows.len());
        for row in rows {
            let number = if claim.is_whole() { get::<i32>(row, 11)? } else { 0 };
            sorted.push((get::<i16>(row, 2)?, get::<i64>(row, 3)?, number, row));
        }
        sorted.sort_unstable_by_key(|(lane, pos, number, _)| (*lane, *pos, *number));
        let found = sorted.iter().map(|(lane, pos, ..)| (*lane, *pos));
        match took {
            Some(took) => self.inner.scan_starts.record(partition, ranges, (*before, took), found),
            None => self.inner.scan_starts.forget(partition), // a start would hide what is due and was left
        }
        let (mut deliveries, mut bytes) = (Vec::with_capacity(sorted.len()), 0);
        for (_, _, _, row) in sorted {
            let id = get::<Uuid>(row, 1)?;
            let (message, unreadable) = decode(row, id, 6)?;
            bytes += message.payload().len();
            let token = token(*secret, get(row, 0)?, tid(row, 8)?);
            let lease = Lease { partition: (*partition).clone(), id: message.id(), token };
            let count = u32::try_from(get::<i32>(row, 4)?).unwrap_or(0);
            let delivery = RawDelivery::new(lease, message).with_lease_until(*before + request.lease);
            let delivery = delivery.with_delivery_count(count).with_age(age(row, 5)?);
            deliveries.push(delivery.with_unreadable(unreadable));
        }
        if !deliveries.is_empty() {
            let due = Hint::due(request.lease);
            if request.lease < 2 * self.inner.config.poll_interval {
                self.send_hint(partition, due); // the lease may end before others poll
            } else {
                self.inner.waiters.hint(partition, due);
            }
        }
        if deliveries.len() >= request.max || bytes >= PULL_BYTES / 2 {
            self.inner.waiters.hint(partition, Hint::ready(1)); // more may be left for the next waiting pull
        }
        Ok(deliveries)
    }
}

/// Reads a message: replaced headers from this column, the body from the next one. A message that another
/// program wrote is delivered as it is, and so is one that cannot be read, with the reason.
pub(crate) fn decode(row: &PgRow, id: Uuid, column: usize) -> Result<(MessageData, Option<Error>)> {
    let body = Bytes::copy_from_slice(get::<&[u8]>(row, column + 1)?);
    let (message, unreadable) = match read_envelope(&body, id) {
        Ok(envelope) => (envelope.message, None),
        Err(error) => (as_it_is(id, body), Some(error)),
    };
    match get::<Option<&[u8]>>(row, column)?.map(decode_headers) {
        Some(Ok(replaced)) => Ok((message.with_headers(replaced), unreadable)),
        Some(Err(error)) => Ok((message, unreadable.or(Some(error)))),
        None => Ok((message, unreadable)),
    }
}

/// Reads the message stored under this id. What another program wrote has no time of its push.
pub(crate) fn read_envelope(body: &Bytes, id: Uuid) -> Result<Envelope> {
    match Envelope::decode(body)? {
        Decoded::Envelope(envelope) if *envelope.message.id().as_bytes() == *id.as_bytes() => Ok(envelope),
        Decoded::Envelope(_) => {
            let text = "the id in a stored message differs from the one that it is stored under";
            Err(ERRORS.error(ErrorKind::Corrupt, text))
        }
        Decoded::Foreign(payload) => {
            let message = as_it_is(id, payload).with_header(header::FOREIGN_ID, id.to_string());
            let mut envelope = Envelope::new(message, SystemTime::UNIX_EPOCH);
            envelope.pushed_at = None;
            Ok(envelope)
        }
    }
}

fn as_it_is(id: Uuid, payload: Bytes) -> MessageData {
    MessageData::with_id(MessageId::from_bytes(*id.as_bytes()), payload)
}

/// How long the server scanned; `None` if more messages are due than it could make ready.
fn looking_time(row: &PgRow, column: usize) -> Result<Option<Duration>> {
    let looked_us = get::<Option<i32>>(row, column)?;
    Ok(looked_us.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0))))
}

fn tid(row: &PgRow, column: usize) -> Result<TupleId> {
    TupleId::read(get(row, column)?)
        .ok_or_else(|| ERRORS.error(ErrorKind::Incompatible, "the server sent a tuple id of an unknown form"))
}

/// Reads an age, as measured by the server's clock.
pub(crate) fn age(row: &PgRow, column: usize) -> Result<Duration> {
    let PgInterval { days, microseconds, .. } = get(row, column)?;
    let micros = i64::from(days) * 86_400_000_000 + microseconds;
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// A repetition is safe: if a claim is uncertain, its messages return when their leases end.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Pull)
}
