//! Amending what waits: where it stands then, whatever it was.

use std::time::Duration;

use anyqueue::adapter::{Action, AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PullRequest};
use anyqueue::{Amend, AmendOutcome, Headers, MessageData, MessageId, MessageState, Page, PartitionId};
use anyqueue_redis::RedisQueue;

use crate::common::{Bed, LEASE, SOON, in_time, messages, part, pull, pull_wait, push, settle, texts};

/// What a few calls take no longer than, also on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

pub(crate) async fn amend_one(
    queue: &RedisQueue,
    p: &PartitionId,
    id: MessageId,
    change: Amend,
) -> AmendOutcome {
    queue.amend(p, &[id], &change).await.remove(0).unwrap()
}

/// Amends them one after the other, as they stand here.
pub(crate) async fn amend(queue: &RedisQueue, p: &PartitionId, some: &[&MessageData], change: Amend) {
    for message in some {
        assert_eq!(amend_one(queue, p, message.id(), change.clone()).await, AmendOutcome::Amended);
    }
}

/// Pulls one at a time, so that each pull has to find its place.
pub(crate) async fn pull_singly(queue: &RedisQueue, p: &PartitionId) -> Vec<String> {
    let mut all = Vec::new();
    while let [one] = &pull(queue, p, 1).await[..] {
        all.push(texts(std::slice::from_ref(one)).remove(0));
    }
    all
}

/// Pushes them in calls of one, or in one call.
async fn push_as(queue: &RedisQueue, p: &PartitionId, all: &[MessageData], at_once: bool) {
    for some in all.chunks(if at_once { all.len() } else { 1 }) {
        push(queue, p, some).await;
    }
}

#[tokio::test]
async fn a_new_priority_stands_in_push_order_among_its_new_equals() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    for (name, at_once, singly) in
        [("a", true, true), ("b", true, false), ("c", false, true), ("d", false, false)]
    {
        let p = part(name);
        let all: Vec<_> = ["0", "1", "2", "3", "4", "5", "6", "7"]
            .iter()
            .enumerate()
            .map(|(number, text)| MessageData::new(text).with_priority(if number % 2 == 0 { 3 } else { 5 }))
            .collect();
        push_as(&queue, &p, &all, at_once).await;
        amend(&queue, &p, &[&all[6], &all[0], &all[4]], Amend::new().with_priority(5)).await;
        let counts = queue.counts(&p).await.unwrap();
        assert_eq!((counts.ready, counts.disabled), (Some(8), Some(0)));
        let held = if singly { pull_singly(&queue, &p).await } else { texts(&pull(&queue, &p, 99).await) };
        assert_eq!(held, ["0", "1", "3", "4", "5", "6", "7", "2"], "{name}");
    }
}

#[tokio::test]
async fn what_is_delivered_and_browsed_shows_the_new_priority_and_group_and_the_rest_as_it_was() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    for (name, size) in [("small", 10), ("bulky", 20_000), ("large", 300_000)] {
        let p = part(name);
        for group in ["g".to_owned(), "g".repeat(30), "g".repeat(256)] {
            let before = MessageData::new(vec![b'x'; size])
                .with_dedup_key("k")
                .with_group("old")
                .with_header("a", "b")
                .with_task_id("t")
                .with_priority(2)
                .with_time_to_live(10 * LEASE);
            push(&queue, &p, std::slice::from_ref(&before)).await;
            let change = Amend::new().with_priority(7).with_group(&*group);
            assert_eq!(amend_one(&queue, &p, before.id(), change.clone()).await, AmendOutcome::Amended);
            let browsed = queue.browse(&p, Page::of(10)).await.unwrap();
            assert_eq!(browsed[0].message, change.apply(before.clone()));
            amend(&queue, &p, &[&before], Amend::new().without_group().with_priority(0)).await;
            let held = pull(&queue, &p, 9).await;
            assert_eq!(held[0].message, Amend::new().without_group().with_priority(0).apply(before));
            assert_eq!(held[0].delivery_count, Some(1));
            settle(&queue, &held, Action::Remove).await;
        }
        assert_left_nothing(&bed, &p).await;
    }
}

