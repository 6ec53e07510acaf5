//! A member that gets in line while somebody looks for what to lock stays unlocked: who lets its group advance waits for it, and would wait
//! forever for somebody who waits for the group.

use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage};
use anyqueue::{CancelOutcome, MessageData};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::task::JoinHandle;

use crate::common::{Bed, part, pull, push, run};
use crate::locks::{number, until_locked};
use crate::whole_groups::{member, pull_whole};

const DAY: Duration = Duration::from_hours(24);

/// How often the functions look at a message, at most: from then on none waits at the gate.
const MOST_LOOKS: i64 = 8;

/// The messages of a partition, in the order of their ids and of their delays: one at which a look can be stopped, and two members of a group
/// whose first is leased.
const WAITING: [&str; 3] = ["gate", "late", "other"];

/// Lets each look at a message whose body ends with `gate` take a number, and wait for an advisory lock at the one that is asked for.
async fn make_gate(bed: &Bed) {
    let gate = "CREATE SEQUENCE {s}.looks; CREATE TABLE {s}.stop (look bigint);
        ALTER TABLE {s}.message RENAME TO message_kept;
        CREATE FUNCTION {s}.seen(p_body bytea) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN
            IF p_body LIKE '%gate' AND nextval('{s}.looks') = (SELECT look FROM {s}.stop) THEN
                PERFORM pg_advisory_xact_lock_shared(hashtext('{s}'));
            END IF;
            RETURN true;
        END $$;
        CREATE VIEW {s}.message AS SELECT ctid, * FROM {s}.message_kept WHERE {s}.seen(body)";
    bed.run(gate.replace("{s}", &bed.schema)).await;
}

/// A partition with the messages, all due, and with the look at which one is stopped.
async fn fill(bed: &Bed, name: &str, look: i64) {
    let (queue, p, schema) = (bed.open().await, part(name), &bed.schema);
    queue.push(&p, &[member("held")]).await.remove(0).unwrap();
    assert_eq!(pull(&queue, &p, 1).await.len(), 1);
    let [gate, late, other] = WAITING;
    let delayed =
        [MessageData::new(gate), member(late), member(other)].map(|message| message.with_delay(DAY));
    for outcome in queue.push(&p, &delayed).await {
        outcome.unwrap();
    }
    bed.run(format!(
        "UPDATE {schema}.message_kept SET due = due - interval '25 hours' WHERE state = 2;
         SELECT setval('{schema}.looks', 1, false); DELETE FROM {schema}.stop; INSERT INTO {schema}.stop VALUES ({look})"
    ))
    .await;
}

/// Runs one statement while the group is locked, and lets the member get in line at a look. Returns whether it did: else there was no such look,
/// or the member was locked before.
async fn is_left_unlocked(bed: &Bed, name: &str, statement: &str, look: i64) -> bool {
    fill(bed, name, look).await;
    let schema = &bed.schema;
    let of = format!("part = (SELECT part FROM {schema}.partition WHERE name = '{name}')");
    let late = format!("{of} AND body LIKE '%late'");
    let (mut group, mut gate, mut other, mut acting) =
        (bed.connect().await, bed.connect().await, bed.connect().await, bed.connect().await);
    run(&mut group, format!("BEGIN; SELECT FROM {schema}.message_group WHERE {of} FOR UPDATE")).await;
    run(&mut gate, format!("BEGIN; SELECT pg_advisory_xact_lock(hashtext('{schema}'))")).await;
    let pid = number(&mut acting, "SELECT pg_backend_pid()::bigint".to_owned()).await;
    let sent = statement.replace("{s}", schema).replace("{name}", name).replace(
        "{ids}",
        &format!("(SELECT array_agg(id ORDER BY id) FROM {schema}.message_kept WHERE {of} AND state = 2)"),
    );
    let acts = tokio::spawn(async move { run(&mut acting, sent).await });
    let is_at_gate = until_waiting(&mut other, pid, &acts).await == "advisory";
    let lines_up = unlocked(schema, &late, "state = 3, due = NULL");
    let is_in_line = is_at_gate && number(&mut other, lines_up).await == 1;
    run(&mut gate, "COMMIT".to_owned()).await;
    if is_in_line {
        assert_eq!(until_waiting(&mut other, pid, &acts).await, "row", "{statement} needs the group");
        let free = format!(
            "SELECT count(*) FROM (SELECT FROM {schema}.message_kept WHERE {late} FOR UPDATE SKIP LOCKED) AS unlocked"
        );
        assert_eq!(number(&mut other, free).await, 1, "{statement} keeps it locked, after look {look}");
    }
    run(&mut group, "ROLLBACK".to_owned()).await;
    acts.await.unwrap();
    is_in_line
}

/// Changes the delayed messages to which this applies, unless they are locked, and returns how many.
fn unlocked(schema: &str, which: &str, change: &str) -> String {
    format!(
        "WITH changed AS (
            UPDATE {schema}.message_kept SET {change}
            WHERE ctid = (SELECT ctid FROM {schema}.message_kept WHERE {which} AND state = 2 FOR UPDATE SKIP LOCKED) RETURNING 1
         ) SELECT count(*) FROM changed"
    )
}

