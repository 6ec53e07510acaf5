//! Schedules that are kept with another queue than that of their tasks.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::adapter::{
    AmendQueueStorage, Capabilities, ControlStorage, Dedup, Forward, InspectCapability, InspectQueueStorage,
    MoveGuarantee, Storage, async_trait,
};
use anyqueue::{ErrorKind, MessageData, PartitionId, PushOutcome, Queue, Result};
use anyqueue_control::cron::{Missed, RunOutcome, Running, Scheduler};
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use crate::bed::{Bed, MINUTE, Node, SECOND, counts, done, minutes, schedule};
use crate::cut::{ALL, Cut, How};

/// What a FIFO queue of SQS has.
const FIFO: Dedup = Dedup::Window(Duration::from_mins(5));

/// A storage that offers what a broker does, or a FIFO queue, which drops what comes with a key that it has had.
#[derive(Debug)]
struct Broker(MemoryQueue, Capabilities, Mutex<HashSet<String>>);

impl Broker {
    fn new(bed: &Bed, dedup: Dedup) -> Self {
        use anyqueue::adapter::QueueStorage as _;
        let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(bed.time.clock()));
        let inspect = InspectCapability {
            browse: false,
            list: false,
            delete: false,
            cancel: false,
            ..memory.capabilities().inspect
        };
        let capabilities = Capabilities {
            unique_ids: false,
            dedup,
            on_duplicate: false,
            successors: Some(MoveGuarantee::AtLeastOnce),
            control: false,
            amend: false,
            ledger: None,
            series: false,
            inspect,
            ..memory.capabilities().clone()
        };
        Self(memory, capabilities, Mutex::default())
    }
}

#[async_trait]
impl Forward for Broker {
    async fn push(&self, partition: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let mut answers = Vec::new();
        for message in messages {
            let key = message.options().dedup_key.as_deref();
            let is_first = key.is_none_or(|key| self.2.lock().unwrap().insert(key.to_owned()));
            answers.extend(if is_first {
                self.inner().push(partition, std::slice::from_ref(message)).await
            } else {
                vec![Ok(PushOutcome::Stored(message.id()))]
            });
        }
        answers
    }

    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }

    fn amend(&self) -> Option<&dyn AmendQueueStorage> {
        None
    }

    fn inspect(&self) -> Option<&dyn InspectQueueStorage> {
        self.inner().inspect()
    }
}

fn broker(bed: &Bed, dedup: Dedup) -> Queue {
    Queue::builder(Arc::new(Broker::new(bed, dedup)) as Arc<dyn Storage>)
        .clock(bed.time.clock())
        .build()
        .unwrap()
}

async fn work_for(bed: &Bed, tasks: &Queue, seconds: u64) -> Vec<u64> {
    const STEP: u64 = 5;
    let mut all = Vec::new();
    for _ in 0..seconds / STEP {
        bed.work_in(Duration::from_secs(STEP), Duration::from_secs(STEP)).await;
        all.extend(done(tasks).await.into_iter().map(|(due, _)| due));
    }
    all
}

#[tokio::test]
async fn a_broker_gets_tasks_by_schedules_that_are_kept_elsewhere() {
    for dedup in [Dedup::None, FIFO] {
        gets_tasks_by_schedules_that_are_kept_elsewhere(dedup).await;
    }
}

