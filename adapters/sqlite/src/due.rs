//! What time brings: leases that ran out, delays that are over.

use std::sync::{Arc, LazyLock};

use anyqueue::Result;
use sqlx::sqlite::SqliteRow;

use crate::changes::Ready;
use crate::sql::{Listed, MAX_ROWS, Statement, get, repeated, values};
use crate::tx::{DELAYED, LEASED, Now, Tx};

/// Messages looked at in one step, and steps in one transaction; what is left comes with the next.
const STEP: usize = 1000;
const MAX_STEPS: usize = 10;

static DUE: LazyLock<Listed> = LazyLock::new(|| Listed::new(due_text));
/// As the first command of a transaction.
static BEGIN: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| format!("BEGIN IMMEDIATE; SELECT next FROM anyqueue_counter; {}", due_text(n)))
});

fn due_text(partitions: usize) -> String {
    format!(
        "SELECT t.at_ms, t.seq, t.part, t.state, t.deliveries, t.cancel, t.head, m.rank, m.pos, m.grp
             FROM anyqueue_timed t CROSS JOIN anyqueue_message m ON m.seq = t.seq
             WHERE t.at_ms <= ? AND t.part IN ({}) LIMIT {STEP}",
        values(partitions)
    )
}
static MOVE_TO_END: LazyLock<Listed> =
    LazyLock::new(|| Listed::new(|n| repeated(n, "UPDATE anyqueue_message SET pos = ? WHERE seq = ?")));

/// Makes ready, in these partitions, what is due. Before anything else in a transaction, so that positions given at
/// maturity come before those of later pushes.
pub(crate) async fn bring(tx: &mut Tx<'_>, parts: &[i64]) -> Result<()> {
    for chunk in parts.chunks(MAX_ROWS) {
        for _ in 0..MAX_STEPS {
            let due = tx.rows(bind(DUE.of(chunk.len()), tx.now, chunk)).await?;
            if bring_these(tx, &due).await? {
                break;
            }
        }
    }
    Ok(())
}

/// The statement that begins a transaction, and finds in the same hop what is due in up to [`MAX_ROWS`] partitions.
pub(crate) fn begin(now: Now, parts: &[i64]) -> Statement {
    bind(BEGIN.of(parts.len()), now, parts)
}

fn bind(statement: Statement, now: Now, parts: &[i64]) -> Statement {
    statement.bind(now.ms).bind_each(parts, |query, part| query.bind(*part))
}

/// Makes these messages ready. Answers whether they were all.
pub(crate) async fn bring_these(tx: &mut Tx<'_>, due: &[SqliteRow]) -> Result<bool> {
    let mut order = Vec::with_capacity(due.len());
    for row in due {
        order.push((get::<i64>(row, 0)?, get::<i64>(row, 1)?, row));
    }
    order.sort_unstable_by_key(|(at_ms, seq, _)| (*at_ms, *seq));
    let mut moved = Vec::new();
    for (_, seq, row) in order {
        let (part, state): (i64, i64) = (get(row, 2)?, get(row, 3)?);
        let (deliveries, cancel, head) = (get(row, 4)?, get(row, 5)?, get(row, 6)?);
        let mut ready = Ready { part, rank: get(row, 7)?, pos: get(row, 8)?, seq, deliveries, cancel, head };
        tx.changes.untimed.push(seq);
        if state == LEASED {
            tx.changes.ready.push(ready.in_front());
            continue;
        }
        ready.pos = tx.position();
        moved.push((seq, ready.pos));
        let joins = state == DELAYED && tx.is_live(part);
        let group = if joins { get::<Option<String>>(row, 9)? } else { None };
        tx.changes.enter(ready, group.map(Arc::from));
    }
    move_to_end(tx, &moved).await?;
    tx.flush().await?;
    Ok(due.len() < STEP)
}

/// Gives messages new positions.
pub(crate) async fn move_to_end(tx: &mut Tx<'_>, moved: &[(i64, i64)]) -> Result<()> {
    for chunk in moved.chunks(MAX_ROWS) {
        let bind = |query: Statement, (seq, pos): &(i64, i64)| query.bind(*pos).bind(*seq);
        tx.write(MOVE_TO_END.of(chunk.len()).bind_each(chunk, bind)).await?;
    }
    Ok(())
}

/// The texts of all statements here, for looking at their plans.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static Listed> {
    vec![&DUE, &BEGIN, &MOVE_TO_END]
}
