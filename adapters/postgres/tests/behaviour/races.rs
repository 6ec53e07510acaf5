//! Pulls beside settlements. What is released while a pull looks for messages must neither be passed over nor served where it was.

use std::time::Duration;

use anyqueue::SettleOutcome;
use anyqueue::adapter::{Action, Lease, PullQueueStorage, QueueStorage, Settlement, Token};
use anyqueue_postgres::PostgresQueue;
use sqlx::AssertSqlSafe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::common::{Bed, part, pull, push, remove, run, texts};

const MESSAGES: usize = 400;
const BATCH: usize = 5;
const HANDLES: usize = 4;
const TASKS: usize = 16;
const ROUNDS: usize = 100;

/// An advisory lock that nothing else has.
const LOCK: u32 = 724_901;

/// Pulls and releases, over and over, from many tasks. How many messages each pull got.
async fn churn(bed: &Bed, action: Action) -> Vec<usize> {
    let queues: Vec<PostgresQueue> = futures_util::future::join_all((0..HANDLES).map(|_| bed.open())).await;
    push(&bed.open().await, &part("work"), &["x"; MESSAGES]).await;
    let mut tasks = JoinSet::new();
    let (pulled, mut answers) = mpsc::channel(TASKS * ROUNDS);
    for queue in queues.iter().cycle().take(TASKS) {
        let (queue, pulled, action) = (queue.clone(), pulled.clone(), action.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let held = pull(&queue, &part("work"), BATCH).await;
                pulled.send(held.len()).await.unwrap();
                let back = held.into_iter().map(|held| Settlement::new(held.lease, action.clone()));
                for outcome in queue.settle(&back.collect::<Vec<_>>()).await {
                    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
                }
            }
        });
    }
    drop(pulled);
    let mut all = Vec::new();
    while let Some(got) = answers.recv().await {
        all.push(got);
    }
    tasks.join_all().await;
    for queue in queues {
        queue.close().await.unwrap();
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_among_many_that_release_gets_as_many_as_it_asks_for() {
    let Some(bed) = Bed::find().await else { return };
    for action in [Action::Release, Action::Postpone { delay: Duration::ZERO, headers: None }] {
        let short = churn(&bed, action.clone()).await.iter().filter(|got| **got < BATCH).count();
        assert_eq!(short, 0, "of {} pulls, with {action:?}", TASKS * ROUNDS);
    }
}

/// A pull of this role halts at the first message that it comes upon, for as long as somebody has the lock.
async fn halting(bed: &Bed) -> PostgresQueue {
    let (schema, role) = (&bed.schema, format!("{}_role", bed.schema));
    bed.run(format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role};
        CREATE FUNCTION {schema}.halt() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_advisory_lock_shared({LOCK});
            RETURN pg_advisory_unlock_shared({LOCK});
        END $$;
        CREATE POLICY halt ON {schema}.message USING ({schema}.halt());
        ALTER TABLE {schema}.message ENABLE ROW LEVEL SECURITY"
    ))
    .await;
    PostgresQueue::open(&bed.url_of(&role)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_postponed_while_a_pull_looks_is_served_behind_the_others() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, work) = (bed.open().await, part("work"));
    push(&queue, &work, &["first", "second"]).await;
    let (halts, mut gate) = (halting(&bed).await, bed.connect().await);
    run(&mut gate, format!("SELECT pg_advisory_lock({LOCK})")).await;
    let looks = tokio::spawn({
        let work = work.clone();
        async move { pull(&halts, &work, 1).await }
    });
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {LOCK} AND NOT granted"
    );
    while sqlx::query_scalar::<_, i64>(AssertSqlSafe(waits.as_str())).fetch_one(&mut gate).await.unwrap() == 0
    {
        assert!(!looks.is_finished(), "it met nothing that halts it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held = pull(&queue, &work, 1).await;
    assert_eq!(texts(&held), ["first"]);
    let lease = held.into_iter().next().unwrap().lease;
    let postponed = Settlement::new(lease, Action::Postpone { delay: Duration::ZERO, headers: None });
    assert_eq!(*queue.settle(&[postponed]).await[0].as_ref().unwrap(), SettleOutcome::Settled);
    run(&mut gate, format!("SELECT pg_advisory_unlock({LOCK})")).await;
    assert_eq!(texts(&looks.await.unwrap()), ["second"]);
}

#[tokio::test]
async fn who_knows_where_a_message_is_but_not_its_secret_removes_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("work"), &["x"]).await;
    let held = pull(&queue, &part("work"), 1).await.remove(0).lease;
    let mut token = held.token.as_bytes().to_vec();
    *token.first_mut().unwrap() ^= 1;
    let forged = Lease { token: Token::from_bytes(token), ..held.clone() };
    assert_eq!(remove(&queue, &forged).await, SettleOutcome::Lost);
    assert_eq!(remove(&queue, &held).await, SettleOutcome::Settled);
}