async fn gets_tasks_by_schedules_that_are_kept_elsewhere(dedup: Dedup) {
    let bed = Bed::new();
    let broker = broker(&bed, dedup);
    assert_eq!(Scheduler::new(&broker).unwrap_err().kind(), ErrorKind::Unsupported);
    let scheduler = Scheduler::beside(&broker, &bed.queue).unwrap();
    let refused = scheduler.put(&schedule("* * * * *")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.message().contains("`allow`"), "{refused}");
    for (schedule, why) in [
        (schedule("* * * * *").with_running(Running::CancelOld), "cannot cancel"),
        (schedule("@after 1m").with_running(Running::Allow), "has ended"),
    ] {
        let refused = scheduler.put(&schedule).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.message().contains(why), "{refused}");
    }

    let allowed = schedule("* * * * *").with_running(Running::Allow).with_missed(Missed::All(10));
    scheduler.put(&allowed).await.unwrap();
    bed.pass(3 * MINUTE).await;
    let nodes = [(); 3].map(|()| Node::start(Scheduler::beside(&broker, &bed.queue).unwrap()));
    assert_eq!(work_for(&bed, &broker, 180).await, minutes(1..=6));
    assert!(bed.done().await.is_empty());
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_cut_loses_no_time_and_doubles_one_at_most() {
    for how in ALL {
        let doubled = doubled_by_cuts(how, Dedup::None).await;
        // What is declared: it happens where the settlement of the tick is cut.
        assert_eq!(doubled > 0, matches!(how, How::DiesBefore | How::Freezes), "{how:?}");
    }
}

#[tokio::test]
async fn a_cut_doubles_nothing_on_a_fifo_queue() {
    for how in ALL {
        assert_eq!(doubled_by_cuts(how, FIFO).await, 0, "{how:?}");
    }
}

/// Cuts one of two nodes at each of its calls. Each time is run. Returns how many of all were run twice.
async fn doubled_by_cuts(how: How, dedup: Dedup) -> usize {
    let mut doubled = 0;
    for at in 0..16 {
        let bed = Bed::new();
        let broker = broker(&bed, dedup);
        let other = Scheduler::beside(&broker, &bed.queue).unwrap();
        let all = schedule("* * * * *").with_running(Running::Allow).with_missed(Missed::All(10));
        other.put(&all).await.unwrap();
        let cut = Cut::at(&bed.memory, at, how);
        let home = bed.queue_over(cut.clone());
        let node = Node::start(Scheduler::beside(&broker, &home).unwrap());
        let mut done = work_for(&bed, &broker, 125).await;
        let other = Node::start(other);
        done.extend(work_for(&bed, &broker, 30).await);
        cut.thaw();
        done.extend(work_for(&bed, &broker, 90).await);
        let counts = counts(&done);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), minutes(1..=4), "{how:?} at {at}");
        let extra = done.len() - counts.len();
        assert!(extra <= 1, "{how:?} at {at}: {done:?}");
        doubled += extra;
        node.kill().await;
        other.stop().await;
    }
    doubled
}

#[tokio::test]
async fn a_repetition_is_known_by_its_id_while_the_task_lives() {
    let bed = Bed::new();
    let memory = MemoryQueue::with_config(MemoryConfig::default().with_clock(bed.time.clock()));
    let tasks = Queue::builder(memory).clock(bed.time.clock()).build().unwrap();
    let all = schedule("* * * * *").with_missed(Missed::Latest);
    Scheduler::beside(&tasks, &bed.queue).unwrap().put(&all).await.unwrap();
    // A pull of the tick, a list, the next pull, the entry, the settlement.
    let cut = Cut::at(&bed.memory, 4, How::DiesBefore);
    bed.pass(MINUTE).await;
    let dead = Node::start(Scheduler::beside(&tasks, &bed.queue_over(cut.clone())).unwrap());
    bed.pass(SECOND).await;
    assert!(cut.has_met_it());
    assert_eq!(tasks.counts("tasks").await.unwrap().ready, Some(1), "it was pushed");
    let node = Node::start(Scheduler::beside(&tasks, &bed.queue).unwrap());
    bed.pass(30 * SECOND).await;
    let last = bed.scheduler.get("a").await.unwrap().unwrap().last.unwrap();
    assert_eq!(last.outcome, RunOutcome::Pushed);
    assert_eq!(done(&tasks).await.into_iter().map(|(due, _)| due).collect::<Vec<_>>(), minutes(1..=1));
    dead.kill().await;
    node.stop().await;
}
