//! What goes wrong between the storing of successors and the end of their delivery: neither is lost, and what is stored is not stored
//! again.

use std::collections::HashSet;
use std::time::Duration;

use anyqueue::adapter::{Action, PullQueueStorage, PullRequest};
use anyqueue::{ErrorKind, RetryClass, SettleOutcome};
use anyqueue_sqs::SqsQueue;
use anyqueue_testkit::{Direction, Fault, Ministack, Proxy, start_if_installed};

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, settle, settled, take};
use crate::successors::{DELETE, SEND, end, ending, ids, one_held};
use crate::wire::{Failure, Seen, Trick};

const THROTTLED: Failure = Failure { code: "RequestThrottled", text: "slow down", sender_fault: true };
const DENIED: Failure = Failure { code: "KmsAccessDenied", text: "", sender_fault: true };
const GONE: Failure = Failure {
    code: "ReceiptHandleIsInvalid",
    text: "The input receipt handle is invalid.",
    sender_fault: true,
};

/// How many messages the requests of this action were about since there were so many requests.
fn entries(bed: &Bed, action: &str, since: usize) -> usize {
    let of = |seen: &Seen| seen.body["Entries"].as_array().unwrap().len();
    bed.wire.seen(action)[since..].iter().map(of).sum()
}

#[tokio::test]
async fn a_lease_that_ends_while_successors_are_sent_is_an_error_and_nobody_elses_message_is_deleted() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other) = (bed.open().await, bed.open().await);
    push(&queue, "next", &messages(1)).await;
    push(&queue, "p", &messages(1)).await;
    let held = queue.pull(&part("p"), PullRequest::new(1, SOON, Duration::from_secs(4))).await.unwrap();
    bed.wire.play(SEND, Trick::DelayAnswer(Duration::from_secs(6)));
    let error = end(&queue, &ending(&held[0], Action::Remove, "next", &messages(1))).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::MayDuplicate), "{error}");
    assert!(bed.wire.seen(DELETE).is_empty());
    assert_eq!(take(&other, &part("p"), 1).await[0].lease.id, held[0].lease.id, "it comes again");
    take(&other, &part("next"), 2).await;
    let again = end(&queue, &ending(&held[0], Action::Remove, "next", &messages(1))).await;
    assert_eq!(again.unwrap(), SettleOutcome::Lost);
}

#[tokio::test]
async fn a_receipt_that_the_server_does_not_know_any_more_is_an_error_once_successors_are_stored() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(2)).await;
    let held = take(&queue, &part("p"), 2).await;
    for (held, action, request) in
        [(&held[0], Action::Remove, DELETE), (&held[1], Action::Release, "ChangeMessageVisibilityBatch")]
    {
        bed.wire.play(request, Trick::FailEntry(0, GONE));
        let settlement = ending(held, action, "next", &messages(1));
        let error = end(&queue, &settlement).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::MayDuplicate));
        assert_eq!(end(&queue, &settlement).await.unwrap(), SettleOutcome::Lost);
    }
    take(&queue, &part("next"), 2).await;
    nothing(&queue, &part("next")).await;
}

#[tokio::test]
async fn one_that_is_refused_leaves_its_delivery_held_and_harms_no_other() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(3)).await;
    let held = take(&queue, &part("p"), 3).await;
    bed.wire.play(SEND, Trick::FailEntry(1, DENIED));
    let settlements: Vec<_> =
        held.iter().map(|held| ending(held, Action::Remove, "next", &messages(1))).collect();
    let outcomes = queue.settle(&settlements).await;
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(settled(&outcomes[..1]) && settled(&outcomes[2..]), "{outcomes:?}");
    assert_eq!(entries(&bed, DELETE, 0), 2, "its delivery is held");
    assert_eq!(end(&queue, &settlements[1]).await.unwrap(), SettleOutcome::Settled);
    let sent: Vec<_> = settlements.iter().map(|settlement| settlement.then[0].message.id()).collect();
    assert_eq!(ids(&take(&queue, &part("next"), 3).await), sent);
    nothing(&queue, &part("p")).await;
}

#[tokio::test]
async fn what_is_stored_is_not_sent_again_when_the_same_is_settled_again() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let held = one_held(&queue).await;
    let before = bed.wire.seen(SEND).len();
    bed.wire.play(SEND, Trick::FailEntry(1, THROTTLED));
    bed.wire.play(DELETE, Trick::FailEntry(0, THROTTLED));
    bed.wire.play(DELETE, Trick::LoseAnswer);
    let settlement = ending(&held, Action::Remove, "next", &messages(3));
    for sent in [3, 4, 4] {
        let error = end(&queue, &settlement).await.unwrap_err();
        assert_eq!(error.retry(), RetryClass::Safe, "{error}");
        assert_eq!(entries(&bed, SEND, before), sent, "{error}");
    }
    assert_eq!(end(&queue, &settlement).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(entries(&bed, SEND, before), 4);
    assert!(bed.wire.is_done());
    take(&queue, &part("next"), 3).await;
    nothing(&queue, &part("next")).await;
    nothing(&queue, &part("p")).await;
}

