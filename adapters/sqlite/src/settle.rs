//! Ending and extending leases.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use anyqueue::{
    Action, Bytes, Envelope, ExtendOutcome, Extension, Headers, Lease, PartitionId, Result, SettleOutcome,
    Settlement, Token,
};

use crate::capabilities::{MAX_DELAY, MAX_LEASE, MIN_LEASE};
use sqlx::sqlite::SqliteRow;

use crate::changes::{Ready, Timed};
use crate::due::move_to_end;
use crate::error::invalid;
use crate::sql::{Listed, MAX_ROWS, Statement, get, repeated, values};
use crate::tx::{LEASED, Now, POSTPONED, Tx};

/// In one row: each row of an answer may wake the writer's thread, which costs more than finding it.
static HELD: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "SELECT group_concat(concat_ws(' ', seq, part, deliveries, cancel, head, hex(token)), ',') FROM anyqueue_timed
             WHERE at_ms > ? AND state = {LEASED} AND seq IN ({})",
            values(n)
        )
    })
});
static PLACES: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| format!("SELECT seq, rank, pos, grp FROM anyqueue_message WHERE seq IN ({})", values(n)))
});
static BODIES: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| format!("SELECT seq, body FROM anyqueue_message WHERE seq IN ({})", values(n)))
});
static REPLACE_BODY: LazyLock<Listed> =
    LazyLock::new(|| Listed::new(|n| repeated(n, "UPDATE anyqueue_message SET body = ? WHERE seq = ?")));
static MOVE: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| repeated(n, "UPDATE anyqueue_message SET part = ?, pos = ?, dedup = NULL WHERE seq = ?"))
});

/// A lease's proof: where the message is, then the 128 random bits of the claim.
pub(crate) fn token(seq: i64, secret: u128) -> Token {
    Token::from_bytes([&seq.to_be_bytes()[..], &secret.to_be_bytes()].concat())
}

fn split(token: &Token) -> Option<(i64, u128)> {
    let (seq, secret) = token.as_bytes().split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*seq), u128::from_be_bytes(secret.try_into().ok()?)))
}

/// A message under a lease that has not run out.
struct Held {
    /// Its place is known only where it was asked for, or it is the head of a group.
    ready: Ready,
    secret: u128,
    group: Option<Arc<str>>,
}

impl Held {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (seq, part, deliveries, cancel, head) = (number()?, number()?, number()?, number()?, number()?);
        let ready = Ready { part, rank: 0, pos: 0, seq, deliveries, cancel, head };
        Some(Self { ready, secret: u128::from_str_radix(words.next()?, 16).ok()?, group: None })
    }
}

/// The leases that requests are about, before they are looked at: which messages, and whether their place is needed.
#[derive(Default)]
pub(crate) struct Asked<'l> {
    leases: Vec<&'l Lease>,
    placed: BTreeMap<i64, bool>,
}

impl<'l> Asked<'l> {
    pub(crate) fn ask(&mut self, lease: &'l Lease, place: bool) {
        self.leases.push(lease);
        if let Some((seq, _)) = split(&lease.token) {
            *self.placed.entry(seq).or_insert(false) |= place;
        }
    }

    /// The question that finds them, if it is short enough to be asked as a transaction begins.
    pub(crate) fn question(&self, now: Now) -> Option<Statement> {
        let seqs: Vec<i64> = self.placed.keys().copied().collect();
        (1..=MAX_ROWS).contains(&seqs.len()).then(|| held(now, &seqs))
    }
}

fn held(now: Now, seqs: &[i64]) -> Statement {
    HELD.of(seqs.len()).bind(now.ms).bind_each(seqs, |query, seq| query.bind(*seq))
}

/// The leases that hold. A lease is taken out when it ends, so that a second try finds it lost.
#[derive(Default)]
pub(crate) struct Leases {
    held: HashMap<i64, Held>,
    parts: HashMap<PartitionId, Option<i64>>,
}

