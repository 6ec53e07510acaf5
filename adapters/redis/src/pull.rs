//! Claiming messages, and waiting for them.

use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Extension, Hint, Lease, PullQueueStorage, PullRequest, RawDelivery, Settlement, Waiting, async_trait,
};
use anyqueue::{Bytes, Error, ExtendOutcome, Operation, PartitionId, Result, SettleOutcome};
use redis::Value;
use uuid::Uuid;

use crate::RedisQueue;
use crate::bundle::Bundle;
use crate::clock::millis;
use crate::error::{ERRORS, NAME};
use crate::hint::due_us;
use crate::limits::{BATCH, LEASE};
use crate::link::Call;
use crate::names::word;
use crate::record;
use crate::reply::{self, bytes, count, int, optional_bytes, optional_list};
use crate::script;
use crate::settle::{SettlementBatch, first_batch};
use crate::token::Tokens;
use crate::unreadable::{Undecoded, Unreadable};

/// The result of one claim.
struct Claimed {
    deliveries: Vec<RawDelivery>,
    /// Whether the claim ended before it had looked at everything, so that it must be repeated.
    is_cut_short: bool,
    /// Whether ids without records were put aside.
    has_missing_records: bool,
    /// Messages that cannot be read.
    unreadable: Unreadable,
}

/// How long a pull without a wait keeps looking for messages behind deleted ones.
const MIN_SEARCH: Duration = Duration::from_millis(50);

#[async_trait]
impl PullQueueStorage for RedisQueue {
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

impl RedisQueue {
    async fn pull_messages(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        request.check(&LEASE).map_err(stamp)?;
        let started = Instant::now();
        let waiting = (!request.wait.is_zero()).then(|| self.inner.waiters.join(partition));
        let deliveries = self.claim(partition, &request, started).await?;
        match waiting {
            Some(waiting) if deliveries.is_empty() => self.wait(partition, &request, started, waiting).await,
            _ => Ok(deliveries),
        }
    }

    /// Settles and pulls in one script. Settlements in other partitions are processed first, in separate
    /// calls.
    async fn settle_and_pull(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        if settlements.len() > first_batch(settlements).len() {
            return (self.settle_all(settlements).await, self.pull_messages(partition, request).await);
        }
        let mut batch = SettlementBatch::new(settlements, self);
        self.store_across_slots(&mut batch).await;
        let bundle = batch.take_bundle(partition);
        self.settle_batch_parts(&mut batch).await;
        let Some(bundle) = bundle.filter(|_| request.check(&LEASE).is_ok()) else {
            return (batch.into_outcomes(), self.pull_messages(partition, request).await);
        };
        let started = Instant::now();
        let waiting = (!request.wait.is_zero()).then(|| self.inner.waiters.join(partition));
        let claimed = self.exchange_once(&bundle, &mut batch, partition, &request).await;
        let claimed = match claimed {
            Ok(claimed) if claimed.is_cut_short => self.claim(partition, &request, started).await,
            claimed => claimed.map(|claimed| claimed.deliveries),
        };
        let pulled = match (claimed, waiting) {
            (Ok(deliveries), Some(waiting)) if deliveries.is_empty() => {
                self.wait(partition, &request, started, waiting).await
            }
            (claimed, _) => claimed,
        };
        (batch.into_outcomes(), pulled)
    }

