//! The queues that delayed messages pass: one that was not finished would keep them forever.

use std::time::{Duration, Instant};

use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;
use anyqueue_testkit::RabbitMq;
use futures_util::future::join_all;

use crate::common::{Bed, becomes, making, part, push, take, texts};

/// For as long others wait for a queue to become old.
const AGE: Duration = Duration::from_secs(2);

/// A message that one queue holds for so many tenths of a second, and that queue.
fn delayed(bed: &Bed, tenths: u32) -> (MessageData, String) {
    let message = MessageData::new("late").with_delay(Duration::from_millis(100) * tenths);
    (message, format!("{}:delay:0:{tenths:x}", bed.prefix))
}

/// The server shows such a queue before it knows how long that is to hold messages: what comes by then stays, and all behind it.
#[tokio::test]
async fn who_makes_a_queue_for_delays_is_waited_for_until_it_dies() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    let (message, delay_queue) = delayed(&bed, 3);
    let maker = making(&bed, &delay_queue).await;
    let pushing = tokio::spawn({
        let (queue, p) = (queue.clone(), p.clone());
        async move { push(&queue, &p, &[message]).await }
    });
    let is_there = |name: String| {
        let bed = &bed;
        async move { bed.try_look(&name).await.is_ok() }
    };
    becomes("the rest is made", || is_there(format!("{}:due", bed.queue(&p, 0)))).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!is_there(delay_queue).await, "it was made by two");
    drop(maker);
    pushing.await.unwrap();
    assert_eq!(texts(&take(&queue, &p, 1).await), ["late"]);
}

/// Those who come later need not wait until such queues are old, though they may have come to a machine that was busy.
#[tokio::test]
async fn queues_for_delays_that_are_old_keep_nobody_waiting() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, (message, _)) = (part("work"), delayed(&bed, 3));
    push(&bed.open().await, &p, std::slice::from_ref(&message)).await;
    for _ in 0..5 {
        let (queue, start) = (bed.open().await, Instant::now());
        push(&queue, &p, std::slice::from_ref(&message)).await;
        if start.elapsed() < AGE {
            return;
        }
    }
    panic!("all of them waited");
}

/// Whose node died within a second after they were declared, the server brings back without the time that they hold messages, or, if it
/// died at once, without a leader: such a queue can neither be used nor removed, which is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_for_delays_that_their_broker_did_not_keep_whole_are_made_anew() {
    let Some(bed) = Bed::own(RabbitMq::new()).await else { return };
    let queue = bed.open().await;
    push(&queue, &part("warm"), &[MessageData::new("warm")]).await;
    for (tenths, moment) in [(1, 0), (2, 300), (3, 700)] {
        let p = part(&format!("fresh{moment}"));
        let (message, delay_queue) = delayed(&bed, tenths);
        let pushing = tokio::spawn({
            let (queue, p, message) = (queue.clone(), p.clone(), message.clone());
            async move { queue.push(&p, &[message]).await.remove(0) }
        });
        becomes("the queue is there", || async { bed.try_look(&delay_queue).await.is_ok() }).await;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        bed.server().kill().await.unwrap();
        // On a machine so busy that the kill came late it can have been stored for good, and comes too.
        let wanted = 1 + usize::from(pushing.await.unwrap().is_ok());
        bed.server().restart().await.unwrap();
        let other = bed.open().await;
        match other.push(&p, &[message]).await.remove(0) {
            Ok(_) => assert_eq!(texts(&take(&other, &p, wanted).await), vec!["late"; wanted], "{moment} ms"),
            Err(error) => {
                assert!(error.message().contains("has no leader"), "after {moment} ms: {error}");
                let named = error.message().split(' ').find(|word| word.starts_with(&bed.prefix)).unwrap();
                assert!(!bed.has_leader(named).await, "after {moment} ms: {error}");
            }
        }
    }
}

/// What nobody has finished belongs to nobody once its maker's connection has ended.
#[tokio::test]
async fn who_dies_while_making_queues_for_delays_keeps_the_next_one_no_longer_than_the_queues_are_young() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, maker) = (part("work"), bed.open().await);
    let (message, _) = delayed(&bed, 0x1234);
    let last = format!("{}:delay:0:4", bed.prefix);
    let pushing = tokio::spawn({
        let (message, p) = (message.clone(), p.clone());
        async move { maker.push(&p, &[message]).await }
    });
    becomes("the last queue is there", || async { bed.try_look(&last).await.is_ok() }).await;
    pushing.abort();
    assert!(pushing.await.unwrap_err().is_cancelled(), "its queues were not old yet");
    let (other, start) = (bed.open().await, Instant::now());
    push(&other, &p, std::slice::from_ref(&message)).await;
    assert!(start.elapsed() < AGE * 5, "{:?}", start.elapsed());
}

/// Whoever comes second waits until the queues are old, and takes none away from who made them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_for_delays_that_several_need_at_once_lose_nothing() {
    let Some(bed) = Bed::shared().await else { return };
    let p = part("work");
    let handles = join_all((0..4).map(|_| bed.open())).await;
    let (message, _) = delayed(&bed, 0x13);
    join_all(handles.iter().map(|handle| push(handle, &p, std::slice::from_ref(&message)))).await;
    assert_eq!(texts(&take(&handles[0], &p, handles.len()).await), vec!["late"; handles.len()]);
}

/// The server tells nobody, because messages only come to such a queue from another.
#[tokio::test]
async fn a_queue_for_delays_that_was_removed_is_missed_by_who_knows_it() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    let (message, _) = delayed(&bed, 0x1f);
    push(&queue, &p, std::slice::from_ref(&message)).await;
    bed.remove(&[format!("{}:delay:0:f", bed.prefix)]).await;
    // For so long it is taken to be there still; the first message needs it a little later.
    tokio::time::sleep(Duration::from_millis(1050)).await;
    push(&queue, &p, std::slice::from_ref(&message)).await;
    assert_eq!(texts(&take(&queue, &p, 2).await), ["late"; 2]);
}
