//! Tasks that have not ended, where the queue cannot show them: known because the ledger was told.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyqueue::QueueMessageStatus::{Failed, Processed};
use anyqueue::adapter::LedgerQueueStorage as _;
use anyqueue::{
    Beside, ErrorKind, Forget, Keep, LedgerDown, ManualClock, MessageData, MessageId, Page, PartitionId,
    Queue, QueueMessageStatus, Task, TaskFilter, TaskReport, TaskState, header,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use futures_util::TryStreamExt;

use crate::lab::{Bare, Lab, blind_labs, blind_labs_on, windowed_lab};

pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const HOUR: Duration = Duration::from_hours(1);

impl Lab {
    /// The task, once that is known of it: nobody waits for the ledger to be told.
    pub(crate) async fn once(&self, id: MessageId, is_told: impl Fn(&Task) -> bool) -> Task {
        let looks = async {
            loop {
                let task = self.queue.task("jobs", id).await.unwrap();
                if let Some(task) = task.filter(&is_told) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, looks).await.unwrap()
    }

    pub(crate) async fn push_message(&self, message: MessageData) -> MessageId {
        let id = message.id();
        tokio::time::timeout(SOON, self.queue.push("jobs", message)).await.unwrap().unwrap();
        id
    }

    pub(crate) async fn settle_next(&self, status: QueueMessageStatus) {
        self.queue.pull("jobs").wait(SOON).await.unwrap()[0].settle(status).await.unwrap();
    }

    pub(crate) async fn listed(&self) -> Vec<TaskState> {
        let tasks = self.queue.tasks("jobs", TaskFilter::new()).unwrap();
        tasks.map_ok(|task| task.state).try_collect().await.unwrap()
    }

    async fn counted(&self, state: TaskState) -> u64 {
        self.queue.count_tasks("jobs", &TaskFilter::new().in_state(state), 100).await.unwrap().value
    }
}

pub(crate) fn mail() -> MessageData {
    MessageData::new("x").with_header(header::TASK_KIND, "mail")
}

#[tokio::test]
async fn what_waits_is_known_with_its_kind_and_its_time_and_what_failed_with_its_errors() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let now = lab.push_message(mail().with_task_id("order 7")).await;
    let later = lab.push_message(mail().with_delay(HOUR)).await;
    let task = other.once(now, |_| true).await;
    assert_eq!((task.state, task.kind.as_deref(), task.attempt), (TaskState::Queued, Some("mail"), 0));
    assert_eq!(task.task_id.as_deref(), Some("order 7"));
    let task = other.once(later, |task| task.state == TaskState::Scheduled).await;
    assert!(task.due_at.unwrap() > std::time::SystemTime::now() + HOUR / 2);

    let mut held = lab.queue.pull("jobs").await.unwrap();
    held[0].report(TaskReport::new().with_errors(r#"["refused"]"#)).unwrap();
    held[0].settle(Failed).await.unwrap();
    let task = other.once(now, |task| task.attempt == 1).await;
    assert_eq!((task.state, task.errors.as_deref()), (TaskState::Queued, Some(r#"["refused"]"#)));
    assert_eq!((task.kind.as_deref(), task.task_id.as_deref()), (Some("mail"), Some("order 7")));

    lab.settle_next(QueueMessageStatus::postponed(HOUR)).await;
    other.once(now, |task| task.state == TaskState::Scheduled).await;
    assert_eq!((other.counted(TaskState::Scheduled).await, other.counted(TaskState::Queued).await), (2, 0));
    assert_eq!(other.listed().await, [TaskState::Scheduled; 2]);
}

#[tokio::test]
async fn what_ended_is_no_longer_among_what_waits() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let id = lab.push_message(mail()).await;
    let unkept = lab.push_message(mail().with_header(header::TASK_KEEP_SUCCESS, "0s")).await;
    for id in [id, unkept] {
        other.once(id, |task| task.state == TaskState::Queued).await;
        lab.settle_next(Processed).await;
    }
    lab.queue.close().await.unwrap(); // which waits until the ledger has been told of everything
    assert_eq!(other.listed().await, [TaskState::Succeeded]);
    assert_eq!(other.state(unkept).await, None, "it has ended, and its end was not to be kept");
}

#[tokio::test]
async fn what_is_dead_is_known_with_its_reason_and_waits_again_once_it_is_put_back() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let id = lab.push_message(mail()).await;
    lab.settle_next(QueueMessageStatus::poisonous("bad address")).await;
    let task = other.queue.wait_for("jobs", id, SOON).await.unwrap().unwrap();
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Failed, Some("bad address")));
    assert!(task.ended_at.is_some());
    assert_eq!((other.counted(TaskState::Failed).await, other.listed().await.len()), (1, 1));

    let redriven = lab.queue.dead_letters("jobs").unwrap().redrive().await.unwrap();
    assert_eq!(redriven.moved, 1);
    let task = other.once(id, |task| task.state == TaskState::Queued).await;
    assert_eq!((task.attempt, task.reason, task.kind.as_deref()), (0, None, Some("mail")));
    lab.settle_next(Processed).await;
    other.once(id, |task| task.state == TaskState::Succeeded).await;
}

#[tokio::test]
async fn what_is_put_back_elsewhere_is_no_longer_dead_where_it_was() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let id = lab.push_message(mail()).await;
    lab.settle_next(QueueMessageStatus::poisonous("bad")).await;
    other.once(id, |task| task.state == TaskState::Failed).await;
    lab.queue.dead_letters("jobs").unwrap().redrive().to("more").await.unwrap();
    lab.queue.close().await.unwrap();
    assert_eq!(other.state(id).await, None);
    let there = other.queue.task("more", id).await.unwrap().unwrap();
    assert_eq!(there.state, TaskState::Queued);
}

#[tokio::test]
async fn a_fact_that_comes_late_takes_nothing_back() {
    let [pusher, worker] = blind_labs(LedgerDown::Hold);
    pusher.down.store(true, SeqCst);
    let done = pusher.push_message(mail()).await;
    worker.settle_next(Processed).await;
    let unkept = pusher.push_message(mail().with_header(header::TASK_KEEP_SUCCESS, "0s")).await;
    worker.settle_next(Processed).await;
    let failed = pusher.push_message(mail()).await;
    worker.settle_next(Failed).await;
    worker.once(failed, |task| task.attempt == 1).await;
    worker.queue.close().await.unwrap();

    pusher.down.store(false, SeqCst);
    let last = pusher.push_message(mail()).await;
    pusher.once(last, |_| true).await;
    assert_eq!(pusher.state(done).await, Some(TaskState::Succeeded));
    assert_eq!(pusher.state(unkept).await, None, "also without an end it is known to be gone");
    assert_eq!(pusher.once(failed, |_| true).await.attempt, 1);
    assert_eq!((pusher.counted(TaskState::Queued).await, pusher.listed().await.len()), (2, 3));
}

#[tokio::test]
async fn a_ledger_that_is_down_holds_no_push_up_and_is_told_later() {
    let [lab, _] = blind_labs(LedgerDown::Hold);
    lab.down.store(true, SeqCst);
    let id = lab.push_message(mail()).await;
    lab.down.store(false, SeqCst);
    assert_eq!(lab.once(id, |_| true).await.state, TaskState::Queued);
    lab.hangs.store(true, SeqCst);
    lab.push_message(mail()).await;
}

#[tokio::test]
async fn what_the_ledger_was_not_told_is_known_with_the_next_fact() {
    let [lab, other] = blind_labs(LedgerDown::Drop);
    lab.down.store(true, SeqCst);
    let id = lab.push_message(mail().with_task_id("order 7")).await;
    lab.queue.close().await.unwrap();
    assert_eq!(other.state(id).await, None, "it was dropped");
    other.settle_next(Failed).await;
    let task = other.once(id, |_| true).await;
    assert_eq!((task.attempt, task.task_id.as_deref()), (1, Some("order 7")));
}

#[tokio::test]
async fn what_is_told_of_a_task_is_not_counted_and_has_nothing_that_nobody_is_shown() {
    let ledger = MemoryQueue::new();
    let [lab]: [Lab; 1] = blind_labs_on(&ledger, LedgerDown::Hold);
    let id = lab.push_message(mail()).await;
    let mut held = lab.queue.pull("jobs").await.unwrap();
    held[0].report(TaskReport::new().with_log("+0.1s begun")).unwrap();
    held[0].settle(Failed).await.unwrap();
    lab.once(id, |task| task.attempt == 1).await;
    let facts = PartitionId::new("jobs.-live").unwrap();
    let fact = ledger.find_ended(&facts, &[id]).await.remove(0).unwrap().unwrap();
    assert_eq!(fact.end.log, None);
    assert_eq!(ledger.series(&facts, 0..u64::MAX, Page::of(9)).await.unwrap(), []);
}

#[tokio::test]
async fn what_may_have_been_dropped_untold_for_its_key_is_known_from_its_first_attempt_on() {
    let lab = windowed_lab();
    let keyed = || mail().with_dedup_key("k");
    let (stored, dropped) = (lab.push_message(keyed()).await, lab.push_message(keyed()).await);
    let sure = lab.push_message(mail()).await;
    lab.once(sure, |_| true).await;
    assert_eq!(lab.listed().await, [TaskState::Queued], "the one without a key");
    lab.settle_next(Failed).await;
    assert_eq!(lab.once(stored, |_| true).await.attempt, 1);
    assert_eq!(lab.state(dropped).await, None);
}

#[tokio::test]
async fn what_is_pushed_to_the_dead_letters_is_known_as_dead() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let message = mail().with_header(header::DEAD_REASON, "bad address");
    let (id, dead) = (message.id(), PartitionId::new("jobs").unwrap().dead_letters());
    // As `anyqueue move` does.
    lab.queue.storage().push(&dead, &[message]).await.remove(0).unwrap();
    let task = other.once(id, |_| true).await;
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Failed, Some("bad address")));
    assert_eq!((task.kind.as_deref(), task.ended_at.is_some()), (Some("mail"), true));
}

