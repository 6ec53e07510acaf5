//! The statements of a handle: calls of the functions in its schema. The schema's name is checked and quoted
//! only here.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::Result;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Arguments, AssertSqlSafe, Decode, Postgres, Row, Type};

use crate::error::{ERRORS, classify};

/// The longest name of a schema in bytes. The channel of its notifications is named after it.
const MAX_SCHEMA_BYTES: usize = 40;

/// The most arguments of a statement.
const MAX_ARGUMENTS: usize = 13;
/// The additional wire size of names and array headers.
const FRAME_BYTES: usize = 256;

/// A schema's name that can safely be put between double quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema(Arc<str>);

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if name.len() > MAX_SCHEMA_BYTES || !begins || !name.chars().all(allowed) || name.starts_with("pg_") {
            return Err(ERRORS.invalid(format!(
                "a schema's name must be 1 to {MAX_SCHEMA_BYTES} of a-z 0-9 _ and begin with a letter, but not with pg_"
            )));
        }
        Ok(Self(name.into()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The channel of the schema's notifications.
    pub(crate) fn channel(&self) -> String {
        format!("anyqueue_{}", self.0)
    }

    /// The text of a statement, in which `{schema}` stands for this schema.
    pub(crate) fn text(&self, template: &str) -> Text {
        Text(template.replace("{schema}", &format!("\"{}\"", self.0)).into())
    }
}

/// The text of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Text(Arc<str>);

impl Text {
    pub(crate) fn query(&self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.0)))
    }

    /// Like [`query`](Self::query), with room for this many bytes of arguments, so that the buffer need not grow.
    pub(crate) fn query_of(&self, argument_bytes: usize) -> Query<'static, Postgres, PgArguments> {
        let mut arguments = PgArguments::default();
        arguments.reserve(MAX_ARGUMENTS, argument_bytes + FRAME_BYTES);
        sqlx::query_with(self.safe(), arguments)
    }

    pub(crate) fn safe(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

macro_rules! statements {
    ($($name:ident = $text:expr;)*) => {
        /// Every statement of a handle.
        #[derive(Debug)]
        pub(crate) struct Statements { $(pub(crate) $name: Text,)* }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self { $($name: schema.text($text),)* }
            }
        }
    };
}

const COLUMNS: &str =
    "SELECT part, id, lane, pos, deliveries, age, headers, body, place, NULL::integer[], looked_us";
const PULL: &str = "FROM {schema}.pull($1, $2, $3, $4, $5, $6, $7, $8, $9)";
/// Empty columns of a pull, for the row with the settlements.
const NO_MESSAGE: &str = "SELECT NULL::integer, NULL::uuid, NULL::smallint, NULL::bigint, NULL::integer, NULL::interval, NULL::bytea, NULL::bytea, NULL::bytea";
/// Do not wait for the disk. If the server crashes and loses a claim, its messages are delivered again.
const NO_WAIT: &str = ", set_config('synchronous_commit', 'off', true)";

/// A pull of whole groups. `members` is the number of the argument for the members of a group. It also
/// returns the order of the deliveries.
fn pull_whole(members: u8) -> String {
    format!("{COLUMNS}, number FROM {{schema}}.pull($1, $2, $3, $4, $5, $6, $7, $8, $9, ${members})")
}

/// The columns of ends: owner, state, time to keep, rank, body, result, kind, and two durations.
const END_COLUMNS: u8 = 9;

/// Stores and counts ends in a statement that settles. Their arguments begin with number `first`; those with
/// the partitions and ids of the messages begin with `proofs`.
fn ends(proofs: u8, first: u8) -> String {
    let columns: Vec<_> = (first..first + END_COLUMNS).map(|number| format!("${number}")).collect();
    format!(", {{schema}}.end_tasks(e.done, ${proofs}, ${}, {}) s", proofs + 1, columns.join(", "))
}

