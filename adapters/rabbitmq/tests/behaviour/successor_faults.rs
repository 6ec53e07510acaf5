//! What goes wrong between the storing of successors and the end of their delivery: neither is lost, and whoever settles is told.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anyqueue::adapter::{
    Action, PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement, Successor,
};
use anyqueue::{ErrorKind, MessageData, PartitionId, RetryClass, SettleOutcome};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Direction, Fault, Proxy, RabbitMq};
use tokio::sync::watch;

use crate::common::{Bed, LEASE, becomes, holds, messages, part, push, settle, take, texts};
use crate::successors::{drain, end, ending, trusting};

const LONG: Duration = Duration::from_mins(2);

#[tokio::test]
async fn one_above_the_servers_size_leaves_its_delivery_held_and_harms_no_other() {
    let program = RabbitMq::new().setting("max_message_size", "65536");
    let Some(bed) = Bed::lent(program).await else { return };
    let (p, next, queue) = (part("work"), part("next"), trusting(&bed).await);
    push(&queue, &p, &messages(3)).await;
    let large = || MessageData::new("x".repeat(100_000));
    // The server's limit is known once it has refused one.
    queue.push(&next, &[large()]).await.remove(0).unwrap_err();
    let held = take(&queue, &p, 3).await;
    let then = [vec![MessageData::new("0")], vec![large()], vec![MessageData::new("2")]];
    let settlements: Vec<_> =
        held.iter().zip(&then).map(|(held, then)| ending(held, Action::Remove, &next, then)).collect();
    let outcomes = queue.settle(&settlements).await;
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::TooLarge, RetryClass::Never), "{error}");
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert!(holds(&queue, &held[1]).await);
    assert!(!holds(&queue, &held[0]).await && !holds(&queue, &held[2]).await);
    let smaller = ending(&held[1], Action::Remove, &next, &[MessageData::new("1")]);
    assert_eq!(end(&queue, smaller).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(texts(&drain(&queue, &next).await), ["0", "2", "1"]);
}

#[tokio::test]
async fn if_some_are_stored_and_one_is_refused_the_delivery_is_held_and_nothing_is_repeated_unasked() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, full, next, queue) = (part("work"), part("full"), part("next"), trusting(&bed).await);
    push(&queue, &p, &messages(1)).await;
    push(&queue, &full, &messages(1)).await;
    bed.policy("full", &format!("^{}:full:", bed.prefix), r#"{"max-length":1}"#).await;
    // How far beyond its limit a queue goes is the server's affair.
    let mut pushes = 0;
    while queue.push(&full, &messages(1)).await.remove(0).is_ok() {
        pushes += 1;
        assert!(pushes < 100, "it takes all");
    }
    let held = take(&queue, &p, 1).await;
    let to = |to: &PartitionId| Successor { partition: to.clone(), message: MessageData::new("next") };
    let then = vec![to(&next), to(&full), to(&next)];
    let settlement = Settlement::new(held[0].lease.clone(), Action::Remove).with_then(then);
    let error = end(&queue, settlement).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::MayDuplicate), "{error}");
    assert!(holds(&queue, &held[0]).await);
    assert_eq!(drain(&queue, &next).await.len(), 2);
    assert_eq!(settle(&queue, &held, Action::Remove).await, [SettleOutcome::Settled]);
}

/// The server ends the connection of consumers while a new queue is not old enough to be trusted.
#[tokio::test]
async fn a_delivery_that_is_lost_after_its_successors_are_stored_is_an_error_and_comes_again() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, next) = (part("work"), part("next"));
    push(&bed.builder().queue_age(Duration::ZERO).open().await.unwrap(), &p, &messages(1)).await;
    // Long enough for the operator's command on a busy machine.
    let queue = bed.builder().queue_age(Duration::from_secs(15)).open().await.unwrap();
    let held = take(&queue, &p, 1).await;
    let settling = tokio::spawn({
        let (queue, settlement) =
            (queue.clone(), ending(&held[0], Action::Remove, &next, &[MessageData::new("next")]));
        async move { end(&queue, settlement).await }
    });
    becomes("the queue is there", || async { bed.try_look(&bed.queue(&next, 0)).await.is_ok() }).await;
    close_consumers(&bed).await;
    let error = settling.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::MayDuplicate), "{error}");
    assert_eq!(texts(&drain(&queue, &next).await), ["next"]);
    assert_eq!(texts(&take(&queue, &p, 1).await), ["0"]);
}

/// Ends this test's connections that consume, as an operator does. Those of tests that had the broker before can be there still.
async fn close_consumers(bed: &Bed) {
    let listed = ["list_connections", "pid", "client_properties", "--silent"];
    let connections = RabbitMq::control(bed.server(), &listed).await.unwrap();
    let name = format!("anyqueue {} consumer", bed.prefix);
    let consumes = |line: &&str| line.contains(&name);
    let mut closed = 0;
    for line in connections.lines().filter(consumes) {
        let pid = line.split_whitespace().next().unwrap();
        RabbitMq::control(bed.server(), &["close_connection", pid, "as the test says"]).await.unwrap();
        closed += 1;
    }
    assert!(closed > 0, "{connections}");
}

