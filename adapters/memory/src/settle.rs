//! Settling and extending.

use std::time::Instant;

use anyqueue::adapter::{Action, Extension, Settlement};
use anyqueue::{ErrorKind, ExtendOutcome, Headers, Operation, PartitionId, Result, SettleOutcome};

use crate::error::{error, stamp};
use crate::limits::{LEASE, MAX_DELAY};
use crate::message::Message;
use crate::partition::{Attempt, Partition};
use crate::push::headers_len;
use crate::state::{Ledger, State, enter, enter_or_make};
use crate::storage::MemoryQueue;

impl MemoryQueue {
    pub(crate) fn settle_batch(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Settle) {
            return vec![Err(closed); settlements.len()];
        }
        let settled = self.store.run(|state, now| state.settle(now, settlements, self.max_message_bytes()));
        settled.outcomes // what was removed is freed here, when the lock is free again
    }

    pub(crate) fn extend_batch(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Extend) {
            return vec![Err(closed); extensions.len()];
        }
        self.store.run(|state, now| extensions.iter().map(|extension| state.extend(now, extension)).collect())
    }
}

/// What came of a batch.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) outcomes: Vec<Result<SettleOutcome>>,
    removed: Vec<Box<Message>>,
}

/// Messages on their way to another partition. Nobody sees them there: the lock is held until they have arrived.
type Moved<'a> = Vec<(&'a PartitionId, Box<Message>)>;

impl State {
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        settlements: &[Settlement],
        max_message_bytes: u64,
    ) -> Settled {
        let room = || Vec::with_capacity(settlements.len());
        let mut settled = Settled { outcomes: Vec::with_capacity(settlements.len()), removed: room() };
        // Most batches are of one partition: each run of the same looks it up, and tidies it, once.
        for run in settlements.chunk_by(|a, b| a.lease.partition == b.lease.partition) {
            self.settle_run(now, run, max_message_bytes, &mut settled);
        }
        settled
    }

    /// Settles deliveries of one partition.
    fn settle_run(
        &mut self,
        now: Instant,
        run: &[Settlement],
        max_message_bytes: u64,
        settled: &mut Settled,
    ) {
        let Some(id) = run.first().map(|settlement| &settlement.lease.partition) else { return };
        let Some(partition) = enter(&mut self.partitions, now, id) else {
            settled.outcomes.extend(run.iter().map(|_| Ok(SettleOutcome::Lost)));
            return;
        };
        let mut step = Step { now, partition, ledger: &mut self.ledger, max_message_bytes };
        let mut moved = Moved::new();
        for settlement in run {
            let done = step.settle(settlement, &mut settled.removed, &mut moved);
            settled
                .outcomes
                .push(done.map(|done| done.map_or(SettleOutcome::Lost, |()| SettleOutcome::Settled)));
        }
        self.tidy(id);
        for (to, message) in moved {
            enter_or_make(&mut self.partitions, now, to).accept(message);
            self.tidy(to);
        }
    }

    fn extend(&mut self, now: Instant, Extension { lease, duration }: &Extension) -> Result<ExtendOutcome> {
        LEASE.check(*duration).map_err(|error| stamp(error, Operation::Extend))?;
        let Some(partition) = enter(&mut self.partitions, now, &lease.partition) else {
            return Ok(ExtendOutcome::Lost);
        };
        let outcome = partition.extend(now, lease.id, &lease.token, *duration);
        self.tidy(&lease.partition);
        Ok(outcome)
    }
}

/// What one settlement works on.
struct Step<'a> {
    now: Instant,
    partition: &'a mut Partition,
    ledger: &'a mut Ledger,
    max_message_bytes: u64,
}

impl Step<'_> {
    /// `None`: the lease is lost.
    fn settle<'a>(
        &mut self,
        Settlement { lease, action }: &'a Settlement,
        removed: &mut Vec<Box<Message>>,
        moved: &mut Moved<'a>,
    ) -> Result<Option<()>> {
        let (id, token) = (lease.id, &lease.token);
        let done = match action {
            Action::Remove => self.partition.take(id, token).map(|message| {
                self.ledger.leave(&message);
                removed.push(message);
            }),
            Action::Release => self.partition.release(id, token, Attempt::TakenOff),
            Action::Retry => self.partition.release(id, token, Attempt::Counted),
            Action::Postpone { delay, headers } => {
                if *delay > MAX_DELAY {
                    let text = format!("the delay of {delay:?} is too long: the longest is {MAX_DELAY:?}");
                    return Err(error(Operation::Settle, ErrorKind::InvalidInput, text));
                }
                let Some(message) = self.partition.held(id, token) else { return Ok(None) };
                if let Some(headers) = headers {
                    check_size(message, headers, self.max_message_bytes)?;
                    replace_headers(message, headers, self.ledger);
                }
                self.partition.postpone(self.now, id, token, *delay)
            }
            Action::Move { to, headers } => self.partition.take(id, token).map(|mut message| {
                if let Some(headers) = headers {
                    replace_headers(&mut message, headers, self.ledger);
                }
                moved.push((to, message));
            }),
        };
        Ok(done)
    }
}

fn bytes_with(message: &Message, headers: &Headers) -> u64 {
    message.bytes - headers_len(message.data.headers()) + headers_len(headers)
}

fn check_size(message: &Message, headers: &Headers, limit: u64) -> Result<()> {
    let bytes = bytes_with(message, headers);
    if bytes <= limit {
        return Ok(());
    }
    let text = format!("with these headers the message counts {bytes} bytes: the limit is {limit}");
    Err(error(Operation::Settle, ErrorKind::TooLarge, text))
}

/// A message that dies gets more headers, and may outgrow the limits by them: else one of the largest could not die.
fn replace_headers(message: &mut Message, headers: &Headers, ledger: &mut Ledger) {
    let bytes = bytes_with(message, headers);
    ledger.resize(message.bytes, bytes);
    message.bytes = bytes;
    message.data = message.data.clone().with_headers(headers.clone());
}
