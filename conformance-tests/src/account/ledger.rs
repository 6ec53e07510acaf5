//! The history, read as a book of accounts: what was pushed, held, removed and is still owed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{
    Action, CancelOutcome, DeleteOutcome, Delivery, ErrorKind, ExtendOutcome, Extension, Lease, MessageId,
    PartitionId, PushOutcome, Result, SettleOutcome, Settlement, When,
};

use crate::history::{Event, History, Op};

/// One delivery and how long it was certainly held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) delivery: Delivery,
    pub(super) client: Arc<str>,
    pub(super) from: PartitionId,
    pub(super) invoked: Instant,
    pub(super) returned: Instant,
    /// The pull's lease, as asked for.
    pub(super) lease: Duration,
    /// Until this moment nobody else may have had it.
    pub(super) sure_until: Instant,
    /// From this moment on somebody else must be able to have it, if nobody settled it.
    pub(super) back_by: Instant,
    pub(super) settled: bool,
}

/// What is known of one message.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// When the last push that answered `Stored` was sent.
    pub(super) stored: Option<Instant>,
    /// A push of it was dropped, or failed in a way that leaves open whether it took effect.
    pub(super) open: bool,
    /// It was refused for good.
    pub(super) refused: Option<ErrorKind>,
    /// It was answered `Duplicate`.
    pub(super) duplicate: bool,
    /// When each push of it was sent.
    pub(super) pushed: Vec<Instant>,
    /// When each confirmed removal was answered.
    pub(super) removed: Vec<Instant>,
    /// Where it may rightly be.
    pub(super) places: BTreeSet<PartitionId>,
    /// It was moved at least once.
    pub(super) moved: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: HashMap<MessageId, Entry>,
    pub(super) held: Vec<Held>,
    pub(super) partitions: BTreeSet<PartitionId>,
    pub(super) paused: BTreeSet<PartitionId>,
    pub(super) purged: usize,
    /// When the last delay ends.
    pub(super) mature_by: Option<Instant>,
    by_lease: HashMap<Lease, usize>,
}

impl Ledger {
    pub(super) fn of(history: &History) -> Self {
        let mut ledger = Self::default();
        for event in history.events() {
            ledger.enter(history, &event);
        }
        ledger
    }

