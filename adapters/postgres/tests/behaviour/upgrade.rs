//! A schema of an older release, with messages in it: it is upgraded, and processes of that release go on meanwhile.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage};
use anyqueue::{Amend, MessageData};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::amend::{DAY, amend_one, let_time_pass};
use crate::common::{Bed, part, pull, run};
use crate::successors::drain;

/// The migrations of before, which never change.
const OLD: [&[&str]; 2] = [
    &[
        include_str!("../../migrations/0001_queue/1_tables.sql"),
        include_str!("../../migrations/0001_queue/2_common.sql"),
        include_str!("../../migrations/0001_queue/3_push.sql"),
        include_str!("../../migrations/0001_queue/4_pull.sql"),
        include_str!("../../migrations/0001_queue/5_settle.sql"),
        include_str!("../../migrations/0001_queue/6_admin.sql"),
    ],
    &[
        include_str!("../../migrations/0002_successors_and_compaction/1_compaction.sql"),
        include_str!("../../migrations/0002_successors_and_compaction/2_successors.sql"),
    ],
];

async fn make_old(conn: &mut PgConnection, schema: &str) {
    let mut tx = conn.begin().await.unwrap();
    let table =
        "version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()";
    let begin = format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.migration ({table}); SET LOCAL search_path = {schema}, pg_temp"
    );
    run(&mut tx, begin).await;
    for (version, scripts) in (1..).zip(OLD) {
        for script in scripts {
            run(&mut tx, (*script).to_owned()).await;
        }
        run(&mut tx, format!("INSERT INTO migration (version, name) VALUES ({version}, 'old')")).await;
    }
    tx.commit().await.unwrap();
}

/// As the statement of the older release does.
async fn push_old(conn: &mut PgConnection, schema: &str, message: &MessageData) {
    let call = format!("SELECT * FROM {schema}.push('p', false, $1, ARRAY[19]::smallint[], $2, $3, $4, $5)");
    let envelope = anyqueue::adapter::Envelope::new(message.clone(), std::time::SystemTime::now());
    let options = message.options();
    let bytes = |text: &Option<std::sync::Arc<str>>| vec![text.as_ref().map(|text| text.as_bytes().to_vec())];
    let delay = message.delay(std::time::SystemTime::now());
    let query = sqlx::query(AssertSqlSafe(call)).bind(vec![Uuid::from_bytes(*message.id().as_bytes())]);
    let query = query.bind(vec![i64::try_from(delay.as_millis()).unwrap()]);
    let query = query.bind(bytes(&options.group)).bind(bytes(&options.dedup_key));
    query.bind(vec![envelope.encode().unwrap()]).execute(conn).await.unwrap();
}

#[tokio::test]
async fn a_schema_of_an_older_release_is_upgraded_with_its_messages() {
    let Some(bed) = Bed::find().await else { return };
    let (mut conn, schema, p) = (bed.connect().await, &bed.schema, part("p"));
    make_old(&mut conn, schema).await;
    let delayed = MessageData::new("delayed").with_delay(DAY);
    let [head, behind] = ["head", "behind"].map(|text| MessageData::new(text).with_group("g"));
    let held = MessageData::new("held").with_dedup_key("k");
    let ready = MessageData::new("ready");
    push_old(&mut conn, schema, &held).await;
    let all = "ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL";
    let claim = format!("SELECT FROM {schema}.pull('p', false, 1, 60000, gen_random_uuid(), {all})");
    run(&mut conn, claim.clone()).await;
    for message in [&ready, &head, &behind, &delayed] {
        push_old(&mut conn, schema, message).await;
    }

    let queue = bed.open().await;
    let counts = queue.counts(&p).await.unwrap();
    let shown = (counts.ready, counts.delayed, counts.leased, counts.disabled);
    assert_eq!(shown, (Some(3), Some(1), Some(1), Some(0)));
    amend_one(&queue, &p, &head, Amend::new().disable()).await;
    amend_one(&queue, &p, &delayed, Amend::new().with_priority(1).now()).await;
    assert_eq!(drain(&queue, &p).await, ["delayed", "ready", "behind"]);

    // Another process of the older release has not ended yet.
    push_old(&mut conn, schema, &MessageData::new("old").with_group("g")).await;
    let one = "ARRAY[gen_random_uuid()], ARRAY[19]::smallint[], '{}'";
    let columns = "'{}', ARRAY['k2'::bytea], ARRAY['x'::bytea], ARRAY[1]::smallint[]";
    let over = format!("SELECT * FROM {schema}.push_over('p', {one}, {columns}, false)");
    run(&mut conn, over).await;
    let then = format!(
        "SELECT {schema}.store_successors(ARRAY[1], NULL, NULL, 1, ARRAY['p'], ARRAY[1], ARRAY[1], {one}, '{{}}', '{{}}', ARRAY['y'::bytea], '{{}}')"
    );
    run(&mut conn, then).await;
    run(&mut conn, claim).await; // that of the first process
    assert_eq!(drain(&queue, &p).await, ["x", "y"]);
    amend_one(&queue, &p, &head, Amend::new().enable()).await;
    queue.push(&p, &[MessageData::new("urgent").with_urgent_after(Duration::ZERO)]).await;
    bed.run(format!("UPDATE {schema}.message SET until = now() - interval '1 s', due = now() - interval '1 s' WHERE state = 1")).await;
    let queue = let_time_pass(&bed).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(crate::common::texts(&held), ["urgent", "held", "old"]);
}
