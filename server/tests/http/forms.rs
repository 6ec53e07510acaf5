//! What is done on the pages of tasks, schedules and limits: asked first, then done by a form, and never for a page of another site.

use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
use anyqueue_control::limits::{Limit, Limits};
use serde_json::json;

use crate::bed::{Bed, memory};
use crate::pages::{page, submit};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Sends a form as a page of another site would have a browser do.
async fn from_elsewhere(bed: &Bed, path: &str, form: &str) -> u16 {
    let headers = [FORM, ("origin", "https://evil.example")];
    bed.client.send("POST", path, &headers, form.as_bytes()).await.status
}

async fn scheduled(bed: &Bed) -> Scheduler {
    let scheduler = Scheduler::new(&bed.queue).unwrap();
    let timetable = Timetable::new("0 7 1 1 *".parse().unwrap(), Zone::utc());
    let schedule = Schedule::new("new <year>", timetable, anyqueue::PartitionId::new("mail").unwrap());
    scheduler.put(&schedule).await.unwrap();
    scheduler
}

async fn limited(bed: &Bed) -> Limits {
    let limits = Limits::new(bed.queue.control().unwrap());
    limits.put("smtp <1>", &Limit::partition("mail").unwrap().cap(5).rate(10.0, 20)).await.unwrap();
    limits
}

#[tokio::test]
async fn a_schedule_is_shown_run_paused_and_deleted() {
    let bed = Bed::new().await;
    assert!(page(&bed, "/cron").await.contains("There are no schedules."));
    let scheduler = scheduled(&bed).await;
    let shown = page(&bed, "/cron").await;
    for text in ["new &#60;year&#62;", "0 7 1 1 *", "-01-01 07:00:00", "none yet"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let name = "name=new+%3Cyear%3E";
    assert!(submit(&bed, "/do/cron/run", name).await.contains("is pushed now"));
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(1));
    assert!(submit(&bed, "/do/cron/run", name).await.contains("was not run"));
    assert!(submit(&bed, "/do/cron/pause", name).await.contains("if it were not paused"));
    assert!(submit(&bed, "/do/cron/resume", name).await.contains("is resumed"));
    assert!(page(&bed, "/cron/confirm?name=new%20%3Cyear%3E").await.contains("for good"));
    assert_eq!(from_elsewhere(&bed, "/do/cron/delete", name).await, 403);
    assert!(scheduler.get("new <year>").await.unwrap().is_some(), "asked, and refused to another site");
    assert!(submit(&bed, "/do/cron/delete", name).await.contains("There are no schedules."));
    let gone = bed.client.send("POST", "/do/cron/pause", &[FORM], name.as_bytes()).await;
    assert_eq!(gone.status, 404);
}

#[tokio::test]
async fn a_limit_is_shown_and_deleted() {
    let bed = Bed::new().await;
    assert!(page(&bed, "/limits").await.contains("There are no limits."));
    let limits = limited(&bed).await;
    let shown = page(&bed, "/limits").await;
    for text in ["smtp &#60;1&#62;", "0 of 5 held", "10 a second, 20 at once", "Nobody holds any of it."] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let name = "name=smtp+%3C1%3E";
    assert!(page(&bed, "/limits/confirm?name=smtp%20%3C1%3E").await.contains("would be deleted"));
    assert_eq!(from_elsewhere(&bed, "/do/limits/delete", name).await, 403);
    assert!(limits.get("smtp <1>").await.unwrap().is_some(), "asked, and refused to another site");
    assert!(submit(&bed, "/do/limits/delete", name).await.contains("There are no limits."));
    for path in ["/do/limits/delete", "/do/limits/destroy"] {
        assert_eq!(bed.client.send("POST", path, &[FORM], name.as_bytes()).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn all_tasks_of_a_filter_are_counted_and_then_dealt_with() {
    let bed = Bed::new().await;
    for kind in ["send", "send", "read"] {
        bed.push("mail", json!({ "payload": "x", "kind": kind })).await;
    }
    let found = page(&bed, "/tasks?partition=mail&kind=send").await;
    assert!(found.contains("href=\"/tasks/confirm/cancel?partition=mail&#38;kind=send\""), "{found}");
    let asked = page(&bed, "/tasks/confirm/cancel?partition=mail&kind=send").await;
    assert!(asked.contains("2 tasks of mail with kind “send” would be cancelled"), "{asked}");
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(3), "nothing was done yet");
    let form = "partition=mail&kind=send&limit=2";
    assert_eq!(from_elsewhere(&bed, "/do/tasks/cancel", form).await, 403);
    let done = submit(&bed, "/do/tasks/cancel", form).await;
    assert!(done.contains("2 cancelled.") && done.contains("value=\"send\""), "{done}");
    let counts = bed.queue.counts("mail").await.unwrap();
    assert_eq!(counts.ready, Some(1), "what does not match is left");
    let none = page(&bed, "/tasks/confirm/retry?partition=mail").await;
    assert!(none.contains("0 tasks of mail") && none.contains(" disabled>"), "{none}");
}

#[tokio::test]
async fn the_dead_are_retried_and_deleted_by_a_filter_and_no_more_than_were_counted() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        bed.push("mail", json!({ "payload": "x" })).await;
        let mail = bed.pull("mail").await;
        bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": "no route" })).await;
    }
    let done = submit(&bed, "/do/tasks/retry", "partition=mail&error=route&limit=1").await;
    assert!(done.contains("1 put back."), "{done}");
    let done = submit(&bed, "/do/tasks/delete", "partition=mail&state=failed&limit=10000").await;
    assert!(done.contains("2 deleted."), "{done}");
    let counts = bed.queue.counts("mail").await.unwrap();
    assert_eq!((counts.ready, counts.dead), (Some(1), Some(0)));
}

