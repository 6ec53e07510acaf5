//! Successors: messages that are stored with the end of a delivery.

use std::collections::{HashMap, HashSet};

use anyqueue::adapter::Successor;
use anyqueue::{ErrorKind, MessageId, PartitionId, Result};

use crate::config::Config;
use crate::error::ERRORS;
use crate::limits::{BATCH, SUCCESSOR_BYTES};
use crate::link::Call;
use crate::rows::{Row, Rows};

/// A successor's partition, and its encoded form.
pub(crate) type Placed<'s> = (&'s PartitionId, Row);

/// Encodes the successors of one settlement. They are stored with this server time and those that follow it.
pub(crate) fn encode<'s>(then: &'s [Successor], config: &Config, at_us: u64) -> Result<Vec<Placed<'s>>> {
    let (mut placed, mut bytes) = (Vec::with_capacity(then.len()), 0);
    for (Successor { partition, message }, at_us) in then.iter().zip(at_us..) {
        let row = Row::encode(message, partition, config, at_us)?;
        bytes += row.bytes();
        placed.push((partition, row));
    }
    if bytes > SUCCESSOR_BYTES {
        let text = format!(
            "the successors of one delivery have {bytes} bytes together: at most {SUCCESSOR_BYTES} are allowed"
        );
        return Err(ERRORS.error(ErrorKind::TooLarge, text));
    }
    Ok(placed)
}

/// The successors of several settlements.
#[derive(Default)]
pub(crate) struct Groups<'s> {
    partitions: Vec<PartitionGroups<'s>>,
    /// The index of each partition among these.
    places: HashMap<&'s PartitionId, usize>,
    /// The server time at which they are stored.
    at_us: u64,
}

struct PartitionGroups<'s> {
    partition: &'s PartitionId,
    groups: Vec<Group>,
}

/// Successors that are stored in one step. No id occurs in it twice, because whether the second is stored
/// depends on the first.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) rows: Rows,
    /// For each row, the index of its settlement.
    pub(crate) owners: Vec<usize>,
    ids: HashSet<MessageId>,
}

impl<'s> Groups<'s> {
    /// Adds the successors of this settlement, which are stored at this server time.
    pub(crate) fn add(&mut self, owner: usize, successors: Vec<Placed<'s>>, at_us: u64) {
        self.at_us = at_us;
        for (partition, row) in successors {
            let next = self.partitions.len();
            let place = *self.places.entry(partition).or_insert(next);
            if place == next {
                self.partitions.push(PartitionGroups { partition, groups: Vec::new() });
            }
            if let Some(groups) = self.partitions.get_mut(place) {
                groups.add(owner, row);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Returns the groups. Those of one partition are in the order in which they are stored.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'s PartitionId, &Group)> {
        self.partitions.iter().flat_map(|one| one.groups.iter().map(|group| (one.partition, group)))
    }

    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }

    /// Returns the indexes of their settlements.
    pub(crate) fn owners(&self) -> impl Iterator<Item = usize> {
        self.iter().flat_map(|(_, group)| group.owners.iter().copied())
    }

    /// Returns their partitions, each once. The keys of their states follow in this order after the other
    /// keys of a script.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &'s PartitionId> {
        self.partitions.iter().map(|one| one.partition)
    }

    /// Returns the approximate number and size of the arguments.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.iter().fold((0, 0), |(args, bytes), (_, group)| {
            let (more, more_bytes) = group.rows.size();
            (args + more, bytes + more_bytes + 2 * group.owners.len())
        })
    }

    /// Adds the arguments. `numbers` are those of the settlements' answers, from 1.
    pub(crate) fn add_to(&self, call: &mut Call, caller: &str, numbers: &HashMap<usize, u16>) {
        call.int(self.at_us).arg(caller.as_bytes());
        for (key, one) in (FIRST_KEY..).zip(&self.partitions) {
            for group in &one.groups {
                let number = |owner| numbers.get(owner).copied().unwrap_or_default();
                let owners: Vec<_> =
                    group.owners.iter().flat_map(|owner| number(owner).to_be_bytes()).collect();
                group.rows.add_to(call.int(key), &owners);
            }
        }
    }
}

/// The number of the first partition's state among the keys of a script.
const FIRST_KEY: u64 = 3;

impl PartitionGroups<'_> {
    /// Adds a message to the last group, or to a new one.
    fn add(&mut self, owner: usize, row: Row) {
        let has_room = |group: &&mut Group| group.rows.len() < BATCH && !group.ids.contains(&row.id());
        if let Some(group) = self.groups.last_mut().filter(has_room) {
            group.add(owner, row);
        } else {
            let mut group = Group::default();
            group.add(owner, row);
            self.groups.push(group);
        }
    }
}

impl Group {
    fn add(&mut self, owner: usize, row: Row) {
        self.ids.insert(row.id());
        self.owners.push(owner);
        self.rows.add(row);
    }
}
