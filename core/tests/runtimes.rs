//! A queue and the runtime that it was made in: used from elsewhere, not driven, ended; and the I/O thread instead.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod support;

use anyqueue::Page;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::*;
use anyqueue::*;
use anyqueue_memory::MemoryQueue;
use support::{eventually, spy, spy_on};
use tokio::runtime::{Builder, Handle, Runtime};

const TIMEOUT: Duration = Duration::from_secs(4);

fn of_one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn message() -> MessageData {
    MessageData::new("x")
}

/// A queue made in a runtime that nobody drives from then on.
fn idle_queue(clock: &ManualClock) -> (Runtime, support::Shared, Queue) {
    let idle = of_one_thread();
    let spy = spy_on(clock);
    let queue = idle.block_on(async {
        let builder = Queue::builder(spy.clone()).clock(clock.clock()).call_timeout(TIMEOUT);
        builder.build().unwrap()
    });
    (idle, spy, queue)
}

/// What a call returns whose caller's deadline passes, half by half.
async fn at_its_deadline<T>(clock: &ManualClock, call: impl Future<Output = T>) -> T {
    let mut call = std::pin::pin!(call);
    for _ in 0..2 {
        for _ in 0..50 {
            if let Poll::Ready(answer) = futures_util::poll!(call.as_mut()) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
        clock.advance(TIMEOUT / 2);
    }
    call.await
}

fn is_standing_still<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(error.message().contains("nobody has driven"), "{error}");
}

#[test]
fn where_nobody_drives_its_runtime_every_call_ends_at_its_deadline_and_says_so() {
    let clock = ManualClock::new();
    let (idle, spy, queue) = idle_queue(&clock);
    let mut held = idle.block_on(async {
        queue.push("p", message()).await.unwrap();
        queue.pull("p").lease(Duration::from_hours(1)).await.unwrap()
    });
    of_one_thread().block_on(async {
        spy.push.hold();
        is_standing_still(at_its_deadline(&clock, queue.push("p", message())).await);
        let answers = at_its_deadline(&clock, queue.push_many("p", vec![message()])).await.unwrap();
        is_standing_still(answers.into_iter().next().unwrap());
        let pull = queue.pull("p").wait(Duration::from_hours(1));
        is_standing_still(at_its_deadline(&clock, pull.into_future()).await);
        is_standing_still(at_its_deadline(&clock, queue.init()).await);
        is_standing_still(at_its_deadline(&clock, queue.check()).await);
        is_standing_still(at_its_deadline(&clock, queue.counts("p")).await);
        is_standing_still(at_its_deadline(&clock, held[0].extend(TIMEOUT)).await);
        spy.settle.hold();
        is_standing_still(at_its_deadline(&clock, held[0].settle(Processed)).await);
        is_standing_still(at_its_deadline(&clock, held[0].settle(Processed)).await);
    });

    // Once somebody does, what was begun is carried through, and what was given up has left nothing behind.
    spy.push.let_go();
    spy.settle.let_go();
    idle.block_on(async {
        assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        let counts = queue.counts("p").await.unwrap();
        assert_eq!(
            (counts.ready, counts.leased),
            (Some(1), Some(0)),
            "the pull that was given up took nothing"
        );
    });
}

#[test]
fn from_another_runtime_everything_works_while_its_own_is_driven() {
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let spy = spy();
    let queue = own.block_on(async { Queue::new(spy.clone()).unwrap() });
    of_one_thread().block_on(async {
        queue.push_many("p", vec![message(), message()]).await.unwrap();
        let mut held = queue.pull("p").max(2).await.unwrap();
        assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    });
    // Both that runtime and the delivery are gone: its release goes on in the queue's own.
    let back = own.block_on(async { queue.pull("p").wait(TIMEOUT).await.unwrap() });
    assert_eq!(back.len(), 1);
}

