//! No call reads more rows because more messages wait, are held, or are delayed.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::common::{Bed, part, push};

/// Rows read by ten rounds of a call, in the transaction that it runs in.
pub(crate) async fn rows_read(conn: &mut PgConnection, schema: &str, call: &str) -> i64 {
    let mut tx = conn.begin().await.unwrap();
    let before = rows_counted(&mut tx, schema).await; // the server adds up what earlier transactions read, until it reports them
    for _ in 0..10 {
        sqlx::raw_sql(AssertSqlSafe(call.replace("{s}", schema))).execute(&mut *tx).await.unwrap();
    }
    let read = rows_counted(&mut tx, schema).await - before;
    tx.rollback().await.unwrap();
    read
}

async fn rows_counted(conn: &mut PgConnection, schema: &str) -> i64 {
    let read = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables WHERE schemaname = $1";
    sqlx::query(read).bind(schema).fetch_one(conn).await.unwrap().get(0)
}

const FROM_ALL: &str = "ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL";

/// Stores a message with this state, this moment at which it is due, and this group.
fn waits(state: &str) -> String {
    format!(
        "DELETE FROM {{s}}.message WHERE part = 1 AND id = '{ID}'; INSERT INTO {{s}}.message (id, pos, pushed_at, part, lane, body, state, due, grp)
         VALUES ('{ID}', 1, now(), 1, 19, '', {state})"
    )
}

const ID: &str = "00000000-0000-0000-0000-000000000001";
const WAITING: &str = "ARRAY['00000000-0000-0000-0000-000000000001'::uuid]";

fn calls() -> Vec<(&'static str, String)> {
    let new = "ARRAY[gen_random_uuid()]";
    let random = format!("ARRAY[1], {new}, {new}");
    vec![
        (
            "push",
            format!(
                "SELECT * FROM {{s}}.push('p', false, {new}, ARRAY[19]::smallint[], '{{}}', '{{}}', '{{}}', ARRAY[''::bytea])"
            ),
        ),
        (
            "keyed push",
            format!(
                "SELECT * FROM {{s}}.push('p', false, {new}, ARRAY[19]::smallint[], '{{}}', ARRAY['g'::bytea], ARRAY['k'::bytea], ARRAY[''::bytea])"
            ),
        ),
        (
            "push over another",
            format!(
                "SELECT * FROM {{s}}.push_over('p', {new}, ARRAY[19]::smallint[], '{{}}', ARRAY['g'::bytea], ARRAY['k'::bytea], ARRAY[''::bytea], ARRAY[1]::smallint[], false)"
            ),
        ),
        ("pull", format!("SELECT * FROM {{s}}.pull('p', false, 5, 30000, gen_random_uuid(), {FROM_ALL})")),
        (
            "pull of whole groups",
            format!("SELECT * FROM {{s}}.pull('p', false, 5, 30000, gen_random_uuid(), {FROM_ALL}, 5)"),
        ),
        ("look", "SELECT * FROM {s}.look(ARRAY['p'], ARRAY[false], ARRAY[1])".to_owned()),
        ("remove", format!("SELECT * FROM {{s}}.remove({random}, '{{{{\"(0,1)\"}}}}')")),
        (
            "remove and store a successor",
            format!(
                "SELECT {{s}}.store_successors(ARRAY[1], e.parts, e.grps, 1, ARRAY['p'], ARRAY[1], ARRAY[1], {new}, ARRAY[19]::smallint[], '{{}}', ARRAY['g'::bytea], ARRAY['k'::bytea], ARRAY[''::bytea], '{{}}') FROM {{s}}.remove_only({random}) e"
            ),
        ),
        (
            "give back",
            format!(
                "SELECT * FROM {{s}}.give_back({random}, ARRAY[3]::smallint[], ARRAY[0]::bigint[], ARRAY[NULL]::bytea[])"
            ),
        ),
        (
            "move",
            format!("SELECT * FROM {{s}}.move({random}, ARRAY['p'], ARRAY[true], ARRAY[NULL]::bytea[])"),
        ),
        ("extend", format!("SELECT * FROM {{s}}.extend({random}, ARRAY[1000]::bigint[])")),
        ("delete", format!("SELECT * FROM {{s}}.take_out('p', false, {new}, false)")),
        ("cancel", format!("SELECT * FROM {{s}}.take_out('p', false, {new}, true)")),
        (
            "delete a member",
            format!("{}; SELECT * FROM {{s}}.take_out('p', false, {WAITING}, false)", waits("3, NULL, 'g'")),
        ),
        (
            "amend",
            format!("SELECT * FROM {{s}}.amend('p', {new}, NULL, 0, false, NULL, NULL, '{{}}', '{{}}')"),
        ),
        (
            "amend a member",
            format!(
                "{}; SELECT * FROM {{s}}.amend('p', {WAITING}, NULL, 0, false, NULL, NULL, '{{}}', '{{}}')",
                waits("3, NULL, 'g'")
            ),
        ),
        ("bodies", format!("SELECT * FROM {{s}}.bodies('p', {new}, 1000)")),
        (
            "bring a delayed message",
            format!(
                "{}; SELECT {{s}}.bring(1, now(), '-infinity')",
                waits("2, now() - interval '1 hour', NULL")
            ),
        ),
        (
            "bring a delayed member",
            format!(
                "{}; SELECT {{s}}.bring(1, now(), '-infinity')",
                waits("2, now() - interval '1 hour', 'g'")
            ),
        ),
        (
            "record an end",
            format!(
                "SELECT {{s}}.record_counted('p', {new}, ARRAY[1]::smallint[], ARRAY[60000]::bigint[], ARRAY[1]::bigint[], ARRAY['x'::bytea], ARRAY[NULL]::bytea[], ARRAY['k'::bytea], ARRAY[0]::bigint[], ARRAY[0]::bigint[])"
            ),
        ),
        (
            "record a greater end",
            format!(
                "INSERT INTO {{s}}.ended (id, ended_at, rank, part, bucket, state, ended_us, body) VALUES ('{ID}', 0, 0, 1, 24, 1, 0, '');
                 SELECT {{s}}.record_counted('p', {WAITING}, ARRAY[1]::smallint[], ARRAY[60000]::bigint[], ARRAY[1]::bigint[], ARRAY['x'::bytea], ARRAY[NULL]::bytea[], ARRAY['k'::bytea], ARRAY[0]::bigint[], ARRAY[0]::bigint[])"
            ),
        ),
        ("delete an end", format!("SELECT {{s}}.delete_ended('p', {new})")),
        ("find an end", format!("SELECT {{s}}.find_ended('p', {new})")),
        ("purge", "SELECT {s}.purge('p', false, 5)".to_owned()),
        ("purge of dead letters", "SELECT {s}.purge('p', true, 5)".to_owned()),
    ]
}