/// No key of the partition is left that grows.
pub(crate) async fn assert_left_nothing(bed: &Bed, p: &PartitionId) {
    let mut names: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{}:{{{}}}:*", bed.prefix, p.name()))
        .query_async(&mut bed.connect().await)
        .await
        .unwrap();
    names.retain(|name| ![":state", ":leases", ":waits"].iter().any(|end| name.ends_with(end)));
    assert!(names.is_empty(), "{names:?}");
}

#[tokio::test]
async fn outcomes_tell_what_each_id_met() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["dead", "held", "waits"]);
    push(&queue, &p, &all).await;
    let held = pull(&queue, &p, 2).await;
    settle(&queue, &held[..1], Action::Move { to: p.dead_letters(), headers: None }).await;
    let mut ids: Vec<_> = all.iter().map(MessageData::id).collect();
    ids.extend([MessageId::new(), all[2].id()]);
    let answers = queue.amend(&p, &ids, &Amend::new().with_priority(1)).await;
    let outcomes: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        outcomes,
        [
            AmendOutcome::Dead,
            AmendOutcome::Leased,
            AmendOutcome::Amended,
            AmendOutcome::NotFound,
            AmendOutcome::Amended
        ]
    );
    assert_eq!(pull(&queue, &p, 9).await[0].message.options().priority, 1);
    // One whose lease ran out is held no more, and was delivered before.
    let short = messages(&["short"]);
    push(&queue, &p, &short).await;
    assert_eq!(queue.pull(&p, PullRequest::new(1, Duration::ZERO, SHORT)).await.unwrap().len(), 1);
    tokio::time::sleep(SHORT * 2).await;
    amend(&queue, &p, &[&short[0]], Amend::new().with_priority(4)).await;
    let again = pull(&queue, &p, 1).await;
    assert_eq!((again[0].delivery_count, again[0].message.options().priority), (Some(2), 4));
}

#[tokio::test]
async fn disabled_goes_to_nobody_and_enabled_stands_where_it_stood() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0", "1", "2", "3", "4", "5"]);
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[1], &all[4], &all[1], &all[0]], Amend::new().disable()).await;
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.disabled), (Some(3), Some(3)));
    let browsed = queue.browse(&p, Page::of(10)).await.unwrap();
    let states: Vec<_> = browsed.iter().map(|one| one.state).collect();
    let (disabled, ready) = (MessageState::Disabled, MessageState::Ready);
    assert_eq!(states, [disabled, disabled, ready, ready, disabled, ready]);
    assert!(browsed.iter().all(|one| one.due_in.is_none()));
    let returned = pull(&queue, &p, 1).await;
    assert_eq!(texts(&returned), ["2"]);
    settle(&queue, &returned, Action::Release).await;
    // Its place is passed by now; what was released is still ahead.
    amend(&queue, &p, &[&all[4], &all[1], &all[3]], Amend::new().enable()).await;
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(5));
    assert_eq!(texts(&pull(&queue, &p, 2).await), ["2", "1"]);
    assert_eq!(pull_singly(&queue, &p).await, ["3", "4", "5"]);
    amend(&queue, &p, &[&all[0]], Amend::new().enable()).await;
    let rest = pull(&queue, &p, 9).await;
    assert_eq!(texts(&rest), ["0"]);
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(0));
}

#[tokio::test]
async fn what_was_passed_while_it_was_disabled_comes_before_what_was_pushed_after_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0", "1", "2", "3"]);
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0], &all[2]], Amend::new().disable()).await;
    assert_eq!(pull_singly(&queue, &p).await, ["1", "3"]);
    push(&queue, &p, &messages(&["4"])).await;
    amend(&queue, &p, &[&all[2], &all[0]], Amend::new().enable()).await;
    push(&queue, &p, &messages(&["5"])).await;
    assert_eq!(pull_singly(&queue, &p).await, ["0", "2", "4", "5"]);
}