impl Leases {
    /// Reads them, unless `answer` has them already.
    pub(crate) async fn load(
        tx: &mut Tx<'_>,
        asked: &Asked<'_>,
        answer: Option<&[SqliteRow]>,
    ) -> Result<Self> {
        let mut leases = Self::default();
        for lease in &asked.leases {
            if !leases.parts.contains_key(&lease.partition) {
                leases.parts.insert(lease.partition.clone(), tx.find(&lease.partition).await?);
            }
        }
        if let Some(rows) = answer {
            leases.read(rows)?;
        } else {
            let seqs: Vec<i64> = asked.placed.keys().copied().collect();
            for chunk in seqs.chunks(MAX_ROWS) {
                let rows = tx.rows(held(tx.now, chunk)).await?;
                leases.read(&rows)?;
            }
        }
        let wants = |held: &&Held| held.ready.head == 1 || asked.placed.get(&held.ready.seq) == Some(&true);
        let wanted: Vec<i64> = leases.held.values().filter(wants).map(|held| held.ready.seq).collect();
        leases.place(tx, &wanted).await?;
        Ok(leases)
    }

    fn read(&mut self, rows: &[SqliteRow]) -> Result<()> {
        for row in rows {
            let found = get::<Option<String>>(row, 0)?.unwrap_or_default();
            self.held.extend(found.split(',').filter_map(Held::read).map(|held| (held.ready.seq, held)));
        }
        Ok(())
    }

    async fn place(&mut self, tx: &mut Tx<'_>, wanted: &[i64]) -> Result<()> {
        for chunk in wanted.chunks(MAX_ROWS) {
            let query = PLACES.of(chunk.len()).bind_each(chunk, |query, seq| query.bind(*seq));
            for row in tx.rows(query).await? {
                if let Some(held) = self.held.get_mut(&get::<i64>(&row, 0)?) {
                    (held.ready.rank, held.ready.pos) = (get(&row, 1)?, get(&row, 2)?);
                    held.group = get::<Option<String>>(&row, 3)?.map(Arc::from);
                }
            }
        }
        Ok(())
    }

    fn proves(&self, lease: &Lease) -> Option<i64> {
        let (seq, secret) = split(&lease.token)?;
        let held = self.held.get(&seq)?;
        let part = self.parts.get(&lease.partition).copied().flatten();
        (held.secret == secret && part == Some(held.ready.part)).then_some(seq)
    }

    fn get(&self, lease: &Lease) -> Option<&Held> {
        self.held.get(&self.proves(lease)?)
    }

    fn take(&mut self, lease: &Lease) -> Option<Held> {
        let seq = self.proves(lease)?;
        self.held.remove(&seq)
    }
}

/// Changes beyond those of place.
#[derive(Default)]
struct Rewrites {
    to_end: Vec<(i64, i64)>,
    moves: Vec<(i64, i64, i64)>,
    headers: Vec<(i64, Headers)>,
}

/// Settles, in order.
pub(crate) async fn settle(
    tx: &mut Tx<'_>,
    leases: &mut Leases,
    settlements: &[Settlement],
) -> Result<Vec<Result<SettleOutcome>>> {
    let mut rewrites = Rewrites::default();
    let mut outcomes = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        if let Action::Postpone { delay, .. } = &settlement.action
            && *delay > MAX_DELAY
        {
            outcomes.push(Err(invalid("the delay is longer than the capabilities allow")));
            continue;
        }
        let Some(held) = leases.take(&settlement.lease) else {
            outcomes.push(Ok(SettleOutcome::Lost));
            continue;
        };
        act(tx, held, &settlement.action, &mut rewrites).await?;
        outcomes.push(Ok(SettleOutcome::Settled));
    }
    rewrites.write(tx).await?;
    Ok(outcomes)
}

