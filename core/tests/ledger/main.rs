//! What became of tasks, on the memory queue.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may stop at anything")]

mod dead;
mod delete;
mod keep;

use std::time::{Duration, SystemTime};

use anyqueue::QueueMessageStatus::{Cancelled, Failed, Processed};
use anyqueue::{
    CancelOutcome, ErrorKind, Expired, Keep, MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, ManualClock, MessageData,
    MessageId, Page, PartitionOptions, Queue, QueueMessageStatus, SettleOutcome, Task, TaskCount, TaskFilter,
    TaskReport, TaskState, header,
};
use anyqueue_memory::{MemoryConfig, MemoryQueue};
use futures_util::TryStreamExt;

fn queue() -> (ManualClock, Queue) {
    keeping(Keep::default())
}

fn keeping(keep: Keep) -> (ManualClock, Queue) {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let queue = Queue::builder(storage).clock(time.clock()).ledger(keep).build().unwrap();
    (time, queue)
}

async fn push(queue: &Queue, message: MessageData) -> MessageId {
    let id = message.id();
    queue.push("jobs", message).await.unwrap();
    id
}

async fn settle(queue: &Queue, status: QueueMessageStatus) {
    let mut held = queue.pull("jobs").await.unwrap();
    assert_eq!(held[0].settle(status).await.unwrap(), SettleOutcome::Settled);
}

async fn state(queue: &Queue, id: MessageId) -> Option<TaskState> {
    queue.task("jobs", id).await.unwrap().map(|task| task.state)
}

async fn listed(queue: &Queue, filter: TaskFilter) -> Vec<Task> {
    queue.tasks("jobs", filter).unwrap().try_collect().await.unwrap()
}

#[tokio::test]
async fn a_task_is_known_in_each_state_of_its_life() {
    let (time, queue) = queue();
    let id = push(&queue, MessageData::new("x").with_delay(Duration::from_secs(5))).await;
    assert_eq!(state(&queue, id).await, Some(TaskState::Scheduled));
    time.advance(Duration::from_secs(5));
    assert_eq!(state(&queue, id).await, Some(TaskState::Queued));
    queue.amend("jobs", &[id], anyqueue::Amend::new().disable()).await.unwrap();
    assert_eq!(state(&queue, id).await, Some(TaskState::Disabled));
    queue.amend("jobs", &[id], anyqueue::Amend::new().enable()).await.unwrap();
    let mut held = queue.pull("jobs").await.unwrap();
    assert_eq!(state(&queue, id).await, Some(TaskState::Running));
    held[0].settle(QueueMessageStatus::poisonous("bad")).await.unwrap();
    let dead = queue.task("jobs", id).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.reason.as_deref()), (TaskState::Failed, Some("bad")));
    queue.dead_letters("jobs").unwrap().redrive().await.unwrap();
    settle(&queue, Processed).await;
    assert_eq!(state(&queue, id).await, Some(TaskState::Succeeded));
    assert_eq!(state(&queue, MessageId::new()).await, None);
}

#[tokio::test]
async fn an_end_keeps_what_was_known_of_the_task() {
    let (time, queue) = queue();
    let message = MessageData::new("x")
        .with_task_id("order 7")
        .with_session_id("customer 3")
        .with_header(header::TASK_KIND, "mail")
        .with_header(header::TASK_ATTEMPTS, "2")
        .with_header(header::TASK_ERRORS, "[]")
        .with_header(header::TRACEPARENT, "00-1-2-01");
    let id = push(&queue, message).await;
    let pushed_at = queue.clock().wall();
    time.advance(Duration::from_secs(3));
    let mut held = queue.pull("jobs").await.unwrap();
    time.advance(Duration::from_secs(2));
    let report = TaskReport::new().with_worker("w1").with_result("42");
    held[0].report(report.with_progress("é".repeat(MAX_PROGRESS_BYTES))).unwrap();
    held[0].settle(Processed).await.unwrap();

    let task = queue.task("jobs", id).await.unwrap().unwrap();
    let texts = [&task.kind, &task.task_id, &task.session_id, &task.trace, &task.worker, &task.errors];
    let texts = texts.map(|text| text.as_deref().unwrap_or_default().to_owned());
    assert_eq!(texts, ["mail", "order 7", "customer 3", "00-1-2-01", "w1", "[]"]);
    assert_eq!((task.attempt, task.delivery_count), (3, Some(1)));
    assert_eq!((task.waited, task.ran), (Some(Duration::from_secs(3)), Some(Duration::from_secs(2))));
    assert_eq!(task.result.as_deref(), Some(&b"42"[..]));
    let progress = "é".repeat(MAX_PROGRESS_BYTES / "é".len());
    assert_eq!(task.progress.as_deref(), Some(progress.as_str()), "cut where a character ends");
    let off = task.pushed_at.unwrap().duration_since(pushed_at).unwrap_or_else(|error| error.duration());
    assert!(off < Duration::from_millis(2), "{off:?}");
    let kept = task.expires_at.unwrap().duration_since(task.ended_at.unwrap()).unwrap();
    assert_eq!(kept, Duration::from_hours(24));
}