/// Bytes after which each connection ends: in the head of a frame, within it, after several.
const CUTS: [u64; 8] = [0, 7, 30, 100, 180, 260, 400, 800];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_at_any_byte_neither_delivery_nor_successor_is_lost() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (near, mut seen) = (trusting(&bed).await, HashSet::new());
    let cuts = [Direction::ToServer, Direction::ToClient].into_iter();
    let cuts = cuts.flat_map(|direction| CUTS.map(|bytes| Fault::CutAfter { direction, bytes }));
    for (number, fault) in cuts.chain([Fault::DropReplies, Fault::Reset]).enumerate() {
        let proxy = Proxy::start(bed.server().addr()).unwrap();
        let url = bed.url().replace(&bed.server().addr().to_string(), &proxy.addr().to_string());
        // Also for the calls before the cut, on a busy machine; one settlement waits for as long.
        let limit = Duration::from_secs(5);
        let far = RabbitMqQueue::builder(&url).unwrap().call_timeout(limit).connect_timeout(limit);
        let far = far.queue_age(Duration::ZERO).open().await.unwrap();
        let (p, next) = (part(&format!("work{number}")), part(&format!("next{number}")));
        push(&far, &p, &messages(1)).await;
        push(&far, &next, &[MessageData::new("first")]).await;
        assert_eq!(drain(&far, &next).await.len(), 1);
        let held = take(&far, &p, 1).await;
        proxy.set(fault).await.unwrap();
        let settlement = ending(&held[0], Action::Remove, &next, &[MessageData::new("next")]);
        let ended = tokio::time::timeout(LONG, end(&far, settlement)).await.expect("the settlement hangs");
        // An acknowledgement goes a moment later.
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.set(Fault::Reset).await.unwrap();
        let stored = drain(&near, &next).await.len();
        let left = drain(&near, &p).await.len();
        seen.insert((stored, left));
        assert!(stored <= 1 && left <= 1, "{fault:?}: {stored} stored, {left} left");
        assert!(stored + left >= 1, "{fault:?}: both are lost");
        if let Ok(outcome) = ended {
            assert!(outcome == SettleOutcome::Lost || stored == 1, "{fault:?}: the successor is lost");
            assert!(outcome == SettleOutcome::Settled || stored == 0, "{fault:?}: stored under a lost lease");
        }
    }
    assert_eq!(seen.len(), 3, "the cuts met before, between and after the steps: {seen:?}");
}

/// Settles each with a successor of the same text, until the broker is gone. Returns which were settled. What
/// fails before that was too slow for a busy machine.
async fn settle_until_killed(
    queue: &RabbitMqQueue,
    p: &PartitionId,
    next: &PartitionId,
    progress: &watch::Sender<usize>,
    is_killed: &AtomicBool,
) -> HashSet<String> {
    let mut settled = HashSet::new();
    loop {
        let request = PullRequest::new(5, Duration::from_millis(200), LEASE);
        let Ok(held) = queue.pull(p, request).await else {
            if is_killed.load(SeqCst) {
                return settled;
            }
            continue;
        };
        let successor = |delivery: &RawDelivery| MessageData::new(delivery.message.payload());
        let settlements: Vec<_> =
            held.iter().map(|held| ending(held, Action::Remove, next, &[successor(held)])).collect();
        for (text, outcome) in texts(&held).into_iter().zip(queue.settle(&settlements).await) {
            match outcome {
                Ok(SettleOutcome::Settled) => drop(settled.insert(text)),
                Err(_) if is_killed.load(SeqCst) => return settled,
                Ok(SettleOutcome::Lost) | Err(_) => {}
            }
        }
        progress.send_replace(settled.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_between_the_steps_loses_neither() {
    const COUNT: usize = 3000;
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let (p, next) = (part("work"), part("next"));
    let mut settled = HashSet::new();
    push(&bed.open().await, &p, &messages(COUNT)).await;
    push(&bed.open().await, &next, &[MessageData::new("first")]).await;
    for done in [1, 37, 120, 400] {
        let queue = bed.builder().call_timeout(Duration::from_secs(2)).open().await.unwrap();
        let (progress, mut reached) = watch::channel(0);
        let is_killed = Arc::new(AtomicBool::new(false));
        let working = tokio::spawn({
            let (queue, p, next, is_killed) = (queue.clone(), p.clone(), next.clone(), is_killed.clone());
            async move { settle_until_killed(&queue, &p, &next, &progress, &is_killed).await }
        });
        let reached = tokio::time::timeout(LONG, reached.wait_for(|count| *count >= done)).await;
        assert!(reached.is_ok_and(|reached| reached.is_ok()), "{done} are not settled");
        is_killed.store(true, SeqCst);
        bed.server().kill().await.unwrap();
        settled.extend(tokio::time::timeout(LONG, working).await.expect("a call hangs").unwrap());
        bed.server().restart().await.unwrap();
    }
    let queue = bed.open().await;
    let left: HashSet<_> = texts(&drain(&queue, &p).await).into_iter().collect();
    let stored: HashSet<_> = texts(&drain(&queue, &next).await).into_iter().collect();
    println!("{} settled, {} stored, {} left", settled.len(), stored.len(), left.len());
    let is_lost = |text: &&String| !left.contains(*text) && !stored.contains(*text);
    let all: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    assert_eq!(all.iter().find(is_lost), None, "both are lost");
    assert_eq!(settled.iter().find(|text| !stored.contains(*text)), None, "its successor is lost");
}
