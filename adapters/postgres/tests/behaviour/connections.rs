//! Connections that break, and proxies.

use std::time::Duration;

use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage};
use anyqueue::{MessageData, RetryClass};
use anyqueue_postgres::PostgresQueue;

use crate::common::{Bed, LEASE, SOON, part, pull, pull_wait, push, remove, texts};

#[tokio::test]
async fn a_handle_goes_on_after_its_connections_were_ended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &["one", "two"]).await;
    bed.end_connections().await;
    // A call fails if the handle has not yet seen the end of its connection; it says that it can be repeated, as core does.
    let three = MessageData::new("three");
    if let Err(error) = queue.push(&p, std::slice::from_ref(&three)).await.remove(0) {
        assert_eq!(error.retry(), RetryClass::Safe, "{error}");
        queue.push(&p, &[three]).await.remove(0).unwrap();
    }
    queue.check().await.unwrap();
    assert_eq!(texts(&pull(&queue, &p, 3).await), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_waiting_pull_can_be_made_again_after_its_connections_were_ended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other, p) = (bed.open().await, bed.open().await, part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move {
            loop {
                match queue.pull(&p, PullRequest::new(1, SOON, LEASE)).await {
                    Ok(deliveries) => return texts(&deliveries),
                    Err(error) => assert_eq!(error.retry(), RetryClass::Safe, "{error}"),
                }
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    bed.end_connections().await;
    let message = MessageData::new("through");
    let mut outcome = other.push(&p, std::slice::from_ref(&message)).await.remove(0);
    if outcome.is_err() {
        outcome = other.push(&p, &[message]).await.remove(0);
    }
    outcome.unwrap();
    assert_eq!(waiting.await.unwrap(), ["through"]);
}

#[tokio::test]
async fn without_prepared_statements_and_notifications_everything_works() {
    let Some(bed) = Bed::find().await else { return };
    let plain = || PostgresQueue::builder(&bed.url()).unwrap().prepared(false).notify(false);
    let (queue, other, p) = (plain().open().await.unwrap(), plain().open().await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { pull_wait(&other, &p, 1).await }
    });
    push(&queue, &p, &["polled"]).await;
    let deliveries = waiting.await.unwrap();
    assert_eq!(texts(&deliveries), ["polled"]);
    assert_eq!(remove(&queue, &deliveries[0].lease).await, anyqueue::SettleOutcome::Settled);
}

#[tokio::test]
async fn three_hundred_waiting_pulls_take_few_connections() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let pulls: Vec<_> = (0..300)
        .map(|number| {
            let (queue, p) = (queue.clone(), part(&format!("p{number}")));
            tokio::spawn(
                async move { queue.pull(&p, PullRequest::new(1, Duration::from_mins(1), LEASE)).await },
            )
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let count = sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1");
    let open: i64 = count.bind(&bed.schema).fetch_one(&mut bed.connect().await).await.unwrap();
    assert!(open <= 9, "{open} connections");
    queue.close().await.unwrap();
    for pull in pulls {
        assert!(pull.await.unwrap().is_ok_and(|deliveries| deliveries.is_empty()));
    }
}
