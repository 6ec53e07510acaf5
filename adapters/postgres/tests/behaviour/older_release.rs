//! The schema of an older release, and what that release stores in it.

use anyqueue::MessageData;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::common::run;

/// The migrations of before, which never change.
const OLD: [&[&str]; 4] = [
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
    &[
        include_str!("../../migrations/0003_amendments/1_columns.sql"),
        include_str!("../../migrations/0003_amendments/2_time.sql"),
        include_str!("../../migrations/0003_amendments/3_pull.sql"),
        include_str!("../../migrations/0003_amendments/4_settle.sql"),
        include_str!("../../migrations/0003_amendments/5_push.sql"),
        include_str!("../../migrations/0003_amendments/6_successors.sql"),
        include_str!("../../migrations/0003_amendments/7_admin.sql"),
        include_str!("../../migrations/0003_amendments/8_amend.sql"),
    ],
    &[
        include_str!("../../migrations/0004_ends/1_tables.sql"),
        include_str!("../../migrations/0004_ends/2_store.sql"),
        include_str!("../../migrations/0004_ends/3_read.sql"),
        include_str!("../../migrations/0004_ends/4_remove.sql"),
    ],
];

/// Makes the schema of a release that had so many migrations.
pub(crate) async fn make_old(conn: &mut PgConnection, schema: &str, migrations: usize) {
    let mut tx = conn.begin().await.unwrap();
    let table =
        "version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()";
    let begin = format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.migration ({table}); SET LOCAL search_path = {schema}, pg_temp"
    );
    run(&mut tx, begin).await;
    for (version, scripts) in (1..).zip(OLD).take(migrations) {
        for script in scripts {
            run(&mut tx, (*script).to_owned()).await;
        }
        run(&mut tx, format!("INSERT INTO migration (version, name) VALUES ({version}, 'old')")).await;
    }
    tx.commit().await.unwrap();
}

/// As the statement of the older release does.
pub(crate) async fn push_old(conn: &mut PgConnection, schema: &str, message: &MessageData) {
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