    /// Messages that were acknowledged and not certainly removed since.
    pub(super) fn owed(&self) -> Vec<MessageId> {
        let owed = |entry: &Entry| {
            entry.stored.is_some_and(|stored| entry.removed.iter().all(|removed| *removed < stored))
        };
        let mut ids: Vec<_> =
            self.entries.iter().filter(|(_, entry)| owed(entry)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The latest moment at which something that is owed becomes available.
    pub(super) fn due_by(&self) -> Option<Instant> {
        let leases = self.held.iter().filter(|held| !held.settled).map(|held| held.back_by);
        leases.chain(self.mature_by).max()
    }

    fn enter(&mut self, history: &History, event: &Event) {
        match &event.op {
            Op::Push { partition, ids, outcomes } => self.push(history, event, partition, ids, outcomes),
            Op::Pull { partition, lease, outcome: Ok(got), .. } => self.pull(event, partition, *lease, got),
            Op::Pull { .. } | Op::Note(_) => {}
            Op::Settle { settlements, outcomes } => {
                for (position, settlement) in settlements.iter().enumerate() {
                    self.settle(event, settlement, outcomes.get(position));
                }
            }
            Op::Extend { extensions, outcomes } => {
                for (position, extension) in extensions.iter().enumerate() {
                    self.extend(event, extension, outcomes.get(position));
                }
            }
            Op::Delete { ids, outcomes, .. } => {
                self.gone(event, ids, outcomes, &DeleteOutcome::Deleted);
            }
            Op::Cancel { ids, outcomes, .. } => self.gone(event, ids, outcomes, &CancelOutcome::Removed),
            Op::Purge { outcome, .. } => self.purged += outcome.as_ref().map_or(0, |count| *count),
            Op::Pause { partition, paused: true } => {
                self.paused.insert(partition.clone());
            }
            Op::Pause { partition, paused: false } => {
                self.paused.remove(partition);
            }
            Op::Close => self.closed(event),
            Op::ChildTook { lease, .. } => self.mature_by = self.mature_by.max(Some(event.invoked + *lease)),
            Op::ChildRemoved { id } => self.entries.entry(*id).or_default().removed.extend(event.returned),
        }
    }

    fn push(
        &mut self,
        history: &History,
        event: &Event,
        partition: &PartitionId,
        ids: &[MessageId],
        outcomes: &[Result<PushOutcome>],
    ) {
        self.partitions.insert(partition.clone());
        for (position, id) in ids.iter().enumerate() {
            let entry = self.entries.entry(*id).or_default();
            entry.pushed.push(event.invoked);
            entry.places.insert(partition.clone());
            match outcomes.get(position) {
                Some(Ok(PushOutcome::Stored(_))) => entry.stored = Some(event.invoked),
                Some(Ok(PushOutcome::Duplicate(_))) => entry.duplicate = true,
                Some(Err(error)) => match error.kind() {
                    kind @ (ErrorKind::TooLarge
                    | ErrorKind::InvalidInput
                    | ErrorKind::Unsupported
                    | ErrorKind::Closed) => entry.refused = Some(kind),
                    _ => entry.open = true,
                },
                None => entry.open = true,
            }
            let delay = history.known(*id).and_then(|known| known.message.options().delay);
            if let (Some(When::In(delay)), Some(returned)) = (delay, event.returned) {
                self.mature_by = self.mature_by.max(returned.checked_add(delay));
            }
        }
    }

    fn pull(&mut self, event: &Event, from: &PartitionId, lease: Duration, got: &[Delivery]) {
        let Some(returned) = event.returned else { return };
        for delivery in got {
            self.by_lease.insert(delivery.lease.clone(), self.held.len());
            self.held.push(Held {
                delivery: delivery.clone(),
                client: event.client.clone(),
                from: from.clone(),
                invoked: event.invoked,
                returned,
                lease,
                sure_until: event.invoked + lease,
                back_by: returned + lease,
                settled: false,
            });
        }
    }

    fn settle(&mut self, event: &Event, settlement: &Settlement, outcome: Option<&Result<SettleOutcome>>) {
        if let Some(held) = self.by_lease.get(&settlement.lease).and_then(|index| self.held.get_mut(*index)) {
            held.sure_until = held.sure_until.min(event.invoked);
            held.settled |= matches!(outcome, Some(Ok(_)));
        }
        let settled = matches!(outcome, Some(Ok(SettleOutcome::Settled)));
        let entry = self.entries.entry(settlement.lease.id).or_default();
        match &settlement.action {
            Action::Remove if settled => entry.removed.extend(event.returned),
            Action::Move { to, .. } => {
                entry.places.insert(to.clone());
                entry.moved = true;
                self.partitions.insert(to.clone());
            }
            Action::Postpone { delay, .. } => {
                let returned = event.returned.unwrap_or(event.invoked);
                self.mature_by = self.mature_by.max(returned.checked_add(*delay));
            }
            Action::Remove | Action::Release | Action::Retry => {}
        }
    }

    fn extend(&mut self, event: &Event, extension: &Extension, outcome: Option<&Result<ExtendOutcome>>) {
        let Some(held) = self.by_lease.get(&extension.lease).and_then(|index| self.held.get_mut(*index))
        else {
            return;
        };
        match outcome {
            Some(Ok(ExtendOutcome::Extended | ExtendOutcome::CancelRequested)) => {
                if held.sure_until >= event.invoked {
                    held.sure_until = event.invoked + extension.duration;
                }
                held.back_by = event.returned.unwrap_or(event.invoked) + extension.duration;
            }
            Some(Ok(ExtendOutcome::Lost)) => held.sure_until = held.sure_until.min(event.invoked),
            Some(Err(_)) | None => {
                held.sure_until = held.sure_until.min(event.invoked);
                held.back_by = held.back_by.max(event.invoked + extension.duration);
            }
        }
    }

    fn gone<O: PartialEq>(&mut self, event: &Event, ids: &[MessageId], outcomes: &[Result<O>], removed: &O) {
        for (id, outcome) in ids.iter().zip(outcomes) {
            if outcome.as_ref().is_ok_and(|outcome| outcome == removed) {
                self.entries.entry(*id).or_default().removed.extend(event.returned);
            }
        }
    }

    /// What a client held when it closed may come back at once.
    fn closed(&mut self, event: &Event) {
        for held in self.held.iter_mut().filter(|held| held.client == event.client) {
            held.sure_until = held.sure_until.min(event.invoked);
        }
    }
}
