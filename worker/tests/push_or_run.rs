//! Tasks that run where they were to be pushed from, because the queue cannot be reached.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at anything")]

use std::sync::Mutex;

use anyqueue::adapter::{Forward, PushQueueStorage as _, Storage, async_trait};
use anyqueue::{
    Error, ErrorKind, MessageData, PartitionId, PushOutcome, Queue, Result, RetryClass, RetryPolicy,
};
use anyqueue_memory::MemoryQueue;
use anyqueue_worker::{Fallback, PushedOrRan, push_or_run, task};

/// A queue whose pushes fail, and store what they were given all the same if the error says that it may be so.
#[derive(Debug)]
struct Failing(MemoryQueue, Mutex<Option<Error>>);

#[async_trait]
impl Forward for Failing {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let error = self.1.lock().unwrap().clone();
        match error {
            None => self.0.push(partition, messages).await,
            Some(error) => {
                if error.is_uncertain() {
                    drop(self.0.push(partition, messages).await);
                }
                vec![Err(error); messages.len()]
            }
        }
    }
}

fn queue_that_fails(error: Option<Error>) -> Queue {
    let storage = Failing(MemoryQueue::new(), Mutex::new(error));
    Queue::builder(storage).retry(RetryPolicy::NEVER).build().unwrap()
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "connection refused")
}

fn unsure(kind: ErrorKind) -> Error {
    Error::new(kind, "the answer was lost").with_retry(RetryClass::MayDuplicate).repeatable()
}

/// Whether it ran, whether it may be pushed too, and how many messages are in the queue.
async fn outcome(error: Option<Error>, fallback: Fallback) -> (Result<Option<bool>>, usize) {
    let queue = queue_that_fails(error);
    let message = task("k", &7).unwrap();
    let id = message.id();
    let run = |message: MessageData| async move { message.id() };
    let done = push_or_run(&queue.pusher(), "p", message, fallback, run).await;
    let done = done.map(|done| match done {
        PushedOrRan::Pushed(outcome) => {
            assert_eq!(outcome, PushOutcome::Stored(id));
            None
        }
        PushedOrRan::Ran { result, error, may_be_pushed } => {
            assert_eq!(result, id, "it gets the message back");
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut));
            Some(may_be_pushed)
        }
        other => panic!("{other:?}"),
    });
    (done, queue.pull("p").max(10).await.unwrap().len())
}

const ALL: [Fallback; 3] = [Fallback::Never, Fallback::IfCertain, Fallback::Always];

#[tokio::test]
async fn where_the_queue_can_be_reached_the_task_is_pushed_and_does_not_run() {
    for fallback in ALL {
        let (done, stored) = outcome(None, fallback).await;
        assert_eq!((done.unwrap(), stored), (None, 1), "{fallback:?}");
    }
}

#[tokio::test]
async fn where_it_is_certainly_not_stored_the_task_runs_once() {
    for fallback in [Fallback::IfCertain, Fallback::Always] {
        let (done, stored) = outcome(Some(refused()), fallback).await;
        assert_eq!((done.unwrap(), stored), (Some(false), 0), "{fallback:?}");
    }
    let (done, stored) = outcome(Some(refused()), Fallback::Never).await;
    assert_eq!((done.unwrap_err().kind(), stored), (ErrorKind::Unavailable, 0));
}

#[tokio::test]
async fn where_it_may_be_stored_the_task_runs_only_if_it_bears_that() {
    for kind in [ErrorKind::Unavailable, ErrorKind::TimedOut] {
        for fallback in [Fallback::Never, Fallback::IfCertain] {
            let (done, stored) = outcome(Some(unsure(kind)), fallback).await;
            assert!(done.unwrap_err().is_uncertain());
            assert_eq!(stored, 1, "{fallback:?}: it would have run twice");
        }
        let (done, stored) = outcome(Some(unsure(kind)), Fallback::Always).await;
        assert_eq!((done.unwrap(), stored), (Some(true), 1), "it says so");
    }
}

#[tokio::test]
async fn a_queue_that_refuses_a_message_is_no_reason_to_run_it() {
    for kind in [ErrorKind::Full, ErrorKind::AccessDenied, ErrorKind::Corrupt] {
        let (done, _) = outcome(Some(Error::new(kind, "no")), Fallback::Always).await;
        assert_eq!(done.unwrap_err().kind(), kind);
    }
    let queue = queue_that_fails(None);
    let ran = push_or_run(&queue.pusher(), "", MessageData::new("x"), Fallback::Always, |_| async {}).await;
    assert_eq!(ran.unwrap_err().kind(), ErrorKind::InvalidInput);
}
