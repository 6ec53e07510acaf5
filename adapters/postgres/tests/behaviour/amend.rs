//! Amendments: where what is changed stands afterwards, in each state that this backend knows.

use std::time::Duration;

use anyqueue::adapter::{Action, AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PushQueueStorage};
use anyqueue::{Amend, AmendOutcome, Browsed, ErrorKind, MessageData, MessageId, Page, PartitionId, Result};
use anyqueue_postgres::PostgresQueue;

use crate::common::{Bed, part, pull, remove, texts};
use crate::successors::{drain, with};

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Amends, and returns what each id met.
pub(crate) async fn amend(
    queue: &PostgresQueue,
    partition: &PartitionId,
    messages: &[&MessageData],
    change: Amend,
) -> Vec<AmendOutcome> {
    let ids: Vec<MessageId> = messages.iter().map(|message| message.id()).collect();
    queue.amend(partition, &ids, &change).await.into_iter().map(Result::unwrap).collect()
}

/// Amends one that can be.
pub(crate) async fn amend_one(
    queue: &PostgresQueue,
    partition: &PartitionId,
    message: &MessageData,
    change: Amend,
) {
    assert_eq!(amend(queue, partition, &[message], change).await, [AmendOutcome::Amended]);
}

pub(crate) async fn seen(queue: &PostgresQueue, partition: &PartitionId, message: &MessageData) -> Browsed {
    let all = queue.browse(partition, Page::of(1000)).await.unwrap();
    all.into_iter().find(|seen| seen.message.id() == message.id()).unwrap()
}

/// Lets everything that waits for a moment wait no longer. Returns a handle that looks for what has been due for long: others may not, where
/// looking was slow before.
pub(crate) async fn let_time_pass(bed: &Bed) -> PostgresQueue {
    bed.run(format!(
        "UPDATE {}.message SET due = CASE WHEN due < 'infinity' THEN due - interval '2 days' ELSE due END,
             due_then = due_then - interval '2 days', urgent = urgent - interval '2 days'",
        bed.schema
    ))
    .await;
    bed.open().await
}

#[tokio::test]
async fn each_id_is_answered_for_by_what_it_met() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let [held, dead, waits, unknown] = ["held", "dead", "waits", "unknown"].map(MessageData::new);
    queue.push(&p, &[held.clone(), dead.clone()]).await;
    let deliveries = pull(&queue, &p, 2).await;
    let die = Action::Move { to: p.dead_letters(), headers: None };
    queue.settle(&[with(&deliveries[1].lease, die, &[])]).await.remove(0).unwrap();
    queue.push(&p, std::slice::from_ref(&waits)).await;
    let asked = [&waits, &held, &dead, &unknown, &waits];
    for change in [Amend::new().with_priority(3), Amend::new().disable(), Amend::new().enable()] {
        let met = amend(&queue, &p, &asked, change).await;
        let amended = AmendOutcome::Amended;
        let others = [AmendOutcome::Leased, AmendOutcome::Dead, AmendOutcome::NotFound];
        assert_eq!((met[0], &met[1..4], met[4]), (amended, &others[..], amended));
    }
    assert_eq!(amend(&queue, &part("other"), &[&waits], Amend::new().now()).await, [AmendOutcome::NotFound]);
    let refused = queue.amend(&p.dead_letters(), &[dead.id()], &Amend::new().now()).await.remove(0);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(drain(&queue, &p).await, ["waits"]);
    remove(&queue, &deliveries[0].lease).await;
}

/// Whatever its state was; and what is delivered and browsed shows it.
#[tokio::test]
async fn a_new_priority_places_a_message_as_if_it_had_been_pushed_with_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let at = |text: &str, priority| MessageData::new(text).with_priority(priority);
    let ready = at("ready", 0).with_header("h", "v").with_task_id("t").with_time_to_live(DAY);
    let returned = at("returned", 9);
    let delayed = at("delayed", 0).with_delay(DAY);
    let behind = at("behind", 0).with_group("g");
    let leader = at("head", 0).with_group("g");
    queue.push(&p, std::slice::from_ref(&returned)).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    queue.settle(&[with(&held.lease, Action::Release, &[])]).await.remove(0).unwrap();
    queue
        .push(&p, &[at("first", 5), ready.clone(), at("last", 5), leader, behind.clone(), delayed.clone()])
        .await;
    let met = amend(&queue, &p, &[&delayed, &ready, &behind, &returned], Amend::new().with_priority(5)).await;
    assert_eq!(met, [AmendOutcome::Amended; 4]);
    assert_eq!(seen(&queue, &p, &delayed).await.message.options().priority, 5);
    let queue = let_time_pass(&bed).await; // so the delayed one joins the end of its level, which was two days ago
    let deliveries = pull(&queue, &p, 9).await;
    assert_eq!(texts(&deliveries), ["returned", "delayed", "first", "ready", "last", "head"]);
    let got = &deliveries[3].message;
    assert_eq!((got.options().priority, got.headers()["h"].as_str(), got.task_id()), (5, "v", Some("t")));
    assert_eq!(got.options().expiry, ready.options().expiry);
    remove(&queue, &deliveries[5].lease).await;
    let next = pull(&queue, &p, 9).await;
    assert_eq!((texts(&next), next[0].message.options().priority), (vec!["behind".to_owned()], 5));
}