    async fn exchange_once(
        &self,
        bundle: &Bundle<'_>,
        batch: &mut SettlementBatch<'_>,
        partition: &PartitionId,
        request: &PullRequest,
    ) -> Result<Claimed> {
        let mut call = self.new_bundle_call([&script::EXCHANGE, &script::EXCHANGE_THEN], partition, bundle);
        let secret = Uuid::new_v4();
        self.add_claim(&mut call, partition, request, secret);
        bundle.add_successors_to(&mut call, &self.inner.caller);
        let before = Instant::now();
        let registering = async {
            self.register_whole_groups(partition, request).await?;
            self.enlist_lapsing(partition, bundle).await;
            self.register_urgent(bundle).await
        };
        let answer = match registering.await {
            Ok(()) => self.run(&call, Operation::Settle).await,
            Err(error) => Err(error),
        };
        self.hint_successors(bundle);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                batch.fail(bundle, &error);
                if let Some(rest) = bundle.rest(&error) {
                    return Box::pin(self.exchange_once(&rest, batch, partition, request)).await;
                }
                return Err(stamp(error));
            }
        };
        let mut answer = reply::list(answer).map_err(stamp)?;
        let settled = answer.pop().map_or_else(|| Ok(Vec::new()), bytes);
        batch.record_answer(bundle, settled);
        self.deliver(Value::Array(answer), partition, request, before, secret).await.map_err(stamp)
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
        let claim = || self.claim(partition, request, started);
        waiting.claim(&inner.closed, &request.stop, tokio::time::sleep(left), claim).await
    }

    /// Claims messages. This is repeated while there may be more messages behind deleted ones, within the
    /// time of the pull, which began at `started`.
    async fn claim(
        &self,
        partition: &PartitionId,
        request: &PullRequest,
        started: Instant,
    ) -> Result<Vec<RawDelivery>> {
        self.register_whole_groups(partition, request).await.map_err(stamp)?;
        loop {
            let secret = Uuid::new_v4();
            let mut call = self.new_call(&script::PULL, partition, 5, 128);
            self.add_claim(&mut call, partition, request, secret);
            let before = Instant::now();
            let answer = self.run(&call, Operation::Pull).await.map_err(stamp)?;
            let claimed = self.deliver(answer, partition, request, before, secret).await.map_err(stamp)?;
            let is_late = started.elapsed() >= request.wait.max(MIN_SEARCH);
            if !claimed.is_cut_short || is_late || request.stop.is_cancelled() {
                return Ok(claimed.deliveries);
            }
            if self.is_closed() {
                return Err(ERRORS.closed(Operation::Pull));
            }
        }
    }

    fn add_claim(&self, call: &mut Call, partition: &PartitionId, request: &PullRequest, secret: Uuid) {
        // A script could not process many more at once than the declared batch.
        call.int(request.max.min(BATCH) as u64).int(1000 * millis(request.lease));
        call.arg(secret.as_bytes());
        // If any pull of this handle waits in the partition, the server must announce later messages, even if
        // this call does not wait.
        if request.wait.is_zero() && !self.inner.waiters.has(partition) {
            call.arg(b"");
        } else {
            call.arg(word(partition).as_bytes());
        }
        call.int(request.group_members as u64);
    }

    /// In a cluster, registers that several members of a group may be held at once.
    async fn register_whole_groups(&self, partition: &PartitionId, request: &PullRequest) -> Result<()> {
        if request.group_members > 1 { self.register_counted(partition).await } else { Ok(()) }
    }

    /// Returns the claimed messages. This rarely takes further calls.
    async fn deliver(
        &self,
        answer: Value,
        partition: &PartitionId,
        request: &PullRequest,
        before: Instant,
        secret: Uuid,
    ) -> Result<Claimed> {
        let mut claimed = self.read(answer, partition, request, before, secret)?;
        if claimed.has_missing_records {
            self.report_missing_records(partition).await;
        }
        let unreadable = std::mem::take(&mut claimed.unreadable);
        if !unreadable.messages.is_empty() {
            let until = before + request.lease;
            self.add_unreadable(&mut claimed.deliveries, unreadable, partition, secret, until).await?;
        }
        Ok(claimed)
    }

    fn read(
        &self,
        answer: Value,
        partition: &PartitionId,
        request: &PullRequest,
        before: Instant,
        secret: Uuid,
    ) -> Result<Claimed> {
        let [now, due, more, records, counts, headers] = reply::exactly(answer)?;
        let (now_us, seen) = (count(&now)?, int(&more)?);
        let (more, has_missing_records) = (seen & 1 != 0, seen & 2 != 0);
        self.inner.clock.set(now_us);
        let records = reply::list(records)?;
        let is_cut_short = records.is_empty() && more;
        let mut counts = optional_list(counts)?.into_iter().flatten();
        let mut headers = optional_list(headers)?.into_iter().flatten();
        let mut deliveries = Vec::with_capacity(records.len());
        let mut unreadable = Unreadable { now_us, ..Unreadable::default() };
        let mut tokens = Tokens::new(secret);
        for (number, record) in records.into_iter().enumerate() {
            let delivery_count = earlier(counts.next())?.saturating_add(1);
            let headers = headers.next().map_or(Ok(None), optional_bytes)?.map(Bytes::from);
            let record = Bytes::from(bytes(record)?);
            match record::decode(&record, headers.clone()) {
                Ok(stored) => {
                    let age = stored.age(now_us);
                    let token = tokens.of(stored.flag);
                    let lease = Lease { partition: partition.clone(), id: stored.message.id(), token };
                    let delivery = RawDelivery::new(lease, stored.message);
                    let delivery = delivery.with_lease_until(before + request.lease);
                    deliveries.push(delivery.with_delivery_count(delivery_count).with_age(age));
                }
                Err(why) => {
                    unreadable.messages.push(Undecoded { number, record, headers, delivery_count, why });
                }
            }
        }
        self.inner.waiters.hint(partition, due_us(int(&due)?));
        if more && !is_cut_short {
            self.inner.waiters.hint(partition, Hint::ready(1)); // what is left is for the next waiting pull
        }
        Ok(Claimed { deliveries, is_cut_short, has_missing_records, unreadable })
    }
}

/// Returns how often a message was delivered before.
fn earlier(value: Option<Value>) -> Result<u32> {
    let Some(text) = value.map_or(Ok(None), optional_bytes)? else { return Ok(0) };
    Ok(std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// A repetition is safe: if a claim is uncertain, its messages return when their leases end.
fn stamp(error: Error) -> Error {
    error.repeatable().with_backend(NAME).with_operation(Operation::Pull)
}
