//! A server that goes away and comes back, and connections that end at any byte: no call hangs, and the account closes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Action, PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue::{Delivery, MessageData, MessageId, PartitionOptions, Queue, RetryClass, SettleOutcome};
use anyqueue_sqs::SqsQueue;
use anyqueue_testkit::{Direction, Fault, Ministack, Proxy, Server, start_if_installed};
use tokio::sync::watch;

use crate::common::{SOON, messages, part, push, settle};

const COUNT: usize = 5000;
/// No test goes on for longer, whatever happens.
const PATIENCE: Duration = Duration::from_mins(4);
const SHORT_LEASE: Duration = Duration::from_secs(5);
/// Whatever was held has come back after this.
const QUIET: Duration = Duration::from_secs(14);

async fn open(endpoint: &str) -> SqsQueue {
    open_with(endpoint, "call_timeout=2s").await
}

async fn open_with(endpoint: &str, more: &str) -> SqsQueue {
    let url = format!("sqs://test:test@us-east-1/test?levels=2&{more}&endpoint={endpoint}");
    SqsQueue::open(&url).await.unwrap()
}

async fn queue(server: &Server) -> Queue {
    let defaults = PartitionOptions::default().with_lease(SHORT_LEASE).with_max_deliveries(None);
    Queue::builder(open(server.url()).await).defaults(defaults).build().unwrap()
}

/// Pushes all, each until it is acknowledged. Returns those of which there may be two.
async fn push_all(queue: Queue, all: Vec<MessageData>, stored: watch::Sender<usize>) -> HashSet<MessageId> {
    let mut doubtful = HashSet::new();
    for chunk in all.chunks(50) {
        let mut left = chunk.to_vec();
        while !left.is_empty() {
            let outcomes = queue.push_many("p", left.clone()).await.unwrap();
            let mut outcomes = outcomes.into_iter();
            left.retain(|message| match outcomes.next().unwrap() {
                Ok(_) => false,
                Err(error) => {
                    assert_ne!(error.retry(), RetryClass::Never, "{error}");
                    if error.retry() == RetryClass::MayDuplicate {
                        doubtful.insert(message.id());
                    }
                    true
                }
            });
            tokio::task::yield_now().await;
        }
        stored.send_modify(|stored| *stored += chunk.len());
    }
    doubtful
}

/// What came of each message.
#[derive(Default)]
struct Ends {
    removed: HashMap<MessageId, usize>,
    unknown: HashSet<MessageId>,
}

/// Processes all that comes, until nothing has come for a while.
async fn process_all(queue: Queue, is_all_stored: watch::Receiver<usize>) -> Ends {
    let (mut ends, mut last) = (Ends::default(), Instant::now());
    while last.elapsed() < QUIET || *is_all_stored.borrow() < COUNT {
        let pulled = queue.pull("p").max(100).wait(Duration::from_secs(1)).await;
        let mut held = pulled.unwrap_or_default();
        held.retain(|handler| !handler.is_lost());
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        last = Instant::now();
        let ids: Vec<_> = held.iter().map(Delivery::id).collect();
        let outcomes = queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await;
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            if matches!(outcome, Ok(SettleOutcome::Settled)) {
                *ends.removed.entry(id).or_default() += 1;
            } else {
                ends.unknown.insert(id);
            }
        }
    }
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_messages_are_accounted_for_over_stops_and_starts_of_the_server() {
    let Some(server) = start_if_installed(Ministack::new().persistent()).await.unwrap() else { return };
    let all = messages(COUNT);
    let (stored, mut progress) = watch::channel(0);
    let processing = tokio::spawn(process_all(queue(&server).await, progress.clone()));
    let pushing = tokio::spawn(push_all(queue(&server).await, all.clone(), stored));
    for stop_at in [1000, 2500, 4000] {
        tokio::time::timeout(PATIENCE, progress.wait_for(|stored| *stored >= stop_at))
            .await
            .unwrap()
            .unwrap();
        server.stop().await.unwrap();
        server.restart().await.unwrap();
    }
    let doubtful = tokio::time::timeout(PATIENCE, pushing).await.unwrap().unwrap();
    let Ends { removed, unknown } = tokio::time::timeout(PATIENCE, processing).await.unwrap().unwrap();
    let lost =
        all.iter().filter(|message| !removed.contains_key(&message.id()) && !unknown.contains(&message.id()));
    assert_eq!(lost.count(), 0, "all that was acknowledged came and was removed");
    let pushed: HashSet<_> = all.iter().map(MessageData::id).collect();
    assert!(removed.keys().all(|id| pushed.contains(id)), "nothing else came");
    let twice =
        removed.iter().filter(|(id, count)| **count > 1 && !doubtful.contains(id) && !unknown.contains(id));
    assert_eq!(twice.count(), 0, "only what was pushed twice was removed twice");
}

