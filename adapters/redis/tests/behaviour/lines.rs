//! What stands in line: messages that were deleted there, and those that fall due.

use std::time::Duration;

use anyqueue::adapter::{
    Action, AmendQueueStorage, Extension, InspectQueueStorage, PullQueueStorage, PullRequest,
    PushQueueStorage, QueueStorage,
};
use anyqueue::{Amend, CancelOutcome, DeleteOutcome, ExtendOutcome, MessageData, Page};

use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy};

use crate::common::{Bed, LEASE, fill, messages, part, pull, push, settle, texts};

#[tokio::test]
async fn a_deleted_message_that_is_pushed_again_comes_once_and_in_its_new_place() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["again", "other", "gone"]);
    push(&queue, &p, &all).await;
    for message in [&all[0], &all[2], &all[0]] {
        assert_eq!(queue.delete(&p, &[message.id()]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
        if message.id() == all[0].id() {
            push(&queue, &p, &all[..1]).await;
        }
    }
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(2));
    let held = pull(&queue, &p, 10).await;
    assert_eq!(texts(&held), ["other", "again"]);
    assert!(pull(&queue, &p, 10).await.is_empty());
    settle(&queue, &held, Action::Remove).await;
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(0));
    // Nothing of it is left to be skipped later.
    assert_eq!(bed.run(&format!("EXISTS {}:{{p}}:tombs", bed.prefix)).await, redis::Value::Int(0));
}

#[tokio::test]
async fn a_deleted_message_that_is_pushed_again_with_a_higher_priority_comes_first() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["before", "urgent"]);
    push(&queue, &p, &all).await;
    assert_eq!(queue.delete(&p, &[all[1].id()]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    push(&queue, &p, &[all[1].clone().with_priority(9)]).await;
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["urgent"]);
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["before"]);
    assert!(pull(&queue, &p, 9).await.is_empty());
    assert_eq!(bed.run(&format!("EXISTS {}:{{p}}:tombs", bed.prefix)).await, redis::Value::Int(0));
}

/// The last ones first: those at the front would go with their deletion.
#[tokio::test]
async fn a_pull_passes_deleted_messages_in_few_commands_and_within_its_wait() {
    const GONE: usize = 50_000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let gone: Vec<_> = (0..GONE).map(|_| MessageData::new("gone")).collect();
    for gone in gone.chunks(1000) {
        push(&queue, &p, gone).await;
    }
    push(&queue, &p, &messages(&["left"])).await;
    let ids: Vec<_> = gone.iter().rev().map(MessageData::id).collect();
    assert!(queue.delete(&p, &ids).await.into_iter().all(|out| out.unwrap() == DeleteOutcome::Deleted));
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1));
    let before = bed.info("total_commands_processed").await;
    let patient = PullRequest::new(1, Duration::from_secs(20), LEASE);
    assert_eq!(texts(&queue.pull(&p, patient).await.unwrap()), ["left"]);
    let commands = bed.info("total_commands_processed").await - before;
    assert!(commands < GONE as u64 / 20, "{commands} commands behind {GONE} deleted messages");
}

/// With a server so far away that one round trip is all a pull has time for.
#[tokio::test]
async fn a_pull_without_a_wait_ends_soon_among_deleted_messages_and_the_next_goes_on() {
    const GONE: usize = 20_000;
    const FAR: Duration = Duration::from_millis(40);
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let gone: Vec<_> = (0..GONE).map(|_| MessageData::new("gone")).collect();
    for gone in gone.chunks(1000) {
        push(&queue, &p, gone).await;
    }
    push(&queue, &p, &messages(&["left"])).await;
    let ids: Vec<_> = gone.iter().rev().map(MessageData::id).collect();
    assert!(queue.delete(&p, &ids).await.into_iter().all(|out| out.unwrap() == DeleteOutcome::Deleted));
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let distant = RedisQueue::open(&url).await.unwrap();
    proxy.set(Fault::Delay(FAR)).await.unwrap();
    let mut vain = 0;
    let held = loop {
        let held = pull(&distant, &p, 1).await;
        if !held.is_empty() {
            break held;
        }
        vain += 1;
    };
    assert_eq!(texts(&held), ["left"]);
    // One call passes four thousand.
    assert!(vain >= 4, "{GONE} deleted messages were passed by {vain} pulls and one more");
}

#[tokio::test]
async fn what_is_deleted_at_the_front_leaves_nothing_to_pass() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let gone: Vec<_> = (0..500).map(|_| MessageData::new("gone")).collect();
    push(&queue, &p, &gone).await;
    push(&queue, &p, &messages(&["left"])).await;
    let ids: Vec<_> = gone.iter().map(MessageData::id).collect();
    assert!(queue.delete(&p, &ids).await.into_iter().all(|out| out.unwrap() == DeleteOutcome::Deleted));
    assert_eq!(bed.run(&format!("EXISTS {}:{{p}}:tombs", bed.prefix)).await, redis::Value::Int(0));
    assert_eq!(bed.run(&format!("LLEN {}:{{p}}:ready0", bed.prefix)).await, redis::Value::Int(1));
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["left"]);
}

#[tokio::test]
async fn calls_of_more_than_a_batch_lose_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let many: Vec<_> = (0..9000).map(|_| MessageData::new("x")).collect();
    push(&queue, &p, &many).await;
    let mut held = Vec::new();
    while held.len() < many.len() {
        let more = pull(&queue, &p, 5000).await;
        assert!(!more.is_empty(), "{} came", held.len());
        held.extend(more);
    }
    let longer: Vec<_> =
        held.iter().map(|held| Extension { lease: held.lease.clone(), duration: LEASE }).collect();
    let extended = queue.extend(&longer).await;
    assert!(
        extended.len() == 9000 && extended.into_iter().all(|out| out.unwrap() == ExtendOutcome::Extended)
    );
    settle(&queue, &held, Action::Remove).await;
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(0), Some(0)));
}

