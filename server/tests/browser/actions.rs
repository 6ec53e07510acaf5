//! Each page and each action on it, with a script and without.

use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
use anyqueue_control::limits::{Limit, Limits};
use anyqueue_control::registry::{MemberOptions, Registry};
use anyqueue_worker::{Partition, Worker};
use serde_json::json;

use crate::bed::{Bed, memory};
use crate::browser::{Browser, Scripts};

async fn dies(bed: &Bed, payload: &str, reason: &str) -> String {
    let id = bed.push("mail", json!({ "payload": payload })).await;
    let mail = bed.pull("mail").await;
    bed.settle(json!({ "delivery": mail["delivery"], "status": "poisonous", "error": reason })).await;
    id
}

/// How many messages are ready in the queue, and how many are dead.
async fn ready_and_dead(bed: &Bed) -> (Option<u64>, Option<u64>) {
    let counts = bed.queue.counts("mail").await.unwrap();
    (counts.ready, counts.dead)
}

async fn a_queue_is_found_paused_and_resumed(scripts: Scripts) {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x", "kind": "send" })).await;
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go_until("/", "mail").await;
    browser.press("mail", "/partitions/mail").await;
    browser.find("//h1[.='mail']").await;
    browser.see("It delivers.").await;
    browser.press("Pause", "/partitions/mail").await;
    browser.see("It is paused.").await;
    browser.see("It is paused and delivers nothing.").await;
    assert!(bed.queue.is_paused("mail").await.unwrap());
    browser.press("Resume", "/partitions/mail").await;
    browser.see("It delivers again.").await;
    assert!(!bed.queue.is_paused("mail").await.unwrap());
    browser.press("Tasks", "/tasks").await;
    browser.see("1 found").await;
    assert_eq!(browser.place().await, "/tasks?partition=mail");
    browser.close().await;
}

async fn a_task_is_found_by_the_form_run_now_and_cancelled(scripts: Scripts) {
    let bed = Bed::new().await;
    let later = json!({ "payload": "later", "kind": "send", "task_id": "order-7", "delay_ms": 600_000 });
    let task = format!("/tasks/{}", bed.push("mail", later).await);
    bed.push("mail", json!({ "payload": "now", "kind": "read" })).await;
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/tasks").await;
    browser.see("Name a queue to see its tasks.").await;
    browser.fill("Queue", "mail").await;
    browser.fill("Kind", "send").await;
    browser.press("Find", "/tasks").await;
    browser.see("1 found").await;
    browser.press("order-7", &task).await;
    browser.find("//h1[.='Task order-7']").await;
    browser.find("//pre[.='later']").await;
    browser.press("Run it now", &task).await;
    browser.see("It is due now.").await;
    browser.press("Cancel", &task).await;
    browser.see("It is cancelled.").await;
    browser.find("//*[contains(@class, 'state')][.='cancelled']").await;
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(1));
    browser.close().await;
}

async fn dead_letters_are_put_back_and_deleted_after_a_question(scripts: Scripts) {
    let bed = Bed::new().await;
    for (payload, reason) in [("1", "timeout after 10 s"), ("2", "timeout after 20 s"), ("3", "bad input")] {
        dies(&bed, payload, reason).await;
    }
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    let put_back = "//tr[contains(., 'timeout after # s')]//a[.='Put back']";
    browser.go_until("/", "3 dead letters in mail.").await;
    browser.press("Look at them", "/dead").await;
    browser.click_and_arrive(put_back, "/dead/confirm").await;
    browser
        .see("2 dead letters of mail that died of “timeout after # s” would be put back and run again.")
        .await;
    browser.press("No, go back", "/dead").await;
    assert_eq!(browser.place().await, "/dead?partition=mail");
    assert_eq!(ready_and_dead(&bed).await, (Some(0), Some(3)));
    browser.click_and_arrive(put_back, "/dead/confirm").await;
    browser.press("Put them back", "/dead").await;
    browser.see("2 are put back.").await;
    browser.press("Delete all", "/dead/confirm").await;
    browser.see("1 dead letter of mail would be deleted, for good.").await;
    browser.press("Delete them", "/dead").await;
    browser.see("1 is deleted.").await;
    browser.see("There are no dead letters.").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(2), Some(0)));
    browser.close().await;
}

