//! Transactions of other levels than the functions are made for.

use anyqueue::adapter::{LedgerQueueStorage, PullQueueStorage, PushQueueStorage, QueueStorage, Settlement};
use anyqueue::{ErrorKind, MessageData};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::common::{Bed, part, pull, pull_wait, run, texts};
use crate::control;
use crate::ledger::{count, done, end_new};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn member(text: &str) -> MessageData {
    MessageData::new(text).with_group("g")
}

async fn remove_all(queue: &PostgresQueue, held: Vec<anyqueue::adapter::RawDelivery>) {
    let settlements =
        held.into_iter().map(|held| Settlement::new(held.lease, anyqueue::adapter::Action::Remove));
    for outcome in queue.settle(&settlements.collect::<Vec<_>>()).await {
        assert_eq!(outcome.unwrap(), anyqueue::SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn a_member_of_a_group_pushed_in_a_transaction_of_any_level_is_delivered() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for level in LEVELS {
        queue.push(&p, &[member("first")]).await.remove(0).unwrap();
        let mut conn = bed.connect().await;
        let mut tx = conn.begin().await.unwrap();
        // Its snapshot is taken while the group has a member, which then goes.
        run(&mut tx, format!("SET TRANSACTION ISOLATION LEVEL {level}; SELECT FROM pg_class LIMIT 1")).await;
        remove_all(&queue, pull(&queue, &p, 9).await).await;
        let pushed = queue.push_in(&mut tx, &p, &[member("second"), member("third")]).await.unwrap();
        assert!(pushed.outcomes.iter().all(Result::is_ok));
        tx.commit().await.unwrap();
        pushed.after_commit.notify();
        for text in ["second", "third"] {
            let held = pull_wait(&queue, &p, 9).await;
            assert_eq!(texts(&held), [text], "{level}");
            remove_all(&queue, held).await;
        }
    }
}

#[tokio::test]
async fn a_databases_own_level_does_not_reach_the_handles_transactions() {
    let Some(bed) = Bed::empty().await else { return };
    for level in LEVELS {
        let role = format!("{}_{}", bed.schema, level.to_lowercase().replace(' ', "_"));
        bed.run(format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_isolation = '{level}'"
        ))
        .await;
        let url = bed.url_of(&role);
        for (notify, prepared) in [(true, true), (true, false), (false, false)] {
            let builder = PostgresQueue::builder(&url).unwrap().notify(notify).prepared(prepared);
            let (queue, p) = (builder.open().await.unwrap(), part("p"));
            queue.push(&p, &[member("first"), member("second")]).await.remove(0).unwrap();
            let first = pull(&queue, &p, 9).await;
            // While the head is held, a member joins in a transaction that ends later.
            let mut conn = bed.connect().await;
            let mut tx = conn.begin().await.unwrap();
            run(&mut tx, format!("SELECT FROM {}.message_group FOR UPDATE", bed.schema)).await;
            let pushing = tokio::spawn({
                let (queue, p) = (queue.clone(), p.clone());
                async move { queue.push(&p, &[member("third")]).await.remove(0) }
            });
            tx.rollback().await.unwrap();
            remove_all(&queue, first).await;
            pushing.await.unwrap().unwrap();
            for text in ["second", "third"] {
                let held = pull_wait(&queue, &p, 9).await;
                assert_eq!(texts(&held), [text], "{level}, notify={notify}, prepared={prepared}");
                remove_all(&queue, held).await;
            }
            let ended = count(&queue, &p).await;
            end_new(&queue, &p, 2, &done()).await;
            let recorded = [(anyqueue::MessageId::new(), std::sync::Arc::new(done()))];
            queue.record_ended(&p, &recorded).await.remove(0).unwrap();
            assert_eq!(count(&queue, &p).await, ended + 3);
            control::put(&queue, "k").await;
            assert!(control::get(&queue, "k").await.is_some());
            queue.check().await.unwrap();
            queue.close().await.unwrap();
        }
        // Shared connections are left as they are, and nothing else pins the level there.
        let shared = PostgresQueue::builder(&url).unwrap().notify(false).open().await;
        match shared {
            Ok(_) => assert_eq!(level, "READ COMMITTED"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
                assert!(error.message().contains(&level.to_lowercase()), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn the_functions_refuse_groups_at_a_level_that_would_lose_them() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, schema) = (bed.open().await, &bed.schema);
    queue.push(&part("p"), &[MessageData::new("known")]).await.remove(0).unwrap();
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned()).await;
    let push = format!(
        "SELECT * FROM {schema}.push('p', false, ARRAY[gen_random_uuid()], ARRAY[19]::smallint[], '{{}}', ARRAY['g'::bytea], '{{}}', ARRAY[''::bytea])"
    );
    let error = sqlx::raw_sql(sqlx::AssertSqlSafe(push)).execute(&mut *tx).await.unwrap_err();
    assert!(error.to_string().contains("read committed"), "{error}");
}
