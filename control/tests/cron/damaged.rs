//! What stands where schedules are and is none, ticks that are gone, and a store that is down.

use anyqueue::control::{Change, Expect, Key};
use anyqueue::{ErrorKind, MessageData, PartitionId, QueueMessageStatus};
use anyqueue_control::cron::{MAX_SCHEDULE_PAYLOAD_BYTES, RunOutcome, Schedule, TICKS};

use crate::bed::{Bed, MINUTE, SECOND, TASKS, minutes, schedule, timetable};

async fn write(bed: &Bed, name: &str, value: &[u8]) {
    let key = Key::new(format!("cron/{name}")).unwrap();
    let change = Change::put(key, Expect::Any, value.to_vec());
    assert!(bed.queue.control().unwrap().apply(change).await.unwrap().value.is_done());
}

#[tokio::test]
async fn entries_that_cannot_be_read_stop_no_other() {
    let bed = Bed::new();
    write(&bed, "0 broken", b"{").await;
    write(&bed, "1 newer", b"{\"format\":99}").await;
    for (name, from, to) in [("2 zone", "\"UTC\"", "\"Moon/Base\""), ("3 spec", "@yearly", "@sometimes")] {
        let yearly = Schedule::new(name, timetable("@yearly"), PartitionId::new(TASKS).unwrap());
        bed.scheduler.put(&yearly).await.unwrap();
        let key = Key::new(format!("cron/{name}")).unwrap();
        let entry = bed.queue.control().unwrap().get(&key).await.unwrap().value.unwrap();
        let text = String::from_utf8(entry.value.to_vec()).unwrap();
        write(&bed, name, text.replace(from, to).as_bytes()).await;
    }
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    let node = bed.node();
    assert_eq!(bed.work_for(3 * MINUTE).await, minutes(1..=3));
    let all = bed.scheduler.list().await.unwrap();
    assert_eq!(all.schedules.len(), 1);
    let kinds: Vec<_> = all.unreadable.iter().map(|(name, error)| (&**name, error.kind())).collect();
    let [corrupt, invalid] = [ErrorKind::Corrupt, ErrorKind::InvalidInput];
    let newer = ErrorKind::Incompatible;
    assert_eq!(kinds, [("0 broken", corrupt), ("1 newer", newer), ("2 zone", invalid), ("3 spec", invalid)]);
    for (name, _) in &all.unreadable {
        assert!(bed.scheduler.delete(name).await.unwrap());
    }
    node.stop().await;
}

#[tokio::test]
async fn an_entry_that_is_damaged_while_it_runs_goes_on_when_it_is_put_again() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    let node = bed.node();
    assert_eq!(bed.work_for(MINUTE).await.len(), 1);
    write(&bed, "a", b"nonsense").await;
    assert!(bed.work_for(3 * MINUTE).await.is_empty());
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    assert_eq!(bed.work_for(3 * MINUTE).await, minutes(5..=7), "and the earlier tick does nothing");
    node.stop().await;
}

#[tokio::test]
async fn what_is_no_tick_becomes_a_dead_letter_and_what_is_of_a_newer_release_waits() {
    let bed = Bed::new();
    bed.queue.push(TICKS, MessageData::new("nonsense")).await.unwrap();
    bed.queue.push(TICKS, MessageData::new("{\"format\":99}")).await.unwrap();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    let node = bed.node();
    assert_eq!(bed.work_for(2 * MINUTE).await, minutes(1..=2));
    let ticks = bed.queue.counts(TICKS).await.unwrap();
    assert_eq!((ticks.dead, ticks.delayed), (Some(1), Some(2)));
    node.stop().await;
}

#[tokio::test]
async fn a_tick_that_was_purged_or_died_is_put_back() {
    for dies in [false, true] {
        let bed = Bed::new();
        bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
        if dies {
            bed.pass(MINUTE).await;
            let mut tick = bed.queue.pull(TICKS).await.unwrap().remove(0);
            tick.settle(QueueMessageStatus::poisonous("it came too often")).await.unwrap();
        } else {
            bed.queue.purge(TICKS).await.unwrap();
        }
        let node = bed.node();
        let done = bed.work_for(3 * MINUTE).await;
        assert_eq!(done, minutes(1..=if dies { 4 } else { 3 }), "dies: {dies}");
        node.stop().await;
    }
}

#[tokio::test]
async fn an_old_tick_that_comes_back_does_nothing() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("* * * * *")).await.unwrap();
    bed.pass(MINUTE).await;
    let old = bed.queue.pull(TICKS).await.unwrap().remove(0).message().clone();
    let node = bed.node();
    assert_eq!(bed.work_for(2 * MINUTE).await, minutes(1..=3));
    let again = MessageData::with_id(old.id(), old.payload_bytes());
    bed.queue.push(TICKS, again).await.unwrap();
    assert_eq!(bed.work_for(2 * MINUTE).await, minutes(4..=5));
    assert_eq!(bed.queue.counts(TICKS).await.unwrap().delayed, Some(1), "there is one chain");
    node.stop().await;
}

#[tokio::test]
async fn a_task_that_the_backend_refuses_is_told_and_the_schedule_goes_on() {
    let bed = Bed::new();
    let refused = [
        (schedule("* * * * *").with_priority(200), ErrorKind::InvalidInput),
        (schedule("* * * * *").with_header("anyqueue-own", "1"), ErrorKind::InvalidInput),
        (schedule("* * * * *").with_payload(vec![0; MAX_SCHEDULE_PAYLOAD_BYTES + 1]), ErrorKind::TooLarge),
    ];
    for (schedule, kind) in refused {
        assert_eq!(bed.scheduler.put(&schedule).await.unwrap_err().kind(), kind);
    }
    assert!(bed.scheduler.list().await.unwrap().schedules.is_empty());
    bed.scheduler.put(&schedule("* * * * *").with_priority(7)).await.unwrap();
    let key = Key::new("cron/a").unwrap();
    let entry = bed.queue.control().unwrap().get(&key).await.unwrap().value.unwrap();
    let text = String::from_utf8(entry.value.to_vec()).unwrap();
    write(&bed, "a", text.replace("\"priority\":7", "\"priority\":200").as_bytes()).await;
    let node = bed.node();
    bed.pass(2 * MINUTE + SECOND).await;
    let info = bed.scheduler.get("a").await.unwrap().unwrap();
    let last = info.last.unwrap();
    assert_eq!(last.outcome, RunOutcome::Refused);
    assert!(last.error.unwrap().contains("priority"));
    assert_eq!(info.next_at.unwrap().duration_since(last.due_at).unwrap(), MINUTE);
    assert!(last.id.is_none() && bed.queue.counts(TASKS).await.unwrap().ready == Some(0));
    node.stop().await;
}

#[tokio::test]
async fn a_name_that_is_empty_or_too_long_is_refused() {
    let name = "a".repeat(201);
    let bed = Bed::new();
    let long = Schedule::new(name, timetable("@daily"), PartitionId::new(TASKS).unwrap());
    assert_eq!(bed.scheduler.put(&long).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(bed.scheduler.get("").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
