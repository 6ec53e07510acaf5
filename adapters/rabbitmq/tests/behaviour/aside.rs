//! Messages that nobody can read or that the server would drop: none is lost without trace, and none is in the way.

use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Action, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageData, PushOutcome, Queue, RetryClass, SettleOutcome, header};
use anyqueue_testkit::RabbitMq;

use crate::common::{Bed, SOON, becomes, messages, part, pull, push, settle, take, texts};

#[tokio::test]
async fn what_cannot_be_read_is_handed_on_as_it_is_and_not_held() {
    let Some(bed) = Bed::shared().await else { return };
    let damaged: &[u8] = b"\xF6AQ\x01 damaged";
    let (p, storage) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    let queue = Queue::new(storage.clone()).unwrap();
    push(&storage, &p, &[MessageData::new("0").with_priority(3)]).await;
    bed.plant(&bed.queue(&p, 3), damaged).await;
    bed.plant(&bed.queue(&p, 3), b"\xF6AQ\x02 of a later release").await;
    push(&storage, &p, &[MessageData::new("1").with_priority(3)]).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(queue.pull("work").max(4).wait(SOON).await.unwrap());
    }
    // One is dead; the other rests, to be tried again in five seconds.
    for place in [bed.queue(&p.dead_letters(), 3), format!("{}:delay:1:3", bed.prefix)] {
        becomes("it has gone on", || async {
            bed.try_look(&place).await.is_ok_and(|queue| queue.message_count() == 1)
        })
        .await;
    }
    for handler in &mut held {
        assert_eq!(handler.settle(Processed).await.unwrap(), SettleOutcome::Settled);
    }
    let dead = take(&storage, &p.dead_letters(), 1).await.remove(0);
    assert_eq!(dead.unreadable.map(|why| why.kind()), Some(ErrorKind::Corrupt));
    assert_eq!(dead.message.payload(), damaged);
    let reason = dead.message.headers().get(header::DEAD_REASON).unwrap();
    assert!(reason.contains("cannot be read"), "{reason}");
    storage.close().await.unwrap();
    // What had been held would be back.
    assert_eq!(bed.try_look(&bed.queue(&p, 3)).await.unwrap().message_count(), 0);
}

#[tokio::test]
async fn what_an_operators_limit_of_deliveries_drops_is_with_the_dead_letters() {
    // The limit can be reached while the queue of the dead letters is being made; the server then tries again after three minutes
    // unless set.
    let soon = "-rabbit dead_letter_worker_publisher_confirm_timeout 3000";
    let Some(bed) = Bed::own(RabbitMq::new().erlang_arguments(soon)).await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    bed.policy("limit", &format!("^{}:", bed.prefix), r#"{"delivery-limit":2}"#).await;
    push(&queue, &p, &[MessageData::new("precious")]).await;
    for place in [p.clone(), p.dead_letters()] {
        for _ in 0..3 {
            let got = take(&queue, &place, 1).await;
            settle(&queue, &got, Action::Release).await;
        }
    }
    assert!(pull(&queue, &p, 1, Duration::from_millis(100)).await.is_empty());
    assert_eq!(texts(&take(&queue, &p.dead_letters(), 1).await), ["precious"]);
}

#[tokio::test]
async fn one_message_above_the_servers_size_harms_no_other_and_is_known_afterwards() {
    let program = RabbitMq::new().setting("max_message_size", "65536");
    let Some(bed) = Bed::lent(program).await else { return };
    let (p, queue) = (part("work"), bed.builder().queue_age(Duration::ZERO).open().await.unwrap());
    let batch = || {
        let mut batch = messages(200);
        batch[100] = MessageData::new("x".repeat(100_000));
        batch
    };
    let first = queue.push(&p, &batch()).await;
    let mut stored = 0;
    for (place, answer) in first.into_iter().enumerate() {
        match answer {
            Ok(PushOutcome::Stored(_)) => stored += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) if place == 100 => {
                assert_eq!(
                    (error.kind(), error.retry()),
                    (ErrorKind::TooLarge, RetryClass::Never),
                    "{error}"
                );
            }
            Err(error) => {
                assert!(place < 100, "{place}: {error:?}");
                let class = (error.kind(), error.retry());
                assert_eq!(class, (ErrorKind::Unavailable, RetryClass::MayDuplicate), "{place}: {error:?}");
            }
        }
    }
    assert!(stored >= 99);
    let second = queue.push(&p, &batch()).await;
    for (place, answer) in second.into_iter().enumerate() {
        assert_eq!(answer.is_ok(), place != 100, "{place}: {answer:?}");
    }
    let warnings = queue.check().await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("max_message_size (65536)")), "{warnings:?}");
}
