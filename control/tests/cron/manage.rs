//! What owners do with schedules.

use anyqueue::PartitionId;
use anyqueue_control::Precondition;
use anyqueue_control::cron::{MAX_SCHEDULE_PAYLOAD_BYTES, Schedule, Zone};

use crate::bed::{Bed, MINUTE, TASKS, schedule, timetable};

#[tokio::test]
async fn schedules_are_listed_found_paused_and_deleted() {
    let bed = Bed::new();
    assert!(bed.scheduler.list().await.unwrap().schedules.is_empty());
    for name in ["b", "ä/ü", "a"] {
        let schedule = Schedule::new(name, timetable("@daily"), PartitionId::new(TASKS).unwrap());
        bed.scheduler.put(&schedule).await.unwrap();
    }
    let all = bed.scheduler.list().await.unwrap();
    let names: Vec<_> = all.schedules.iter().map(|info| &*info.schedule.name).collect();
    assert_eq!(names, ["a", "b", "ä/ü"]);
    assert_eq!(all.schedules[0].next_at.unwrap().duration_since(all.now).unwrap().as_secs(), 86_400);
    for there in ["a", "ä/ü"] {
        assert!(bed.scheduler.pause(there).await.unwrap());
        assert!(bed.scheduler.pause(there).await.unwrap(), "idempotent");
        assert!(bed.scheduler.get(there).await.unwrap().unwrap().is_paused);
        assert!(bed.scheduler.resume(there).await.unwrap());
        assert!(bed.scheduler.resume(there).await.unwrap());
        assert!(!bed.scheduler.get(there).await.unwrap().unwrap().is_paused);
        assert!(bed.scheduler.delete(there).await.unwrap());
        assert!(!bed.scheduler.delete(there).await.unwrap());
    }
    assert!(!bed.scheduler.pause("a").await.unwrap() && !bed.scheduler.resume("a").await.unwrap());
    assert!(bed.scheduler.get("a").await.unwrap().is_none());
    assert_eq!(bed.scheduler.list().await.unwrap().schedules.len(), 1);
}

#[tokio::test]
async fn a_schedule_that_is_put_anew_stays_paused() {
    let bed = Bed::new();
    bed.scheduler.put(&schedule("@daily")).await.unwrap();
    bed.scheduler.pause("a").await.unwrap();
    let info = bed.scheduler.put(&schedule("@hourly")).await.unwrap();
    assert!(info.is_paused);
}

#[tokio::test]
async fn a_schedule_is_stored_paused_or_live_as_it_is_to_be_and_runs_accordingly() {
    let bed = Bed::new();
    let node = bed.node();
    let set = async |spec: &str, paused: bool| {
        bed.scheduler.set_if(&schedule(spec), paused, &Precondition::Anything).await.unwrap().unwrap()
    };
    assert!(set("* * * * *", true).await.is_paused);
    assert!(bed.work_for(2 * MINUTE).await.is_empty());
    assert!(!set("* * * * *", false).await.is_paused, "the same, but live");
    assert_eq!(bed.work_for(2 * MINUTE).await, [180, 240]);
    let live = set("* * * * *", false).await;
    assert_eq!(set("* * * * *", false).await.revision, live.revision, "the same again changes nothing");
    let paused = set("* * * * *", true).await;
    assert!(paused.is_paused && paused.last.is_some_and(|last| last.id.is_some()), "what was last is known");
    assert!(bed.work_for(2 * MINUTE).await.is_empty());
    assert!(set("*/2 * * * *", true).await.is_paused);
    let as_it_was = Precondition::Revision(vec![paused.revision]);
    let late = bed.scheduler.set_if(&schedule("@daily"), false, &as_it_was).await.unwrap();
    assert_eq!(late, None);
    assert!(!set("*/2 * * * *", false).await.is_paused);
    assert_eq!(bed.work_for(4 * MINUTE).await, [480, 600]);
    node.stop().await;
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_or_run_only_as_it_is_expected() {
    let bed = Bed::new();
    let first = bed.scheduler.put(&schedule("@daily")).await.unwrap().revision;
    let now = bed.scheduler.put(&schedule("@hourly")).await.unwrap().revision;
    let (old, new) = (Precondition::Revision(vec![first]), Precondition::Revision(vec![now]));
    assert_eq!(bed.scheduler.pause_if("a", &old).await.unwrap(), None);
    assert_eq!(bed.scheduler.run_now_if("a", &old).await.unwrap(), None);
    assert!(bed.done().await.is_empty() && !bed.scheduler.get("a").await.unwrap().unwrap().is_paused);
    assert!(bed.scheduler.pause_if("a", &new).await.unwrap().unwrap().is_paused);
    assert_eq!(bed.scheduler.resume_if("a", &old).await.unwrap(), None);
    assert!(bed.scheduler.get("a").await.unwrap().unwrap().is_paused);
    assert!(bed.scheduler.run_now_if("a", &new).await.unwrap().is_some());
    assert_eq!(bed.done().await.len(), 1);
    let resumed = bed.scheduler.resume_if("a", &new).await.unwrap().unwrap();
    assert_eq!(bed.scheduler.get("a").await.unwrap().unwrap(), resumed);
    assert_eq!(bed.scheduler.pause_if("a", &new).await.unwrap(), None, "it began anew");
    for expected in [Precondition::Absent, Precondition::Present, Precondition::Anything] {
        assert_eq!(bed.scheduler.pause_if("none", &expected).await.unwrap(), None);
        assert_eq!(bed.scheduler.resume_if("none", &expected).await.unwrap(), None);
        assert_eq!(bed.scheduler.run_now_if("none", &expected).await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_largest_schedule_fits_however_its_bytes_are_written() {
    let bed = Bed::new();
    for byte in [0xff, 0, b'"'] {
        let payload = vec![byte; MAX_SCHEDULE_PAYLOAD_BYTES];
        let info = bed.scheduler.put(&schedule("@daily").with_payload(payload.clone())).await.unwrap();
        assert!(info.schedule.payload == payload, "{byte}");
    }
    let mut elsewhere = schedule("@daily");
    elsewhere.timetable = anyqueue_control::cron::Timetable::new(
        "@daily".parse().unwrap(),
        "Asia/Tokyo".parse::<Zone>().unwrap(),
    );
    assert_eq!(bed.scheduler.put(&elsewhere).await.unwrap().schedule, elsewhere);
}
