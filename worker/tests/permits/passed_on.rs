//! Where permits pass on, a settlement brings the next task, which takes the permit that was released.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::adapter::{Forward, PullRequest, RawDelivery, Settlement, Storage, async_trait};
use anyqueue::{Clock, ManualClock, MessageData, PartitionId, Queue, Result, SettleOutcome};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use anyqueue_worker::{Partition, Summary, TaskContext, Worker, task};
use tokio::sync::watch;

use crate::fake::{Fake, secs};

/// A queue in memory that counts how messages come.
#[derive(Debug)]
struct Counting {
    memory: MemoryQueue,
    came: Arc<Came>,
}

#[derive(Debug, Default)]
struct Came {
    by_pulls: AtomicUsize,
    by_settlements: AtomicUsize,
}

#[async_trait]
impl Forward for Counting {
    fn inner(&self) -> &dyn Storage {
        &self.memory
    }

    async fn pull(&self, partition: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let pulled = self.inner().pull(partition, request).await;
        self.came.by_pulls.fetch_add(pulled.as_ref().map_or(0, Vec::len), SeqCst);
        pulled
    }

    async fn exchange(
        &self,
        settlements: &[Settlement],
        partition: &PartitionId,
        request: PullRequest,
    ) -> (Vec<Result<SettleOutcome>>, Result<Vec<RawDelivery>>) {
        let (settled, pulled) = self.inner().exchange(settlements, partition, request).await;
        self.came.by_settlements.fetch_add(pulled.as_ref().map_or(0, Vec::len), SeqCst);
        (settled, pulled)
    }
}

/// What handlers do.
#[derive(Clone, Debug)]
struct Handlers {
    /// How many run, and the most that did since somebody last asked.
    running: Arc<Mutex<(usize, usize)>>,
    ended: watch::Sender<usize>,
}

impl Handlers {
    fn new() -> Self {
        Self { running: Arc::default(), ended: watch::Sender::new(0) }
    }

    fn begin(&self) {
        let mut state = self.running.lock().unwrap();
        state.0 += 1;
        state.1 = state.1.max(state.0);
    }

    async fn run(&self, takes: Duration, clock: &Clock) {
        self.begin();
        if takes.is_zero() {
            tokio::task::yield_now().await;
        } else {
            clock.sleep(takes).await;
        }
        self.running.lock().unwrap().0 -= 1;
        self.ended.send_modify(|ended| *ended += 1);
    }

    fn take_most(&self) -> usize {
        let mut state = self.running.lock().unwrap();
        let now = state.0;
        std::mem::replace(&mut state.1, now)
    }
}

/// A worker with permits, whose tasks take so long.
struct Bed {
    queue: Queue,
    worker: Worker,
    handlers: Handlers,
    came: Arc<Came>,
}

impl Bed {
    fn new(permits: &Fake, slots: usize, takes: Duration, clock: &Clock) -> Self {
        let came = Arc::new(Came::default());
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clone()));
        let storage = Counting { memory, came: came.clone() };
        let queue = Queue::builder(storage).clock(clock.clone()).build().unwrap();
        let handlers = Handlers::new();
        let runs = handlers.clone();
        let run = move |(): (), task: TaskContext| {
            let runs = runs.clone();
            async move {
                runs.run(takes, task.clock()).await;
                Ok(())
            }
        };
        let builder = Worker::builder(queue.clone()).partition(Partition::new("p")).handler("k", run);
        let worker = builder.name("w").slots(slots).permits(permits.clone()).build().unwrap();
        Self { queue, worker, handlers, came }
    }

    async fn push(&self, tasks: usize) {
        let all: Vec<MessageData> = (0..tasks).map(|_| task("k", &()).unwrap()).collect();
        for pushed in self.queue.push_many("p", all).await.unwrap() {
            pushed.unwrap();
        }
    }

    /// Runs the worker beside this, and then to its end.
    async fn run_beside(&self, clock: &ManualClock, watch: impl Future<Output = ()>) -> Summary {
        let watch = async {
            watch.await;
            self.worker.shutdown();
            pass(clock, secs(60)).await;
        };
        let (summary, ()) = tokio::join!(self.worker.run_until(std::future::pending()), watch);
        summary.unwrap()
    }

    /// How many messages came by pulls, and with settlements.
    fn came(&self) -> (usize, usize) {
        (self.came.by_pulls.load(SeqCst), self.came.by_settlements.load(SeqCst))
    }
}

