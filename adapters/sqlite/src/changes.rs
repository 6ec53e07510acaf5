//! Changes of place, gathered over many requests and written in few statements.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, LazyLock};

use anyqueue::Result;

use crate::sql::{Listed, MAX_ROWS, Statement, get, repeated, tuples, values};
use crate::tx::{FRONT, Tx};

/// A message that can be pulled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) part: i64,
    pub(crate) rank: i64,
    pub(crate) pos: i64,
    pub(crate) seq: i64,
    pub(crate) deliveries: i64,
    pub(crate) cancel: i64,
    /// 1 for the head of a group.
    pub(crate) head: i64,
}

impl Ready {
    /// The same, given back: ahead of what was never delivered.
    pub(crate) fn in_front(mut self) -> Self {
        self.pos -= FRONT;
        self
    }
}

/// A message that is leased or waits for its time.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    pub(crate) seq: i64,
    pub(crate) part: i64,
    pub(crate) at_ms: i64,
    pub(crate) state: i64,
    pub(crate) deliveries: i64,
    pub(crate) cancel: i64,
    pub(crate) head: i64,
    pub(crate) token: Option<Vec<u8>>,
}

/// A group of one partition.
pub(crate) type Group = (i64, Arc<str>);

/// Applied in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Leave `anyqueue_timed`.
    pub(crate) untimed: Vec<i64>,
    /// Leave for good; also leave `anyqueue_timed`.
    pub(crate) removed: Vec<i64>,
    /// Groups whose head is gone: the next member becomes ready, or the group ends.
    pub(crate) freed: BTreeSet<Group>,
    /// Join their group at the end.
    pub(crate) joins: Vec<(Group, Ready)>,
    /// Become ready.
    pub(crate) ready: Vec<Ready>,
    /// Enter `anyqueue_timed`, or change there.
    pub(crate) timed: Vec<Timed>,
}

static UNTIME: LazyLock<Listed> =
    LazyLock::new(|| Listed::new(|n| format!("DELETE FROM anyqueue_timed WHERE seq IN ({})", values(n))));
static REMOVE: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        let list = values(n);
        format!(
            "DELETE FROM anyqueue_timed WHERE seq IN ({list}); DELETE FROM anyqueue_message WHERE seq IN ({list})"
        )
    })
});
static NEXT_OF_GROUP: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "SELECT v.column1, v.column2, b.pos, b.seq, m.rank FROM (VALUES {}) v CROSS JOIN anyqueue_blocked b
               ON b.part = v.column1 AND b.grp = v.column2 AND b.pos =
                  (SELECT min(pos) FROM anyqueue_blocked WHERE part = v.column1 AND grp = v.column2)
             CROSS JOIN anyqueue_message m ON m.seq = b.seq",
            tuples(n, 2)
        )
    })
});
static END_GROUP: LazyLock<Listed> =
    LazyLock::new(|| Listed::new(|n| repeated(n, "DELETE FROM anyqueue_group WHERE part = ? AND grp = ?")));
static UNBLOCK: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| repeated(n, "DELETE FROM anyqueue_blocked WHERE part = ? AND grp = ? AND pos = ?"))
});
static OCCUPIED: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "SELECT g.part, g.grp FROM (VALUES {}) v CROSS JOIN anyqueue_group g ON g.part = v.column1 AND g.grp = v.column2",
            tuples(n, 2)
        )
    })
});
static START_GROUP: LazyLock<Listed> = LazyLock::new(|| insert("anyqueue_group (part, grp)", 2));
static BLOCK: LazyLock<Listed> = LazyLock::new(|| insert("anyqueue_blocked (part, grp, pos, seq)", 4));
static READY: LazyLock<Listed> =
    LazyLock::new(|| insert("anyqueue_ready (part, rank, pos, seq, deliveries, cancel, head)", 7));
static TIME: LazyLock<Listed> = LazyLock::new(|| {
    Listed::new(|n| {
        format!(
            "{} ON CONFLICT (seq) DO UPDATE SET at_ms = excluded.at_ms, state = excluded.state,
             deliveries = excluded.deliveries, token = excluded.token",
            insert_text("anyqueue_timed (seq, part, at_ms, state, deliveries, cancel, head, token)", 8, n)
        )
    })
});

fn insert(table: &'static str, width: usize) -> Listed {
    Listed::new(|rows| insert_text(table, width, rows))
}