/// Waits until this server process waits for a lock, and returns of which kind; or until the statement ends, which waited for nothing.
async fn until_waiting(watcher: &mut PgConnection, pid: i64, acts: &JoinHandle<()>) -> String {
    let kind = format!(
        "SELECT coalesce(min(CASE WHEN locktype = 'advisory' THEN locktype ELSE 'row' END), '')
         FROM pg_locks WHERE pid = {pid} AND NOT granted"
    );
    loop {
        let kind: String =
            sqlx::query_scalar(AssertSqlSafe(kind.clone())).fetch_one(&mut *watcher).await.unwrap();
        if !kind.is_empty() || acts.is_finished() {
            return kind;
        }
        run(watcher, "SELECT pg_sleep(0.01)".to_owned()).await;
    }
}

/// At each look of the statement in turn.
async fn leaves_unlocked(statement: &str) {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("another"), &["the schema is in use"]).await;
    make_gate(&bed).await;
    let mut times = 0;
    for look in 1..=MOST_LOOKS {
        times += i64::from(is_left_unlocked(&bed, &format!("p{look}"), statement, look).await);
    }
    assert!(times > 0, "nothing got in line while it looked: {statement}");
}

#[tokio::test]
async fn a_pull_keeps_no_lock_of_what_gets_in_line() {
    leaves_unlocked(
        "SELECT {s}.bring((SELECT part FROM {s}.partition WHERE name = '{name}'), clock_timestamp(), '-infinity')",
    )
    .await;
}

#[tokio::test]
async fn a_deletion_keeps_no_lock_of_what_gets_in_line() {
    leaves_unlocked("SELECT {s}.take_out('{name}', false, {ids}, false)").await;
}

#[tokio::test]
async fn a_cancellation_keeps_no_lock_of_what_gets_in_line() {
    leaves_unlocked("SELECT {s}.take_out('{name}', false, {ids}, true)").await;
}

#[tokio::test]
async fn a_purge_keeps_no_lock_of_what_gets_in_line() {
    leaves_unlocked("SELECT {s}.purge('{name}', false, 100)").await;
}

#[tokio::test]
async fn an_amendment_keeps_no_lock_of_what_gets_in_line() {
    leaves_unlocked("SELECT {s}.amend('{name}', {ids}, NULL, 0, false, NULL, NULL, '{}', '{}')").await;
}

/// A deletion has seen the message, and then somebody leases it.
#[tokio::test]
async fn a_deletion_leaves_what_is_leased_while_it_looks() {
    let Some(bed) = Bed::find().await else { return };
    let schema = &bed.schema;
    push(&bed.open().await, &part("another"), &["the schema is in use"]).await;
    make_gate(&bed).await;
    let mut times = 0;
    for look in 1..=MOST_LOOKS {
        let name = format!("p{look}");
        fill(&bed, &name, look).await;
        let of = format!("part = (SELECT part FROM {schema}.partition WHERE name = '{name}')");
        let (mut gate, mut other, mut acting) =
            (bed.connect().await, bed.connect().await, bed.connect().await);
        run(&mut gate, format!("BEGIN; SELECT pg_advisory_xact_lock(hashtext('{schema}'))")).await;
        let pid = number(&mut acting, "SELECT pg_backend_pid()::bigint".to_owned()).await;
        let deletes = format!(
            "SELECT {schema}.take_out('{name}', false, array_agg(id ORDER BY id), false) FROM {schema}.message_kept WHERE {of}"
        );
        let acts = tokio::spawn(async move { run(&mut acting, deletes).await });
        let is_at_gate = until_waiting(&mut other, pid, &acts).await == "advisory";
        let lease = "state = 1, due = now() + interval '1 hour', until = now() + interval '1 hour', token = gen_random_uuid()";
        let late = format!("{of} AND body LIKE '%late'");
        let is_leased = is_at_gate && number(&mut other, unlocked(schema, &late, lease)).await == 1;
        run(&mut gate, "COMMIT".to_owned()).await;
        acts.await.unwrap();
        let left =
            number(&mut other, format!("SELECT count(*) FROM {schema}.message_kept WHERE {late}")).await;
        assert_eq!(left == 1, is_leased, "at look {look}");
        times += i32::from(is_leased);
    }
    assert!(times > 0, "nothing was leased while it looked");
}

/// A connection that [`until_locked`] counts.
async fn counted(bed: &Bed) -> PgConnection {
    let mut conn = bed.connect().await;
    run(&mut conn, format!("SET application_name = '{}'", bed.schema)).await;
    conn
}

/// Runs a statement on such a connection, once it is waited for.
async fn start(bed: &Bed, statement: String) -> JoinHandle<()> {
    let mut conn = counted(bed).await;
    tokio::spawn(async move { run(&mut conn, statement).await })
}

