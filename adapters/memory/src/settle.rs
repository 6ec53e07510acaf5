//! Settling and extending.

use std::time::Instant;

use anyqueue::adapter::{Action, Extension, Settlement, Successor};
use anyqueue::{Clock, ErrorKind, ExtendOutcome, Headers, Operation, PartitionId, Result, SettleOutcome};

use crate::ends::Ends;
use crate::error::{error, stamp};
use crate::limits::{LEASE, MAX_DELAY};
use crate::partition::{Attempt, Partition};
use crate::push::{Admitted, admit, headers_len, push_one};
use crate::record::Message;
use crate::series::Series;
use crate::state::{Occupancy, Room, State, enter, enter_or_make};
use crate::storage::MemoryQueue;

impl MemoryQueue {
    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms { max_message_bytes: self.max_message_bytes(), clock: &self.store.clock }
    }

    pub(crate) fn settle_batch(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Settle) {
            return vec![Err(closed); settlements.len()];
        }
        let settled = self.store.run(|state, now| state.settle(now, settlements, &self.terms()));
        settled.outcomes // what was removed is freed here, when the lock is free again
    }

    pub(crate) fn extend_batch(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        if let Err(closed) = self.ensure_open(Operation::Extend) {
            return vec![Err(closed); extensions.len()];
        }
        self.store.run(|state, now| extensions.iter().map(|extension| state.extend(now, extension)).collect())
    }
}

/// The results of a batch of settlements.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) outcomes: Vec<Result<SettleOutcome>>,
    removed: Vec<Box<Message>>,
}

/// The limits that apply to settlements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    max_message_bytes: u64,
    clock: &'a Clock,
}

/// Messages on their way into a partition. Nobody can see them missing, because the lock is held until they
/// have arrived.
type Arrivals<'a> = Vec<(&'a PartitionId, Arrival)>;

/// How a settlement brings a message into a partition.
#[derive(Debug)]
enum Arrival {
    Moved(Box<Message>),
    Successor(Admitted),
}

impl State {
    pub(crate) fn settle(&mut self, now: Instant, settlements: &[Settlement], terms: &Terms<'_>) -> Settled {
        let room = || Vec::with_capacity(settlements.len());
        let mut settled = Settled { outcomes: Vec::with_capacity(settlements.len()), removed: room() };
        // Most batches concern one partition: consecutive settlements of one partition look it up, and tidy
        // it, only once.
        for run in settlements.chunk_by(|a, b| a.lease.partition == b.lease.partition) {
            self.settle_run(now, run, terms, &mut settled);
        }
        settled
    }

    /// Settles deliveries of one partition.
    fn settle_run(&mut self, now: Instant, run: &[Settlement], terms: &Terms<'_>, settled: &mut Settled) {
        let Some(id) = run.first().map(|settlement| &settlement.lease.partition) else { return };
        let Self { partitions, occupancy, ends, series, .. } = self;
        let Some(partition) = enter(partitions, now, id) else {
            settled.outcomes.extend(run.iter().map(|_| Ok(SettleOutcome::Lost)));
            return;
        };
        let (arrivals, reserved) = (Arrivals::new(), Room::default());
        let mut step = Step { now, partition, occupancy, ends, series, terms, arrivals, reserved };
        for settlement in run {
            let done = step.settle(settlement, &mut settled.removed);
            settled
                .outcomes
                .push(done.map(|done| done.map_or(SettleOutcome::Lost, |()| SettleOutcome::Settled)));
        }
        let arrivals = step.arrivals;
        self.tidy(id);
        for (to, arrival) in arrivals {
            self.arrive(now, to, arrival);
            self.tidy(to);
        }
    }

