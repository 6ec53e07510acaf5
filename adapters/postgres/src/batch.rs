//! Batches of messages to be stored, and their answers.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::Hint;
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, Result};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use uuid::Uuid;

use crate::config::Config;
use crate::record::EncodedMessage;
use crate::sql::{Statements, Text, get, millis};

/// The wire size of a message's id, lane and lengths.
const PLAIN_BYTES: usize = 32;

/// Encoded messages, as columns. A column that no message needs is empty.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    ids: Vec<Uuid>,
    lanes: Vec<i16>,
    delays_ms: Vec<i64>,
    groups: Vec<Option<Vec<u8>>>,
    keys: Vec<Option<Vec<u8>>>,
    bodies: Vec<Vec<u8>>,
    overs: Vec<i16>,
    urgents_ms: Vec<Option<i64>>,
}

/// A batch to store, with the id of each message, or an error.
pub(crate) struct Batch {
    verdicts: Vec<Result<MessageId>>,
    columns: Columns,
    least_delay: Option<Duration>,
    ready_now: usize,
}

impl Batch {
    /// Encodes the messages that are within the limits.
    pub(crate) fn prepare<'m>(
        messages: impl ExactSizeIterator<Item = Result<&'m MessageData>>,
        config: &Config,
    ) -> Self {
        let now = config.clock.wall();
        let (verdicts, columns) =
            (Vec::with_capacity(messages.len()), Columns::with_capacity(messages.len()));
        let mut batch = Self { verdicts, columns, least_delay: None, ready_now: 0 };
        for message in messages {
            let verdict = message.and_then(|message| batch.add(message, config.message_bytes, now));
            batch.verdicts.push(verdict);
        }
        batch.columns.drop_unneeded();
        batch
    }

    fn add(&mut self, message: &MessageData, message_bytes: u64, now: SystemTime) -> Result<MessageId> {
        let EncodedMessage { id, lane, delay, urgent_after, group, key, body, over } =
            EncodedMessage::of(message, message_bytes, now)?;
        if delay.is_zero() {
            self.ready_now += 1;
        } else {
            self.least_delay = Some(self.least_delay.map_or(delay, |least| least.min(delay)));
        }
        let columns = &mut self.columns;
        columns.ids.push(id);
        columns.lanes.push(lane);
        columns.delays_ms.push(millis(delay));
        columns.groups.push(group);
        columns.keys.push(key);
        columns.bodies.push(body);
        columns.overs.push(over);
        columns.urgents_ms.push(urgent_after.map(millis));
        Ok(message.id())
    }

    /// Whether there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.ids.is_empty()
    }

    /// The statement that stores any messages, whether or not they exist already.
    pub(crate) fn query(
        &self,
        statements: &Statements,
        partition: &PartitionId,
    ) -> Query<'_, Postgres, PgArguments> {
        self.bind(&statements.push, &statements.push_over, partition)
    }

    /// The same for a transaction of the application.
    pub(crate) fn query_in(
        &self,
        statements: &Statements,
        partition: &PartitionId,
    ) -> Query<'_, Postgres, PgArguments> {
        self.bind(&statements.push_in, &statements.push_over_in, partition)
    }

    /// Binds the columns. Dead letters have no deduplication, so nothing is replaced there.
    fn bind(
        &self,
        push: &Text,
        push_over: &Text,
        partition: &PartitionId,
    ) -> Query<'_, Postgres, PgArguments> {
        let Columns { ids, lanes, delays_ms, groups, keys, bodies, overs, urgents_ms } = &self.columns;
        let is_over = !overs.is_empty() && !partition.is_dead_letters();
        let mut query = if is_over { push_over } else { push }.query().bind(partition.name().to_owned());
        if !is_over {
            query = query.bind(partition.is_dead_letters());
        }
        query = query.bind(ids).bind(lanes).bind(delays_ms).bind(groups).bind(keys).bind(bodies);
        if is_over {
            query = query.bind(overs);
        }
        query.bind(urgents_ms)
    }

    /// The statement for messages without delay, group, key and urgency, none of which exists already. It
    /// takes half the time.
    pub(crate) fn plain_query(
        &self,
        statements: &Statements,
        partition: &PartitionId,
    ) -> Option<Query<'_, Postgres, PgArguments>> {
        let Columns { ids, lanes, delays_ms, groups, keys, bodies, urgents_ms, .. } = &self.columns;
        if !(delays_ms.is_empty() && groups.is_empty() && keys.is_empty() && urgents_ms.is_empty()) {
            return None;
        }
        let query = statements.push_plain.query_of(self.columns.plain_bytes());
        let query = query.bind(partition.name().to_owned()).bind(partition.is_dead_letters());
        Some(query.bind(ids).bind(lanes).bind(bodies))
    }

    /// Whether this number of rows is the number of all messages.
    pub(crate) fn is_all(&self, rows: u64) -> bool {
        usize::try_from(rows) == Ok(self.columns.ids.len())
    }

    /// Returns one result per message, and the hint for waiting pulls.
    pub(crate) fn answers(self, rows: &[PgRow]) -> Result<(Vec<Result<PushOutcome>>, Hint)> {
        let hint = Hint { ready: self.ready_now, due: self.least_delay };
        let mut known = rows.iter().map(|row| Ok((get(row, 0)?, not_stored(row)?)));
        let mut next: Option<(i32, _)> = known.next().transpose()?;
        let (mut outcomes, mut number) = (Vec::with_capacity(self.verdicts.len()), 0);
        for verdict in self.verdicts {
            let id = match verdict {
                Ok(id) => id,
                Err(error) => {
                    outcomes.push(Err(error));
                    continue;
                }
            };
            number += 1;
            match next {
                Some((told, outcome)) if told == number => {
                    outcomes.push(Ok(outcome));
                    next = known.next().transpose()?;
                }
                _ => outcomes.push(Ok(PushOutcome::Stored(id))),
            }
        }
        Ok((outcomes, hint))
    }

    /// Returns the results if nothing was stored: valid messages get this error.
    pub(crate) fn failed(self, error: &anyqueue::Error) -> Vec<Result<PushOutcome>> {
        let answer = |verdict: Result<MessageId>| verdict.and_then(|_| Err(error.clone()));
        self.verdicts.into_iter().map(answer).collect()
    }
}

/// The outcome for a message that was not stored. Only a statement that may replace others says whether it did.
fn not_stored(row: &PgRow) -> Result<PushOutcome> {
    let other = get::<Option<Uuid>>(row, 1)?.map(|id| MessageId::from_bytes(*id.as_bytes()));
    match other {
        Some(other) if row.len() > 2 && get(row, 2)? => Ok(PushOutcome::Replaced(other)),
        other => Ok(PushOutcome::Duplicate(other)),
    }
}

impl Columns {
    fn with_capacity(messages: usize) -> Self {
        Self {
            ids: Vec::with_capacity(messages),
            lanes: Vec::with_capacity(messages),
            delays_ms: Vec::with_capacity(messages),
            groups: Vec::with_capacity(messages),
            keys: Vec::with_capacity(messages),
            bodies: Vec::with_capacity(messages),
            overs: Vec::with_capacity(messages),
            urgents_ms: Vec::with_capacity(messages),
        }
    }

    /// The approximate wire size of the columns of plain messages.
    fn plain_bytes(&self) -> usize {
        self.bodies.iter().map(|body| body.len() + PLAIN_BYTES).sum()
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
}
