//! Amendments: where what is changed stands afterwards, in each state that this backend knows.

use std::time::Duration;

use anyqueue::OnDuplicate::{Earlier, Replace};
use anyqueue::adapter::{Action, AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PushQueueStorage};
use anyqueue::{
    Amend, AmendOutcome, Browsed, CancelOutcome, DeleteOutcome, ErrorKind, MessageData, MessageId,
    MessageState, Page, PartitionId, PushOutcome, Result,
};
use anyqueue_postgres::PostgresQueue;

use crate::common::{Bed, LEASE, part, pull, push, remove, run, texts};
use crate::compaction::{keyed, push_one};
use crate::successors::{drain, with};

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Amends, and answers what each id met.
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
    queue.push(&p, &[waits.clone()]).await;
    let asked = [&waits, &held, &dead, &unknown, &waits];
    for change in [Amend::new().with_priority(3), Amend::new().disable(), Amend::new().enable()] {
        let met = amend(&queue, &p, &asked, change).await;
        use AmendOutcome::{Amended, Dead, Leased, NotFound};
        assert_eq!(met, [Amended, Leased, Dead, NotFound, Amended]);
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
    let head = at("head", 0).with_group("g");
    queue.push(&p, &[returned.clone()]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    queue.settle(&[with(&held.lease, Action::Release, &[])]).await.remove(0).unwrap();
    queue
        .push(&p, &[at("first", 5), ready.clone(), at("last", 5), head, behind.clone(), delayed.clone()])
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
    let head = MessageData::new("head").with_group("g");
    queue
        .push(&p, &[delayed.clone(), ready.clone(), head.clone(), behind.clone(), MessageData::new("last")])
        .await;
    amend(&queue, &p, &[&ready, &behind, &head, &delayed], Amend::new().now()).await;
    assert_eq!(drain(&queue, &p).await, ["ready", "head", "last", "delayed", "behind"]);
}

#[tokio::test]
async fn what_is_due_later_waits_whatever_it_was_and_a_head_holds_its_group() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str, group: &str| MessageData::new(text).with_group(group);
    let [head, behind, next] = ["head", "behind", "next"].map(|text| member(text, "g"));
    let [first, second, third] = ["first", "second", "third"].map(|text| member(text, "h"));
    let ready = MessageData::new("ready");
    queue.push(&p, &[ready.clone(), head.clone(), behind.clone(), next, first, second.clone(), third]).await;
    let met = amend(&queue, &p, &[&ready, &head, &second], Amend::new().due_in(DAY)).await;
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
    let [head, behind, next] = ["head", "behind", "next"].map(|text| member(text, "g"));
    let delayed = member("delayed", "g").with_delay(DAY);
    let alone = MessageData::new("alone");
    queue.push(&p, &[alone.clone(), head.clone(), behind.clone(), next.clone(), delayed.clone()]).await;
    queue.push(&p, &[member("other", "h")]).await;
    // The same as before is no change, so it keeps its place.
    amend(&queue, &p, &[&next], Amend::new().with_group("g")).await;
    let met = amend(&queue, &p, &[&behind, &head, &delayed, &alone], Amend::new().with_group("h")).await;
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
    let leaving = [&head, &alone];
    amend(&queue, &p, &leaving, Amend::new().without_group()).await;
    let free = pull(&queue, &p, 9).await;
    assert_eq!(texts(&free), ["head", "alone"]);
    assert!(free.iter().all(|free| free.message.options().group.is_none()));
    remove(&queue, &held[0].lease).await;
    assert_eq!(drain(&queue, &p).await, ["delayed"]);
}

