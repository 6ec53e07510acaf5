//! Successors, as columns of the statement that ends their deliveries.

use anyqueue::adapter::{Hint, Settlement, Successor};
use anyqueue::{PartitionId, Result};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use crate::config::Config;
use crate::limits::BATCH_BYTES;
use crate::record::EncodedMessage;
use crate::sql::{int, millis};

/// An encoded successor that is within the limits, and its partition.
#[derive(Debug)]
pub(crate) struct EncodedSuccessor<'s> {
    partition: &'s PartitionId,
    message: EncodedMessage,
}

/// Encodes the successors of a settlement.
pub(crate) fn encode<'s>(settlement: &'s Settlement, config: &Config) -> Result<Vec<EncodedSuccessor<'s>>> {
    if settlement.then.is_empty() {
        return Ok(Vec::new());
    }
    let now = config.clock.wall();
    let encode = |Successor { partition, message }: &'s Successor| {
        let message = EncodedMessage::of(message, config.message_bytes, now)?;
        Ok(EncodedSuccessor { partition, message })
    };
    settlement.then.iter().map(encode).collect()
}

impl EncodedSuccessor<'_> {
    /// Returns the hint for pulls that wait for it.
    pub(crate) fn hint(&self) -> (&PartitionId, Hint) {
        let delay = self.message.delay;
        (self.partition, if delay.is_zero() { Hint::ready(1) } else { Hint::due(delay) })
    }
}

/// Splits the successors of one settlement into parts that fit into a statement; there is nearly always only
/// one.
pub(crate) fn parts<'a, 's>(
    mut successors: &'a [EncodedSuccessor<'s>],
) -> impl Iterator<Item = &'a [EncodedSuccessor<'s>]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = successors.iter().take_while(|successor| {
            bytes += successor.message.body.len();
            bytes <= BATCH_BYTES
        });
        // A message that is larger by itself is sent nevertheless.
        let (part, rest) = successors.split_at_checked(fits.count().max(1))?;
        successors = rest;
        Some(part)
    })
}

/// The successors of some settlements, as columns. A column that none of them needs is empty.
#[derive(Default)]
pub(crate) struct SuccessorColumns<'a> {
    settlements: i32,
    /// The names of their partitions, sorted.
    names: Vec<&'a str>,
    owners: Vec<i32>,
    /// For each successor, the number of its partition's name, from 1.
    to: Vec<i32>,
    ids: Vec<Uuid>,
    lanes: Vec<i16>,
    delays_ms: Vec<i64>,
    groups: Vec<Option<&'a [u8]>>,
    keys: Vec<Option<&'a [u8]>>,
    bodies: Vec<&'a [u8]>,
    overs: Vec<i16>,
    urgents_ms: Vec<Option<i64>>,
}

impl<'a> SuccessorColumns<'a> {
    /// Columns for this many settlements. Each list has the number of its settlement, from 1.
    pub(crate) fn of(
        settlements: i32,
        lists: impl Iterator<Item = (i32, &'a [EncodedSuccessor<'a>])> + Clone,
    ) -> Self {
        let mut columns = Self { settlements, ..Self::default() };
        let all = lists.clone().flat_map(|(_, successors)| successors);
        columns.names = all.map(|successor| successor.partition.name()).collect();
        columns.names.sort_unstable();
        columns.names.dedup();
        for (owner, successors) in lists {
            for successor in successors {
                columns.add(owner, successor);
            }
        }
        columns.drop_unneeded();
        columns
    }

    fn add(&mut self, owner: i32, EncodedSuccessor { partition, message }: &'a EncodedSuccessor<'a>) {
        self.owners.push(owner);
        let (Ok(place) | Err(place)) = self.names.binary_search(&partition.name());
        self.to.push(int(place + 1));
        self.ids.push(message.id);
        self.lanes.push(message.lane);
        self.delays_ms.push(millis(message.delay));
        self.groups.push(message.group.as_deref());
        self.keys.push(message.key.as_deref());
        self.bodies.push(&message.body);
        self.overs.push(message.over);
        self.urgents_ms.push(message.urgent_after.map(millis));
    }

    fn drop_unneeded(&mut self) {
        if self.delays_ms.iter().all(|delay_ms| *delay_ms == 0) {
            self.delays_ms.clear();
        }
        if self.groups.iter().all(Option::is_none) {
            self.groups.clear();
        }
        if self.keys.iter().all(Option::is_none) {
            self.keys.clear();
        }
        if self.overs.iter().all(|over| *over == 0) {
            self.overs.clear();
        }
        if self.urgents_ms.iter().all(Option::is_none) {
            self.urgents_ms.clear();
        }
    }

    /// Binds the number of settlements, and the columns.
    pub(crate) fn bind(self, query: Query<'a, Postgres, PgArguments>) -> Query<'a, Postgres, PgArguments> {
        let query = query.bind(self.settlements).bind(self.names).bind(self.owners).bind(self.to);
        let query =
            query.bind(self.ids).bind(self.lanes).bind(self.delays_ms).bind(self.groups).bind(self.keys);
        query.bind(self.bodies).bind(self.overs).bind(self.urgents_ms)
    }
}