/// Lets time pass, in steps that let everybody come to their turn.
async fn pass(clock: &ManualClock, time: Duration) {
    const STEP: Duration = Duration::from_millis(250);
    let mut left = time;
    loop {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if left.is_zero() {
            return;
        }
        clock.advance(STEP.min(left));
        left = left.saturating_sub(STEP);
    }
}

fn permits(cap: usize, passes_on: bool) -> Fake {
    let permits = Fake::of(cap);
    permits.state().passes_on = passes_on;
    permits
}

#[tokio::test]
async fn settlements_bring_the_next_tasks_under_a_cap_and_nothing_is_pulled_in_vain() {
    for passes_on in [true, false] {
        let (permits, clock) = (permits(10, passes_on), ManualClock::new());
        let bed = Bed::new(&permits, 20, secs(1), &clock.clock());
        bed.push(60).await;
        let summary = bed.run_beside(&clock, pass(&clock, secs(10))).await;
        assert_eq!((summary.processed, bed.handlers.take_most(), permits.most()), (60, 10, 10));
        let (by_pulls, by_settlements) = bed.came();
        assert_eq!(by_pulls + by_settlements, 60, "{by_pulls} came by pulls, with {passes_on}");
        // The first ten are pulled in any case.
        let expected = if passes_on { 40..=50 } else { 0..=0 };
        assert!(expected.contains(&by_settlements), "{by_settlements} came with settlements");
        assert_eq!(permits.in_use(), (0, 0));
    }
}

#[tokio::test]
async fn a_cap_that_is_lowered_while_settlements_bring_the_next_tasks_is_not_exceeded() {
    let (permits, clock) = (permits(10, true), ManualClock::new());
    let bed = Bed::new(&permits, 20, secs(1), &clock.clock());
    bed.push(60).await;
    let summary = bed
        .run_beside(&clock, async {
            pass(&clock, Duration::from_millis(2500)).await;
            permits.change(|state| state.cap = Some(2));
            // The ten that run go on to their end, and settlements bring as many.
            pass(&clock, Duration::from_millis(1250)).await;
            assert_eq!(bed.handlers.take_most(), 10);
            permits.change(|state| state.most = 0);
            pass(&clock, secs(30)).await;
        })
        .await;
    assert_eq!((summary.processed, summary.retried, summary.dead), (60, 0, 0));
    assert_eq!((bed.handlers.take_most(), permits.most(), permits.in_use()), (2, 2, (0, 0)));
    let (by_pulls, by_settlements) = bed.came();
    assert!(by_pulls + by_settlements <= 60 + 10, "no more than one batch was released");
    assert!(by_settlements >= 40, "{by_settlements} came with settlements, also afterwards");
}

/// As often as this is tried: on a busy machine many wait for long.
const TIMES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_thread_is_first_no_more_run_than_have_permits_and_none_waits_for_a_pull() {
    const CAP: usize = 16;
    const TASKS: usize = 5_000;
    let mut again = Vec::new();
    while again.len() < TIMES {
        let permits = permits(CAP, true);
        let bed = Bed::new(&permits, 4 * CAP, Duration::ZERO, &Clock::system());
        bed.push(TASKS).await;
        let mut ended = bed.handlers.ended.subscribe();
        let all = async { drop(ended.wait_for(|ended| *ended >= TASKS).await.unwrap()) };
        let summary = tokio::time::timeout(secs(120), bed.worker.run_until(all)).await.unwrap().unwrap();
        assert_eq!((summary.processed, permits.in_use()), (TASKS as u64, (0, 0)));
        assert!(bed.handlers.take_most() <= CAP && permits.most() <= CAP, "{}", permits.most());
        let (by_pulls, by_settlements) = bed.came();
        assert!(by_settlements > 0, "{by_pulls} came by pulls");
        // What waits for a tenth of a second is released, and comes again.
        again.push(by_pulls + by_settlements - TASKS);
        if again.last() <= Some(&(TASKS / 100)) {
            return;
        }
    }
    panic!("so many came again: {again:?}");
}
