//! A handle that only pushes, and what is known of pushes that failed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Error, ErrorKind, MessageData, PushOutcome, Queue, RetryClass, RetryPolicy};
use support::{Script, Shared, Spy, safe, spy};

/// A storage that tells one message from another by its id, or not.
fn spy_with(unique_ids: bool) -> Shared {
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::new());
    inner.capabilities.unique_ids = unique_ids;
    Shared(Arc::new(inner))
}

fn unsure() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection broke").with_retry(RetryClass::MayDuplicate)
}

#[tokio::test]
async fn a_pusher_pushes_as_its_queue_does_until_that_is_closed() {
    let queue = Queue::new(spy()).unwrap();
    let pusher = queue.pusher().clone();
    let one = MessageData::new("one").with_group("g");
    let id = one.id();
    pusher.check_push("p", &one).unwrap();
    assert_eq!(pusher.push("p", one).await.unwrap(), PushOutcome::Stored(id));
    let more = ["two", "three"].map(MessageData::new).to_vec();
    assert!(pusher.push_many("p", more).await.unwrap().iter().all(Result::is_ok));
    let mut payloads = Vec::new();
    for mut delivery in queue.pull("p").max(10).await.unwrap() {
        payloads.push(delivery.payload().to_vec());
        delivery.settle(anyqueue::QueueMessageStatus::Processed).await.unwrap();
    }
    assert_eq!(payloads, [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    assert!(pusher.check_push("", &MessageData::new("x")).is_err());
    assert!(pusher.capabilities().unique_ids);
    queue.close().await.unwrap();
    let error = pusher.push("p", MessageData::new("late")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_uncertain()), (ErrorKind::Closed, false));
}

#[tokio::test]
async fn a_push_that_may_have_been_done_says_so_also_where_repeating_it_is_safe() {
    for unique_ids in [true, false] {
        let spy = spy_with(unique_ids);
        let queue = Queue::builder(spy.clone()).retry(RetryPolicy::NEVER).build().unwrap();
        let failed = async |script| {
            spy.push.script([script]);
            queue.push("p", MessageData::new("m")).await.unwrap_err()
        };
        let error = failed(Script::Fail(safe(ErrorKind::Unavailable))).await;
        assert!(!error.is_uncertain(), "nothing has happened: {error:?}");
        assert!(failed(Script::Fail(unsure().repeatable())).await.is_uncertain());
        assert!(failed(Script::Fail(unsure())).await.is_uncertain());
        let error = failed(Script::Panic).await;
        let class = if unique_ids { RetryClass::Safe } else { RetryClass::MayDuplicate };
        assert_eq!((error.is_uncertain(), error.retry()), (true, class), "what it did before is not known");
    }
}

#[tokio::test]
async fn what_an_attempt_may_have_done_the_next_ones_failure_does_not_undo() {
    let spy = spy_with(true);
    let pause = Duration::from_millis(1);
    let policy = RetryPolicy::default().with_attempts(2).with_base(pause).with_cap(pause);
    let queue = Queue::builder(spy.clone()).retry(policy).build().unwrap();
    let refused = || Script::Fail(safe(ErrorKind::Unavailable));
    spy.push.script([Script::Fail(unsure().repeatable()), refused()]);
    assert!(queue.push("p", MessageData::new("m")).await.unwrap_err().is_uncertain());
    spy.push.script([refused(), refused()]);
    assert!(!queue.push("p", MessageData::new("m")).await.unwrap_err().is_uncertain());
}

#[tokio::test]
async fn a_call_without_an_answer_in_time_is_uncertain() {
    let spy = spy();
    let queue = Queue::builder(spy.clone()).call_timeout(Duration::from_millis(50)).build().unwrap();
    spy.push.hold();
    let error = queue.push("p", MessageData::new("m")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_uncertain()), (ErrorKind::TimedOut, true));
    spy.push.let_go();
}