#[tokio::test]
async fn due_now_joins_the_end_and_due_later_waits_and_joins_the_end_then() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let (p, (counts, held)) = in_time(SHORT * 3, async |p| {
        let mut all = messages(&["0", "1", "2"]);
        all.insert(0, MessageData::new("late").with_delay(LEASE));
        push(&queue, &p, &all).await;
        amend(&queue, &p, &[&all[0], &all[1]], Amend::new().now()).await;
        amend(&queue, &p, &[&all[2]], Amend::new().due_in(SHORT * 3)).await;
        let seen = (queue.counts(&p).await.unwrap(), pull_singly(&queue, &p).await);
        push(&queue, &p, &messages(&["after"])).await;
        seen
    })
    .await;
    assert_eq!((counts.ready, counts.delayed), (Some(3), Some(1)));
    assert_eq!(held, ["0", "2", "late"]);
    tokio::time::sleep(SHORT * 4).await;
    assert_eq!(pull_singly(&queue, &p).await, ["after", "1"]);
    // What matured stands behind what was pushed before that, also with another priority.
    let mut more = messages(&["a", "b", "c"]);
    more.insert(0, MessageData::new("matured").with_delay(SHORT));
    push(&queue, &p, &more[..2]).await;
    tokio::time::sleep(SHORT * 2).await;
    push(&queue, &p, &more[2..]).await;
    amend(&queue, &p, &[&more[3], &more[0], &more[2], &more[1]], Amend::new().with_priority(3)).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["a", "matured", "b", "c"]);
}

#[tokio::test]
async fn a_pull_that_waits_is_woken_by_what_becomes_ready() {
    let Some(bed) = Bed::find().await else { return };
    // It finds nothing by looking.
    let queue = bed.builder().poll_interval(Duration::from_mins(1)).open().await.unwrap();
    let (other, p) = (bed.open().await, part("p"));
    let late = MessageData::new("late").with_delay(10 * LEASE);
    push(&queue, &p, std::slice::from_ref(&late)).await;
    for change in [Amend::new().now(), Amend::new().enable()] {
        let pulling = pull_wait(&queue, &p, 1);
        let amending = async {
            tokio::time::sleep(SHORT).await;
            let started = std::time::Instant::now();
            amend(&other, &p, &[&late], change.clone()).await;
            started
        };
        let (held, started) = tokio::join!(pulling, amending);
        assert!(held.len() == 1 && started.elapsed() < SOON / 2, "{change:?}");
        settle(&queue, &held, Action::Release).await;
        amend(&queue, &p, &[&late], Amend::new().disable()).await;
    }
}

#[tokio::test]
async fn a_group_goes_past_what_is_disabled_and_takes_it_back_in_its_old_order() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all: Vec<_> =
        ["0", "1", "2", "3", "4"].iter().map(|text| MessageData::new(text).with_group("g")).collect();
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0], &all[1], &all[3]], Amend::new().disable()).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["2"]);
    amend(&queue, &p, &[&all[3], &all[1], &all[0]], Amend::new().enable()).await;
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(4));
    assert!(pull(&queue, &p, 9).await.is_empty());
    settle(&queue, &held, Action::Remove).await;
    for text in ["0", "1", "3", "4"] {
        let held = pull(&queue, &p, 9).await;
        assert_eq!(texts(&held), [text]);
        settle(&queue, &held, Action::Remove).await;
    }
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn a_message_changes_its_group_and_each_group_has_a_head() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let grouped = |text: &str, group: &str| MessageData::new(text).with_group(group);
    let all = [
        grouped("a0", "a"),
        grouped("a1", "a"),
        grouped("b0", "b"),
        grouped("b1", "b"),
        MessageData::new("x"),
    ];
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0], &all[4]], Amend::new().with_group("b")).await; // a1 is the head now
    amend(&queue, &p, &[&all[3]], Amend::new().without_group()).await;
    let mut first = texts(&pull(&queue, &p, 9).await);
    first.sort();
    assert_eq!(first, ["a1", "b0", "b1"]);
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
    let delete = queue.delete(&p, &[all[0].id(), all[4].id()]).await;
    assert!(delete.into_iter().all(|answer| answer.unwrap() == anyqueue::DeleteOutcome::Deleted));
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
    // A head that is due later holds its group; a member leaves the line and joins it again at its end.
    let (p, early) = in_time(SHORT * 3, async |p| {
        let all = [grouped("c0", "c"), grouped("c1", "c"), grouped("c2", "c")];
        push(&queue, &p, &all).await;
        amend(&queue, &p, &[&all[0]], Amend::new().due_in(SHORT * 3)).await;
        amend(&queue, &p, &[&all[1]], Amend::new().due_in(SHORT)).await;
        tokio::time::sleep(SHORT * 2).await;
        pull(&queue, &p, 9).await
    })
    .await;
    assert!(early.is_empty());
    tokio::time::sleep(SHORT * 2).await;
    for text in ["c0", "c2", "c1"] {
        let held = pull(&queue, &p, 9).await;
        assert_eq!(texts(&held), [text]);
        settle(&queue, &held, Action::Remove).await;
    }
}

