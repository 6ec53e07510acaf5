//! How core turns what callers ask into calls of the storage: joining, splitting, repeating, deadlines.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use anyqueue::Page;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use support::{Script, Shared, Spy, eventually, safe, spy, spy_on};
use tokio::task::JoinHandle;

fn message(n: usize) -> MessageData {
    MessageData::new(format!("message {n}"))
}

#[tokio::test]
async fn pushes_of_many_tasks_share_calls_and_a_lone_one_goes_at_once() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push("p", message(0)).await.unwrap();
    assert_eq!((spy.push.calls(), spy.push.items()), (1, 1), "a lone push is a call of its own");

    spy.push.hold();
    let pushes: Vec<_> = (1..=64)
        .map(|n| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.push("p", message(n)).await })
        })
        .collect();
    eventually("the first call", || spy.push.calls() == 2).await;
    // Let every task reach the coalescer before the call under way ends.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    spy.push.let_go();
    for push in pushes {
        assert!(matches!(push.await.unwrap(), Ok(PushOutcome::Stored(_))));
    }
    assert_eq!(spy.push.items(), 65);
    assert!(spy.push.calls() <= 3, "64 pushes took {} calls", spy.push.calls() - 1);
}

#[tokio::test]
async fn where_requests_cost_money_every_call_waits_for_company_and_a_full_one_does_not() {
    const LINGER: Duration = Duration::from_millis(10);
    let clock = ManualClock::new();
    let config = anyqueue_memory::MemoryConfig::default().with_clock(clock.clock());
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::with_config(config));
    inner.capabilities.coalesce_push.in_flight = 1;
    inner.capabilities.coalesce_push.linger = LINGER;
    inner.capabilities.limits.push_batch = 3;
    let spy = Shared(Arc::new(inner));
    let queue = Queue::builder(spy.clone()).clock(clock.clock()).build().unwrap();
    let push = |n| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.push("p", message(n)).await })
    };
    let settle_down = async || {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    };
    spy.push.hold();
    let first = push(0);
    settle_down().await;
    assert_eq!(spy.push.calls(), 0, "the first waits");
    clock.advance(LINGER);
    eventually("the first call", || spy.push.calls() == 1).await;

    let company = [push(1), push(2)];
    settle_down().await;
    spy.push.let_go();
    first.await.unwrap().unwrap();
    settle_down().await;
    assert_eq!(spy.push.calls(), 1, "what gathered during a call waits for more");
    clock.advance(LINGER);
    eventually("the second call", || spy.push.calls() == 2).await;
    for push in company {
        push.await.unwrap().unwrap();
    }
    settle_down().await;
    clock.advance(LINGER); // nothing is left, and the lane is given up
    settle_down().await;

    spy.push.hold();
    let before = push(3);
    settle_down().await;
    clock.advance(LINGER);
    eventually("the third call", || spy.push.calls() == 3).await;
    let full = [push(4), push(5), push(6)];
    settle_down().await;
    spy.push.let_go();
    before.await.unwrap().unwrap();
    for push in full {
        push.await.unwrap().unwrap();
    }
    assert_eq!((spy.push.calls(), spy.push.items()), (4, 7), "as many as fit a call wait for nobody");
}