#[tokio::test]
async fn a_dead_letter_counts_the_attempt_that_it_died_of_until_it_is_put_back() {
    let (_, queue) = queue();
    let dead = QueueMessageStatus::poisonous("bad");
    for (report, attempt) in [(TaskReport::new(), 3), (TaskReport::new().with_attempt(9), 9)] {
        let id = push(&queue, MessageData::new("x").with_header(header::TASK_ATTEMPTS, "2")).await;
        let mut held = queue.pull("jobs").await.unwrap();
        held[0].report(report).unwrap();
        held[0].settle(dead.clone()).await.unwrap();
        assert_eq!(queue.task("jobs", id).await.unwrap().unwrap().attempt, attempt);
        let letters = queue.dead_letters("jobs").unwrap();
        assert_eq!(letters.list(Page::of(1)).await.unwrap()[0].attempts, Some(attempt));
        letters.redrive().await.unwrap();
        let back = queue.task("jobs", id).await.unwrap().unwrap();
        assert_eq!((back.state, back.attempt), (TaskState::Queued, 2));
        let mut held = queue.pull("jobs").await.unwrap();
        assert!(!held[0].headers().contains_key(header::DEAD_ATTEMPTS), "it lives again");
        held[0].settle(Processed).await.unwrap();
    }
}