#[tokio::test]
async fn others_that_are_brought_after_a_failure_are_sent() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let held = one_held(&queue).await;
    bed.wire.play(DELETE, Trick::FailEntry(0, THROTTLED));
    end(&queue, &ending(&held, Action::Remove, "next", &messages(1))).await.unwrap_err();
    let outcome = end(&queue, &ending(&held, Action::Remove, "next", &messages(1))).await;
    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    take(&queue, &part("next"), 2).await;
}

#[tokio::test]
async fn a_move_that_failed_after_its_copy_makes_no_second_one_and_sends_what_is_left() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let held = one_held(&queue).await;
    push(&queue, "next", &messages(1)).await;
    let action = Action::Move { to: part("next"), headers: None };
    // The copy is the first of the request, as the delivery ends before its successors follow.
    bed.wire.play(SEND, Trick::FailEntry(1, THROTTLED));
    let (before, settlement) = (bed.wire.seen(SEND).len(), ending(&held, action, "next", &messages(1)));
    assert_eq!(end(&queue, &settlement).await.unwrap_err().retry(), RetryClass::Safe);
    assert!(bed.wire.seen(DELETE).is_empty());
    assert_eq!(end(&queue, &settlement).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(entries(&bed, SEND, before), 3);
    take(&queue, &part("next"), 3).await;
    nothing(&queue, &part("next")).await;
}

#[tokio::test]
async fn if_the_answer_is_lost_a_standard_queue_may_store_a_second_and_a_fifo_queue_does_not() {
    for (fifo, retry, stored) in [(false, RetryClass::MayDuplicate, 2), (true, RetryClass::Safe, 1)] {
        let Some(bed) = Bed::find().await else { return };
        let queue = bed.builder().fifo(fifo).open().await.unwrap();
        let held = one_held(&queue).await;
        bed.wire.play(SEND, Trick::LoseAnswer);
        let settlement = ending(&held, Action::Remove, "next", &messages(1));
        assert_eq!(end(&queue, &settlement).await.unwrap_err().retry(), retry, "fifo: {fifo}");
        assert!(bed.wire.seen(DELETE).is_empty(), "its delivery is held");
        assert_eq!(end(&queue, &settlement).await.unwrap(), SettleOutcome::Settled);
        let got = take(&queue, &part("next"), stored).await;
        assert!(settled(&settle(&queue, &got, &Action::Remove).await));
        nothing(&queue, &part("next")).await;
    }
}

/// Bytes after which a connection ends: within the head of a request or answer, within its body, after it.
const CUTS: [u64; 8] = [0, 1, 60, 200, 500, 900, 1400, 3000];
const SHORT_LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_at_any_byte_neither_delivery_nor_successor_is_lost() {
    let Some(server) = start_if_installed(Ministack::new()).await.unwrap() else { return };
    let open = async |endpoint: &str, limit: &str| {
        let url = format!("sqs://test:test@us-east-1/test?levels=1&call_timeout={limit}&endpoint={endpoint}");
        SqsQueue::open(&url).await.unwrap()
    };
    let (near, mut seen) = (open(server.url(), "30s").await, HashSet::new());
    let cuts = [Direction::ToServer, Direction::ToClient].into_iter();
    let cuts = cuts.flat_map(|direction| CUTS.map(|bytes| Fault::CutAfter { direction, bytes }));
    for (number, fault) in cuts.enumerate() {
        let proxy = Proxy::start(server.addr()).unwrap();
        // Also for the calls before the cut, on a busy machine.
        let far = open(&format!("http://{}", proxy.addr()), "4s").await;
        let (p, next) = (format!("p{number}"), format!("next{number}"));
        push(&far, &p, &messages(1)).await;
        push(&far, &next, &messages(1)).await;
        let first = take(&far, &part(&next), 1).await;
        assert!(settled(&settle(&far, &first, &Action::Remove).await));
        let held = far.pull(&part(&p), PullRequest::new(1, SOON, SHORT_LEASE)).await.unwrap();
        proxy.set(fault).await.unwrap();
        let ended = end(&far, &ending(&held[0], Action::Remove, &next, &messages(1))).await;
        proxy.set(Fault::Pass).await.unwrap();
        let wait = SHORT_LEASE + Duration::from_secs(1);
        let look =
            async |name: &str| near.pull(&part(name), PullRequest::new(10, wait, LEASE)).await.unwrap().len();
        let (mut stored, mut left) = tokio::join!(look(&next), look(&p));
        if stored + left == 0 {
            // A lease can end later by the clock of a server that is late itself.
            (stored, left) = tokio::join!(look(&next), look(&p));
        }
        assert!(stored <= 1 && left <= 1, "{fault:?}: {stored} stored, {left} left");
        assert!(stored + left >= 1, "{fault:?}: both are lost");
        if ended.is_ok_and(|outcome| outcome == SettleOutcome::Settled) {
            assert_eq!((stored, left), (1, 0), "{fault:?}: what was answered is done");
        }
        seen.insert((stored, left));
    }
    assert_eq!(seen.len(), 3, "the cuts met before, between and after the steps: {seen:?}");
}