#[tokio::test]
async fn no_call_reads_more_rows_behind_a_backlog() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, schema) = (bed.open().await, bed.schema.clone());
    push(&queue, &part("p"), &["a"; 30]).await;
    let mut conn = bed.connect().await;
    let mut small = Vec::new();
    for (_, call) in calls() {
        small.push(rows_read(&mut conn, &schema, &call).await);
    }
    // Rows of every state, in lanes and groups of all kinds; what is leased and delayed is far from due.
    bed.run(format!(
        "INSERT INTO {schema}.message (id, pos, pushed_at, due, until, part, lane, state, grp, dedup, body)
         SELECT gen_random_uuid(), i, now(), CASE WHEN i % 4 IN (1, 2) THEN now() + interval '1 day' END,
             CASE WHEN i % 4 = 1 THEN now() + interval '1 day' END, 1, 19, i % 4,
             CASE WHEN i % 4 = 3 THEN 'other'::bytea END, i::text::bytea, ''
         FROM generate_series(1, 40000) i;
         INSERT INTO {schema}.ended (id, ended_at, rank, part, bucket, state, ended_us, body)
         SELECT gen_random_uuid(), {schema}.ended_now() - i, i, 1, 24, 1, 0, '' FROM generate_series(1, 40000) i"
    ))
    .await;
    // A server keeps the plans that it made while the table was small, until it has looked at the table again.
    let mut analyzed = bed.connect().await;
    let (mut before, mut after) = (conn, bed.connect().await);
    let mut wrong = Vec::new();
    for (conn, planned) in [(&mut before, "before"), (&mut after, "after"), (&mut analyzed, "analyzed")] {
        if planned == "analyzed" {
            bed.run(format!("ANALYZE {schema}.message; ANALYZE {schema}.ended")).await;
        }
        for ((name, call), small) in calls().into_iter().zip(&small) {
            let large = rows_read(conn, &schema, &call).await;
            if large > 2 * small + 100 {
                wrong.push(format!(
                    "{name} reads {large} rows, {small} without a backlog (planned: {planned})"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_waiting_message_takes_at_most_five_hundred_bytes_of_the_disk_beside_its_payload() {
    const MESSAGES: i64 = 20_000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, payload) = (bed.open().await, ".".repeat(100));
    let mut conn = bed.connect().await;
    let size = format!("SELECT pg_total_relation_size('{}.message')", bed.schema);
    let mut taken = async || -> i64 {
        sqlx::query(AssertSqlSafe(size.clone())).fetch_one(&mut conn).await.unwrap().get(0)
    };
    let before = taken().await;
    for _ in 0..MESSAGES / 1000 {
        push(&queue, &part("p"), &vec![payload.as_str(); 1000]).await;
    }
    let each = (taken().await - before) / MESSAGES - 100;
    assert!(each <= 500, "{each} bytes");
}

/// What pulls go by that must not step over dead entries again and again.
#[tokio::test]
async fn a_pull_tells_how_long_the_server_looked() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, schema) = (bed.open().await, bed.schema.clone());
    push(&queue, &part("p"), &["a"; 1000]).await;
    let mut conn = bed.connect().await;
    let call = format!(
        "SELECT looked_us FROM {schema}.pull('p', false, 1000, 30000, gen_random_uuid(), {FROM_ALL})"
    );
    let began = std::time::Instant::now();
    let rows = sqlx::query(AssertSqlSafe(call)).fetch_all(&mut conn).await.unwrap();
    let took = began.elapsed();
    assert_eq!(rows.len(), 1000);
    let looked_us: i32 = rows[0].get(0);
    assert!(
        looked_us > 0 && u128::try_from(looked_us).unwrap() < took.as_micros(),
        "{looked_us} us of {took:?}"
    );
}
