//! A server that is killed and frozen under load: nothing acknowledged is lost, no call hangs, and the same clients go on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{
    Delivery, MessageData, MessageId, PartitionOptions, Queue, QueueMessageStatus::Processed, Result,
    SettleOutcome,
};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Postgres, start_if_installed};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const MESSAGES: usize = 50_000;
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// A call is repeated at most four times after its first time-out, with pauses.
const NO_CALL_LONGER: Duration = Duration::from_secs(25);
/// What a busy machine adds. Handles that do not recover by themselves never do.
const LATE: Duration = Duration::from_secs(10);
pub(crate) const RECOVERY: Duration = Duration::from_secs(5).saturating_add(LATE);
const LEASE: Duration = Duration::from_secs(5);
/// For all messages, or some, however busy the machine is.
pub(crate) const ALL: Duration = Duration::from_mins(3);

pub(crate) async fn client(url: &str) -> Queue {
    let storage = PostgresQueue::builder(url).unwrap().call_timeout(CALL_TIMEOUT);
    let defaults = PartitionOptions::default().with_lease(LEASE);
    // The migrations are not under test here, and take their time on a busy machine.
    PostgresQueue::open(url).await.unwrap();
    let queue = Queue::builder(storage.open().await.unwrap()).defaults(defaults);
    queue.call_timeout(CALL_TIMEOUT).build().unwrap()
}

/// A call that must not hang.
async fn bounded<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(NO_CALL_LONGER, call).await.expect("a call hangs")
}

/// Pushes all, each until it is acknowledged, and tells how many are.
pub(crate) fn push_all(
    queue: Queue,
    messages: Arc<Vec<MessageData>>,
    acknowledged: watch::Sender<usize>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        for batch in messages.chunks(100) {
            let mut left = batch.to_vec();
            while !left.is_empty() {
                // As whole it fails only before anything is sent.
                let outcomes = bounded(queue.push_many("load", left.clone())).await.unwrap_or_default();
                let mut outcomes = outcomes.into_iter();
                left.retain(|_| outcomes.next().is_none_or(|outcome: Result<_>| outcome.is_err()));
            }
            acknowledged.send_modify(|count| *count += batch.len());
        }
    })
}

/// What came, and what was confirmed as removed more than once.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) delivered: HashSet<MessageId>,
    settled: HashSet<MessageId>,
    settled_twice: Vec<MessageId>,
}

/// Removes what comes until all was pushed and nothing is left.
pub(crate) fn drain(queue: Queue, acknowledged: watch::Receiver<usize>, all: usize) -> JoinHandle<Seen> {
    tokio::spawn(async move {
        let mut seen = Seen::default();
        loop {
            let pull = queue.pull("load").max(200).wait(Duration::from_millis(500));
            let mut held = bounded(pull.into_future()).await.unwrap_or_default();
            if held.is_empty() && *acknowledged.borrow() == all {
                let counts = bounded(queue.counts("load")).await;
                if counts.is_ok_and(|counts| counts.ready == Some(0) && counts.leased == Some(0)) {
                    return seen;
                }
            }
            seen.delivered.extend(held.iter().map(Delivery::id));
            let ids: Vec<_> = held.iter().map(Delivery::id).collect();
            let all = held.iter_mut().map(|handler| (handler, Processed));
            let outcomes = bounded(queue.settle_many(all)).await;
            for (id, outcome) in ids.into_iter().zip(outcomes) {
                if matches!(outcome, Ok(SettleOutcome::Settled)) && !seen.settled.insert(id) {
                    seen.settled_twice.push(id);
                }
            }
        }
    })
}

pub(crate) async fn until(acknowledged: &mut watch::Receiver<usize>, count: usize) {
    let reached = acknowledged.wait_for(|acknowledged| *acknowledged >= count);
    tokio::time::timeout(ALL, reached).await.expect("the load goes on").unwrap();
}

/// The time until each of these handles, which lived through it all, pushes and pulls again.
pub(crate) async fn recovered(queues: &[&Queue]) -> Duration {
    let back = Instant::now();
    for queue in queues {
        while bounded(queue.push("probe", MessageData::new("?"))).await.is_err() {}
        loop {
            let got = bounded(queue.pull("probe").into_future()).await.unwrap_or_default();
            if let Some(mut handler) = got.into_iter().next()
                && bounded(handler.settle(Processed)).await.is_ok()
            {
                break;
            }
        }
    }
    back.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_twice_and_frozen_under_load_loses_nothing_acknowledged() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let (pusher, consumer) = (client(server.url()).await, client(server.url()).await);
    let messages: Arc<Vec<_>> =
        Arc::new((0..MESSAGES).map(|number| MessageData::new(format!("{number:0256}"))).collect());
    let (count, mut acknowledged) = watch::channel(0);
    let pushing = push_all(pusher.clone(), messages.clone(), count);
    let draining = drain(consumer.clone(), acknowledged.clone(), MESSAGES);

    for share in [MESSAGES / 4, MESSAGES / 2] {
        until(&mut acknowledged, share).await;
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        let took = recovered(&[&pusher, &consumer]).await;
        assert!(took < RECOVERY, "recovery after a kill took {took:?}");
    }
    until(&mut acknowledged, MESSAGES * 3 / 4).await;
    server.freeze().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.thaw().await.unwrap();
    let took = recovered(&[&pusher, &consumer]).await;
    assert!(took < RECOVERY, "recovery after a freeze took {took:?}");

    tokio::time::timeout(ALL, pushing).await.expect("all is pushed in the end").unwrap();
    let seen = tokio::time::timeout(ALL, draining).await.expect("all is processed in the end").unwrap();
    let lost = messages.iter().filter(|message| !seen.delivered.contains(&message.id())).count();
    assert_eq!(lost, 0, "acknowledged messages that never came");
    let attempted: HashSet<_> = messages.iter().map(MessageData::id).collect();
    assert!(seen.delivered.is_subset(&attempted), "messages that nobody pushed");
    // A push that was not answered is made again: where its message was processed meanwhile, it is a second one.
    assert!(seen.settled_twice.len() <= 300, "{} messages were settled twice", seen.settled_twice.len());
}