#[test]
fn when_its_runtime_ends_what_is_held_is_lost_and_every_call_names_the_cause() {
    let own = of_one_thread();
    let spy = spy();
    let queue = own.block_on(async { Queue::new(spy.clone()).unwrap() });
    let mut held = own.block_on(async {
        queue.push_many("p", vec![message(), message()]).await.unwrap();
        queue.pull("p").max(2).await.unwrap()
    });
    let lost = held[0].lost().clone();
    let calls = spy.pull.calls();
    drop(own);
    assert!(lost.is_cancelled() && held[0].is_lost(), "nothing keeps the lease");
    of_one_thread().block_on(async {
        let says_so = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert!(error.message().contains("has ended"), "{error}");
        };
        says_so(queue.pull("p").await.unwrap_err());
        says_so(queue.push("p", message()).await.unwrap_err());
        says_so(queue.push_many("p", vec![message()]).await.unwrap_err());
        says_so(held[0].settle(Processed).await.unwrap_err());
        says_so(held[1].extend(TIMEOUT).await.unwrap_err());
        says_so(queue.check().await.unwrap_err());
        says_so(queue.counts("p").await.unwrap_err());
        assert_eq!(spy.pull.calls(), calls, "no lease without a heartbeat");

        // What is dropped comes back where there is a runtime to release it in.
        let other = Queue::new(spy.memory.client()).unwrap();
        drop(held);
        let mut back = other.pull("p").max(2).wait(TIMEOUT).await.unwrap();
        back.extend(
            other.pull("p").wait(if back.len() < 2 { TIMEOUT } else { Duration::ZERO }).await.unwrap(),
        );
        assert_eq!(back.len(), 2);
        queue.close().await.unwrap();
    });
}

