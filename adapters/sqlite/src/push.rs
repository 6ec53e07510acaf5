//! Storing messages.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyqueue::{Clock, Envelope, ErrorKind, MessageData, MessageId, PushOutcome, Result};
use sqlx::sqlite::SqliteRow;

use crate::capabilities::{MAX_DELAY, PRIORITY_LEVELS};
use crate::changes::{Ready, Timed};
use crate::error::{invalid, own};
use crate::sql::{Listed, MAX_ROWS, Statement, get, tuples, values};
use crate::tx::{DELAYED, Tx};

/// Parameters of one message in each of the two statements of [`INSERT`].
const WIDTH: usize = 7;

/// Stores messages, and makes ready those of them that the second list names.
static INSERT: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "INSERT INTO anyqueue_message (seq, part, rank, pos, id, grp, dedup, body)
             SELECT column1, column2, column3, column1, column4, column5, column6, column7 FROM (VALUES {})
             WHERE column1 IS NOT NULL;
             INSERT INTO anyqueue_ready (part, rank, pos, seq, deliveries, cancel, head)
             SELECT column1, column2, column3, column3, 0, 0, 0 FROM (VALUES {}) WHERE column1 IS NOT NULL",
            tuples(n, WIDTH),
            tuples(n, 3)
        )
    })
});
static KNOWN_IDS: LazyLock<Listed> =
    LazyLock::new(|| Listed::new(|n| format!("SELECT id FROM anyqueue_message WHERE id IN ({})", values(n))));
static KNOWN_KEYS: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "SELECT m.part, m.dedup, m.id FROM (VALUES {}) v CROSS JOIN anyqueue_message m
             ON m.part = v.column1 AND m.dedup = v.column2",
            tuples(n, 2)
        )
    })
});

/// A message ready to be stored.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    id: MessageId,
    rank: i64,
    delay: Duration,
    group: Option<Arc<str>>,
    dedup: Option<Arc<str>>,
    body: Vec<u8>,
}

impl NewMessage {
    /// Encodes a message, if it is within the limits.
    pub(crate) fn prepare(message: &MessageData, message_bytes: u64, clock: &Clock) -> Result<Self> {
        let options = message.options();
        if options.priority >= PRIORITY_LEVELS {
            let highest = PRIORITY_LEVELS - 1;
            return Err(invalid(format!("priority {} is out of range: 0 to {highest}", options.priority)));
        }
        let encoded_bytes = Envelope::max_encoded_len(message);
        if encoded_bytes > message_bytes {
            let text = format!(
                "the message takes {encoded_bytes} bytes in encoded form: at most {message_bytes} are allowed"
            );
            return Err(own(ErrorKind::TooLarge, text));
        }
        let now = clock.wall();
        let delay = message.delay(now);
        if delay > MAX_DELAY {
            return Err(invalid("the delay is longer than the capabilities allow"));
        }
        Ok(Self {
            id: message.id(),
            rank: i64::from(PRIORITY_LEVELS - 1 - options.priority),
            delay,
            group: options.group.clone(),
            dedup: options.dedup_key.clone(),
            body: Envelope::new(message.clone(), now).encode()?,
        })
    }

    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

/// One message on its way in.
struct Entry<'m> {
    seq: i64,
    part: i64,
    live: bool,
    message: &'m NewMessage,
}

impl Entry<'_> {
    fn key(&self) -> Option<Arc<str>> {
        self.message.dedup.clone().filter(|_| self.live)
    }

    fn group(&self) -> Option<Arc<str>> {
        self.message.group.clone().filter(|_| self.live)
    }

    fn at_once(&self) -> bool {
        self.message.delay.is_zero() && self.group().is_none()
    }

    fn bind(&self, query: Statement) -> Statement {
        let message = self.message;
        let query =
            query.bind(self.seq).bind(self.part).bind(message.rank).bind(message.id.as_bytes().to_vec());
        query.bind(message.group.clone()).bind(self.key()).bind(message.body.clone())
    }
}

/// Stores messages of any partitions, in order; answers each.
///
/// Most pushes are new, so nothing is asked beforehand unless `careful`: where a message is there already, the transaction
/// fails with a [conflict](crate::error::is_conflict) and is to be repeated with care.
pub(crate) async fn store(
    tx: &mut Tx<'_>,
    messages: &[(i64, &NewMessage)],
    careful: bool,
) -> Result<Vec<PushOutcome>> {
    let mut outcomes = Vec::with_capacity(messages.len());
    for chunk in messages.chunks(MAX_ROWS) {
        let mut entries = Vec::with_capacity(chunk.len());
        for (part, message) in chunk {
            entries.push(Entry { seq: tx.position(), part: *part, live: tx.is_live(*part), message });
        }
        if careful {
            let answers;
            (entries, answers) = sift(tx, entries).await?;
            outcomes.extend(answers);
        } else {
            outcomes.extend(entries.iter().map(|entry| PushOutcome::Stored(entry.message.id)));
        }
        if !entries.is_empty() {
            insert(tx, &entries).await?;
            place(tx, &entries);
        }
    }
    Ok(outcomes)
}