/// Inserts rows, skipping those whose first column is NULL (that pad the list).
fn insert_text(table: &str, width: usize, rows: usize) -> String {
    format!("INSERT INTO {table} SELECT * FROM (VALUES {}) WHERE column1 IS NOT NULL", tuples(rows, width))
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.untimed.is_empty()
            && self.removed.is_empty()
            && self.freed.is_empty()
            && self.joins.is_empty()
            && self.ready.is_empty()
            && self.timed.is_empty()
    }

    /// Makes a message ready, through its group if it has one that counts.
    pub(crate) fn enter(&mut self, ready: Ready, group: Option<Arc<str>>) {
        match group {
            Some(group) => self.joins.push(((ready.part, group), Ready { head: 1, ..ready })),
            None => self.ready.push(ready),
        }
    }

    /// Writes them out.
    pub(crate) async fn apply(mut self, tx: &mut Tx<'_>) -> Result<()> {
        delete(tx, &UNTIME, &self.untimed).await?;
        self.remove(tx).await?;
        self.free_groups(tx).await?;
        self.join_groups(tx).await?;
        self.make_ready(tx).await?;
        self.make_timed(tx).await
    }

    async fn remove(&self, tx: &mut Tx<'_>) -> Result<()> {
        for chunk in self.removed.chunks(MAX_ROWS) {
            let bind = |query: Statement, seq: &i64| query.bind(*seq);
            let once = REMOVE.of(chunk.len()).bind_each(chunk, bind).bind_nulls(Listed::padding(chunk.len()));
            tx.write(once.bind_each(chunk, bind)).await?;
        }
        Ok(())
    }

    async fn free_groups(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let mut freed = std::mem::take(&mut self.freed);
        let list: Vec<Group> = freed.iter().cloned().collect();
        let mut next = Vec::new();
        for chunk in list.chunks(MAX_ROWS) {
            for row in tx.rows(bind_groups(&NEXT_OF_GROUP, chunk)).await? {
                let group: Group = (get(&row, 0)?, get::<String>(&row, 1)?.into());
                let (pos, seq, rank) = (get(&row, 2)?, get(&row, 3)?, get(&row, 4)?);
                freed.remove(&group);
                self.ready.push(Ready { part: group.0, rank, pos, seq, deliveries: 0, cancel: 0, head: 1 });
                next.push((group, pos));
            }
        }
        unblock(tx, &next).await?;
        let ended: Vec<Group> = freed.into_iter().collect();
        for chunk in ended.chunks(MAX_ROWS) {
            tx.write(bind_groups(&END_GROUP, chunk)).await?;
        }
        Ok(())
    }

    async fn join_groups(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        for chunk in std::mem::take(&mut self.joins).chunks(MAX_ROWS) {
            let groups: Vec<Group> = chunk.iter().map(|(group, _)| group.clone()).collect();
            let mut occupied = HashSet::new();
            for row in tx.rows(bind_groups(&OCCUPIED, &groups)).await? {
                occupied.insert((get(&row, 0)?, get::<String>(&row, 1)?.into()));
            }
            let (mut started, mut behind) = (Vec::new(), Vec::new());
            for (group, ready) in chunk {
                if occupied.insert(group.clone()) {
                    started.push(group.clone());
                    self.ready.push(*ready);
                } else {
                    behind.push((group.clone(), *ready));
                }
            }
            if !started.is_empty() {
                tx.write(bind_groups(&START_GROUP, &started)).await?;
            }
            if !behind.is_empty() {
                let bind = |query: Statement, ((part, group), ready): &(Group, Ready)| {
                    query.bind(*part).bind(group.clone()).bind(ready.pos).bind(ready.seq)
                };
                tx.write(BLOCK.of(behind.len()).bind_each(&behind, bind)).await?;
            }
        }
        Ok(())
    }

    async fn make_ready(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        for chunk in self.ready.chunks(MAX_ROWS) {
            let mut query = READY.of(chunk.len());
            for ready in chunk {
                query = query.bind(ready.part).bind(ready.rank).bind(ready.pos);
                query = query.bind(ready.seq).bind(ready.deliveries).bind(ready.cancel).bind(ready.head);
                tx.hint_ready(ready.part);
            }
            tx.write(query).await?;
        }
        Ok(())
    }

    async fn make_timed(self, tx: &mut Tx<'_>) -> Result<()> {
        for chunk in self.timed.chunks(MAX_ROWS) {
            let mut query = TIME.of(chunk.len());
            for timed in chunk {
                tx.hint_due(timed.part, timed.at_ms);
                query = query.bind(timed.seq).bind(timed.part).bind(timed.at_ms).bind(timed.state);
                query = query
                    .bind(timed.deliveries)
                    .bind(timed.cancel)
                    .bind(timed.head)
                    .bind(timed.token.clone());
            }
            tx.write(query).await?;
        }
        Ok(())
    }
}

/// Takes members out of those that wait behind their group's head.
pub(crate) async fn unblock(tx: &mut Tx<'_>, members: &[(Group, i64)]) -> Result<()> {
    for chunk in members.chunks(MAX_ROWS) {
        let bind = |query: Statement, ((part, group), pos): &(Group, i64)| {
            query.bind(*part).bind(group.clone()).bind(*pos)
        };
        tx.write(UNBLOCK.of(chunk.len()).bind_each(chunk, bind)).await?;
    }
    Ok(())
}

async fn delete(tx: &mut Tx<'_>, statement: &'static Listed, keys: &[i64]) -> Result<()> {
    for chunk in keys.chunks(MAX_ROWS) {
        tx.write(statement.of(chunk.len()).bind_each(chunk, |query, key| query.bind(*key))).await?;
    }
    Ok(())
}

fn bind_groups(statement: &'static Listed, groups: &[Group]) -> Statement {
    let bind = |query: Statement, (part, group): &Group| query.bind(*part).bind(group.clone());
    statement.of(groups.len()).bind_each(groups, bind)
}

/// The texts of all statements here, for looking at their plans.
#[cfg(test)]
pub(crate) fn statements() -> Vec<&'static Listed> {
    vec![
        &UNTIME,
        &REMOVE,
        &NEXT_OF_GROUP,
        &END_GROUP,
        &UNBLOCK,
        &OCCUPIED,
        &START_GROUP,
        &BLOCK,
        &READY,
        &TIME,
    ]
}