#[test]
fn a_pull_from_elsewhere_ends_with_the_runtime() {
    let own = of_one_thread();
    let spy = spy();
    let queue = own.block_on(async { Queue::new(spy.clone()).unwrap() });
    let other = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting = other.spawn({
        let queue = queue.clone();
        async move { queue.pull("p").wait(Duration::from_hours(1)).await }
    });
    own.block_on(eventually("the pull", || spy.pull.calls() == 1));
    drop(own);
    let error = other.block_on(waiting).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

#[tokio::test]
async fn a_panic_in_one_task_loses_nothing_of_the_others() {
    let spy = spy();
    let queue = Queue::new(spy.clone()).unwrap();
    queue.push_many("p", (0..3).map(|_| message()).collect()).await.unwrap();
    let mut held = queue.pull("p").max(3).await.unwrap();
    let (mut first, mut second, third) = (held.pop().unwrap(), held.pop().unwrap(), held.pop().unwrap());
    spy.settle.hold();
    spy.exchange.hold();
    let first = tokio::spawn(async move { first.settle(Processed).await });
    eventually("a call under way", || spy.settle.calls() == 1).await;
    let second = tokio::spawn(async move { second.settle(Processed).await });
    tokio::task::yield_now().await;
    drop(third);
    // A pull takes both along, and then its task dies of something else.
    let (bug, found) = tokio::sync::oneshot::channel::<()>();
    let panics = tokio::spawn({
        let queue = queue.clone();
        async move {
            let a_bug = async {
                found.await.unwrap();
                std::panic::resume_unwind(Box::new("a bug of the application"));
            };
            tokio::join!(async { queue.pull("other").await }, a_bug)
        }
    });
    eventually("the pull", || spy.exchange.calls() == 1).await;
    bug.send(()).unwrap();
    assert!(panics.await.is_err());
    spy.exchange.let_go();
    assert_eq!(second.await.unwrap().unwrap(), SettleOutcome::Settled);
    spy.settle.let_go();
    assert_eq!(first.await.unwrap().unwrap(), SettleOutcome::Settled);
    assert_eq!(queue.pull("p").wait(TIMEOUT).await.unwrap().len(), 1, "what was dropped");
}

#[tokio::test]
async fn an_io_thread_lives_until_what_is_under_way_has_ended() {
    let spy = spy();
    let io = IoThread::start().unwrap();
    let queue = Queue::builder(spy.clone()).io(&io).build().unwrap();
    queue.push("p", message()).await.unwrap();
    let held = queue.pull("p").await.unwrap();
    spy.settle.hold();
    drop((queue, io));
    drop(held);
    eventually("the release", || spy.settle.calls() == 1).await;
    spy.settle.let_go();
    let other = Queue::new(spy.memory.client()).unwrap();
    assert_eq!(other.pull("p").wait(TIMEOUT).await.unwrap().len(), 1);
}

type Seen = Vec<(&'static str, Option<tokio::runtime::Id>)>;

/// Notes in which runtime each call is made.
#[derive(Clone, Debug)]
struct Where(Arc<MemoryQueue>, Arc<Mutex<Seen>>);

impl Where {
    fn new() -> Self {
        Self(Arc::new(MemoryQueue::new()), Arc::default())
    }

    fn note(&self, call: &'static str) {
        self.1.lock().unwrap().push((call, Handle::try_current().ok().map(|handle| handle.id())));
    }
}

#[async_trait]
impl Forward for Where {
    fn inner(&self) -> &dyn Storage {
        &*self.0
    }

    fn name(&self) -> &'static str {
        "where"
    }

    async fn init(&self) -> Result<()> {
        self.note("init");
        self.0.init().await
    }

    async fn check(&self) -> Result<Health> {
        self.note("check");
        // Timers of a runtime are used where it is.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.check().await
    }

    async fn close(&self) -> Result<()> {
        self.note("close");
        self.0.close().await
    }

    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.note("push");
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.push(partition, messages).await
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        self.note("pull");
        self.0.pull(partition, request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Vec<Result<SettleOutcome>> {
        self.note("settle");
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.settle(settlements).await
    }

    async fn extend(&self, extensions: &[Extension]) -> Vec<Result<ExtendOutcome>> {
        self.note("extend");
        self.0.extend(extensions).await
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        self.note("exchange");
        self.0.exchange(settlements, partition, request).await
    }

    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        self.note("inspect");
        self.0.inspect()
    }

    fn pause(&self) -> Option<&dyn PauseQueueStorage> {
        self.note("pause");
        self.0.pause()
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn ledger(&self) -> Option<&dyn LedgerQueueStorage> {
        None
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}

/// All that can be asked of a queue.
async fn everything(queue: &Queue) {
    queue.init().await.unwrap();
    queue.check().await.unwrap();
    queue.push("p", message()).await.unwrap();
    queue.push_many("p", vec![message(), message(), message()]).await.unwrap();
    let mut held = queue.pull("p").max(4).await.unwrap();
    held[0].extend(TIMEOUT).await.unwrap();
    held[0].settle(Processed).await.unwrap();
    held[1].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    queue.settle_many(held.iter_mut().skip(2).map(|handler| (handler, Processed))).await;
    drop(held);
    assert_eq!(queue.dead_letters("p").unwrap().list(Page::of(9)).await.unwrap().len(), 1);
    assert_eq!(queue.dead_letters("p").unwrap().redrive().await.unwrap().moved, 1);
    queue.counts("p").await.unwrap();
    queue.partitions(Page::of(9)).await.unwrap();
    let id = queue.browse("p", Page::of(9)).await.unwrap()[0].message.id();
    queue.pause("p").await.unwrap();
    assert!(queue.is_paused("p").await.unwrap());
    queue.resume("p").await.unwrap();
    queue.request_cancel("p", &[MessageId::new()]).await.unwrap();
    queue.delete("p", &[id]).await.unwrap();
    queue.purge("p").await.unwrap();
    let mut stream = queue.stream("p").build().unwrap();
    queue.push("p", message()).await.unwrap();
    let mut streamed = futures_util::StreamExt::next(&mut stream).await.unwrap().unwrap();
    streamed.settle(Processed).await.unwrap();
    drop((stream, streamed));
    assert!(queue.pull("p").wait(Duration::from_millis(5)).await.unwrap().is_empty());
    queue.close().await.unwrap();
}

/// An executor that knows nothing of tokio.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = std::pin::pin!(work);
    loop {
        if let Poll::Ready(answer) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

#[test]
fn with_an_io_thread_every_call_is_made_there_whoever_asks() {
    for outside in [false, true] {
        let io = IoThread::start().unwrap();
        let home = block_on(io.run(async { Handle::current().id() })).unwrap();
        let seen = Where::new();
        let queue = Queue::builder(seen.clone()).io(&io).build().unwrap();
        seen.1.lock().unwrap().clear();
        if outside {
            block_on(everything(&queue));
        } else {
            of_one_thread().block_on(everything(&queue));
        }
        // Whether there is an inspection at all is asked on the spot.
        let calls = seen.1.lock().unwrap().clone();
        for (call, runtime) in calls.into_iter().filter(|(call, _)| *call != "inspect") {
            assert_eq!(runtime, Some(home), "{call}, outside of tokio: {outside}");
        }
    }
}

#[test]
fn outside_of_tokio_calls_are_made_in_the_runtime_of_the_queue_and_end_if_nobody_drives_it() {
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let queue = own.block_on(async { Queue::new(Where::new()).unwrap() });
    block_on(everything(&queue));

    let idle = of_one_thread();
    let queue = idle.block_on(async {
        let storage = Where::new();
        Queue::builder(storage).call_timeout(Duration::from_millis(20)).build().unwrap()
    });
    is_standing_still(block_on(queue.push("p", message())));
    is_standing_still(block_on(queue.pull("p").into_future()));
    is_standing_still(block_on(queue.check()));
}