    fn arrive(&mut self, now: Instant, to: &PartitionId, arrival: Arrival) {
        let partition = enter_or_make(&mut self.partitions, now, to);
        match arrival {
            Arrival::Moved(message) => partition.accept(message),
            Arrival::Successor(admitted) => {
                let pushed = push_one(partition, &mut self.occupancy, now, admitted);
                debug_assert!(pushed.is_ok(), "there was room: {pushed:?}"); // a duplicate is left out
            }
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

/// The context of one settlement.
struct Step<'s, 'a> {
    now: Instant,
    partition: &'s mut Partition,
    occupancy: &'s mut Occupancy,
    ends: &'s mut Ends,
    series: &'s mut Series,
    terms: &'s Terms<'s>,
    arrivals: Arrivals<'a>,
    /// The room that the successors among the arrivals need.
    reserved: Room,
}

impl<'a> Step<'_, 'a> {
    /// Settles one delivery. Returns `None` if the lease is lost.
    fn settle(&mut self, settlement: &'a Settlement, removed: &mut Vec<Box<Message>>) -> Result<Option<()>> {
        if settlement.then.is_empty() {
            return self.act(settlement, removed);
        }
        let (id, token) = (settlement.lease.id, &settlement.lease.token);
        let Some(message) = self.partition.held(id, token) else { return Ok(None) };
        let leaves = settlement.action == Action::Remove;
        let freed = if leaves { Room { messages: 1, bytes: message.bytes } } else { Room::default() };
        let (wall, limit) = (self.terms.clock.wall(), self.terms.max_message_bytes);
        let admit = |successor: &'a Successor| {
            let admitted = admit(&successor.message, limit, self.now, wall)?;
            Ok((&successor.partition, Arrival::Successor(admitted)))
        };
        let successors = settlement.then.iter().map(admit).collect::<Result<Arrivals<'_>>>()?;
        let needed = self.reserved.with(successors.iter().filter_map(|(_, arrival)| match arrival {
            Arrival::Successor(admitted) => Some(admitted.message.bytes),
            Arrival::Moved(_) => None,
        }));
        self.occupancy.check_room(needed, freed)?;
        let done = self.act(settlement, removed)?;
        if done.is_some() {
            self.reserved = needed;
            self.arrivals.extend(successors);
        }
        Ok(done)
    }

    /// Performs the action. Returns `None` if the lease is lost.
    fn act(&mut self, settlement: &'a Settlement, removed: &mut Vec<Box<Message>>) -> Result<Option<()>> {
        let (id, token) = (settlement.lease.id, &settlement.lease.token);
        // The end that is stored and the one that is counted have the same moment.
        let ends_at = settlement.end.as_ref().map(|_| self.terms.clock.wall());
        let done = match &settlement.action {
            Action::Remove => self.partition.take(id, token).map(|message| {
                if let (Some(end), Some(at)) = (settlement.stored_end(), ends_at) {
                    self.ends.store(&settlement.lease.partition, id, end, at);
                }
                self.occupancy.leave(&message);
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
                    check_size(message, headers, self.terms.max_message_bytes)?;
                    replace_headers(message, headers, self.occupancy);
                }
                self.partition.postpone(self.now, id, token, *delay)
            }
            Action::Move { to, headers } => self.partition.take(id, token).map(|mut message| {
                if let Some(headers) = headers {
                    replace_headers(&mut message, headers, self.occupancy);
                }
                self.arrivals.push((to, Arrival::Moved(message)));
            }),
        };
        if done.is_some()
            && let (Some(end), Some(at)) = (settlement.counted_end(), ends_at)
        {
            self.series.count(&settlement.lease.partition, end, at);
        }
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

/// Replaces a message's headers. A message that becomes a dead letter gets more headers, and may exceed the
/// limit because of them; otherwise one of the largest could not be moved.
fn replace_headers(message: &mut Message, headers: &Headers, occupancy: &mut Occupancy) {
    let bytes = bytes_with(message, headers);
    occupancy.resize(message.bytes, bytes);
    message.bytes = bytes;
    message.data = message.data.clone().with_headers(headers.clone());
}