#[tokio::test]
async fn what_goes_back_or_is_lost_has_no_end() {
    let (time, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    for status in [Failed, QueueMessageStatus::Waiting, QueueMessageStatus::postponed(Duration::ZERO)] {
        settle(&queue, status).await;
        assert_eq!(state(&queue, id).await, Some(TaskState::Queued));
    }
    let mut lost = queue.pull("jobs").lease(Duration::from_secs(1)).keep_alive(false).await.unwrap();
    time.advance(Duration::from_secs(2));
    let mut held = queue.pull("jobs").await.unwrap();
    assert_eq!(lost[0].settle(Processed).await.unwrap(), SettleOutcome::Lost);
    assert_eq!(state(&queue, id).await, Some(TaskState::Running));
    held[0].settle(Cancelled).await.unwrap();
    assert_eq!(state(&queue, id).await, Some(TaskState::Cancelled));
}

#[tokio::test]
async fn an_end_is_gone_at_its_moment_purged_or_not() {
    let (time, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    settle(&queue, Processed).await;
    time.advance(Duration::from_hours(24) - Duration::from_millis(5));
    assert_eq!(state(&queue, id).await, Some(TaskState::Succeeded));
    time.advance(Duration::from_millis(5));
    assert_eq!(state(&queue, id).await, None);
    assert!(listed(&queue, TaskFilter::new()).await.is_empty());
    assert_eq!(queue.count_tasks("jobs", &TaskFilter::new(), 10).await.unwrap().value, 0);
    assert_eq!(queue.purge_ended(10).await.unwrap(), 1);
    assert_eq!(queue.purge_ended(10).await.unwrap(), 0);
}

#[tokio::test]
async fn what_expires_or_is_cancelled_while_it_waits_has_an_end() {
    let (time, queue) = queue();
    let expired = push(&queue, MessageData::new("x").with_time_to_live(Duration::from_secs(1))).await;
    time.advance(Duration::from_secs(2));
    assert!(queue.pull("jobs").await.unwrap().is_empty());
    let task = queue.wait_for("jobs", expired, Duration::from_secs(5)).await.unwrap().unwrap();
    assert_eq!((task.state, task.attempt), (TaskState::TimedOut, 0));
    assert!(task.reason.unwrap().contains("expired"));

    let waiting = push(&queue, MessageData::new("x").with_task_id("t")).await;
    let outcomes = queue.request_cancel("jobs", &[waiting, MessageId::new()]).await.unwrap();
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [CancelOutcome::Removed, CancelOutcome::NotFound]);
    let task = queue.task("jobs", waiting).await.unwrap().unwrap();
    assert_eq!((task.state, task.task_id.as_deref()), (TaskState::Cancelled, Some("t")));
    assert_eq!(listed(&queue, TaskFilter::new()).await.len(), 2, "the unknown one left nothing");
}

#[tokio::test]
async fn what_expires_into_the_dead_letters_has_failed() {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let options = PartitionOptions::default().with_expired(Expired::DeadLetter);
    let queue = Queue::builder(storage)
        .clock(time.clock())
        .ledger(Keep::default())
        .defaults(options)
        .build()
        .unwrap();
    let id = push(&queue, MessageData::new("x").with_time_to_live(Duration::from_secs(1))).await;
    time.advance(Duration::from_secs(2));
    assert!(queue.pull("jobs").await.unwrap().is_empty());
    let task = queue.wait_for("jobs", id, Duration::from_secs(5)).await.unwrap().unwrap();
    assert_eq!((task.state, task.message.is_some()), (TaskState::Failed, true));
    assert_eq!(listed(&queue, TaskFilter::new()).await.len(), 1, "once, as a dead letter");
}

#[tokio::test]
async fn a_consumer_of_dead_letters_leaves_no_end() {
    let (_, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    settle(&queue, QueueMessageStatus::poisonous("bad")).await;
    let dead = queue.dead_letters("jobs").unwrap().partition().clone();
    queue.pull(&dead).await.unwrap()[0].settle(Processed).await.unwrap();
    assert_eq!(state(&queue, id).await, None);
}

#[tokio::test]
async fn a_filter_is_answered_over_what_lives_is_dead_and_has_ended() {
    let (time, queue) = queue();
    let mut ids = Vec::new();
    for number in 0..6 {
        let kind = if number % 2 == 0 { "even" } else { "odd" };
        let message =
            MessageData::new("x").with_header(header::TASK_KIND, kind).with_task_id(format!("t{number}"));
        ids.push(push(&queue, message).await);
    }
    settle(&queue, Processed).await;
    time.advance(Duration::from_secs(10));
    let middle = queue.clock().wall();
    settle(&queue, Processed).await;
    settle(&queue, Cancelled).await;
    settle(&queue, QueueMessageStatus::poisonous("out of cheese")).await;

    let of = async |filter: TaskFilter| {
        let ids: Vec<_> = listed(&queue, filter.clone()).await.into_iter().map(|task| task.id).collect();
        let count = queue.count_tasks("jobs", &filter, 100).await.unwrap();
        assert_eq!(count, TaskCount { value: ids.len() as u64, exact: true }, "{filter:?}");
        ids
    };
    let all = TaskFilter::new;
    assert_eq!(of(all()).await, [ids[4], ids[5], ids[3], ids[2], ids[1], ids[0]]);
    assert_eq!(of(all().in_state(TaskState::Queued)).await, [ids[4], ids[5]]);
    assert_eq!(of(all().in_state(TaskState::Failed)).await, [ids[3]]);
    assert_eq!(of(all().in_state(TaskState::Succeeded)).await, [ids[1], ids[0]]);
    assert_eq!(of(all().in_state(TaskState::Succeeded).in_state(TaskState::Queued)).await.len(), 4);
    assert_eq!(of(all().since(middle).in_state(TaskState::Succeeded)).await, [ids[1]]);
    assert_eq!(of(all().before(middle)).await, [ids[0]]);
    assert_eq!(of(all().of_kind("even")).await, [ids[4], ids[2], ids[0]]);
    assert_eq!(of(all().with_task_id_prefix("t3")).await, [ids[3]]);
    assert_eq!(of(all().with_error("cheese")).await, [ids[3]]);
    assert_eq!(of(all().with_min_attempts(1)).await, [ids[3], ids[2], ids[1], ids[0]]);
    assert_eq!(of(all().with_min_attempts(2)).await, []);
    assert_eq!(of(all().in_state(TaskState::TimedOut)).await, []);
    let capped = queue.count_tasks("jobs", &all(), 4).await.unwrap();
    assert_eq!(capped, TaskCount { value: 4, exact: false });
}

#[tokio::test]
async fn only_ends_are_deleted_by_a_filter() {
    let (_, queue) = queue();
    for _ in 0..5 {
        push(&queue, MessageData::new("x")).await;
    }
    for _ in 0..3 {
        settle(&queue, Processed).await;
    }
    assert_eq!(
        queue.delete_ended("jobs", &TaskFilter::new().in_state(TaskState::Cancelled), 10).await.unwrap(),
        0
    );
    assert_eq!(queue.delete_ended("jobs", &TaskFilter::new(), 2).await.unwrap(), 2);
    assert_eq!(queue.delete_ended("jobs", &TaskFilter::new(), 10).await.unwrap(), 1);
    assert_eq!(listed(&queue, TaskFilter::new()).await.len(), 2);
}

#[tokio::test]
async fn whoever_waits_for_a_task_gets_its_result_at_once() {
    let (_time, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.wait_for("jobs", id, Duration::from_hours(1)).await }
    });
    tokio::task::yield_now().await;
    let mut held = queue.pull("jobs").await.unwrap();
    held[0].report(TaskReport::new().with_result("done")).unwrap();
    held[0].settle(Processed).await.unwrap();
    // Its clock stands still: it can only have been told.
    let told = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it was not told");
    let task = told.unwrap().unwrap().unwrap();
    assert_eq!(task.result.as_deref(), Some(&b"done"[..]));
}