/// The parts of a UNION ALL run one after the other, so that the pull can take what a removal has freed.
fn exchange(further_column: &str, ends: &str, pull: &str) -> String {
    format!(
        "{NO_MESSAGE}, e.done, e.advanced{further_column} FROM {{schema}}.remove($10, $11, $12, $13) e{ends} UNION ALL {pull}"
    )
}

fn exchange_then(further_column: &str, ends: &str, pull: &str) -> String {
    format!(
        "{NO_MESSAGE}, e.done,
             {{schema}}.store_successors(e.done, e.parts, e.grps, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24){further_column}
         FROM {{schema}}.remove_only($10, $11, $12) e{ends} UNION ALL {pull}"
    )
}

fn remove_then(ends: &str) -> String {
    format!(
        "SELECT e.done, {{schema}}.store_successors(e.done, e.parts, e.grps, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         FROM {{schema}}.remove_only($1, $2, $3) e{ends}"
    )
}

fn move_then(ends: &str) -> String {
    format!(
        "SELECT e.done, {{schema}}.store_successors(e.done, e.parts, e.grps, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
         FROM {{schema}}.move_only($1, $2, $3, $4, $5, $6) e{ends}"
    )
}

/// A disabled message has a state of its own here. It is due when it will be once it is enabled.
const BROWSE: &str = "SELECT id, CASE WHEN due = 'infinity' THEN 4 ELSE state END::smallint, coalesce(until, due) > statement_timestamp(),
    deliveries, clock_timestamp() - pushed_at, headers, body,
    CASE WHEN due = 'infinity' THEN due_then ELSE due END - statement_timestamp()
    FROM {schema}.message
    WHERE part = (SELECT part FROM {schema}.partition WHERE name = $1) AND id > $2 AND";