#[tokio::test]
async fn what_is_due_now_joins_the_end_and_what_could_be_pulled_stays() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let delayed = MessageData::new("delayed").with_delay(DAY);
    let (ready, behind) = (MessageData::new("ready"), MessageData::new("behind").with_group("g"));
    let leader = MessageData::new("head").with_group("g");
    queue
        .push(&p, &[delayed.clone(), ready.clone(), leader.clone(), behind.clone(), MessageData::new("last")])
        .await;
    amend(&queue, &p, &[&ready, &behind, &leader, &delayed], Amend::new().now()).await;
    assert_eq!(drain(&queue, &p).await, ["ready", "head", "last", "delayed", "behind"]);
}

#[tokio::test]
async fn what_is_due_later_waits_whatever_it_was_and_a_head_holds_its_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str, group: &str| MessageData::new(text).with_group(group);
    let [leader, behind, next] = ["head", "behind", "next"].map(|text| member(text, "g"));
    let [first, second, third] = ["first", "second", "third"].map(|text| member(text, "h"));
    let ready = MessageData::new("ready");
    queue
        .push(&p, &[ready.clone(), leader.clone(), behind.clone(), next, first, second.clone(), third])
        .await;
    let met = amend(&queue, &p, &[&ready, &leader, &second], Amend::new().due_in(DAY)).await;
    assert_eq!(met, [AmendOutcome::Amended; 3]);
    assert_eq!(queue.counts(&p).await.unwrap().delayed, Some(3));
    assert!(seen(&queue, &p, &second).await.due_in.unwrap() > DAY / 2);
    assert_eq!(drain(&queue, &p).await, ["first", "third"]);
    let queue = let_time_pass(&bed).await;
    assert_eq!(drain(&queue, &p).await, ["ready", "head", "second", "behind", "next"]);
}

#[tokio::test]
async fn another_group_is_joined_at_the_end_and_the_old_one_goes_on() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str, group: &str| MessageData::new(text).with_group(group);
    let [leader, behind, next] = ["head", "behind", "next"].map(|text| member(text, "g"));
    let delayed = member("delayed", "g").with_delay(DAY);
    let alone = MessageData::new("alone");
    queue.push(&p, &[alone.clone(), leader.clone(), behind.clone(), next.clone(), delayed.clone()]).await;
    queue.push(&p, &[member("other", "h")]).await;
    // The same as before is no change, so it keeps its place.
    amend(&queue, &p, &[&next], Amend::new().with_group("g")).await;
    let met = amend(&queue, &p, &[&behind, &leader, &delayed, &alone], Amend::new().with_group("h")).await;
    assert_eq!(met, [AmendOutcome::Amended; 4]);
    let deliveries = pull(&queue, &p, 9).await;
    assert_eq!(texts(&deliveries), ["next", "other"]);
    remove(&queue, &deliveries[1].lease).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(
        (texts(&held), held[0].message.options().group.as_deref()),
        (vec!["behind".to_owned()], Some("h"))
    );
    let queue = let_time_pass(&bed).await;
    let leaving = [&leader, &alone];
    amend(&queue, &p, &leaving, Amend::new().without_group()).await;
    let free = pull(&queue, &p, 9).await;
    assert_eq!(texts(&free), ["head", "alone"]);
    assert!(free.iter().all(|free| free.message.options().group.is_none()));
    remove(&queue, &held[0].lease).await;
    assert_eq!(drain(&queue, &p).await, ["delayed"]);
}

#[tokio::test]
async fn a_lease_that_has_run_out_is_no_lease_and_its_holder_has_lost_it() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str| MessageData::new(text).with_group("g");
    let messages = ["late", "next"].map(member);
    queue.push(&p, &messages).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let past = "until = now() - interval '1 s', due = now() - interval '1 s'";
    bed.run(format!("UPDATE {}.message SET {past} WHERE state = 1", bed.schema)).await;
    amend_one(&queue, &p, &messages[0], Amend::new().with_priority(1)).await;
    assert_eq!(remove(&queue, &held.lease).await, anyqueue::SettleOutcome::Lost);
    let held = pull(&queue, &p, 9).await;
    assert_eq!((texts(&held), held[0].delivery_count), (vec!["late".to_owned()], Some(2)));
}

#[tokio::test]
async fn several_changes_are_made_together() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let delayed = MessageData::new("delayed").with_delay(DAY).with_group("g");
    let member = MessageData::new("member").with_group("g");
    queue.push(&p, &[member.clone(), delayed.clone(), MessageData::new("other")]).await;
    amend_one(&queue, &p, &delayed, Amend::new().with_priority(9).now().without_group().disable()).await;
    amend_one(&queue, &p, &member, Amend::new().with_group("h").disable()).await;
    assert_eq!(drain(&queue, &p).await, ["other"]);
    amend(&queue, &p, &[&delayed, &member], Amend::new().enable()).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["delayed", "member"]);
    let options = held.iter().map(|held| held.message.options());
    let shown: Vec<_> = options.map(|options| (options.priority, options.group.as_deref())).collect();
    assert_eq!(shown, [(9, None), (0, Some("h"))]);
}
