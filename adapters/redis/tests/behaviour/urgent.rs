//! Messages that become urgent while they wait.

use std::time::Duration;

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, Settlement,
};
use anyqueue::{Amend, MessageData, OnDuplicate, PushOutcome};
use redis::Value;

use crate::amend::{SHORT, amend, assert_left_nothing, pull_singly};
use crate::common::{Bed, LEASE, in_time, messages, part, pull, push, settle, texts};
use crate::successors::{bring, settle_one};

fn level(text: &str, level: u8) -> MessageData {
    MessageData::new(text).with_priority(level)
}

#[tokio::test]
async fn a_message_is_of_the_highest_level_from_its_moment_on_and_keeps_its_place_and_its_priority() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = [
        level("low", 0),
        level("9a", 9),
        level("urgent", 2).with_urgent_after(SHORT * 2),
        level("9b", 9),
        level("later", 1).with_urgent_after(LEASE),
        level("8", 8),
    ];
    push(&queue, &p, &all).await;
    let held = pull(&queue, &p, 1).await;
    assert_eq!(texts(&held), ["9a"]);
    settle(&queue, &held, Action::Release).await;
    tokio::time::sleep(SHORT * 3).await;
    let held = pull(&queue, &p, 2).await;
    assert_eq!(texts(&held), ["9a", "urgent"]);
    assert_eq!(held[1].message.options().priority, 2);
    assert_eq!(pull_singly(&queue, &p).await, ["9b", "8", "later", "low"]);
}

#[tokio::test]
async fn it_becomes_urgent_wherever_it_is_then() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let urgent = |text: &str| level(text, 0).with_urgent_after(SHORT);
    // Nothing lapses and nothing is due before they are done.
    let (p, (mut held, lapsing, rest, first_of_group, next)) = in_time(SHORT * 4, async |p| {
        push(&queue, &p, &[urgent("held"), urgent("retried"), urgent("lapsed")]).await;
        let held = pull(&queue, &p, 2).await;
        let lapsing = queue.pull(&p, PullRequest::new(1, Duration::ZERO, SHORT * 4)).await.unwrap();
        let rest = [
            urgent("delayed").with_delay(SHORT * 4),
            level("head", 9).with_group("g"),
            urgent("behind").with_group("g"),
            urgent("disabled"),
            urgent("gone"),
            level("9", 9),
        ];
        push(&queue, &p, &rest).await;
        amend(&queue, &p, &[&rest[3]], Amend::new().disable()).await;
        queue.delete(&p, &[rest[4].id()]).await.remove(0).unwrap();
        let first_of_group = pull(&queue, &p, 1).await;
        tokio::time::sleep(SHORT * 2).await;
        let next = pull(&queue, &p, 1).await;
        (held, lapsing, rest, first_of_group, next)
    })
    .await;
    assert_eq!(texts(&lapsing), ["lapsed"]);
    assert_eq!(texts(&first_of_group), ["head"]);
    assert_eq!(texts(&next), ["9"]);
    // Now all others would come after these.
    push(&queue, &p, &messages(&["low"])).await;
    push(&queue, &p, &[level("8", 8)]).await;
    settle(&queue, &held.split_off(1), Action::Retry).await;
    settle(&queue, &held, Action::Postpone { delay: Duration::ZERO, headers: None }).await;
    settle(&queue, &first_of_group, Action::Remove).await;
    amend(&queue, &p, &[&rest[3]], Amend::new().enable()).await;
    tokio::time::sleep(SHORT * 4).await;
    let mut first = texts(&pull(&queue, &p, 6).await);
    first[..2].sort();
    assert_eq!(first[..2], ["lapsed", "retried"], "those that came back are ahead");
    first.sort();
    assert_eq!(first, ["behind", "delayed", "disabled", "held", "lapsed", "retried"]);
    assert_eq!(pull_singly(&queue, &p).await, ["8", "low"]);
    assert_eq!(bed.run(&format!("ZCARD {}:{{{}}}:urgent", bed.prefix, p.name())).await, Value::Int(0));
}

#[tokio::test]
async fn a_later_amendment_of_the_priority_counts_until_the_moment() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let urgent = |text: &str, after| level(text, 0).with_urgent_after(after);
    let (p, held) = in_time(SHORT * 4, async |p| {
        let all = [
            urgent("past", Duration::ZERO),
            urgent("unseen", SHORT),
            urgent("to come", SHORT * 4),
            level("5", 5),
        ];
        push(&queue, &p, &all).await;
        // The first was lifted before, the second has not been looked at since its moment.
        settle(&queue, &pull(&queue, &p, 1).await, Action::Release).await;
        tokio::time::sleep(SHORT * 2).await;
        amend(&queue, &p, &[&all[0], &all[1], &all[2]], Amend::new().with_priority(4)).await;
        pull(&queue, &p, 1).await
    })
    .await;
    assert_eq!(texts(&held), ["5"]);
    tokio::time::sleep(SHORT * 4).await;
    push(&queue, &p, &[level("late", 5)]).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["to come", "late", "past", "unseen"]);
    assert!(
        held.iter().filter(|one| texts(&[(*one).clone()]) != ["late"]).all(|one| one
            .message
            .options()
            .priority
            == 4)
    );
    settle(&queue, &held, Action::Remove).await;
}

#[tokio::test]
async fn successors_and_messages_of_any_size_become_urgent() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["first"])).await;
    let held = pull(&queue, &p, 1).await;
    let bulky = MessageData::new(vec![b'x'; 20_000]).with_urgent_after(Duration::ZERO);
    push(&queue, &p, &[level("8", 8), bulky.clone()]).await;
    let successor = level("next", 0).with_urgent_after(Duration::ZERO).with_dedup_key("k");
    settle_one(&queue, bring(&held[0], Action::Remove, [("p", successor.clone())])).await.unwrap();
    // One that is not stored brings no moment.
    let other = level("other", 8)
        .with_dedup_key("k")
        .with_on_duplicate(OnDuplicate::Replace)
        .with_urgent_after(LEASE);
    assert_eq!(queue.push(&p, &[other]).await.remove(0).unwrap(), PushOutcome::Replaced(successor.id()));
    assert_eq!(pull(&queue, &p, 1).await[0].message.payload(), bulky.payload());
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["other", "8"]);
    settle(&queue, &held, Action::Remove).await;
    settle(&queue, &pull(&queue, &p, 9).await, Action::Remove).await;
}

#[tokio::test]
async fn more_than_one_call_lifts_all_become_urgent_before_a_pull_takes_any() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &[level("8", 8)]).await;
    let many: Vec<_> = (0..950).map(|_| level("u", 0).with_urgent_after(SHORT)).collect();
    push(&queue, &p, &many).await;
    let one = level("last", 0).with_urgent_after(SHORT);
    push(&queue, &p, std::slice::from_ref(&one)).await;
    tokio::time::sleep(SHORT * 2).await;
    let pulled = queue.pull(&p, PullRequest::new(1000, LEASE, LEASE)).await.unwrap();
    assert_eq!((pulled.len(), texts(&pulled[950..])), (952, vec!["last".to_owned(), "8".to_owned()]));
    let settlements: Vec<_> =
        pulled.iter().map(|one| Settlement::new(one.lease.clone(), Action::Remove)).collect();
    assert!(queue.settle(&settlements).await.into_iter().all(|outcome| outcome.is_ok()));
    assert_left_nothing(&bed, &p).await;
}
