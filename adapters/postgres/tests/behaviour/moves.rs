//! One id in several partitions: where such messages meet, they are one.

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{MessageData, Page, PartitionId, PushOutcome, RetryClass, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::Connection;

use crate::common::{Bed, part, pull, run};

async fn push_one(queue: &PostgresQueue, partition: &PartitionId, message: &MessageData) -> PushOutcome {
    queue.push(partition, std::slice::from_ref(message)).await.remove(0).unwrap()
}

async fn settle(queue: &PostgresQueue, settlements: &[Settlement]) {
    for outcome in queue.settle(settlements).await {
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
}

fn to(held: &RawDelivery, partition: &PartitionId) -> Settlement {
    Settlement::new(held.lease.clone(), Action::Move { to: partition.clone(), headers: None })
}

#[tokio::test]
async fn an_id_lives_once_in_a_partition_and_its_dead_letters() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, a, b) = (bed.open().await, part("a"), part("b"));
    let message = MessageData::new("x");
    assert_eq!(push_one(&queue, &a, &message).await, PushOutcome::Stored(message.id()));
    assert_eq!(push_one(&queue, &b, &message).await, PushOutcome::Stored(message.id()), "another partition");
    let held = pull(&queue, &a, 1).await.remove(0);
    settle(&queue, &[to(&held, &a.dead_letters())]).await;
    let again = push_one(&queue, &a, &message).await;
    assert_eq!(again, PushOutcome::Duplicate(Some(message.id())), "among the dead letters");
}

#[tokio::test]
async fn messages_of_one_id_that_are_moved_to_one_partition_are_one() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, [a, b, c]) = (bed.open().await, ["a", "b", "c"].map(part));
    let message = MessageData::new("x").with_group("g");
    for from in [&a, &b] {
        push_one(&queue, from, &message).await;
        push_one(&queue, from, &MessageData::new("behind").with_group("g")).await;
    }
    let (from_a, from_b) = (pull(&queue, &a, 1).await.remove(0), pull(&queue, &b, 1).await.remove(0));
    settle(&queue, &[to(&from_a, &c), to(&from_b, &c)]).await;
    let there: Vec<_> = queue.browse(&c, Page::of(10)).await.unwrap();
    assert_eq!(there.iter().map(|browsed| browsed.message.id()).collect::<Vec<_>>(), [message.id()]);
    // Both left their groups.
    assert_eq!((pull(&queue, &a, 9).await.len(), pull(&queue, &b, 9).await.len()), (1, 1));
}

#[tokio::test]
async fn a_move_to_where_the_id_is_being_stored_is_repeated_and_then_settled() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, [a, c]) = (bed.open().await, ["a", "c"].map(part));
    let message = MessageData::new("x");
    push_one(&queue, &a, &message).await;
    let held = pull(&queue, &a, 1).await.remove(0);
    push_one(&queue, &c, &MessageData::new("the partition is known")).await;
    let mut conn = bed.connect().await;
    let mut tx = conn.begin().await.unwrap();
    let pushed = queue.push_in(&mut tx, &c, std::slice::from_ref(&message)).await.unwrap();
    assert!(pushed.outcomes[0].is_ok());
    let moving = tokio::spawn({
        let (queue, settlement) = (queue.clone(), to(&held, &c));
        async move { queue.settle(&[settlement]).await.remove(0) }
    });
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1";
    let mut watcher = bed.connect().await;
    loop {
        let waits: i64 = sqlx::query_scalar(blocked).bind(&bed.schema).fetch_one(&mut watcher).await.unwrap();
        if waits > 0 {
            break;
        }
        run(&mut watcher, "SELECT pg_sleep(0.01)".to_owned()).await;
    }
    tx.commit().await.unwrap();
    let error = moving.await.unwrap().unwrap_err();
    assert_eq!(error.retry(), RetryClass::Safe, "{error}");
    settle(&queue, &[to(&held, &c)]).await;
    assert_eq!((pull(&queue, &a, 9).await.len(), pull(&queue, &c, 9).await.len()), (0, 2));
}