#[tokio::test]
async fn one_call_releases_a_bounded_number_of_messages() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    fill(&queue, &p, 6000, |message| message).await;
    // The first outlives the pulls of the others, and ends before the last.
    let short = PullRequest::new(500, Duration::ZERO, Duration::from_secs(5));
    for _ in 0..12 {
        assert_eq!(queue.pull(&p, short.clone()).await.unwrap().len(), 500);
    }
    tokio::time::sleep(Duration::from_millis(5050)).await;
    assert_eq!(pull(&queue, &p, 1).await.len(), 1);
    let redis::Value::Int(left) = bed.run(&format!("HLEN {}:{{p}}:leases", bed.prefix)).await else {
        panic!()
    };
    assert!(left >= 5000, "{left} are still noted as held");
}

#[tokio::test]
async fn a_pull_goes_past_any_number_of_deleted_messages() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let gone: Vec<_> = (0..8000).map(|_| MessageData::new("gone")).collect();
    for gone in gone.chunks(1000) {
        push(&queue, &p, gone).await;
    }
    push(&queue, &p, &messages(&["left"])).await;
    for gone in gone.chunks(1000) {
        let ids: Vec<_> = gone.iter().map(MessageData::id).collect();
        assert!(
            queue
                .request_cancel(&p, &ids)
                .await
                .into_iter()
                .all(|out| out.unwrap() == CancelOutcome::Removed)
        );
    }
    assert_eq!(queue.counts(&p).await.unwrap().ready, Some(1));
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["left"]);
}

#[tokio::test]
async fn all_that_one_dead_consumer_held_comes_back_to_one_pull() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    fill(&queue, &p, 500, |message| message).await;
    // Longer than five hundred pulls take on a busy machine.
    let lease = Duration::from_secs(12);
    let short = PullRequest::new(1, Duration::ZERO, lease);
    for _ in 0..500 {
        assert_eq!(queue.pull(&p, short.clone()).await.unwrap().len(), 1);
    }
    tokio::time::sleep(lease + Duration::from_millis(50)).await;
    let held = pull(&queue, &p, 1000).await;
    assert_eq!(held.len(), 500);
    assert!(held.iter().all(|delivery| delivery.delivery_count == Some(2)));
}

#[tokio::test]
async fn large_messages_come_in_answers_of_bounded_size() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let large: Vec<_> = (0..12).map(|_| MessageData::new(vec![b'.'; 8 * 1024 * 1024])).collect();
    for large in large.chunks(4) {
        push(&queue, &p, large).await;
    }
    let mut seen = 0;
    while seen < 12 {
        let held = pull(&queue, &p, 1000).await;
        assert!((1..=5).contains(&held.len()), "{} of 8 MiB in one answer", held.len());
        seen += held.len();
        settle(&queue, &held, Action::Remove).await;
    }
}

#[tokio::test]
async fn pages_of_a_large_partition_are_complete_and_in_order() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    fill(&queue, &part("other"), 1500, |message| message).await;
    fill(&queue, &p, 1500, |message| message.with_group("g")).await;
    fill(&queue, &p, 1500, |message| message.with_delay(LEASE)).await;
    pull(&queue, &p, 10).await;
    let (mut after, mut ids) = (None, Vec::new());
    loop {
        let page = queue.browse(&p, Page::of(700).after(after)).await.unwrap();
        ids.extend(page.iter().map(|browsed| browsed.message.id()));
        after = ids.last().copied();
        if page.len() < 700 {
            break;
        }
    }
    assert_eq!(ids.len(), 3000);
    assert!(ids.is_sorted());
}

#[tokio::test]
async fn everything_goes_when_the_server_is_emptied_and_the_handle_goes_on() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["one"])).await;
    bed.run("FLUSHALL").await;
    bed.run("SCRIPT FLUSH").await;
    assert!(pull(&queue, &p, 1).await.is_empty());
    push(&queue, &p, &messages(&["two"])).await;
    assert_eq!(queue.partitions(Page::of(10)).await.unwrap(), std::slice::from_ref(&p));
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["two"]);
    queue.close().await.unwrap();
    assert!(queue.push(&p, &messages(&["late"])).await.remove(0).is_err());
}

/// The list has a partition's layout as its score, and changing messages raises it.
#[tokio::test]
async fn partitions_are_listed_in_order_page_by_page_whatever_was_done_in_them() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let mut names: Vec<_> = (0..40).map(|number| part(&format!("p{number}"))).collect();
    names.extend(["A", "a", "Zeta", "_", "z-1", "z.1"].map(part));
    for (number, p) in names.iter().enumerate() {
        let message = MessageData::new("x").with_group("g");
        push(&queue, p, std::slice::from_ref(&message)).await;
        if number % 3 == 0 {
            let amended = queue.amend(p, &[message.id()], &Amend::new().with_priority(1)).await;
            assert!(amended.iter().all(Result::is_ok), "{amended:?}");
        }
        if number % 7 == 0 {
            let request = PullRequest::new(1, Duration::ZERO, LEASE).with_group_members(5);
            assert_eq!(queue.pull(p, request).await.unwrap().len(), 1);
        }
    }
    names.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    for limit in [1, 7, 46, 1000] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = queue.partitions(Page::of(limit).after(after)).await.unwrap();
            assert!(page.len() <= limit);
            after = page.last().cloned();
            listed.extend(page);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, names, "in pages of {limit}");
    }
}