#[tokio::test]
async fn what_is_disabled_is_given_to_nobody_and_comes_back_where_it_stood() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let member = |text: &str| MessageData::new(text).with_group("g");
    let [head, behind, next] = ["head", "behind", "next"].map(member);
    let returned = MessageData::new("returned");
    queue.push(&p, &[MessageData::new("first"), returned.clone()]).await;
    let held = pull(&queue, &p, 2).await;
    queue.settle(&[with(&held[1].lease, Action::Retry, &[])]).await.remove(0).unwrap();
    queue.settle(&[with(&held[0].lease, Action::Remove, &[])]).await.remove(0).unwrap();
    let (ready, delayed) = (MessageData::new("ready"), MessageData::new("delayed").with_delay(DAY));
    queue
        .push(
            &p,
            &[ready.clone(), head.clone(), behind.clone(), next, delayed.clone(), MessageData::new("last")],
        )
        .await;
    let all = [&returned, &ready, &head, &behind, &delayed];
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
    // The one that goes on holds its group while it is held, and those that are enabled stand in line.
    for _ in 0..2 {
        assert_eq!(amend(&queue, &p, &all, Amend::new().enable()).await, [AmendOutcome::Amended; 5]);
    }
    assert_eq!(queue.counts(&p).await.unwrap().disabled, Some(0));
    queue.settle(&[with(&deliveries[0].lease, Action::Release, &[])]).await.remove(0).unwrap();
    assert_eq!(drain(&queue, &p).await, ["returned", "next", "ready", "head", "behind"]);
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
    queue.push(&p, &[plain.clone()]).await;
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
    assert_eq!((shown.state, shown.message.payload().as_ref()), (MessageState::Disabled, &b"sooner"[..]));
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

/// Headers that a settlement replaced stand beside what is stored, which is encoded anew.
#[tokio::test]
async fn what_others_changed_or_wrote_is_kept_and_what_cannot_be_read_is_left_alone() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let [kept, newer, broken] = ["kept", "newer", "broken"].map(MessageData::new);
    queue.push(&p, &[kept.clone()]).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let headers = Some([("new".to_owned(), "header".to_owned())].into());
    let postpone = Action::Postpone { delay: Duration::ZERO, headers };
    queue.settle(&[with(&held.lease, postpone, &[])]).await.remove(0).unwrap();
    queue.push(&p, &[newer.clone(), broken.clone()]).await;
    let mut conn = bed.connect().await;
    let damage = |how: &str, text: &str| {
        format!("UPDATE {schema}.message SET body = {how} WHERE position('{text}'::bytea IN body) > 0")
    };
    run(&mut conn, damage("set_byte(body, 3, 2)", "newer")).await;
    run(&mut conn, damage("set_byte(body, 4, 255)", "broken")).await;
    run(
        &mut conn,
        format!(
            "INSERT INTO {schema}.message (id, part, lane, pos, state, pushed_at, body)
             SELECT '01890000-0000-7000-8000-000000000000', part, 19, 1, 0, now(), 'plain' FROM {schema}.partition"
        ),
    )
    .await;
    let foreign = MessageId::from_bytes([1, 0x89, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    let ids = [kept.id(), newer.id(), broken.id(), foreign];
    let outcomes = queue.amend(&p, &ids, &Amend::new().with_priority(7)).await;
    let kinds: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_err(anyqueue::Error::kind)).collect();
    let amended = Ok(&AmendOutcome::Amended);
    assert_eq!(kinds, [amended, Err(ErrorKind::Incompatible), Err(ErrorKind::Corrupt), amended]);
    // What does not show in what is stored needs no reading.
    for outcome in queue.amend(&p, &[newer.id(), broken.id()], &Amend::new().due_in(LEASE)).await {
        assert_eq!(outcome.unwrap(), AmendOutcome::Amended);
    }
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["plain", "kept"]);
    assert!(held.iter().all(|held| held.message.options().priority == 7 && held.unreadable.is_none()));
    assert!(held[0].message.headers().contains_key(anyqueue::header::FOREIGN_ID));
    assert_eq!(held[1].message.headers()["new"], "header");
}

#[tokio::test]
async fn a_thousand_large_messages_are_amended_in_parts_and_in_order() {
    const EACH: usize = 40 * 1024;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let messages: Vec<_> =
        (0..1000).map(|n| MessageData::new(vec![u8::try_from(n % 256).unwrap(); EACH])).collect();
    for some in messages.chunks(500) {
        for pushed in queue.push(&p, some).await {
            pushed.unwrap();
        }
    }
    let met = amend(&queue, &p, &messages.iter().collect::<Vec<_>>(), Amend::new().with_group("g")).await;
    assert_eq!(met, vec![AmendOutcome::Amended; 1000]);
    for expected in &messages {
        let held = pull(&queue, &p, 9).await;
        assert_eq!((held.len(), held[0].message.id()), (1, expected.id()));
        remove(&queue, &held[0].lease).await;
        if expected.id() == messages[20].id() {
            break;
        }
    }
}
