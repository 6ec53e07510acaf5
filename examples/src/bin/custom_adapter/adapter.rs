//! A custom backend, as short as the traits allow: a list of messages behind a lock.
//!
//! It declares few capabilities, and core refuses everything else. It keeps the whole contract for what it
//! declares: `tests/custom_adapter.rs` runs the conformance suite on it. `ADAPTERS.md` walks through this
//! file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyqueue::adapter::{
    Action, AmendQueueStorage, Capabilities, ControlStorage, Extension, InspectQueueStorage, Lease,
    LedgerQueueStorage, PauseQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage,
    RawDelivery, Settlement, Storage, Token, async_trait,
};
use anyqueue::{
    Error, ExtendOutcome, Health, MessageData, Operation, PartitionId, PushOutcome, Result, SettleOutcome,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::capabilities::{LONGEST_WAIT, MAX_MESSAGES, capabilities};

/// A client of the list.
#[derive(Debug)]
pub(crate) struct ListQueue {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    closed: CancellationToken,
}

/// The list, which takes the place of a server.
#[derive(Debug, Default)]
struct Shared {
    /// In the order of delivery.
    rows: Mutex<Vec<Row>>,
    /// Notified when a message may have become ready.
    changed: Notify,
}

#[derive(Debug)]
struct Row {
    partition: PartitionId,
    message: MessageData,
    pushed_at: Instant,
    deliveries: u32,
    /// The token of the holder, and when its lease ends.
    held: Option<(Token, Instant)>,
}

impl ListQueue {
    pub(crate) fn new() -> Self {
        Self::of(Arc::default())
    }

    /// Returns another client of the same list, like a second process connected to the same server.
    pub(crate) fn client(&self) -> Self {
        Self::of(Arc::clone(&self.shared))
    }

    fn of(shared: Arc<Shared>) -> Self {
        Self { shared, capabilities: capabilities(), closed: CancellationToken::new() }
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, operation: Operation) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(Error::closed().with_backend(self.name()).with_operation(operation));
        }
        Ok(())
    }

    /// Claims the messages that are ready. Returns them, and when the next lease of another holder ends.
    fn claim(&self, partition: &PartitionId, request: &PullRequest) -> (Vec<RawDelivery>, Option<Instant>) {
        let (now, token) = (Instant::now(), Token::random());
        let until = now + request.lease;
        let (mut deliveries, mut next) = (Vec::new(), None);
        for row in self.rows().iter_mut().filter(|row| row.partition == *partition) {
            match &row.held {
                Some((_, end)) if *end > now => {
                    next = Some(next.map_or(*end, |next: Instant| next.min(*end)));
                }
                _ if deliveries.len() < request.max => {
                    row.held = Some((token.clone(), until));
                    row.deliveries += 1;
                    deliveries.push(row.delivery(token.clone(), until, now));
                }
                _ => {}
            }
        }
        (deliveries, next)
    }
}

impl Row {
    fn delivery(&self, token: Token, until: Instant, now: Instant) -> RawDelivery {
        let lease = Lease { partition: self.partition.clone(), id: self.message.id(), token };
        RawDelivery::new(lease, self.message.clone())
            .with_lease_until(until)
            .with_delivery_count(self.deliveries)
            .with_age(now - self.pushed_at)
    }

    /// Whether this is the row of the lease, and the lease has not ended. This is the fence: a holder that is
    /// too late finds another token, or none.
    fn is_held_by(&self, lease: &Lease, now: Instant) -> bool {
        self.message.id() == lease.id
            && self.partition == lease.partition
            && self.held.as_ref().is_some_and(|(token, end)| *token == lease.token && *end > now)
    }
}

#[async_trait]
impl QueueStorage for ListQueue {
    fn name(&self) -> &'static str {
        "list"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// There is nothing to create.
    async fn init(&self) -> Result<()> {
        self.open(Operation::Init)
    }

    async fn check(&self) -> Result<Health> {
        self.open(Operation::Check)?;
        Ok(Health::default())
    }

    async fn close(&self) -> Result<()> {
        self.closed.cancel();
        Ok(())
    }
}

#[async_trait]
impl PushQueueStorage for ListQueue {
    fn encoded_len(&self, message: &MessageData) -> u64 {
        let headers: usize = message.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        (message.payload().len() + headers) as u64
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        if let Err(closed) = self.open(Operation::Push) {
            return vec![Err(closed); messages.len()];
        }
        let pushed_at = Instant::now();
        let mut rows = self.rows();
        let push = |message: &MessageData| {
            if rows.len() >= MAX_MESSAGES {
                let full = Error::new(anyqueue::ErrorKind::Full, "the list is full: work what is in it");
                return Err(full.with_backend("list").with_operation(Operation::Push));
            }
            let (partition, message) = (partition.clone(), message.clone());
            let id = message.id();
            rows.push(Row { partition, message, pushed_at, deliveries: 0, held: None });
            Ok(PushOutcome::Stored(id))
        };
        let results = messages.iter().map(push).collect();
        self.shared.changed.notify_waiters();
        results
    }
}

#[async_trait]
impl PullQueueStorage for ListQueue {
    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let deadline = Instant::now() + request.wait.min(LONGEST_WAIT);
        loop {
            self.open(Operation::Pull)?;
            // Registered before looking, so that a message that arrives after the look wakes this pull.
            let changed = self.shared.changed.notified();
            let (deliveries, next) = self.claim(partition, &request);
            if !deliveries.is_empty() || Instant::now() >= deadline {
                return Ok(deliveries);
            }
            let wake = next.map_or(deadline, |next| next.min(deadline));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(wake.into()) => {}
                () = self.closed.cancelled() => {}
                () = request.stop.cancelled() => return Ok(Vec::new()),
            }
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if let Err(closed) = self.open(Operation::Settle) {
            return vec![Err(closed); settlements.len()];
        }
        let now = Instant::now();
        let mut rows = self.rows();
        let settle = |Settlement { lease, action, .. }: &Settlement| {
            let Some(place) = rows.iter().position(|row| row.is_held_by(lease, now)) else {
                return Ok(SettleOutcome::Lost);
            };
            let mut row = rows.remove(place);
            row.held = None;
            match action {
                Action::Remove => {}
                // Its old place is ahead of all messages that were never delivered.
                Action::Release | Action::Retry => rows.insert(place, row),
                // Core sends neither a delay nor headers, because they are not declared.
                Action::Postpone { .. } => rows.push(row),
                Action::Move { to, headers } => {
                    row.partition = to.clone();
                    row.deliveries = 0;
                    if let Some(headers) = headers {
                        row.message = row.message.with_headers(headers.clone());
                    }
                    rows.push(row);
                }
            }
            Ok(SettleOutcome::Settled)
        };
        let results = settlements.iter().map(settle).collect();
        self.shared.changed.notify_waiters();
        results
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if let Err(closed) = self.open(Operation::Extend) {
            return vec![Err(closed); extensions.len()];
        }
        let now = Instant::now();
        let mut rows = self.rows();
        let extend = |Extension { lease, duration }: &Extension| {
            let Some(row) = rows.iter_mut().find(|row| row.is_held_by(lease, now)) else {
                return Ok(ExtendOutcome::Lost);
            };
            row.held = Some((lease.token.clone(), now + *duration));
            Ok(ExtendOutcome::Extended)
        };
        let results = extensions.iter().map(extend).collect();
        // An extension can also make a lease end earlier than waiting pulls expect.
        self.shared.changed.notify_waiters();
        results
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        (self.settle(settlements).await, self.pull(partition, request).await)
    }
}

impl Storage for ListQueue {
    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        None
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        None
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}