#[tokio::test]
async fn one_that_was_released_stays_ahead_with_its_new_priority() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let level = |text: &str, level| MessageData::new(text).with_priority(level);
    let all = [level("back", 6), level("5a", 5), level("0b", 0), level("5c", 5)];
    for one in [1, 0, 2, 3] {
        push(&queue, &p, &all[one..=one]).await;
    }
    let held = pull(&queue, &p, 1).await;
    settle(&queue, &held, Action::Release).await;
    amend(&queue, &p, &[&all[2]], Amend::new().with_priority(5)).await;
    amend(&queue, &p, &[&all[0]], Amend::new().with_priority(5)).await;
    assert_eq!(pull_singly(&queue, &p).await, ["back", "5a", "0b", "5c"]);
}

/// Its old place in the list is not taken for the new one.
#[tokio::test]
async fn one_that_came_back_to_its_old_priority_and_is_released_is_ahead() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0", "1", "2", "3"]);
    push(&queue, &p, &all).await;
    for priority in [5, 0] {
        amend(&queue, &p, &[&all[2]], Amend::new().with_priority(priority)).await;
    }
    let held = pull(&queue, &p, 3).await;
    assert_eq!(texts(&held), ["0", "1", "2"]);
    settle(&queue, &held[2..], Action::Release).await;
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
    assert_eq!(pull_singly(&queue, &p).await, ["2", "3"]);
}

#[tokio::test]
async fn what_is_disabled_can_be_deleted_cancelled_and_purged() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let make = |text: &str| MessageData::new(text).with_dedup_key(text).with_group("g");
    let all = [make("0"), make("1"), make("2"), make("3").with_delay(LEASE)];
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0], &all[1], &all[2], &all[3]], Amend::new().disable()).await;
    assert_eq!(queue.delete(&p, &[all[0].id()]).await.remove(0).unwrap(), anyqueue::DeleteOutcome::Deleted);
    let cancelled = queue.request_cancel(&p, &[all[1].id()]).await.remove(0).unwrap();
    assert_eq!(cancelled, anyqueue::CancelOutcome::Removed);
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.delayed, counts.disabled), (Some(0), Some(0), Some(2)));
    assert_eq!(queue.purge(&p, 100).await.unwrap(), 2);
    assert!(pull(&queue, &p, 9).await.is_empty());
    assert_left_nothing(&bed, &p).await;
}

#[tokio::test]
async fn headers_of_a_postponement_stay_with_the_amended_message() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0"]);
    push(&queue, &p, &all).await;
    let headers = Headers::from([("later".to_owned(), "yes".to_owned())]);
    let postpone = Action::Postpone { delay: LEASE, headers: Some(headers.clone()) };
    settle(&queue, &pull(&queue, &p, 1).await, postpone).await;
    amend(&queue, &p, &[&all[0]], Amend::new().with_priority(3).now()).await;
    let held = pull(&queue, &p, 1).await;
    assert_eq!((held[0].message.headers(), held[0].message.options().priority), (&headers, 3));
}
