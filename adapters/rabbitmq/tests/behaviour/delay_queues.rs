//! The queues that delayed messages pass: one that was not finished would keep them forever.

use std::time::{Duration, Instant};

use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;
use anyqueue_testkit::RabbitMq;

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

/// Whose node died within a second after they were declared, the server brings back without the time that they hold messages.
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
        push(&other, &p, &[message]).await;
        assert_eq!(texts(&take(&other, &p, wanted).await), vec!["late"; wanted], "after {moment} ms");
    }
}