#[tokio::test]
async fn what_is_known_of_a_task_that_waits_lapses() {
    let clock = ManualClock::new();
    let ledger = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
    let storage = Beside::new(Bare::new(&std::sync::Arc::default()).blind(), ledger).unwrap();
    let queue = Queue::builder(storage.live_kept(HOUR)).ledger(Keep::default()).build().unwrap();
    let message = mail();
    let id = message.id();
    queue.push("jobs", message).await.unwrap();
    let known = async || queue.task("jobs", id).await.unwrap().is_some();
    while !known().await {
        tokio::task::yield_now().await;
    }
    clock.advance(HOUR / 2);
    assert!(known().await);
    clock.advance(HOUR / 2);
    assert!(!known().await);
}

#[tokio::test]
async fn what_the_ledger_was_told_before_a_moment_can_be_forgotten_and_comes_with_the_next_event() {
    let (clock, ledger) = (ManualClock::new(), MemoryQueue::new());
    let clocked = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
    let storage = Beside::new(Bare::new(&std::sync::Arc::default()).blind(), clocked).unwrap();
    let queue = Queue::builder(storage).ledger(Keep::default()).build().unwrap();
    let known = async |id| queue.task("jobs", id).await.unwrap().is_some();
    let (old, new) = (mail(), mail());
    let (old_id, new_id) = (old.id(), new.id());
    queue.push("jobs", old).await.unwrap();
    while !known(old_id).await {
        tokio::task::yield_now().await;
    }
    clock.advance(HOUR);
    let before = clock.clock().wall();
    queue.push("jobs", new).await.unwrap();
    while !known(new_id).await {
        tokio::task::yield_now().await;
    }
    let forget = Forget::before(before);
    assert_eq!(queue.forget_waiting("jobs", &forget.clone().with_limit(0)).await.unwrap(), 0);
    assert_eq!(queue.forget_waiting("jobs", &forget).await.unwrap(), 1);
    assert_eq!((known(old_id).await, known(new_id).await), (false, true));
    queue.pull("jobs").await.unwrap()[0].settle(Failed).await.unwrap();
    while !known(old_id).await {
        tokio::task::yield_now().await;
    }
    let shown =
        Queue::builder(Beside::new(Bare::new(&std::sync::Arc::default()), ledger).unwrap()).build().unwrap();
    assert_eq!(shown.forget_waiting("jobs", &forget).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn what_waits_is_forgotten_so_long_after_it_is_due_and_what_is_dead_only_if_that_is_said() {
    const DAY: Duration = Duration::from_hours(24);
    let clock = ManualClock::new();
    let clocked = MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock()));
    let storage = Beside::new(Bare::new(&std::sync::Arc::default()).blind(), clocked).unwrap();
    let queue = Queue::builder(storage).ledger(Keep::default()).build().unwrap();
    let found = async |id| queue.task("jobs", id).await.unwrap();
    let (dead, later, postponed) = (mail(), mail().with_delay(7 * DAY), mail());
    let ids = [dead.id(), later.id(), postponed.id()];
    for (message, status) in [
        (dead, Some(QueueMessageStatus::poisonous("bad address"))),
        (later, None),
        (postponed, Some(QueueMessageStatus::postponed(7 * DAY))),
    ] {
        queue.push("jobs", message).await.unwrap();
        if let Some(status) = status {
            queue.pull("jobs").wait(SOON).await.unwrap()[0].settle(status).await.unwrap();
        }
    }
    for (id, attempts) in ids.into_iter().zip([1, 0, 1]) {
        let told = async {
            while found(id).await.is_none_or(|task| task.attempt < attempts) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, told).await.unwrap();
    }
    let forget = async |how: fn(Forget) -> Forget| {
        let two_days_ago = clock.clock().wall() - 2 * DAY;
        queue.forget_waiting("jobs", &how(Forget::before(two_days_ago))).await.unwrap()
    };
    clock.advance(3 * DAY);
    assert_eq!(forget(|it| it).await, 0, "two are not due, and one is a dead letter");
    assert_eq!(forget(|it| it.with_dead(true).with_dry_run(true)).await, 1);
    assert!(found(ids[0]).await.unwrap().is_dead(), "it was only counted");
    assert_eq!(forget(|it| it.with_dead(true)).await, 1);
    assert!(found(ids[0]).await.is_none());
    clock.advance(5 * DAY);
    assert_eq!(forget(|it| it.with_dead(true)).await, 0, "they have been due for a day");
    clock.advance(2 * DAY);
    assert_eq!(forget(|it| it.with_limit(1)).await, 1);
    assert_eq!(forget(|it| it).await, 1);
    assert!(found(ids[1]).await.is_none() && found(ids[2]).await.is_none());
}