#[tokio::test]
async fn a_cancellation_that_has_waited_for_a_pull_finds_the_message_held_and_for_a_release_free() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let pulls = format!(
        "BEGIN; SELECT FROM {schema}.pull('p', false, 1, 60000, gen_random_uuid(), ARRAY[0]::smallint[], ARRAY[0]::bigint[], ARRAY[19]::smallint[], NULL)"
    );
    let releases = format!(
        "BEGIN; SELECT {schema}.give_back(ARRAY[part], ARRAY[id], ARRAY[token], ARRAY[1]::smallint[], ARRAY[0]::bigint[], ARRAY[NULL]::bytea[])
         FROM {schema}.message"
    );
    let message = MessageData::new("one");
    queue.push(&p, std::slice::from_ref(&message)).await.remove(0).unwrap();
    for (first, expected) in [(pulls, CancelOutcome::Requested), (releases, CancelOutcome::Removed)] {
        let mut conn = bed.connect().await;
        run(&mut conn, first).await;
        let cancels = tokio::spawn({
            let (queue, p, id) = (queue.clone(), p.clone(), message.id());
            async move { queue.request_cancel(&p, &[id]).await.remove(0).unwrap() }
        });
        until_locked(&bed, 1).await;
        run(&mut conn, "COMMIT".to_owned()).await;
        assert_eq!(cancels.await.unwrap(), expected);
    }
}

/// The cancellation waits for the first release; meanwhile the second one has locked the group, and waits for the first member.
#[tokio::test]
async fn who_cancels_a_whole_group_that_is_released_one_by_one_locks_nobody_out() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let members = [member("first"), member("second")];
    for outcome in queue.push(&p, &members).await {
        outcome.unwrap();
    }
    assert_eq!(pull_whole(&queue, &p, 9, 9).await.len(), 2);
    let release = |member: &MessageData| {
        format!(
            "SELECT {schema}.give_back(ARRAY[part], ARRAY[id], ARRAY[token], ARRAY[1]::smallint[], ARRAY[0]::bigint[], ARRAY[NULL]::bytea[])
             FROM {schema}.message WHERE id = '{}'",
            member.id()
        )
    };
    let mut conn = bed.connect().await;
    run(&mut conn, format!("BEGIN; {}", release(&members[0]))).await;
    let cancels = tokio::spawn({
        let (queue, p, ids) = (queue.clone(), p.clone(), members.each_ref().map(MessageData::id));
        async move { queue.request_cancel(&p, &ids).await }
    });
    until_locked(&bed, 1).await;
    let second = start(&bed, release(&members[1])).await;
    until_locked(&bed, 2).await;
    run(&mut conn, "COMMIT".to_owned()).await;
    second.await.unwrap();
    for outcome in cancels.await.unwrap() {
        assert_eq!(outcome.unwrap(), CancelOutcome::Removed);
    }
}

/// The cancellation waits for a move, and then for a group.
#[tokio::test]
async fn what_is_moved_and_gets_in_line_elsewhere_stays_unlocked() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let moved = member("moved");
    let others = [MessageData::new("head").with_group("h"), MessageData::new("behind").with_group("h")];
    queue.push(&p, std::slice::from_ref(&moved)).await.remove(0).unwrap();
    assert_eq!(pull(&queue, &p, 1).await.len(), 1);
    for outcome in queue.push(&p, &others).await {
        outcome.unwrap();
    }
    queue.push(&part("q"), &[member("head there")]).await.remove(0).unwrap();
    let (mut conn, mut group, mut other) = (bed.connect().await, bed.connect().await, bed.connect().await);
    run(&mut group, format!("BEGIN; SELECT FROM {schema}.message_group WHERE name = 'h' FOR UPDATE")).await;
    let id = moved.id();
    run(
        &mut conn,
        format!(
            "BEGIN; SELECT {schema}.move(ARRAY[part], ARRAY[id], ARRAY[token], ARRAY['q'], ARRAY[false], ARRAY[NULL]::bytea[])
             FROM {schema}.message WHERE id = '{id}'"
        ),
    )
    .await;
    let cancels = tokio::spawn({
        let (queue, p, ids) = (queue.clone(), p.clone(), [moved.id(), others[1].id()]);
        async move { queue.request_cancel(&p, &ids).await }
    });
    until_locked(&bed, 1).await;
    run(&mut conn, "COMMIT".to_owned()).await;
    // It waits for the group by now, or will not have any lock before it does.
    let free = format!(
        "SELECT count(*) FROM (SELECT FROM {schema}.message WHERE id = '{id}' AND state = 3 FOR UPDATE SKIP LOCKED) AS unlocked"
    );
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{schema}' AND query LIKE '%take_out%'"
    );
    while number(&mut other, waits.clone()).await == 0 {
        run(&mut other, "SELECT pg_sleep(0.01)".to_owned()).await;
    }
    assert_eq!(number(&mut other, free).await, 1, "a cancellation that waits for a group keeps it locked");
    run(&mut group, "ROLLBACK".to_owned()).await;
    let outcomes: Vec<_> = cancels.await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [CancelOutcome::NotFound, CancelOutcome::Removed]);
}