statements! {
    // Stores nothing if the partition does not exist yet, and fails if an id exists.
    push_plain = "INSERT INTO {schema}.message (id, part, lane, pos, state, pushed_at, body)
        SELECT g.id, p.part, g.lane + {schema}.first_lane($2), p.place + g.n, 0, p.now, g.body
        FROM (
            SELECT q.part, q.now, {schema}.place_at(q.now) AS place
            FROM (SELECT part, clock_timestamp() AS now FROM {schema}.partition WHERE name = $1 AND (used OR $2)) q
            OFFSET 0 -- once, not for each row
        ) p,
            unnest($3, $4, $5) WITH ORDINALITY AS g(id, lane, body, n)";
    push = "SELECT number, known FROM {schema}.push($1, $2, $3, $4, $5, $6, $7, $8, false, $9)";
    push_in = "SELECT number, known FROM {schema}.push($1, $2, $3, $4, $5, $6, $7, $8, true, $9)";
    push_over = "SELECT number, known, is_replaced FROM {schema}.push_over($1, $2, $3, $4, $5, $6, $7, $8, false, $9)";
    push_over_in = "SELECT number, known, is_replaced FROM {schema}.push_over($1, $2, $3, $4, $5, $6, $7, $8, true, $9)";
    part_for = "SELECT {schema}.part_for($1, $2)";
    pull = &format!("{COLUMNS} {PULL}{NO_WAIT}");
    pull_whole = &format!("{}{NO_WAIT}", pull_whole(10));
    exchange = &exchange("", "", &format!("{COLUMNS} {PULL}"));
    exchange_whole = &exchange(", NULL::integer", "", &pull_whole(14));
    exchange_then = &exchange_then("", "", &format!("{COLUMNS} {PULL}"));
    exchange_whole_then = &exchange_then(", NULL::integer", "", &pull_whole(25));
    exchange_end = &exchange("", &ends(10, 14), &format!("{COLUMNS} {PULL}"));
    exchange_whole_end = &exchange(", NULL::integer", &ends(10, 14), &pull_whole(23));
    exchange_then_end = &exchange_then("", &ends(10, 25), &format!("{COLUMNS} {PULL}"));
    exchange_whole_then_end = &exchange_then(", NULL::integer", &ends(10, 25), &pull_whole(34));
    look = "SELECT number, ready, due_ms FROM {schema}.look($1, $2, $3)";
    remove = "SELECT done, advanced FROM {schema}.remove($1, $2, $3, $4)";
    give_back = "SELECT done, advanced FROM {schema}.give_back($1, $2, $3, $4, $5, $6)";
    move_to = "SELECT done, advanced FROM {schema}.move($1, $2, $3, $4, $5, $6)";
    move_end = &format!("SELECT e.done, e.advanced FROM {{schema}}.move($1, $2, $3, $4, $5, $6) e{}", ends(1, 7));
    // What settles runs first, and its result says whose successors are stored then.
    remove_then = &remove_then("");
    remove_end = &format!("SELECT e.done, e.advanced FROM {{schema}}.remove($1, $2, $3, $4) e{}", ends(1, 5));
    remove_then_end = &remove_then(&ends(1, 16));
    give_back_then = "SELECT e.done, {schema}.store_successors(e.done, e.parts, e.grps, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
        FROM {schema}.give_back($1, $2, $3, $4, $5, $6, false) e";
    move_then = &move_then("");
    move_then_end = &move_then(&ends(1, 19));
    store_successors = "SELECT {schema}.store_successors(ARRAY[1], NULL, NULL, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    extend = "SELECT id, token, cancel FROM {schema}.extend($1, $2, $3, $4)";
    take_out = "SELECT gone, held, busy, advanced FROM {schema}.take_out($1, $2, $3, $4)";
    cancel = "SELECT gone, held, busy, advanced FROM {schema}.cancel_counted($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    record_ended = "SELECT {schema}.record_counted($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    // Facts about unfinished tasks are not ends, so they are not counted.
    record_facts = "SELECT {schema}.record_ended($1, $2, $3, $4, $5, $6, $7)";
    ended_page = "SELECT id, ended_at, expires_at, body FROM {schema}.ended_page($1, $2, $3, $4, $5, $6)";
    count_ended = "SELECT {schema}.count_ended($1, $2, $3, $4, $5)";
    find_ended = "SELECT id, ended_at, expires_at, body, result FROM {schema}.find_ended($1, $2)";
    delete_ended = "SELECT {schema}.delete_ended($1, $2)";
    series = "SELECT minute, kind, state, ran_bucket, waited_bucket, sum(tasks)::bigint, sum(ran_us)::bigint, sum(waited_us)::bigint
        FROM {schema}.series WHERE part = (SELECT part FROM {schema}.partition WHERE name = $1)
            AND (minute, kind, state, ran_bucket, waited_bucket) > ($2, $3, $4, $5, $6) AND minute < $7
        GROUP BY minute, kind, state, ran_bucket, waited_bucket ORDER BY minute, kind, state, ran_bucket, waited_bucket LIMIT $8";
    // How many minutes are kept is determined by the client, the current minute by the server.
    purge_series = "WITH freed AS (
            DELETE FROM {schema}.series WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {schema}.series WHERE minute < (SELECT {schema}.ended_now() / 60000 - $1) ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED))
            RETURNING 1
        )
        SELECT count(*) FROM freed";
    purge_ended = "SELECT freed, is_left FROM {schema}.purge_ended($1)";
    control_get = "SELECT now_ms, entry_key, entry_version, entry_expires_at, entry_value FROM {schema}.control_get($1)";
    control_list = "SELECT now_ms, entry_key, entry_version, entry_expires_at, entry_value FROM {schema}.control_list($1, $2, $3)";
    control_apply = "SELECT now_ms, is_done, there_version, there_expires_at, there_value FROM {schema}.control_apply($1, $2, $3, $4, $5, $6)";
    purge = "SELECT purged, is_left, advanced FROM {schema}.purge($1, $2, $3)";
    amend = "SELECT amended, held, there, dead, ready FROM {schema}.amend($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    bodies = "SELECT number, body, hash FROM {schema}.bodies($1, $2, $3)";
    set_paused = "SELECT {schema}.set_paused($1, $2, $3)";
    is_paused = "SELECT CASE WHEN $2 THEN dead_paused ELSE paused END FROM {schema}.partition WHERE name = $1";
    partitions = "SELECT name FROM {schema}.partition WHERE (used OR paused) AND name > $1 ORDER BY name LIMIT $2";
    // Of a partition and all its dead letters, or only of dead letters, which have no dead letters of their
    // own.
    counts = "SELECT
        (SELECT count(*) FROM {schema}.message WHERE part = p.part AND state = 0 AND lane >= p.lane AND lane < p.lane + 100)
            + (SELECT count(*) FROM {schema}.message WHERE part = p.part AND state = 3 AND NOT $2),
        (SELECT count(*) FROM {schema}.message
         WHERE part = p.part AND due IS NOT NULL AND (lane >= 100) = $2 AND state = 2 AND due > p.now AND due < 'infinity'),
        (SELECT count(*) FROM {schema}.message
         WHERE part = p.part AND due IS NOT NULL AND (lane >= 100) = $2 AND state = 1 AND until > p.now),
        (SELECT count(*) FROM {schema}.message
         WHERE part = p.part AND due IS NOT NULL AND (lane >= 100) = $2 AND state IN (1, 2) AND coalesce(until, due) <= p.now),
        (SELECT count(*) FROM {schema}.message WHERE part = p.part AND lane >= 100 AND NOT $2),
        (SELECT count(*) FROM {schema}.message WHERE part = p.part AND due = 'infinity' AND NOT $2)
        FROM (SELECT (SELECT part FROM {schema}.partition WHERE name = $1) AS part, {schema}.first_lane($2) AS lane,
            statement_timestamp() AS now) p"; // one moment for all of them, or what falls due meanwhile is counted twice
    browse = &format!("{BROWSE} lane < 100 ORDER BY part, id LIMIT $3");
    browse_dead = &format!("{BROWSE} lane >= 100 ORDER BY part, id LIMIT $3");
    table = "SELECT coalesce(t.n_live_tup, 0), coalesce(t.n_dead_tup, 0), coalesce(a.age, interval '0'), a.age IS NOT NULL
        FROM (SELECT max(clock_timestamp() - xact_start) AS age FROM pg_stat_activity
              WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend') a
        LEFT JOIN pg_stat_user_tables t ON t.relid = to_regclass('{schema}.message')";
    // Goes from each pair of partition and lane that has ready messages to the next, however many other pairs
    // there are.
    oldest_ready = "WITH RECURSIVE first AS (
            (SELECT m.part, m.lane, m.pushed_at FROM {schema}.message m WHERE m.state = 0 ORDER BY m.part, m.lane, m.pos LIMIT 1)
            UNION ALL
            SELECT n.part, n.lane, n.pushed_at FROM first f CROSS JOIN LATERAL (
                SELECT m.part, m.lane, m.pushed_at FROM {schema}.message m
                WHERE m.state = 0 AND (m.part, m.lane) > (f.part, f.lane) ORDER BY m.part, m.lane, m.pos LIMIT 1
            ) n
        )
        SELECT p.name, clock_timestamp() - o.pushed_at
        FROM (SELECT f.part, f.pushed_at FROM first f WHERE f.lane < 100 ORDER BY f.pushed_at LIMIT 1) o
        JOIN {schema}.partition p ON p.part = o.part";
    notify = "SELECT pg_notify($1, p) FROM unnest($2) AS p, set_config('synchronous_commit', 'off', true)";
}

/// Returns the value of a column.
pub(crate) fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, column: usize) -> Result<T> {
    row.try_get(column).map_err(classify)
}

/// Converts to whole milliseconds. Rounds up, so that nothing timed is early.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Converts a count or a limit for the server.
pub(crate) fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_schemas() {
        for good in ["anyqueue", "_x", "a1_b"] {
            assert_eq!(Schema::new(good).unwrap().name(), good);
        }
        for bad in ["", "1a", "A", "a\"b", "a-b", "pg_queue", "ä", &"a".repeat(41)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
