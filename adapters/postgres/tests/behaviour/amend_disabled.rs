//! Messages that are set aside.

use anyqueue::OnDuplicate::{Earlier, Replace};
use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage};
use anyqueue::{Amend, AmendOutcome, CancelOutcome, DeleteOutcome, MessageData, MessageState, PushOutcome};

use crate::amend::{DAY, amend, amend_one, let_time_pass, seen};
use crate::common::{Bed, part, pull, push, texts};
use crate::compaction::{keyed, push_one};
use crate::successors::{drain, with};

#[tokio::test]
async fn what_is_disabled_is_given_to_nobody_and_comes_back_where_it_stood() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str| MessageData::new(text).with_group("g");
    let [leader, behind, next] = ["head", "behind", "next"].map(member);
    let returned = MessageData::new("returned");
    queue.push(&p, &[MessageData::new("first"), returned.clone()]).await;
    let held = pull(&queue, &p, 2).await;
    queue.settle(&[with(&held[1].lease, Action::Retry, &[])]).await.remove(0).unwrap();
    queue.settle(&[with(&held[0].lease, Action::Remove, &[])]).await.remove(0).unwrap();
    let (ready, delayed) = (MessageData::new("ready"), MessageData::new("delayed").with_delay(DAY));
    queue
        .push(
            &p,
            &[ready.clone(), leader.clone(), behind.clone(), next, delayed.clone(), MessageData::new("last")],
        )
        .await;
    let all = [&returned, &ready, &leader, &behind, &delayed];
    for _ in 0..2 {
        assert_eq!(amend(&queue, &p, &all, Amend::new().disable()).await, [AmendOutcome::Amended; 5]);
    }
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.delayed, counts.disabled), (Some(2), Some(0), Some(5)));
    assert_eq!(queue.counts(&p.dead_letters()).await.unwrap().disabled, Some(0));
    let shown = seen(&queue, &p, &delayed).await;
    assert_eq!(shown.state, MessageState::Disabled);
    assert!(shown.due_in.unwrap() > DAY / 2);
    let shown = seen(&queue, &p, &returned).await;
    assert_eq!((shown.state, shown.due_in, shown.delivery_count), (MessageState::Disabled, None, Some(1)));
    let deliveries = pull(&queue, &p, 9).await;
    assert_eq!(texts(&deliveries), ["next", "last"]);
    // The one that goes on holds its group while it is held, and those that are enabled stand in line: released, it is behind them.
    for _ in 0..2 {
        assert_eq!(amend(&queue, &p, &all, Amend::new().enable()).await, [AmendOutcome::Amended; 5]);
    }
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(0));
    queue.settle(&[with(&deliveries[0].lease, Action::Release, &[])]).await.remove(0).unwrap();
    assert_eq!(drain(&queue, &p).await, ["returned", "ready", "head", "behind", "next"]);
    assert_eq!(seen(&queue, &p, &delayed).await.state, MessageState::Delayed);
    let queue = let_time_pass(&bed).await;
    assert_eq!(drain(&queue, &p).await, ["delayed"]);
}

#[tokio::test]
async fn a_moment_that_passed_while_it_was_disabled_puts_it_at_the_end() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let [delayed, set] = ["delayed", "set"].map(|text| MessageData::new(text).with_delay(DAY));
    let ready = MessageData::new("ready");
    queue.push(&p, &[delayed.clone(), set.clone(), ready.clone()]).await;
    amend(&queue, &p, &[&delayed, &set, &ready], Amend::new().disable()).await;
    // One that is set aside can be given a moment, and lose it.
    amend(&queue, &p, &[&ready], Amend::new().due_in(DAY)).await;
    amend(&queue, &p, &[&set], Amend::new().now()).await;
    let queue = let_time_pass(&bed).await;
    assert!(pull(&queue, &p, 9).await.is_empty());
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(3));
    push(&queue, &p, &["between"]).await;
    amend(&queue, &p, &[&ready, &delayed, &set], Amend::new().enable()).await;
    push(&queue, &p, &["after"]).await;
    assert_eq!(drain(&queue, &p).await, ["set", "between", "ready", "delayed", "after"]);
}

#[tokio::test]
async fn what_is_disabled_can_be_replaced_moved_in_time_cancelled_deleted_and_purged() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let plain = keyed("old", Replace);
    queue.push(&p, std::slice::from_ref(&plain)).await;
    amend_one(&queue, &p, &plain, Amend::new().disable()).await;
    assert_eq!(push_one(&queue, &p, keyed("new", Replace)).await, PushOutcome::Replaced(plain.id()));
    // It waits for no moment.
    let duplicate = PushOutcome::Duplicate(Some(plain.id()));
    assert_eq!(push_one(&queue, &p, keyed("sooner", Earlier)).await, duplicate);
    amend_one(&queue, &p, &plain, Amend::new().due_in(2 * DAY)).await;
    let later = keyed("later", Earlier).with_delay(3 * DAY);
    assert_eq!(push_one(&queue, &p, later).await, duplicate);
    let sooner = keyed("sooner", Earlier).with_delay(DAY);
    assert_eq!(push_one(&queue, &p, sooner).await, PushOutcome::Replaced(plain.id()));
    let shown = seen(&queue, &p, &plain).await;
    assert_eq!((shown.state, shown.message.payload()), (MessageState::Disabled, &b"sooner"[..]));
    assert!(shown.due_in.unwrap() <= DAY);
    assert_eq!(push_one(&queue, &p, keyed("now", Earlier)).await, PushOutcome::Replaced(plain.id()));
    assert_eq!(seen(&queue, &p, &plain).await.state, MessageState::Disabled);
    assert!(pull(&queue, &p, 9).await.is_empty());
    amend_one(&queue, &p, &plain, Amend::new().enable()).await;
    assert_eq!(drain(&queue, &p).await, ["now"]);

    let messages: Vec<_> = (0..4).map(|n| MessageData::new(format!("{n}"))).collect();
    queue.push(&p, &messages).await;
    amend(&queue, &p, &messages.iter().collect::<Vec<_>>(), Amend::new().disable()).await;
    let cancelled = queue.request_cancel(&p, &[messages[0].id()]).await.remove(0).unwrap();
    assert_eq!(cancelled, CancelOutcome::Removed);
    assert_eq!(queue.delete(&p, &[messages[1].id()]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    assert_eq!(queue.purge(&p, 1000).await.unwrap(), 2);
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(0));
}