/// How often a settlement is made again at most.
const REPEATS: usize = 5;
/// Bytes after which a connection ends: within the head of a request or answer, within its body, after it.
const CUTS: [u64; 8] = [0, 1, 60, 200, 500, 900, 1400, 3000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end_at_any_byte_lose_nothing_and_no_call_hangs() {
    let Some(server) = start_if_installed(Ministack::new()).await.unwrap() else { return };
    let server = Arc::new(server);
    let cuts = [Direction::ToServer, Direction::ToClient].into_iter();
    let cuts = cuts.flat_map(|direction| CUTS.map(|bytes| Fault::CutAfter { direction, bytes }));
    let tests = cuts.enumerate().map(|(number, fault)| {
        let server = server.clone();
        tokio::spawn(async move { push_pull_and_settle(&server, &format!("p{number}"), fault).await })
    });
    for test in tests.collect::<Vec<_>>() {
        tokio::time::timeout(PATIENCE, test).await.expect("no call hangs").unwrap();
    }
}

/// Each call meets the fault once.
async fn push_pull_and_settle(server: &Server, name: &str, fault: Fault) {
    let proxy = Proxy::start(server.addr()).unwrap();
    let far = open(&format!("http://{}", proxy.addr())).await;
    // Its calls meet no fault, and a busy machine may take long for them.
    let near = open_with(server.url(), "call_timeout=30s").await;
    let (first, second) = (messages(1).remove(0), messages(1).remove(0));
    push(&near, name, std::slice::from_ref(&first)).await;
    let (fail, heal) = (
        async || {
            proxy.set(fault).await.unwrap();
            proxy.reset_all();
        },
        async || {
            proxy.set(Fault::Pass).await.unwrap();
            proxy.reset_all();
        },
    );

    fail().await;
    let pushed = far.push(&part(name), std::slice::from_ref(&second)).await.remove(0);
    let pulled = far.pull(&part(name), PullRequest::new(5, Duration::ZERO, SHORT_LEASE)).await;
    heal().await;
    for error in [pushed.as_ref().err(), pulled.as_ref().err()].into_iter().flatten() {
        assert_ne!(error.retry(), RetryClass::Never, "{fault:?}: {error}");
    }

    // What was selected and never arrived comes again when its lease has ended.
    let mut ended: HashSet<MessageId> = HashSet::new();
    let mut held = pulled.unwrap_or_default();
    let begun = Instant::now();
    while begun.elapsed() < QUIET + SHORT_LEASE && ended.len() < 2 {
        fail().await;
        let outcomes = settle(&far, &held, &Action::Remove).await;
        heal().await;
        for (delivery, outcome) in held.iter().zip(outcomes) {
            let mut outcome = outcome;
            // A connection that is reset may be met once more.
            for _ in 0..REPEATS {
                if outcome.is_err() {
                    outcome = settle(&far, std::slice::from_ref(delivery), &Action::Remove).await.remove(0);
                }
            }
            assert!(
                matches!(outcome, Ok(SettleOutcome::Settled)),
                "{fault:?}: settled when it is made again, not {outcome:?}"
            );
            ended.insert(delivery.lease.id);
        }
        let wait = Duration::from_secs(1);
        held = far.pull(&part(name), PullRequest::new(5, wait, SHORT_LEASE)).await.unwrap_or_default();
    }
    assert!(ended.contains(&first.id()), "{fault:?}: what was stored came");
    assert!(pushed.is_err() || ended.contains(&second.id()), "{fault:?}: what was acknowledged came");
    let left =
        near.pull(&part(name), PullRequest::new(5, SHORT_LEASE + SOON / 5, SHORT_LEASE)).await.unwrap();
    let left: Vec<_> = left.iter().map(|left| left.lease.id).collect();
    assert!(left.is_empty() || (pushed.is_err() && left == [second.id()]), "{fault:?}: {left:?} is left");
}
