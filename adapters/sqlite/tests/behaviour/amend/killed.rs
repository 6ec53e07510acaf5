//! Whoever amends is killed.

use std::path::PathBuf;

use super::*;
use anyqueue::Page;
use anyqueue::adapter::InspectQueueStorage;

const AMENDER: &str = "ANYQUEUE_TEST_AMENDER";
const MESSAGES: usize = 40;

/// What the next test kills: amends all messages over and over. Does nothing in a run of the tests.
#[tokio::test]
async fn an_amender() {
    let Ok(path) = std::env::var(AMENDER) else { return };
    let (queue, p) = (SqliteQueue::open(PathBuf::from(path)).await.unwrap(), part("p"));
    let page = queue.browse(&p, Page::of(MESSAGES)).await.unwrap();
    let ids: Vec<_> = page.iter().map(|it| it.message.id()).collect();
    for round in 0_u8.. {
        let group = format!("g{}", round % 3);
        let change = Amend::new().with_priority(round % 10).with_group(group.clone());
        let change = if round % 2 == 0 { change.disable() } else { change.enable().due_in(SECOND) };
        amended(&queue, &p, &ids[..MESSAGES / 2], change).await;
        amended(&queue, &p, &ids, Amend::new().with_group(group).now().enable()).await;
        if round == 0 {
            tell_at_work();
        }
    }
}

#[tokio::test]
async fn an_amender_killed_at_any_moment_leaves_every_message_whole_and_every_group_with_a_head() {
    const KILLS: u64 = 8;
    let bed = Bed::new().await;
    let p = part("p");
    let members: Vec<_> = (0..MESSAGES).map(|n| message(&n.to_string()).with_group("g")).collect();
    push(&bed.queue, &p, &members).await;
    let mut regrouped = 0;
    for kill in 0..KILLS {
        let mut amender = start_work("amend::killed::an_amender", AMENDER, &bed.path());
        std::thread::sleep(Duration::from_millis(100 + 17 * kill));
        amender.kill().unwrap();
        amender.wait().unwrap();
        assert_whole(&bed.path());
        let page = bed.queue.browse(&p, Page::of(MESSAGES)).await.unwrap();
        assert!(page.len() == MESSAGES && page.iter().all(|it| it.unreadable.is_none()));
        regrouped += page.iter().filter(|it| it.message.options().group.as_deref() != Some("g")).count();
    }
    assert!(regrouped > 0, "nothing was amended");
    let page = bed.queue.browse(&p, Page::of(MESSAGES)).await.unwrap();
    let ids: Vec<_> = page.iter().map(|it| it.message.id()).collect();
    amended(&bed.queue, &p, &ids, Amend::new().now().enable()).await;
    assert_eq!(drain(&bed.queue, &p).await.len(), MESSAGES);
}