#[tokio::test]
async fn whoever_waits_for_a_task_learns_of_its_death_at_once() {
    let (_time, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.wait_for("jobs", id, Duration::from_hours(1)).await }
    });
    tokio::task::yield_now().await;
    settle(&queue, QueueMessageStatus::poisonous("bad")).await;
    // Its clock stands still: it can only have been told.
    let told = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it was not told");
    let task = told.unwrap().unwrap().unwrap();
    assert_eq!(task.state, TaskState::Failed);
}

#[tokio::test]
async fn whoever_waits_is_told_by_another_queue_over_the_same_store() {
    let time = ManualClock::new();
    let storage = MemoryQueue::with_config(MemoryConfig::default().with_clock(time.clock()));
    let queue_of = |storage| Queue::builder(storage).clock(time.clock()).ledger(Keep::default()).build();
    let (works, waits) = (queue_of(storage.client()).unwrap(), queue_of(storage).unwrap());
    let id = push(&works, MessageData::new("x")).await;
    let waiting = tokio::spawn(async move { waits.wait_for("jobs", id, Duration::from_hours(1)).await });
    tokio::task::yield_now().await;
    settle(&works, Processed).await;
    let told = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it was not told");
    assert_eq!(told.unwrap().unwrap().unwrap().state, TaskState::Succeeded);
}

