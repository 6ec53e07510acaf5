//! Batches of which the server does a part: each entry gets its own answer, and what can be repeated is.

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::{Action, PushQueueStorage};
use anyqueue::{ErrorKind, PushOutcome, Queue, RetryClass, SettleOutcome};

use crate::common::{Bed, SOON, messages, nothing, part, push, settle, settled, take};
use crate::wire::{Failure, Trick};

const fn failure(code: &'static str, text: &'static str, sender_fault: bool) -> Failure {
    Failure { code, text, sender_fault }
}

const THROTTLED: Failure = failure("RequestThrottled", "slow down", true);

#[tokio::test]
async fn each_error_of_an_entry_is_classed_and_harms_no_other() {
    const TOO_LONG: &str =
        "One or more parameters are invalid. Reason: Message must be shorter than 262144 bytes.";
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let (safe, never) = (RetryClass::Safe, RetryClass::Never);
    let cases = [
        (THROTTLED, ErrorKind::Unavailable, safe),
        (failure("InternalError", "", false), ErrorKind::Unavailable, safe),
        (failure("ServiceUnavailable", "", false), ErrorKind::Unavailable, safe),
        (failure("KmsThrottled", "", true), ErrorKind::Unavailable, safe),
        (failure("KmsAccessDenied", "", true), ErrorKind::AccessDenied, never),
        (
            failure("AccessDenied", "not authorized to perform: sqs:sendmessage", true),
            ErrorKind::AccessDenied,
            never,
        ),
        (failure("InvalidParameterValue", TOO_LONG, true), ErrorKind::TooLarge, never),
        (failure("InvalidMessageContents", "", true), ErrorKind::Internal, never),
        (failure("AWS.SimpleQueueService.NonExistentQueue", "", true), ErrorKind::Unavailable, safe),
    ];
    for (index, (failure, kind, retry)) in cases.into_iter().enumerate() {
        let partition = part(&format!("p{index}"));
        bed.wire.play("SendMessageBatch", Trick::FailEntry(3, failure));
        let mut sent = messages(12);
        let answers = queue.push(&partition, &sent).await;
        for (at, answer) in answers.iter().enumerate() {
            match answer {
                Ok(outcome) => {
                    assert!(at != 3 && *outcome == PushOutcome::Stored(sent[at].id()), "{failure:?}");
                }
                Err(error) => {
                    assert_eq!((at, error.kind(), error.retry()), (3, kind, retry), "{failure:?}: {error}");
                    assert_eq!(error.backend(), Some("sqs"));
                }
            }
        }
        assert!(answers[3].is_err(), "{failure:?}");
        drop(sent.remove(3));
        let mut expected: Vec<_> = sent.iter().map(anyqueue::MessageData::id).collect();
        let mut got: Vec<_> = take(&queue, &partition, 11).await.iter().map(|held| held.lease.id).collect();
        expected.sort();
        got.sort();
        assert_eq!(got, expected, "the others were stored");
    }
}

#[tokio::test]
async fn what_a_batch_left_out_is_repeated_by_the_queue_until_all_is_done() {
    let Some(bed) = Bed::find().await else { return };
    let queue = Queue::new(bed.open().await).unwrap();
    for position in [0, 9, 4] {
        bed.wire.play("SendMessageBatch", Trick::FailEntry(position, THROTTLED));
        bed.wire.play("DeleteMessageBatch", Trick::FailEntry(position, THROTTLED));
    }
    let answers = queue.push_many("p", messages(25)).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let mut held = queue.pull("p").max(25).wait(SOON).await.unwrap();
    assert_eq!(held.len(), 25, "each once");
    let outcomes = queue.settle_many(held.iter_mut().map(|handler| (handler, Processed))).await;
    assert!(settled(&outcomes), "{outcomes:?}");
    assert!(bed.wire.is_done(), "every failure was met");
    drop(held);
    nothing(&bed.open().await, &part("p")).await;
}

#[tokio::test]
async fn an_entry_without_an_answer_is_no_success() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    // An id of nobody's: the failure is about an entry that was not sent, and the one that was has no answer.
    bed.wire.play("SendMessageBatch", Trick::Refuse(200, "none"));
    let answers = queue.push(&part("p"), &messages(2)).await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
}

#[tokio::test]
async fn settlements_that_failed_can_be_made_again_and_the_others_stand() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(5)).await;
    let held = take(&queue, &part("p"), 5).await;
    bed.wire.play("DeleteMessageBatch", Trick::FailEntry(2, THROTTLED));
    let outcomes = settle(&queue, &held, &Action::Remove).await;
    let errors: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(anyqueue::Error::retry)).collect();
    assert_eq!(errors, [None, None, Some(RetryClass::Safe), None, None]);
    let again = settle(&queue, &held, &Action::Remove).await;
    let lost = |outcome: &anyqueue::Result<SettleOutcome>| matches!(outcome, Ok(SettleOutcome::Lost));
    assert!(settled(&again[2..3]), "{again:?}");
    assert_eq!(again.iter().filter(|outcome| lost(outcome)).count(), 4, "the others were settled before");
}

#[tokio::test]
async fn a_copy_is_not_made_again_when_only_the_deletion_failed() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    let held = take(&queue, &part("p"), 1).await;
    let sent = bed.wire.seen("SendMessageBatch").len();
    bed.wire.play("DeleteMessageBatch", Trick::FailEntry(0, THROTTLED));
    bed.wire.play("DeleteMessageBatch", Trick::LoseAnswer);
    let die = Action::Move { to: part("p").dead_letters(), headers: None };
    assert!(settle(&queue, &held, &die).await[0].is_err());
    assert!(settle(&queue, &held, &die).await[0].is_err());
    assert!(settled(&settle(&queue, &held, &die).await));
    assert_eq!(bed.wire.seen("SendMessageBatch").len(), sent + 1, "one copy");
    let dead = take(&queue, &part("p").dead_letters(), 1).await;
    assert_eq!(dead[0].lease.id, held[0].lease.id);
    nothing(&queue, &part("p")).await;
    nothing(&queue, &part("p").dead_letters()).await;
}

#[tokio::test]
async fn a_message_stays_where_it_is_if_its_copy_cannot_be_stored() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    let held = take(&queue, &part("p"), 1).await;
    bed.wire.play("SendMessageBatch", Trick::FailEntry(0, failure("KmsAccessDenied", "", true)));
    let die = Action::Move { to: part("p").dead_letters(), headers: None };
    assert!(settle(&queue, &held, &die).await[0].is_err());
    assert!(bed.wire.seen("DeleteMessageBatch").is_empty(), "nothing was deleted");
    assert!(settled(&settle(&queue, &held, &Action::Release).await));
    take(&queue, &part("p"), 1).await;
}