#[tokio::test]
async fn what_is_told_of_a_task_just_as_it_is_forgotten_stays() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    let (dies, unheard) = (lab.push_message(mail()).await, lab.push_message(mail().with_delay(HOUR)).await);
    for id in [dies, unheard] {
        lab.once(id, |_| true).await;
    }
    let tomorrow = Forget::before(std::time::SystemTime::now() + 24 * HOUR);
    let (about_to, go_on) = lab.gates.before_change.close();
    let forgetting = lab.queue.forget_waiting("jobs", &tomorrow);
    let telling = async {
        about_to.await.unwrap();
        other.settle_next(QueueMessageStatus::poisonous("bad address")).await;
        other.once(dies, |task| task.state == TaskState::Failed).await;
        go_on.send(()).unwrap();
    };
    let both = async { tokio::join!(forgetting, telling) };
    let (forgotten, ()) = tokio::time::timeout(SOON, both).await.unwrap();
    assert_eq!(forgotten.unwrap(), 1, "the one of which nothing was told meanwhile");
    let task = other.queue.task("jobs", dies).await.unwrap().expect("it is a dead letter");
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Failed, Some("bad address")));
    assert_eq!(other.state(unheard).await, None);
}

#[tokio::test]
async fn what_others_have_deleted_just_before_it_is_forgotten_is_counted_once() {
    let [lab, other] = blind_labs(LedgerDown::Hold);
    for _ in 0..3 {
        let id = lab.push_message(mail()).await;
        lab.once(id, |_| true).await;
    }
    let tomorrow = Forget::before(std::time::SystemTime::now() + 24 * HOUR);
    let (read, go_on) = lab.gates.after_page.close();
    let forgetting = lab.queue.forget_waiting("jobs", &tomorrow);
    let deleting = async {
        read.await.unwrap();
        let forgotten = other.queue.forget_waiting("jobs", &tomorrow.clone().with_limit(2)).await.unwrap();
        go_on.send(()).unwrap();
        forgotten
    };
    let both = async { tokio::join!(forgetting, deleting) };
    let (one, two) = tokio::time::timeout(SOON, both).await.unwrap();
    assert_eq!((one.unwrap(), two), (1, 2));
    assert!(other.listed().await.is_empty());
}

#[tokio::test]
async fn a_name_that_facts_have_is_refused_and_one_without_room_for_them_has_none() {
    let [lab, _] = blind_labs(LedgerDown::Hold);
    let refused = lab.queue.push("jobs.-live", mail()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let (long, message) = ("p".repeat(60), mail());
    let id = message.id();
    lab.queue.push(&long, message).await.unwrap();
    assert_eq!(lab.queue.task(&long, id).await.unwrap().map(|task| task.id), None);
    lab.queue.pull(&long).await.unwrap()[0].settle(Processed).await.unwrap();
    assert_eq!(lab.queue.task(&long, id).await.unwrap().unwrap().state, TaskState::Succeeded);
}