async fn all_that_match_are_cancelled_after_a_question(scripts: Scripts) {
    let bed = Bed::new().await;
    for kind in ["send", "send", "read"] {
        bed.push("mail", json!({ "payload": "x", "kind": kind })).await;
    }
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/tasks?partition=mail&kind=send").await;
    browser.press("Cancel all that match", "/tasks/confirm/cancel").await;
    browser.see("2 tasks of mail with kind “send” would be cancelled").await;
    browser.press("No, go back", "/tasks").await;
    assert_eq!(browser.place().await, "/tasks?partition=mail&kind=send");
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(3));
    browser.press("Cancel all that match", "/tasks/confirm/cancel").await;
    // One that comes after the question was not agreed to, whichever of the three it is.
    bed.push("mail", json!({ "payload": "x", "kind": "send" })).await;
    browser.press("Cancel them", "/tasks").await;
    browser.see("2 cancelled.").await;
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(2));
    browser.close().await;
}

async fn all_dead_letters_are_put_back_after_a_question(scripts: Scripts) {
    let bed = Bed::new().await;
    for (payload, reason) in [("1", "timeout"), ("2", "bad input")] {
        dies(&bed, payload, reason).await;
    }
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/dead?partition=mail").await;
    browser.press("Put all back", "/dead/confirm").await;
    browser.see("2 dead letters of mail would be put back and run again.").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(0), Some(2)));
    browser.press("Put them back", "/dead").await;
    browser.see("2 are put back.").await;
    browser.see("There are no dead letters.").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(2), Some(0)));
    browser.close().await;
}

async fn one_dead_task_is_put_back_from_its_own_page(scripts: Scripts) {
    let bed = Bed::new().await;
    let task = format!("/tasks/{}", dies(&bed, "1", "timeout").await);
    dies(&bed, "2", "timeout").await;
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go(&format!("{task}?partition=mail")).await;
    browser.find("//*[contains(@class, 'state')][.='failed']").await;
    browser.press("Put it back", &task).await;
    browser.see("It is put back.").await;
    browser.find("//*[contains(@class, 'state')][.='queued']").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(1), Some(1)), "this one alone");
    browser.close().await;
}

async fn all_that_match_are_retried_and_then_deleted_after_questions(scripts: Scripts) {
    let bed = Bed::new().await;
    for payload in ["1", "2"] {
        dies(&bed, payload, "timeout").await;
    }
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/tasks?partition=mail&state=failed").await;
    browser.press("Retry all that match", "/tasks/confirm/retry").await;
    browser.see("2 tasks of mail with state “failed” would run").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(0), Some(2)));
    browser.press("Retry them", "/tasks").await;
    browser.see("2 put back.").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(2), Some(0)));
    browser.go("/tasks?partition=mail&state=queued").await;
    browser.press("Delete all that match", "/tasks/confirm/delete").await;
    browser.see("2 tasks of mail with state “queued” would be deleted, for good").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(2), Some(0)));
    browser.press("Delete them", "/tasks").await;
    browser.see("2 deleted.").await;
    assert_eq!(ready_and_dead(&bed).await, (Some(0), Some(0)));
    browser.close().await;
}

async fn a_limit_is_deleted_after_a_question(scripts: Scripts) {
    let bed = Bed::new().await;
    let limits = Limits::new(bed.queue.control().unwrap());
    limits.put("smtp", &Limit::partition("mail").unwrap().cap(5)).await.unwrap();
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/limits").await;
    browser.find("//h2[.='smtp']").await;
    browser.see("0 of 5 held").await;
    browser.press("Delete", "/limits/confirm").await;
    browser.see("The limit “smtp” would be deleted: within seconds nobody is held back by it.").await;
    browser.press("No, go back", "/limits").await;
    assert!(limits.get("smtp").await.unwrap().is_some(), "asked alone");
    browser.press("Delete", "/limits/confirm").await;
    browser.press("Delete it", "/limits").await;
    browser.see("smtp is deleted.").await;
    browser.see("There are no limits.").await;
    assert!(limits.get("smtp").await.unwrap().is_none());
    browser.close().await;
}

async fn a_worker_is_told(scripts: Scripts) {
    let bed = Bed::new().await;
    let worker = Worker::builder(bed.queue.clone())
        .name("w/1")
        .partition(Partition::new(anyqueue::PartitionId::new("mail").unwrap()))
        .any_handler(|_, _| async { Ok(()) })
        .build()
        .unwrap();
    let registry = Registry::new(bed.queue.control().unwrap());
    let member = registry.join(&worker, MemberOptions::default()).await.unwrap();
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/workers").await;
    browser.find("//h2[starts-with(normalize-space(.), 'w/1')]").await;
    for order in ["quiet", "recycle", "stop"] {
        browser.press(order, "/workers").await;
        browser.see("It will hear it with its next beat.").await;
        browser.find(&format!("//*[.='told: {order}']")).await;
    }
    browser.close().await;
    drop(member);
}

