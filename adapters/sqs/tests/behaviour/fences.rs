//! Late and repeated settlements, on servers that take a stale receipt handle for an error and on those that do not mind.

use std::time::Duration;

use anyqueue::adapter::{Action, Extension, PullQueueStorage, PullRequest};
use anyqueue::{ExtendOutcome, SettleOutcome};

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, settle, settled, take};
use crate::wire::{Failure, Trick};

const GONE: Failure = Failure {
    code: "ReceiptHandleIsInvalid",
    text: "The input receipt handle is invalid.",
    sender_fault: true,
};

#[tokio::test]
async fn an_ended_lease_settles_nothing_and_no_server_is_asked() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    push(&queue, "p", &messages(1)).await;
    let lease = Duration::from_secs(1);
    let held = queue.pull(&part("p"), PullRequest::new(1, SOON, lease)).await.unwrap();
    let theirs = take(&other, &part("p"), 1).await;
    assert_eq!(theirs[0].lease.id, held[0].lease.id, "the lease has ended");
    for action in [Action::Remove, Action::Release, Action::Move { to: part("q"), headers: None }] {
        assert_eq!(settle(&queue, &held, &action).await[0].as_ref().unwrap(), &SettleOutcome::Lost);
    }
    let extension = Extension { lease: held[0].lease.clone(), duration: LEASE };
    assert_eq!(queue.extend(&[extension]).await[0].as_ref().unwrap(), &ExtendOutcome::Lost);
    // A lenient server would have deleted the new owner's message.
    assert!(bed.wire.seen("DeleteMessageBatch").is_empty());
    assert!(bed.wire.seen("ChangeMessageVisibilityBatch").is_empty());
    assert!(settled(&settle(&other, &theirs, &Action::Remove).await));
}

#[tokio::test]
async fn a_handle_that_the_server_does_not_know_is_a_lost_lease_and_harms_no_other() {
    for (action, request) in [
        (Action::Remove, "DeleteMessageBatch"),
        (Action::Release, "ChangeMessageVisibilityBatch"),
        (Action::Postpone { delay: SOON, headers: None }, "ChangeMessageVisibilityBatch"),
    ] {
        let Some(bed) = Bed::find().await else { return };
        let queue = bed.open().await;
        push(&queue, "p", &messages(3)).await;
        let held = take(&queue, &part("p"), 3).await;
        bed.wire.play(request, Trick::FailEntry(1, GONE));
        let outcomes: Vec<_> =
            settle(&queue, &held, &action).await.into_iter().map(|outcome| outcome.unwrap()).collect();
        assert_eq!(
            outcomes,
            [SettleOutcome::Settled, SettleOutcome::Lost, SettleOutcome::Settled],
            "{action:?}"
        );
    }
}

#[tokio::test]
async fn a_handle_that_is_not_in_flight_is_lost_to_an_extension() {
    let codes = [
        ("AWS.SimpleQueueService.MessageNotInflight", ""),
        (
            "InvalidParameterValue",
            "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
        ),
    ];
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(2)).await;
    for (code, text) in codes {
        let held = take(&queue, &part("p"), 1).await;
        bed.wire.play(
            "ChangeMessageVisibilityBatch",
            Trick::FailEntry(0, Failure { code, text, sender_fault: true }),
        );
        let extension = Extension { lease: held[0].lease.clone(), duration: LEASE };
        assert_eq!(queue.extend(&[extension]).await[0].as_ref().unwrap(), &ExtendOutcome::Lost, "{code}");
        assert_eq!(settle(&queue, &held, &Action::Remove).await[0].as_ref().unwrap(), &SettleOutcome::Lost);
    }
}

#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_settled_when_it_is_made_again() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    let held = take(&queue, &part("p"), 1).await;
    bed.wire.play("DeleteMessageBatch", Trick::LoseAnswer);
    let first = settle(&queue, &held, &Action::Remove).await;
    assert_eq!(first[0].as_ref().unwrap_err().retry(), anyqueue::RetryClass::Safe);
    // This server calls the second deletion an error.
    assert!(settled(&settle(&queue, &held, &Action::Remove).await));
    nothing(&queue, &part("p")).await;
}

#[tokio::test]
async fn a_lease_can_be_ended_by_another_handle() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    push(&queue, "p", &messages(2)).await;
    let held = take(&queue, &part("p"), 2).await;
    assert!(settled(&settle(&other, &held[..1], &Action::Remove).await));
    assert!(settled(&settle(&other, &held[1..], &Action::Release).await));
    assert_eq!(take(&other, &part("p"), 1).await[0].lease.id, held[1].lease.id);
}
