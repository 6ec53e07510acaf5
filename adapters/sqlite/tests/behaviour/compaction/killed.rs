//! Whoever replaces is killed.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use anyqueue::PushOutcome::Replaced;
use anyqueue::{Page, adapter::InspectQueueStorage};

const REPLACER: &str = "ANYQUEUE_TEST_REPLACER";

/// The content of the push with this number: it says which, and its size is that of one page, or of many.
fn numbered(number: u64) -> MessageData {
    let times = if number.is_multiple_of(2) { 10 } else { 5000 };
    MessageData::new(number.to_be_bytes().repeat(times)).with_header("number", number.to_string())
}

/// What the next test kills: replaces one message over and over. Does nothing in a run of the tests.
#[tokio::test]
async fn a_replacer() {
    let Ok(path) = std::env::var(REPLACER) else { return };
    let queue = SqliteQueue::open(PathBuf::from(path)).await.unwrap();
    let first = number_there(&queue).await + 1;
    for number in first.. {
        let newer = numbered(number).with_dedup_key("k").with_on_duplicate(OnDuplicate::Replace);
        assert!(matches!(push_one(&queue, &part("p"), newer).await, Replaced(_)));
        if number == first {
            tell_at_work();
        }
    }
}

/// The number of the one message there, which must be whole.
async fn number_there(queue: &SqliteQueue) -> u64 {
    let there = queue.browse(&part("p"), Page::of(9)).await.unwrap();
    assert_eq!(there.len(), 1);
    let number = there[0].message.headers()["number"].parse().unwrap();
    assert_eq!(there[0].message.payload(), numbered(number).payload(), "the payload of number {number}");
    assert_eq!(there[0].message.options().max_retries, Some(3));
    number
}

#[tokio::test]
async fn a_pusher_killed_at_any_moment_leaves_the_old_or_the_new_content() {
    const KILLS: u64 = 20;
    let bed = Bed::new().await;
    push(&bed.queue, &part("p"), &[numbered(0).with_dedup_key("k").with_max_retries(3)]).await;
    let mut last = 0;
    for kill in 0..KILLS {
        let mut replacer = start_work("compaction::killed::a_replacer", REPLACER, &bed.path());
        std::thread::sleep(Duration::from_millis(50 + 7 * kill));
        replacer.kill().unwrap();
        replacer.wait().unwrap();
        let number = number_there(&bed.queue).await;
        assert!(number >= last, "{number} after {last}");
        last = number;
    }
    assert!(last > KILLS, "it was replaced {last} times");
}