#[tokio::test]
async fn a_form_for_many_tasks_that_is_not_clear_does_nothing() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let refused = [
        ("/do/tasks/delete", "partition=mail", 400),
        ("/do/tasks/delete", "partition=mail&limit=0", 400),
        ("/do/tasks/delete", "partition=mail&limit=10001", 400),
        ("/do/tasks/delete", "partition=mail&limit=1&state=done", 400),
        ("/do/tasks/retry", "partition=mail&limit=1&state=running", 400),
        ("/do/tasks/destroy", "partition=mail&limit=1", 404),
    ];
    for (path, form, status) in refused {
        let answer = bed.client.send("POST", path, &[FORM], form.as_bytes()).await;
        assert_eq!(answer.status, status, "{path} {form}: {}", String::from_utf8_lossy(&answer.body));
    }
    assert_eq!(bed.client.get("/tasks/confirm/retry?partition=mail&state=running").await.status, 400);
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(1));
}

#[tokio::test]
async fn a_service_that_only_reads_offers_none_of_it() {
    let queue = memory();
    queue.push("mail", anyqueue::MessageData::new("x")).await.unwrap();
    let bed = Bed::with(queue, |builder| builder.read_only(true)).await;
    let (scheduler, limits) = (scheduled(&bed).await, limited(&bed).await);
    for path in ["/cron", "/limits", "/tasks?partition=mail"] {
        let shown = page(&bed, path).await;
        assert!(!shown.contains("confirm") && !shown.contains("/do/"), "{shown}");
    }
    let all = [
        ("/do/cron/delete", "name=new+%3Cyear%3E"),
        ("/do/limits/delete", "name=smtp+%3C1%3E"),
        ("/do/tasks/delete", "partition=mail&limit=1"),
    ];
    for (path, form) in all {
        assert_eq!(bed.client.send("POST", path, &[FORM], form.as_bytes()).await.status, 403, "{path}");
    }
    for path in ["/limits/confirm?name=x", "/tasks/confirm/delete?partition=mail"] {
        assert_eq!(bed.client.get(path).await.status, 403, "{path}");
    }
    assert!(scheduler.get("new <year>").await.unwrap().is_some());
    assert!(limits.get("smtp <1>").await.unwrap().is_some());
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(1));
}

#[tokio::test]
async fn what_was_changed_since_it_was_shown_is_not_deleted() {
    let bed = Bed::new().await;
    let (scheduler, limits) = (scheduled(&bed).await, limited(&bed).await);
    let shown = async |what: &str, name: &str| {
        let asked = page(&bed, &format!("/{what}/confirm?name={name}")).await;
        let (_, rest) = asked.split_once("name=\"revision\" value=\"").unwrap();
        format!("name={name}&revision={}", rest.split_once('"').unwrap().0)
    };
    let delete = async |what: &str, form: &str| {
        bed.client.send("POST", &format!("/do/{what}/delete"), &[FORM], form.as_bytes()).await.status
    };
    let (schedule, limit) = ("new%20%3Cyear%3E", "smtp%20%3C1%3E");
    let stale = [shown("cron", schedule).await, shown("limits", limit).await];
    let mut changed = scheduler.get("new <year>").await.unwrap().unwrap().schedule;
    changed.priority = 7;
    scheduler.put(&changed).await.unwrap();
    limits.put("smtp <1>", &Limit::partition("mail").unwrap().cap(6)).await.unwrap();
    assert_eq!((delete("cron", &stale[0]).await, delete("limits", &stale[1]).await), (412, 412));
    assert_eq!(scheduler.get("new <year>").await.unwrap().unwrap().schedule, changed);
    assert_eq!(limits.get("smtp <1>").await.unwrap().unwrap().cap, Some(6));
    let seen = [shown("cron", schedule).await, shown("limits", limit).await];
    assert_eq!((delete("cron", &seen[0]).await, delete("limits", &seen[1]).await), (303, 303));
}