#[tokio::test]
async fn settlements_of_many_tasks_share_calls_and_each_gets_its_own_outcome() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push_many("p", (0..64).map(message).collect()).await.unwrap();
    let handlers = queue.pull("p").max(64).await.unwrap();
    spy.settle.hold();
    // One of them fails for good; nobody else may notice.
    spy.settle.script([Script::FailItem(0, Error::new(ErrorKind::Corrupt, "this one"))]);
    let settles: Vec<_> = handlers
        .into_iter()
        .map(|mut handler| tokio::spawn(async move { (handler.settle(Processed).await, handler) }))
        .collect();
    eventually("the first call", || spy.settle.calls() == 1).await;
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    spy.settle.let_go();
    let mut outcomes = Vec::new();
    for settle in settles {
        outcomes.push(settle.await.unwrap());
    }
    let failed = outcomes.iter().filter(|(outcome, _)| outcome.is_err()).count();
    assert_eq!(failed, 1);
    assert!(spy.settle.calls() <= 2, "64 settlements took {} calls", spy.settle.calls());
    // What failed is still held, and can be settled again (memory had done it: lost to oneself is what it says).
    let (_, handler) = outcomes.iter_mut().find(|(outcome, _)| outcome.is_err()).unwrap();
    assert!(!handler.is_lost());
    assert!(handler.settle(Processed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn where_two_calls_may_be_under_way_a_steady_flow_is_shared_evenly() {
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::new());
    inner.capabilities.coalesce_settle.in_flight = 2;
    let spy = Shared(std::sync::Arc::new(inner));
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push_many("p", (0..800).map(message).collect()).await.unwrap();
    spy.settle.takes(Duration::from_millis(1));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let held = queue.pull("p").max(100).await.unwrap();
        tasks.spawn(async move {
            for mut handler in held {
                handler.settle(Processed).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let sizes = spy.settle.sizes();
    let even = sizes.iter().filter(|size| (3..=5).contains(*size)).count();
    assert!(even * 10 > sizes.len() * 9, "of 8 callers each call carries about 4: {sizes:?}");
}

#[tokio::test]
async fn only_the_items_that_are_safe_to_repeat_are_repeated() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    spy.push.script([
        Script::FailItem(1, safe(ErrorKind::Unavailable)),
        Script::FailItem(0, safe(ErrorKind::Unavailable)),
    ]);
    let answers = queue.push_many("p", (0..3).map(message).collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!((spy.push.calls(), spy.push.items()), (3, 5), "three, then the failed one twice");
    assert_eq!(queue.counts("p").await.unwrap().ready, Some(3));
}

#[tokio::test]
async fn a_repeated_push_that_had_been_stored_is_no_duplicate() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    let first = message(0);
    queue.push("p", first.clone()).await.unwrap();
    // The server stored it, and its answer was lost: the repetition finds the message there.
    spy.push.script([Script::Fail(safe(ErrorKind::Unavailable))]);
    assert_eq!(queue.push("p", first.clone()).await.unwrap(), PushOutcome::Stored(first.id()));
    assert_eq!(queue.push("p", first.clone()).await.unwrap(), PushOutcome::Duplicate(Some(first.id())));
}

#[tokio::test]
async fn what_failed_of_a_group_is_repeated_only_if_nothing_behind_it_was_stored() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    let stored = async |bad: usize| {
        spy.push.script([Script::FailItem(bad, safe(ErrorKind::Unavailable))]);
        let of = |group: &str, n| message(n).with_group(group);
        let answers = queue.push_many("p", vec![of("a", 0), of("b", 1), of("a", 2), message(3)]).await;
        answers.unwrap().iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    assert_eq!(stored(0).await, [false, true, true, true], "another of its group was stored behind it");
    assert_eq!(spy.push.calls(), 1);
    for last_of_its_group in [1, 2, 3] {
        assert_eq!(stored(last_of_its_group).await, [true; 4]);
    }
    assert_eq!(spy.push.calls(), 7);
}

#[tokio::test]
async fn what_may_duplicate_or_never_helps_is_not_repeated() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    for retry in [RetryClass::MayDuplicate, RetryClass::Never] {
        let before = spy.push.calls();
        spy.push.script([Script::Fail(Error::new(ErrorKind::Unavailable, "cut").with_retry(retry))]);
        let error = queue.push("p", message(0)).await.unwrap_err();
        assert_eq!((error.retry(), spy.push.calls() - before), (retry, 1));
    }
}

#[tokio::test]
async fn retries_are_bounded() {
    let spy = spy();
    let retry = RetryPolicy::default().with_attempts(3);
    let queue = Queue::builder(spy.clone()).retry(retry).build().unwrap();
    spy.push.script((0..9).map(|_| Script::Fail(safe(ErrorKind::Unavailable))));
    assert_eq!(queue.push("p", message(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(spy.push.calls(), 3);
}

#[tokio::test]
async fn a_panic_or_a_short_answer_of_an_adapter_is_an_error_and_the_queue_goes_on() {
    let spy = spy();
    let retry = RetryPolicy::NEVER;
    let queue = Queue::builder(spy.clone()).retry(retry).build().unwrap();
    for script in [Script::Panic, Script::Short] {
        spy.push.script([script]);
        assert_eq!(queue.push("p", message(0)).await.unwrap_err().kind(), ErrorKind::Internal);
    }
    spy.pull.script([Script::Panic]);
    assert_eq!(queue.pull("p").await.unwrap_err().kind(), ErrorKind::Internal);
    queue.push("p", message(1)).await.unwrap();
    let mut handlers = queue.pull("p").await.unwrap();
    spy.settle.script([Script::Panic]);
    assert_eq!(handlers[0].settle(Processed).await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(handlers[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_deadline() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let retry = RetryPolicy::NEVER;
    let queue = Queue::builder(spy.clone())
        .clock(clock.clock())
        .retry(retry)
        .call_timeout(Duration::from_secs(7))
        .build()
        .unwrap();
    spy.push.hold();
    let push = tokio::spawn({
        let queue = queue.clone();
        async move { queue.push("p", message(0)).await }
    });
    eventually("the call", || spy.push.calls() == 1).await;
    tokio::task::yield_now().await;
    clock.advance(Duration::from_secs(8));
    let error = push.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.retry(), RetryClass::Safe, "ids are unique here, so repeating is safe");
}

#[tokio::test]
async fn batches_are_split_by_count_and_by_bytes() {
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::new());
    inner.capabilities.limits.push_batch = 10;
    inner.capabilities.limits.push_batch_bytes = 3 * inner.memory.encoded_len(&message(100));
    let spy = support::Shared(std::sync::Arc::new(inner));
    let queue = Queue::new(spy.clone()).unwrap();
    let answers = queue.push_many("p", (100..109).map(message).collect()).await.unwrap();
    assert_eq!(answers.len(), 9);
    assert_eq!(spy.push.calls(), 3, "three fit the bytes of one call");
    assert!(queue.push_many("p", Vec::new()).await.unwrap().is_empty());
    assert_eq!(spy.push.calls(), 3, "none is no call");
}

#[tokio::test]
async fn a_pull_above_the_native_limit_asks_again() {
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::new());
    inner.capabilities.limits.pull_batch = 10;
    let spy = support::Shared(std::sync::Arc::new(inner));
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push_many("p", (0..25).map(message).collect()).await.unwrap();
    let handlers = queue.pull("p").max(100).wait(Duration::from_secs(5)).await.unwrap();
    assert_eq!((handlers.len(), spy.pull.calls()), (25, 3));
}

/// A settlement that waits to be joined with others, while one before it is held, and that one.
async fn waiting_settlement(spy: &Shared, queue: &Queue) -> [JoinHandle<anyqueue::Result<SettleOutcome>>; 2] {
    queue.push_many("p", (0..3).map(message).collect()).await.unwrap();
    let mut held = queue.pull("p").max(2).await.unwrap();
    let (mut second, mut first) = (held.pop().unwrap(), held.pop().unwrap());
    spy.settle.hold();
    let first = tokio::spawn(async move { first.settle(Processed).await });
    eventually("a settlement under way", || spy.settle.calls() == 1).await;
    let second = tokio::spawn(async move { second.settle(Processed).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    [second, first]
}

#[tokio::test]
async fn waiting_settlements_ride_along_with_a_pull() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    let [second, first] = waiting_settlement(&spy, &queue).await;
    let pulled = queue.pull("p").await.unwrap();
    assert_eq!((pulled.len(), spy.exchange.calls(), spy.exchange.items()), (1, 1, 1));
    assert_eq!(
        second.await.unwrap().unwrap(),
        SettleOutcome::Settled,
        "by the pull, while the first is still under way"
    );
    spy.settle.let_go();
    assert_eq!(first.await.unwrap().unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn a_pull_that_fails_with_the_settlements_it_took_along_is_repeated_and_so_are_they() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    let [second, first] = waiting_settlement(&spy, &queue).await;
    spy.exchange.script([Script::Fail(safe(ErrorKind::Unavailable))]);
    assert_eq!(queue.pull("p").await.unwrap().len(), 1);
    assert_eq!(spy.exchange.calls(), 1);
    spy.settle.let_go();
    for settled in [second, first] {
        assert_eq!(settled.await.unwrap().unwrap(), SettleOutcome::Settled);
    }
}

#[tokio::test]
async fn a_settlement_that_a_pull_took_along_and_that_may_have_taken_effect_is_not_repeated() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    let [second, first] = waiting_settlement(&spy, &queue).await;
    let error = Error::new(ErrorKind::Unavailable, "cut").with_retry(RetryClass::MayDuplicate);
    spy.exchange.script([Script::FailItem(0, error)]);
    assert_eq!(queue.pull("p").await.unwrap().len(), 1);
    assert_eq!(second.await.unwrap().unwrap_err().retry(), RetryClass::MayDuplicate);
    spy.settle.let_go();
    assert_eq!(first.await.unwrap().unwrap(), SettleOutcome::Settled);
}

#[tokio::test]
async fn a_full_push_buffer_holds_pushes_back_and_then_says_so() {
    let clock = ManualClock::new();
    let spy = spy_on(&clock);
    let queue = Queue::builder(spy.clone())
        .clock(clock.clock())
        .push_buffer_bytes(1024)
        .call_timeout(Duration::from_secs(5))
        .build()
        .unwrap();
    spy.push.hold();
    let first = tokio::spawn({
        let queue = queue.clone();
        async move { queue.push("p", message(0)).await }
    });
    eventually("the first", || spy.push.calls() == 1).await;
    let waiting: Vec<_> = (1..=2)
        .map(|n| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.push("p", message(n)).await })
        })
        .collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(waiting.iter().all(|push| !push.is_finished()), "there is room for one only");
    // The first call ends too, and its room goes to one of the two: the other has waited too long.
    clock.advance(Duration::from_secs(6));
    eventually("the end of a wait", || waiting.iter().any(tokio::task::JoinHandle::is_finished)).await;
    for push in waiting {
        if push.is_finished() {
            assert_eq!(push.await.unwrap().unwrap_err().kind(), ErrorKind::Full);
        } else {
            push.abort();
        }
    }
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn no_more_is_held_than_allowed_and_pulls_wait_for_room() {
    let spy = spy();
    let queue = Queue::builder(spy.clone()).max_held(2).build().unwrap();
    queue.push_many("p", (0..3).map(message).collect()).await.unwrap();
    let mut held = queue.pull("p").max(10).await.unwrap();
    assert_eq!(held.len(), 2);
    assert!(queue.pull("p").await.unwrap().is_empty(), "no room, no wait");
    let third = tokio::spawn({
        let queue = queue.clone();
        async move { queue.pull("p").wait(Duration::from_secs(10)).await.unwrap().len() }
    });
    let mut first = held.remove(0);
    first.settle(Processed).await.unwrap();
    drop(first);
    assert_eq!(third.await.unwrap(), 1);
}

#[test]
fn a_queue_whose_runtime_has_ended_answers_instead_of_hanging() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let spy = spy();
    let queue = runtime.block_on(async { Queue::new(spy.clone()).unwrap() });
    drop(runtime);
    spy.push.hold(); // it cannot end at once, so it must go on in a runtime that is no more
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = other.block_on(async { queue.push("p", message(0)).await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn pushes_whose_futures_were_dropped_keep_their_room_until_they_are_done() {
    let spy = spy();
    let queue = Queue::builder(spy.clone()).push_buffer_bytes(4 * 1024).build().unwrap();
    spy.push.hold();
    for n in 0..100 {
        // Polled once, then dropped: what was handed over goes on.
        let mut push = std::pin::pin!(queue.push("p", message(n)));
        assert!(futures_util::poll!(push.as_mut()).is_pending());
    }
    spy.push.let_go();
    eventually("what had room", || spy.push.items() >= 4).await;
    queue.close().await.unwrap();
    assert_eq!(spy.push.items(), 4, "only what fits the buffer was queued");
}

#[tokio::test]
async fn a_redrive_that_has_no_room_to_look_says_so() {
    let queue = Queue::builder(spy()).max_held(1).build().unwrap();
    queue.push_many("p", (0..2).map(message).collect()).await.unwrap();
    let mut dead = queue.pull("p").await.unwrap().remove(0);
    dead.settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    drop(dead);
    let held = queue.pull("p").await.unwrap();
    assert_eq!(held.len(), 1);
    let error = queue.dead_letters("p").unwrap().redrive().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    drop(held);
    assert_eq!(queue.dead_letters("p").unwrap().redrive().await.unwrap().moved, 1);
}

#[tokio::test]
async fn a_redrive_whose_filter_refuses_more_than_can_be_held_ends_where_nothing_can_be_postponed() {
    let mut inner = Spy::new(anyqueue_memory::MemoryQueue::new());
    inner.capabilities.postpone_delay = None;
    let queue = Queue::builder(Shared(Arc::new(inner))).max_held(8).build().unwrap();
    queue.push_many("p", (0..20).map(message).collect()).await.unwrap();
    for _ in 0..20 {
        let mut task = queue.pull("p").await.unwrap().remove(0);
        task.settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    }
    let done = queue.dead_letters("p").unwrap().redrive().filter(|_| false).await.unwrap();
    assert_eq!((done.moved, done.more), (0, true));
    assert_eq!(queue.counts("p").await.unwrap().dead, Some(20));
}

#[tokio::test]
async fn dead_letters_that_were_looked_at_are_back_before_the_answer() {
    let mut spy = Spy::new(anyqueue_memory::MemoryQueue::new());
    spy.capabilities.inspect.browse = false;
    let spy = Shared(Arc::new(spy));
    let queue = Queue::new(spy.clone()).unwrap();
    let dead = queue.dead_letters("p").unwrap();
    queue.push("p", message(0)).await.unwrap();
    for mut handler in queue.pull("p").await.unwrap() {
        handler.settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    }

    for refused in [false, true] {
        spy.settle.hold();
        let calls = spy.settle.calls();
        let dead = dead.clone();
        let look = tokio::spawn(async move {
            if refused {
                dead.redrive().filter(|_| false).await.map(|done| done.scanned)
            } else {
                dead.list(Page::of(10)).await.map(|listed| listed.len() as u64)
            }
        });
        eventually("the release", || spy.settle.calls() > calls).await;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        assert!(!look.is_finished(), "answered while the release is under way");
        spy.settle.let_go();
        assert_eq!(look.await.unwrap().unwrap(), 1);
    }
    assert_eq!(dead.redrive().await.unwrap().moved, 1);
}
