//! A broker that is out of memory: pushes wait, then say so; nothing is lost, and all goes on once it has room again.

use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage, QueueStorage, Settlement,
};
use anyqueue::{Error, ErrorKind, MessageData, MessageId, PushOutcome, RetryClass, SettleOutcome};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::RabbitMq;

use crate::common::{Bed, SOON, becomes, holds, messages, part, pull, push, settle, take, texts};
use crate::successors::{drain, end, ending};

/// How long a push waits for the end of an alarm.
const LIMIT: Duration = Duration::from_secs(2);
/// For a busy machine.
const MORE: Duration = Duration::from_secs(15);

async fn alarm(bed: &Bed) {
    RabbitMq::control(bed.server(), &["set_vm_memory_high_watermark", "0.0001"]).await.unwrap();
}

async fn calm(bed: &Bed) {
    RabbitMq::control(bed.server(), &["set_vm_memory_high_watermark", "0.4"]).await.unwrap();
}

/// Pushes one by one until one is refused. Each answer comes in time.
async fn push_until_refused(queue: &RabbitMqQueue) -> (Vec<MessageId>, Error) {
    let mut stored = Vec::new();
    loop {
        let start = Instant::now();
        let answer = queue.push(&part("p"), &messages(1)).await.remove(0);
        assert!(start.elapsed() < LIMIT + MORE, "a push took {:?}", start.elapsed());
        match answer {
            Ok(PushOutcome::Stored(id)) => stored.push(id),
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (stored, error),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_out_of_memory_takes_nothing_gives_all_and_goes_on_after() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, queue) = (part("p"), bed.builder().call_timeout(LIMIT).open().await.unwrap());
    push(&bed.open().await, &p, &messages(5)).await;
    let held = take(&queue, &p, 1).await;
    alarm(&bed).await;

    let (stored, error) = push_until_refused(&queue).await;
    assert_eq!(error.kind(), ErrorKind::Full, "{error:?}");
    assert!(error.message().contains("memory"), "{error}");
    // From now on it is known beforehand: nothing is sent.
    let start = Instant::now();
    let later = queue.push(&p, &messages(3)).await;
    assert!(start.elapsed() >= LIMIT / 2 && start.elapsed() < LIMIT + MORE, "{:?}", start.elapsed());
    for answer in later {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Full, RetryClass::Safe), "{error:?}");
    }
    let warnings = queue.check().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("memory")), "{warnings:?}");

    // What it has can be taken and removed, also by a handle that comes only now.
    let got = take(&queue, &p, 2).await;
    assert_eq!(texts(&got), ["1", "2"]);
    settle(&queue, &got, Action::Remove).await;
    let fresh = bed.builder().call_timeout(LIMIT).open().await.unwrap();
    let got = take(&fresh, &p, 2).await;
    assert_eq!(texts(&got), ["3", "4"]);
    settle(&fresh, &got, Action::Remove).await;
    // What would need a copy stays held.
    let action = Action::Move { to: p.dead_letters(), headers: None };
    let settlement = Settlement::new(held[0].lease.clone(), action.clone());
    let refused = queue.settle(&[settlement]).await.remove(0).unwrap_err();
    assert_eq!((refused.kind(), refused.retry()), (ErrorKind::Full, RetryClass::Safe), "{refused:?}");
    assert!(holds(&queue, &held[0]).await);

    calm(&bed).await;
    let again = MessageData::new("after");
    becomes("pushes go on", || async {
        queue.push(&p, std::slice::from_ref(&again)).await.remove(0).is_ok()
    })
    .await;
    settle(&queue, &held, action).await;
    let (mut seen, since) = (Vec::new(), Instant::now());
    while !stored.iter().chain([&again.id()]).all(|id| seen.contains(id)) {
        assert!(since.elapsed() < SOON * 2, "acknowledged messages were lost");
        let got = pull(&queue, &p, 100, Duration::from_millis(500)).await;
        seen.extend(got.iter().map(|delivery| delivery.lease.id));
        settle(&queue, &got, Action::Remove).await;
    }
    assert!(queue.check().await.unwrap().warnings.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_waits_for_the_end_of_an_alarm_is_stored_when_it_ends() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, queue) = (part("p"), bed.builder().call_timeout(SOON).open().await.unwrap());
    let teller = bed.builder().call_timeout(LIMIT).open().await.unwrap();
    push(&queue, &p, &messages(1)).await;
    alarm(&bed).await;
    let (stored, _) = push_until_refused(&teller).await;
    let waiting = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { push(&queue, &p, &[MessageData::new("waited")]).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    calm(&bed).await;
    waiting.await.unwrap();
    // One that was refused may have been on its way.
    let least = stored.len() + 2;
    becomes("all are there", || async { bed.ready(&p).await as usize >= least }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_has_pushed_nothing_sees_the_alarm_of_a_full_disk_and_counts_go_on() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let p = part("p");
    push(&bed.open().await, &p, &messages(2)).await;
    let limit = |bytes| ["set_disk_free_limit", bytes];
    RabbitMq::control(bed.server(), &limit("100000GB")).await.unwrap();
    let queue = bed.builder().call_timeout(LIMIT).open().await.unwrap();
    let warnings = queue.check().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("disk")), "{warnings:?}");
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
    let got = take(&queue, &p, 2).await;
    settle(&queue, &got, Action::Remove).await;
    RabbitMq::control(bed.server(), &limit("50MB")).await.unwrap();
    becomes("it is healthy again", || async { queue.check().await.unwrap().warnings.is_empty() }).await;
    push(&queue, &p, &messages(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_brings_successors_to_a_broker_out_of_memory_keeps_the_delivery() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let (p, next, queue) = (part("p"), part("next"), bed.builder().call_timeout(LIMIT).open().await.unwrap());
    let patient = bed.open().await;
    push(&patient, &p, &messages(2)).await;
    push(&patient, &next, &messages(1)).await;
    assert_eq!(drain(&patient, &next).await.len(), 1);
    let held = take(&queue, &p, 2).await;
    alarm(&bed).await;
    push_until_refused(&queue).await;
    let settlement = ending(&held[0], Action::Remove, &next, &[MessageData::new("next")]);
    let error = end(&queue, settlement.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Full, RetryClass::Safe), "{error:?}");
    assert!(holds(&queue, &held[0]).await);
    // Whoever brings none is not in its way.
    assert_eq!(settle(&queue, &held[1..], Action::Remove).await, [SettleOutcome::Settled]);
    calm(&bed).await;
    becomes("it can be settled", || async { end(&queue, settlement.clone()).await.is_ok() }).await;
    assert!(!holds(&queue, &held[0]).await);
    assert_eq!(texts(&drain(&queue, &next).await), ["next"]);
}
