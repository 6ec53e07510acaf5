//! The ends of any number of tasks, as SQL that fills a store's own tables: millions of ends, without
//! processing a queue first.
//!
//! The SQL writes the tables of this release's stores, which are not a public interface: it changes with each
//! change of a schema.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::EndState;
use anyqueue::adapter::TaskEnd;

/// The partition of the tasks. The store has to know it, by one push.
pub const PARTITION: &str = "mail";
/// The pause between two ends, in milliseconds: ten million ends cover the last 22 hours, so none has
/// expired.
pub const STEP_MS: u64 = 8;
/// A kind that each hundredth task has.
pub const RARE_KIND: &str = "invoice";
/// A worker that ran an eighth of the tasks.
pub const WORKER: &str = "host-3:4711";
/// Part of the reason of some failed tasks.
pub const REASON: &str = "refused the address";

/// The number of shapes: what ends have in common. They are chosen in turns.
const SHAPES: u64 = 200;
/// Where the number of a task appears in its name, with as many digits.
const NUMBER: &str = "############";
const KINDS: [&str; 5] = ["send", "render", "import", "resize-image", "notify"];

/// An end without the number of its task: the bytes before and after the number, as stored.
struct Shape {
    state: EndState,
    keep: Duration,
    head: Vec<u8>,
    tail: Vec<u8>,
}

fn end_of(number: u64) -> TaskEnd {
    let state = match number % 100 {
        0..=6 => EndState::Failed,
        7..=9 => EndState::TimedOut,
        10 | 11 => EndState::Cancelled,
        _ => EndState::Succeeded,
    };
    let text = |text: String| Some(Arc::from(text));
    let mut end = TaskEnd::new(state).with_attempt(1).with_delivery_count(1);
    let kind = KINDS.iter().cycle().nth(usize::try_from(number).unwrap_or(0) % KINDS.len());
    end.kind = kind.filter(|_| number % 100 != 50).or(Some(&RARE_KIND)).map(|kind| Arc::from(*kind));
    end.worker = text(if number % 8 == 3 { WORKER.to_owned() } else { format!("host-{}:4711", number % 8) });
    end.task_id = text(format!("order-{NUMBER}"));
    end.session_id = number.is_multiple_of(4).then(|| Arc::from(format!("tenant-{}", number % 16)));
    end.waited = Duration::from_millis(3 + number * 7);
    end.ran = Duration::from_micros(900 + number * 1311);
    if matches!(state, EndState::Failed | EndState::TimedOut) {
        end = end.with_attempt(4).with_delivery_count(4);
        end.reason = text(match number % 3 {
            0 => format!("the server {REASON}"),
            1 => "no answer within 30 s".to_owned(),
            _ => "connection reset by peer".to_owned(),
        });
        end.errors = text(
            r#"[{"attempt":2,"error":"connection reset by peer"},{"attempt":3,"error":"no answer within 30 s"}]"#
                .to_owned(),
        );
    }
    end
}

fn keep_of(end: &TaskEnd) -> Duration {
    let days = if matches!(end.state, EndState::Failed | EndState::TimedOut) { 7 } else { 1 };
    Duration::from_hours(24 * days)
}

/// The end with this number, for a store that is filled by recording ends.
#[must_use]
pub fn end(number: u64) -> TaskEnd {
    let mut end = end_of(number * 7919 % SHAPES);
    end.task_id = Some(Arc::from(format!("order-{number:012}")));
    let keep = keep_of(&end);
    end.with_keep(Some(keep))
}

