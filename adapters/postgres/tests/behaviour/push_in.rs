//! Messages in the application's own transactions.

use anyqueue::{MessageData, PushOutcome};
use sqlx::Connection;

use crate::common::{Bed, part, pull, pull_wait, push, texts};

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