#[tokio::test]
async fn a_wait_that_is_over_returns_the_task_as_it_stands() {
    let (_, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    let task = queue.wait_for("jobs", id, Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(task.state, TaskState::Queued);
    assert!(queue.wait_for("jobs", MessageId::new(), Duration::ZERO).await.unwrap().is_none());
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused_and_the_task_still_held() {
    let (_, queue) = queue();
    let id = push(&queue, MessageData::new("x")).await;
    let mut held = queue.pull("jobs").await.unwrap();
    let report = TaskReport::new().with_result(vec![0; MAX_RESULT_BYTES + 1]);
    assert_eq!(held[0].report(report).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(held[0].settle(Processed).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(state(&queue, id).await, Some(TaskState::Succeeded));
}

#[tokio::test]
async fn without_a_ledger_nothing_is_kept() {
    let queue = Queue::new(MemoryQueue::new()).unwrap();
    let id = push(&queue, MessageData::new("x")).await;
    settle(&queue, Processed).await;
    assert_eq!(state(&queue, id).await, None);
}

#[tokio::test]
async fn a_time_before_all_time_and_one_after_it_do_no_harm() {
    let (_, queue) = keeping(Keep::all(Some(Duration::MAX)));
    let id = push(&queue, MessageData::new("x")).await;
    settle(&queue, Processed).await;
    assert_eq!(queue.task("jobs", id).await.unwrap().unwrap().expires_at, None, "kept beyond all time");
    let all = TaskFilter::new().since(SystemTime::UNIX_EPOCH).before(SystemTime::UNIX_EPOCH);
    assert!(listed(&queue, all).await.is_empty());
    assert_eq!(
        queue.count_tasks("jobs", &TaskFilter::new(), 0).await.unwrap(),
        TaskCount { value: 0, exact: false }
    );
}

#[tokio::test]
async fn a_filter_that_no_task_can_match_finds_nothing_with_a_ledger_and_without() {
    let bare = Queue::new(MemoryQueue::new()).unwrap();
    for queue in [queue().1, bare] {
        push(&queue, MessageData::new("x")).await;
        let live = || TaskFilter::new().in_state(TaskState::Queued).in_state(TaskState::Running);
        for filter in
            [live().since(SystemTime::UNIX_EPOCH), live().before(SystemTime::now()), live().by_worker("w")]
        {
            assert!(listed(&queue, filter.clone()).await.is_empty(), "{filter:?}");
            let count = queue.count_tasks("jobs", &filter, 10).await.unwrap();
            assert_eq!(count, TaskCount { value: 0, exact: true });
        }
    }
}

/// So many ends a millisecond apart, of which each hundredth is of this kind.
async fn ends_with_a_rare_kind(count: usize) -> (ManualClock, Queue, Vec<MessageId>) {
    let (time, queue) = queue();
    let mut rare = Vec::new();
    for number in 0..count {
        let is_rare = number % 100 == 50;
        let message =
            MessageData::new("x").with_header(header::TASK_KIND, if is_rare { "rare" } else { "often" });
        let id = push(&queue, message).await;
        settle(&queue, Processed).await;
        rare.extend(is_rare.then_some(id));
        time.advance(Duration::from_millis(1));
    }
    rare.reverse();
    (time, queue, rare)
}

#[tokio::test]
async fn a_look_that_is_out_of_time_says_how_far_it_came_and_goes_on_there() {
    let (_time, queue, rare) = ends_with_a_rare_kind(1000).await;
    let (mut found, mut looks) = (Vec::new(), 0);
    let mut filter = TaskFilter::new().in_state(TaskState::Succeeded).of_kind("rare");
    loop {
        // Another stream each time, as over HTTP.
        let page = queue.tasks("jobs", filter.clone()).unwrap().page(100, Duration::ZERO).await.unwrap();
        assert!(page.tasks.len() <= 2 && !page.more, "one read of the storage: {page:?}");
        found.extend(page.tasks.iter().map(|task| task.id));
        looks += 1;
        if !page.unfinished {
            break;
        }
        filter = filter.before(page.reached.unwrap() + Duration::from_millis(1));
    }
    found.dedup();
    assert_eq!((found, looks), (rare.clone(), 6));

    let mut stream = queue.tasks("jobs", TaskFilter::new().of_kind("rare")).unwrap();
    let mut found = Vec::new();
    loop {
        let page = stream.page(1, Duration::ZERO).await.unwrap();
        found.extend(page.tasks.iter().map(|task| task.id));
        assert!(page.tasks.len() <= 1 && !(page.more && page.unfinished));
        if !page.more && !page.unfinished {
            break;
        }
    }
    assert_eq!(found, rare, "the same stream goes on");
}

#[tokio::test]
async fn a_page_with_time_is_as_full_as_it_may_be() {
    let (_time, queue, rare) = ends_with_a_rare_kind(500).await;
    let mut stream = queue.tasks("jobs", TaskFilter::new().of_kind("rare")).unwrap();
    let page = stream.page(3, Duration::from_mins(1)).await.unwrap();
    assert!(page.more && !page.unfinished);
    let rest = stream.page(3, Duration::from_mins(1)).await.unwrap();
    assert!(!rest.more && !rest.unfinished);
    let found: Vec<_> = page.tasks.iter().chain(&rest.tasks).map(|task| task.id).collect();
    assert_eq!((page.tasks.len(), found), (3, rare));
    let mut live = queue.tasks("other", TaskFilter::new()).unwrap();
    let empty = live.page(3, Duration::ZERO).await.unwrap();
    assert_eq!((empty.tasks.len(), empty.unfinished, empty.reached), (0, false, None));
}