async fn insert(tx: &mut Tx<'_>, entries: &[Entry<'_>]) -> Result<()> {
    let query = INSERT.of(entries.len()).bind_each(entries, |query, entry| entry.bind(query));
    let query = query.bind_nulls(Listed::padding(entries.len()) * WIDTH);
    let ready = entries.iter().filter(|entry| entry.at_once());
    let bind =
        |query: Statement, entry: &Entry<'_>| query.bind(entry.part).bind(entry.message.rank).bind(entry.seq);
    tx.write(query.bind_each(ready, bind)).await
}

/// Puts those that were stored, but not made ready, where they belong.
fn place(tx: &mut Tx<'_>, entries: &[Entry<'_>]) {
    for entry in entries {
        let Entry { seq, part, message, .. } = *entry;
        if !message.delay.is_zero() {
            let at_ms = tx.now.after(message.delay);
            let timed =
                Timed { seq, part, at_ms, state: DELAYED, deliveries: 0, cancel: 0, head: 0, token: None };
            tx.changes.timed.push(timed);
        } else if let Some(group) = entry.group() {
            let ready = Ready { part, rank: message.rank, pos: seq, seq, deliveries: 0, cancel: 0, head: 1 };
            tx.changes.enter(ready, Some(group));
        } else {
            tx.hint_ready(part);
        }
    }
}

/// Tells new messages from those whose id or key is there already, in the file or earlier in the list.
async fn sift<'m>(tx: &mut Tx<'_>, entries: Vec<Entry<'m>>) -> Result<(Vec<Entry<'m>>, Vec<PushOutcome>)> {
    let id_of = |row: &SqliteRow, column| -> Result<MessageId> {
        let bytes: Vec<u8> = get(row, column)?;
        let bytes = <[u8; 16]>::try_from(bytes)
            .map_err(|_| own(ErrorKind::Corrupt, "a stored id is not of 16 bytes"))?;
        Ok(MessageId::from_bytes(bytes))
    };
    let bind = |query: Statement, entry: &Entry<'_>| query.bind(entry.message.id.as_bytes().to_vec());
    let query = KNOWN_IDS.of(entries.len()).bind_each(&entries, bind);
    let mut ids = HashSet::new();
    for row in tx.rows(query).await? {
        ids.insert(id_of(&row, 0)?);
    }
    let bind = |query: Statement, entry: &Entry<'_>| query.bind(entry.part).bind(entry.key());
    let query = KNOWN_KEYS.of(entries.len()).bind_each(&entries, bind);
    let mut keys = HashMap::new();
    for row in tx.rows(query).await? {
        keys.insert((get::<i64>(&row, 0)?, Arc::from(get::<String>(&row, 1)?)), id_of(&row, 2)?);
    }
    let (mut fresh, mut answers) = (Vec::new(), Vec::new());
    for entry in entries {
        let id = entry.message.id;
        let key = entry.key().map(|key| (entry.part, key));
        if ids.contains(&id) {
            answers.push(PushOutcome::Duplicate(Some(id)));
        } else if let Some(first) = key.as_ref().and_then(|key| keys.get(key)) {
            answers.push(PushOutcome::Duplicate(Some(*first)));
        } else {
            ids.insert(id);
            keys.extend(key.map(|key| (key, id)));
            answers.push(PushOutcome::Stored(id));
            fresh.push(entry);
        }
    }
    Ok((fresh, answers))
}

/// Tells good messages from bad ones.
pub(crate) fn part_good(
    prepared: impl Iterator<Item = Result<NewMessage>>,
) -> (Vec<Result<()>>, Vec<NewMessage>) {
    let mut good = Vec::new();
    let verdicts = prepared.map(|message| message.map(|message| good.push(message))).collect();
    (verdicts, good)
}

/// Puts the outcomes of good messages between the errors of bad ones.
pub(crate) fn answers(verdicts: Vec<Result<()>>, outcomes: Vec<PushOutcome>) -> Vec<Result<PushOutcome>> {
    let missing = || own(ErrorKind::Internal, "a pushed message got no answer");
    let mut outcomes = outcomes.into_iter();
    verdicts.into_iter().map(|verdict| verdict.and_then(|()| outcomes.next().ok_or_else(missing))).collect()
}

/// The texts of all statements here, for looking at their plans.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static Listed> {
    vec![&INSERT, &KNOWN_IDS, &KNOWN_KEYS]
}
