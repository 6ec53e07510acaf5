//! Connections: how many, what idling costs, and what happens when they break.

use std::time::{Duration, Instant};

use anyqueue::RetryClass;
use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage};

use crate::common::{Bed, LEASE, SOON, messages, part, pull, pull_wait, push, texts};

#[tokio::test]
async fn a_handle_goes_on_after_its_connections_were_ended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["one", "two"])).await;
    bed.run("CLIENT KILL TYPE normal SKIPME yes").await;
    // One call may fail; it says that it can be repeated, as core does.
    let three = messages(&["three"]);
    if let Err(error) = queue.push(&p, &three).await.remove(0) {
        assert_eq!(error.retry(), RetryClass::Safe, "{error}");
        push(&queue, &p, &three).await;
    }
    queue.check().await.unwrap();
    assert_eq!(texts(&pull(&queue, &p, 3).await), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_waiting_pull_is_woken_though_the_connection_for_hints_broke() {
    let Some(bed) = Bed::find().await else { return };
    let builder = || bed.builder().poll_interval(Duration::from_millis(200));
    let (queue, other, p) = (builder().open().await.unwrap(), builder().open().await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { pull_wait(&queue, &p, 1).await }
    });
    while bed.info("pubsub_channels").await == 0 {
        tokio::task::yield_now().await;
    }
    bed.run("CLIENT KILL TYPE pubsub").await;
    push(&other, &p, &messages(&["through"])).await;
    assert_eq!(texts(&waiting.await.unwrap()), ["through"]);
}

#[tokio::test]
async fn three_hundred_waiting_pulls_take_two_connections() {
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
    while bed.info("pubsub_channels").await == 0 {
        tokio::task::yield_now().await;
    }
    // Two, and the one that asks; that which asked before goes a moment later.
    let since = Instant::now();
    while bed.info("connected_clients").await != 3 {
        assert!(since.elapsed() < SOON, "{} clients", bed.info("connected_clients").await);
    }
    queue.close().await.unwrap();
    for pull in pulls {
        assert!(pull.await.unwrap().is_ok_and(|deliveries| deliveries.is_empty()));
    }
    while bed.info("connected_clients").await > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn four_idle_workers_send_at_most_ten_commands_a_second() {
    let Some(bed) = Bed::find().await else { return };
    let mut handles = Vec::new();
    for _ in 0..4 {
        let (queue, p) = (bed.open().await, part("p"));
        tokio::spawn({
            let queue = queue.clone();
            async move { while queue.pull(&p, PullRequest::new(1, SOON, LEASE)).await.is_ok() {} }
        });
        handles.push(queue);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    bed.run("CONFIG RESETSTAT").await;
    let since = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
    let sent: u64 = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_evalsha"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum();
    let took = since.elapsed();
    assert!(u128::from(sent) * 1000 <= 10 * took.as_millis(), "{sent} commands in {took:?}");
    for queue in handles {
        queue.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_on_a_frozen_server_ends_in_time_and_the_handle_goes_on_after() {
    let Some(bed) = Bed::find().await else { return };
    let builder = bed.builder().call_timeout(Duration::from_secs(2)).connect_timeout(Duration::from_secs(2));
    let (queue, p) = (builder.open().await.unwrap(), part("p"));
    bed.server.freeze().await.unwrap();
    for _ in 0..3 {
        let pushed = tokio::time::timeout(SOON, queue.push(&p, &messages(&["x"]))).await;
        assert_eq!(pushed.unwrap().remove(0).unwrap_err().retry(), RetryClass::Safe);
    }
    bed.server.thaw().await.unwrap();
    push(&queue, &p, &messages(&["after"])).await;
    assert!(texts(&pull(&queue, &p, 9).await).contains(&"after".to_owned()));
}