fn shape(number: u64) -> Shape {
    let end = end_of(number);
    let stored = end.encode().unwrap_or_default();
    let at = stored.windows(NUMBER.len()).position(|some| some == NUMBER.as_bytes()).unwrap_or(0);
    let (head, rest) = stored.split_at(at);
    let tail = rest.get(NUMBER.len()..).unwrap_or_default();
    Shape { state: end.state, keep: keep_of(&end), head: head.to_vec(), tail: tail.to_vec() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The rows of a table: number, state, how long the end is kept in milliseconds, and both parts of the stored
/// bytes, each between these quotes.
fn rows(quotes: (&str, &str)) -> String {
    let row = |number| {
        let Shape { state, keep, head, tail } = shape(number);
        let [head, tail] = [head, tail].map(|bytes| format!("{}{}{}", quotes.0, hex(&bytes), quotes.1));
        format!("({number}, {}, {}, {head}, {tail})", state.code(), keep.as_millis())
    };
    (0..SHAPES).map(row).collect::<Vec<_>>().join(",\n")
}

/// SQL that fills a file of `anyqueue-sqlite` that nobody else has open with this many ends, up to a second
/// before now. It uses no journal, since nobody needs the file after a crash, so it takes no more disk space
/// than the file itself.
#[must_use]
pub fn sqlite(count: u64) -> String {
    // The last one is the newest, so that each index grows at its end. Ids are those of version 7, in the
    // same order.
    format!(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;
        CREATE TEMP TABLE shape (n INTEGER PRIMARY KEY, state INTEGER, keep_ms INTEGER, head BLOB, tail BLOB);
        INSERT INTO shape VALUES {shapes};
        WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count}),
        place(part, now_ms) AS MATERIALIZED (
            SELECT part, CAST(unixepoch('subsec') * 1000 AS INTEGER) - 1000 FROM anyqueue_partition WHERE NOT dead AND name = '{PARTITION}')
        INSERT INTO anyqueue_ended (part, id, state, ended_ms, expires_ms, rank, body, result)
        SELECT p.part, unhex(printf('%012x7%03x8%015x', p.now_ms - ({count} - i) * {STEP_MS}, i & 4095, i)), s.state,
            p.now_ms - ({count} - i) * {STEP_MS}, p.now_ms - ({count} - i) * {STEP_MS} + s.keep_ms, 4294967552 + s.state,
            CAST(s.head || printf('%012d', i) || s.tail AS BLOB), NULL
        FROM place p CROSS JOIN n CROSS JOIN shape s ON s.n = i * 7919 % {SHAPES};
        DROP TABLE shape;
        PRAGMA journal_mode = WAL;",
        shapes = rows(("x'", "'")),
    )
}

/// Like [`sqlite`], for a schema of `anyqueue-postgres`.
#[must_use]
pub fn postgres(schema: &str, count: u64) -> String {
    into_postgres(schema, count, &format!("{schema}.ended_now() - 1000"), STEP_MS * 1000, "s.keep_ms")
}

/// SQL that stores this many ends in a schema of `anyqueue-postgres` that have just expired, all in one of
/// the tables that are emptied at once: they were kept for a day, and expired within the last period of three
/// hours.
#[must_use]
pub fn lapsed_in_postgres(schema: &str, count: u64) -> String {
    let newest = format!("{schema}.ended_now() / 10800000 * 10800000 - 1 - 86400000");
    // Less than three hours, in microseconds.
    into_postgres(schema, count, &newest, 10_000_000_000 / count.max(1), "86400000")
}

fn into_postgres(schema: &str, count: u64, newest: &str, step_us: u64, keep_ms: &str) -> String {
    format!(
        "CREATE TEMP TABLE shape (n bigint PRIMARY KEY, state smallint, keep_ms bigint, head bytea, tail bytea);
        INSERT INTO shape VALUES {shapes};
        INSERT INTO {schema}.ended (id, ended_at, rank, part, bucket, state, ended_us, expires_at, body)
        SELECT (lpad(to_hex(t.at), 12, '0') || '7' || lpad(to_hex(i & 4095), 3, '0') || '8' || lpad(to_hex(i), 15, '0'))::uuid, t.at,
            4294967552 + s.state, p.part, {schema}.ended_bucket({keep_ms}, t.at + {keep_ms}), s.state, 0, t.at + {keep_ms},
            s.head || convert_to(lpad(i::text, 12, '0'), 'UTF8') || s.tail
        FROM (SELECT part, {newest} AS now_ms FROM {schema}.partition WHERE name = '{PARTITION}' OFFSET 0) p
        CROSS JOIN generate_series(1, {count}::bigint) AS i
        CROSS JOIN LATERAL (SELECT p.now_ms - ({count} - i) * {step_us} / 1000 AS at) t
        JOIN shape s ON s.n = i * 7919 % {SHAPES};
        DROP TABLE shape;",
        shapes = rows(("'\\x", "'")),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_stored_is_an_end_with_any_number_in_its_place() {
        for number in 0..SHAPES {
            let Shape { state, head, tail, .. } = shape(number);
            let stored = [&head[..], b"000000000042", &tail].concat();
            let end = TaskEnd::decode(&stored).unwrap();
            assert_eq!((end.state, end.task_id.as_deref()), (state, Some("order-000000000042")));
        }
    }

    #[test]
    fn each_filter_finds_some_and_not_all() {
        let ends: Vec<_> = (0..SHAPES).map(end_of).collect();
        let found = |is: &dyn Fn(&TaskEnd) -> bool| ends.iter().filter(|end| is(end)).count();
        assert_eq!(found(&|end| end.kind.as_deref() == Some(RARE_KIND)), 2);
        assert_eq!(found(&|end| end.worker.as_deref() == Some(WORKER)), 25);
        assert!(
            (1..20).contains(&found(&|end| end.reason.as_deref().is_some_and(|text| text.contains(REASON))))
        );
        for state in EndState::ALL {
            assert!(found(&|end| end.state == state) > 0, "{state:?}");
        }
    }
}