async fn act(tx: &mut Tx<'_>, held: Held, action: &Action, rewrites: &mut Rewrites) -> Result<()> {
    let Held { mut ready, group, .. } = held;
    let seq = ready.seq;
    if matches!(action, Action::Release | Action::Postpone { .. }) {
        ready.deliveries -= 1; // what was let go is no attempt
    }
    let leaves = group.clone().filter(|_| ready.head == 1).map(|group| (ready.part, group));
    match action {
        Action::Remove => {
            tx.changes.removed.push(seq);
            tx.changes.freed.extend(leaves);
        }
        Action::Release | Action::Retry => {
            tx.changes.untimed.push(seq);
            tx.changes.ready.push(ready.in_front());
        }
        Action::Postpone { delay, headers } => {
            rewrites.headers.extend(headers.clone().map(|headers| (seq, headers)));
            if delay.is_zero() {
                ready.pos = tx.position();
                rewrites.to_end.push((seq, ready.pos));
                tx.changes.untimed.push(seq);
                tx.changes.ready.push(ready);
            } else {
                let Ready { part, deliveries, cancel, head, .. } = ready;
                let at_ms = tx.now.after(*delay);
                let state = POSTPONED;
                tx.changes.timed.push(Timed {
                    seq,
                    part,
                    at_ms,
                    state,
                    deliveries,
                    cancel,
                    head,
                    token: None,
                });
            }
        }
        Action::Move { to, headers } => {
            rewrites.headers.extend(headers.clone().map(|headers| (seq, headers)));
            tx.changes.untimed.push(seq);
            tx.changes.freed.extend(leaves);
            let part = tx.make_used(to).await?;
            let pos = tx.position();
            rewrites.moves.push((seq, part, pos));
            let joins = group.filter(|_| tx.is_live(part)); // whether or not groups counted where it comes from
            tx.changes.enter(Ready { part, pos, deliveries: 0, cancel: 0, head: 0, ..ready }, joins);
        }
    }
    Ok(())
}

impl Rewrites {
    async fn write(self, tx: &mut Tx<'_>) -> Result<()> {
        move_to_end(tx, &self.to_end).await?;
        for chunk in self.moves.chunks(MAX_ROWS) {
            let bind = |query: Statement, (seq, part, pos): &(i64, i64, i64)| {
                query.bind(*part).bind(*pos).bind(*seq)
            };
            tx.write(MOVE.of(chunk.len()).bind_each(chunk, bind)).await?;
        }
        for chunk in self.headers.chunks(MAX_ROWS) {
            let query = BODIES.of(chunk.len()).bind_each(chunk, |query, (seq, _)| query.bind(*seq));
            let mut bodies = HashMap::new();
            for row in tx.rows(query).await? {
                bodies.insert(get::<i64>(&row, 0)?, Bytes::from(get::<Vec<u8>>(&row, 1)?));
            }
            let mut replace = REPLACE_BODY.of(chunk.len());
            for (seq, headers) in chunk {
                let body = bodies.remove(seq).unwrap_or_default();
                replace = replace.bind(with_headers(&body, *seq, headers.clone())?).bind(*seq);
            }
            tx.write(replace).await?;
        }
        Ok(())
    }
}

fn with_headers(body: &Bytes, seq: i64, headers: Headers) -> Result<Vec<u8>> {
    let mut envelope = match Envelope::decode(body)? {
        anyqueue::Decoded::Envelope(envelope) => envelope,
        foreign @ anyqueue::Decoded::Foreign(_) => {
            Envelope::new(foreign.into_message(&seq.to_string()), SystemTime::now())
        }
    };
    envelope.message = envelope.message.with_headers(headers);
    envelope.encode()
}

/// Moves lease ends, in order.
pub(crate) fn extend(
    tx: &mut Tx<'_>,
    leases: &Leases,
    extensions: &[Extension],
) -> Vec<Result<ExtendOutcome>> {
    extensions.iter().map(|extension| extend_one(tx, leases, extension)).collect()
}

fn extend_one(tx: &mut Tx<'_>, leases: &Leases, extension: &Extension) -> Result<ExtendOutcome> {
    check_lease(extension.duration)?;
    let Some(held) = leases.get(&extension.lease) else { return Ok(ExtendOutcome::Lost) };
    let Ready { seq, part, deliveries, cancel, head, .. } = held.ready;
    let at_ms = tx.now.after(extension.duration);
    let token = Some(held.secret.to_be_bytes().to_vec());
    tx.changes.timed.push(Timed { seq, part, at_ms, state: LEASED, deliveries, cancel, head, token });
    Ok(if cancel == 1 { ExtendOutcome::CancelRequested } else { ExtendOutcome::Extended })
}

/// Whether a lease is as long as declared.
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(format!("a lease is from {MIN_LEASE:?} to {} days", MAX_LEASE.as_secs() / 86_400)))
}

/// The texts of all statements here, for looking at their plans.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static Listed> {
    vec![&HELD, &PLACES, &BODIES, &REPLACE_BODY, &MOVE]
}