async fn a_schedule_is_run_paused_and_deleted_after_a_question(scripts: Scripts) {
    let bed = Bed::new().await;
    let scheduler = Scheduler::new(&bed.queue).unwrap();
    let timetable = Timetable::new("0 7 1 1 *".parse().unwrap(), Zone::utc());
    let schedule = Schedule::new("new year", timetable, anyqueue::PartitionId::new("mail").unwrap());
    scheduler.put(&schedule).await.unwrap();
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/cron").await;
    browser.find("//h2[normalize-space(.)='new year']").await;
    browser.find("//ol[count(li[contains(., '-01-01 07:00:00')])=5]").await;
    browser.press("Run now", "/cron").await;
    browser.see("new year is pushed now, beside its times.").await;
    assert_eq!(bed.queue.counts("mail").await.unwrap().ready, Some(1));
    browser.press("Run now", "/cron").await;
    browser.see("new year was not run: the task of an earlier time is still there.").await;
    browser.press("Pause", "/cron").await;
    browser.see("The next times, if it were not paused").await;
    assert!(scheduler.get("new year").await.unwrap().unwrap().is_paused);
    browser.press("Resume", "/cron").await;
    browser.see("new year is resumed: its times count from now.").await;
    browser.press("Delete", "/cron/confirm").await;
    browser.see("The schedule “new year” would be deleted, for good.").await;
    browser.press("Delete it", "/cron").await;
    browser.see("There are no schedules.").await;
    assert!(scheduler.get("new year").await.unwrap().is_none());
    browser.close().await;
}

async fn people_enter_with_a_token(scripts: Scripts) {
    let bed = Bed::with(memory(), |builder| builder.token("correct-horse-battery")).await;
    let Some(browser) = Browser::open(&bed, scripts).await else { return };
    browser.go("/workers").await;
    assert_eq!(browser.place().await, "/login");
    browser.fill("Token", "wrong-horse-battery").await;
    browser.press("Enter", "/login").await;
    browser.see("This is not one of the service's tokens.").await;
    let refused = browser.complaints().await;
    assert!(refused.iter().all(|line| line.contains("401")), "{refused:?}");
    browser.fill("Token", "correct-horse-battery").await;
    browser.press("Enter", "/").await;
    browser.find("//h1[.='Overview']").await;
    assert_eq!(browser.ask("return document.cookie").await, "", "no script can read it");
    browser.close().await;
}

/// Each of these in a browser with scripts, and in one without.
macro_rules! both {
    ($($name:ident)*) => {
        mod with_a_script {
            use super::Scripts;
            $(#[tokio::test] async fn $name() { super::$name(Scripts::On).await; })*
        }
        mod without_a_script {
            use super::Scripts;
            $(#[tokio::test] async fn $name() { super::$name(Scripts::Off).await; })*
        }
    };
}

both! {
    a_queue_is_found_paused_and_resumed
    a_task_is_found_by_the_form_run_now_and_cancelled
    dead_letters_are_put_back_and_deleted_after_a_question
    all_dead_letters_are_put_back_after_a_question
    one_dead_task_is_put_back_from_its_own_page
    all_that_match_are_cancelled_after_a_question
    all_that_match_are_retried_and_then_deleted_after_questions
    a_limit_is_deleted_after_a_question
    a_worker_is_told
    a_schedule_is_run_paused_and_deleted_after_a_question
    people_enter_with_a_token
}

#[tokio::test]
async fn a_page_without_a_script_says_that_it_does_not_keep_itself_fresh() {
    let bed = Bed::new().await;
    for (scripts, shown) in [(Scripts::On, true), (Scripts::Off, false)] {
        let Some(browser) = Browser::open(&bed, scripts).await else { return };
        browser.go("/").await;
        if shown {
            browser.find("//*[@id='live'][not(@hidden)]").await;
        }
        // Where scripts are off, not even the page's load has run one.
        assert_eq!(browser.find("//*[@id='live']").await.is_displayed().await.unwrap(), shown, "{scripts:?}");
        browser.close().await;
    }
}
