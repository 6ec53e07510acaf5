//! Messages in the application's own transactions.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, PauseQueueStorage, PullQueueStorage, PushQueueStorage, Settlement,
};
use anyqueue::{MessageData, Page, PushOutcome, SettleOutcome};
use sqlx::{AssertSqlSafe, Connection};

use crate::common::{Bed, part, pull, pull_wait, push, remove, run, texts};

/// For so long nobody must wait for the application's transaction.
const PROMPT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_message_is_stored_with_the_transaction_or_not_at_all() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &[MessageData::new("lost")]).await.unwrap();
    assert!(pushed.outcomes[0].is_ok());
    assert!(pull(&queue, &p, 1).await.is_empty(), "seen before the commit");
    tx.rollback().await.unwrap();
    assert!(pull(&queue, &p, 1).await.is_empty(), "seen though rolled back");

    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &[MessageData::new("kept")]).await.unwrap();
    tx.commit().await.unwrap();
    pushed.after_commit.notify();
    assert_eq!(texts(&pull_wait(&queue, &p, 1).await), ["kept"]);
}

#[tokio::test]
async fn without_the_hint_another_handle_finds_the_message_by_polling() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other, p) = (bed.open().await, bed.open().await, part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { texts(&pull_wait(&other, &p, 1).await) }
    });
    let mut conn = bed.connect().await;
    let pushed = queue.push_in(&mut conn, &p, &[MessageData::new("found")]).await.unwrap();
    drop(pushed);
    assert_eq!(waiting.await.unwrap(), ["found"]);
}

#[tokio::test]
async fn a_bad_message_or_a_duplicate_harms_neither_the_others_nor_the_transaction() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["first"]).await;
    let twice = MessageData::new("twice");
    let bad = MessageData::new("bad").with_header("anyqueue-x", "reserved");
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &[twice.clone(), bad, twice.clone()]).await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(matches!(pushed.outcomes[0], Ok(PushOutcome::Stored(_))));
    assert!(pushed.outcomes[1].is_err());
    assert_eq!(*pushed.outcomes[2].as_ref().unwrap(), PushOutcome::Duplicate(Some(twice.id())));
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["first", "twice"]);
}

#[tokio::test]
async fn a_transaction_that_sqlx_was_not_told_of_is_left_to_who_began_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut conn = bed.connect().await;
    let orders = format!("{}.orders", bed.schema);
    run(&mut conn, format!("CREATE TABLE {orders} (what text)")).await;
    for (end, kept) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        run(&mut conn, format!("BEGIN; INSERT INTO {orders} VALUES ('tea')")).await;
        let pushed = queue.push_in(&mut conn, &p, &[MessageData::new("tea is on its way")]).await.unwrap();
        assert!(pushed.outcomes[0].is_ok());
        run(&mut conn, end.to_owned()).await;
        let count = AssertSqlSafe(format!("SELECT count(*) FROM {orders}"));
        let left: i64 = sqlx::query_scalar(count).fetch_one(&mut conn).await.unwrap();
        assert_eq!((left, pull(&queue, &p, 9).await.len()), (kept, usize::try_from(kept).unwrap()), "{end}");
    }
}

#[tokio::test]
async fn nobody_waits_for_a_transaction_that_pushed_into_a_new_partition() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("new"));
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &[MessageData::new("mine")]).await.unwrap();
    assert!(pushed.outcomes[0].is_ok());
    let others = async {
        push(&queue, &p, &["plain"]).await;
        let options = MessageData::new("grouped").with_group("g").with_dedup_key("k");
        queue.push(&p, &[options]).await.remove(0).unwrap();
        queue.set_paused(&p, false).await.unwrap();
        assert_eq!(texts(&pull(&queue, &p, 9).await), ["plain", "grouped"]);
    };
    tokio::time::timeout(PROMPT, others).await.expect("somebody waits");
    tx.rollback().await.unwrap();
    assert_eq!(queue.partitions(Page::of(9)).await.unwrap(), [p]);
}

#[tokio::test]
async fn nobody_waits_for_a_transaction_that_pushed_into_a_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, other) = (bed.open().await, part("p"), part("other"));
    let member = |text: &str| MessageData::new(text).with_group("g");
    queue.push(&p, &[member("first"), member("second")]).await;
    push(&queue, &other, &["mail"]).await;
    let (first, mail) = (pull(&queue, &p, 9).await.remove(0), pull(&queue, &other, 9).await.remove(0));
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &p, &[member("third")]).await.unwrap();
    let others = async {
        let removals = [&first, &mail].map(|held| Settlement::new(held.lease.clone(), Action::Remove));
        for outcome in queue.settle(&removals).await {
            assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
        }
        let second = pull(&queue, &p, 9).await;
        assert_eq!(texts(&second), ["second"]);
        assert_eq!(remove(&queue, &second[0].lease).await, SettleOutcome::Settled);
    };
    tokio::time::timeout(PROMPT, others).await.expect("somebody waits");
    tx.commit().await.unwrap();
    // Who pushes after the commit is behind, though nobody has pulled in between.
    queue.push(&p, &[member("fourth")]).await.remove(0).unwrap();
    pushed.after_commit.notify();
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
    for text in ["third", "fourth"] {
        let held = pull_wait(&queue, &p, 9).await;
        assert_eq!(texts(&held), [text]);
        assert_eq!(remove(&queue, &held[0].lease).await, SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn members_of_a_group_from_a_transaction_are_found_without_the_hint_and_can_be_purged() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let waiting = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { texts(&pull_wait(&queue, &p, 1).await) }
    });
    let members: Vec<_> = (0..3).map(|_| MessageData::new("found").with_group("g")).collect();
    let mut conn = bed.connect().await;
    drop(queue.push_in(&mut conn, &p, &members).await.unwrap());
    assert_eq!(waiting.await.unwrap(), ["found"]);
    drop(queue.push_in(&mut conn, &part("q"), &members).await.unwrap());
    assert_eq!(queue.purge(&part("q"), 1000).await.unwrap(), 3);
    assert_eq!(
        queue.delete(&p, &[members[1].id()]).await[0].as_ref().unwrap(),
        &anyqueue::DeleteOutcome::Deleted
    );
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1));
}
