//! What a token may change is checked in one step with the change, whatever others do in between.

use std::sync::Arc;

use anyqueue::{PartitionId, Queue};
use anyqueue_control::Precondition;
use anyqueue_control::cron::{Schedule, Scheduler, Timetable, Zone};
use anyqueue_control::limits::{Limit, Limits};
use serde_json::json;

use crate::bed::{Bed, over};
use crate::between::{Between, When};
use crate::client::Answer;
use crate::rights::{ADMIN, ask, create};

/// A service over a store in which something happens between two calls, a token for the queues `mine.*`, and a queue beside the service.
async fn furnished() -> (Bed, Arc<Between>, String, Queue) {
    let store = Arc::new(Between::new());
    let bed = Bed::with(over(store.clone()), |builder| builder.token(ADMIN)).await;
    let mine = create(&bed, "mine", &["manage", "read"], &["mine.*"]).await;
    let beside = over(Arc::new(store.memory.client()));
    (bed, store, mine, beside)
}

fn schedule(partition: &str) -> Schedule {
    let timetable = Timetable::new("@yearly".parse().unwrap(), Zone::utc());
    Schedule::new("s", timetable, PartitionId::new(partition).unwrap())
}

async fn form(bed: &Bed, token: &str, path: &str, fields: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    bed.client.send("POST", path, &headers, fields.as_bytes()).await
}

#[tokio::test]
async fn a_schedule_that_becomes_one_of_another_queue_meanwhile_is_left_alone() {
    let (bed, store, mine, beside) = furnished().await;
    let scheduler = Scheduler::new(&beside).unwrap();
    let body = json!({ "spec": "@daily", "partition": "mine.a" });
    let nothing = json!({});
    let requests = [("PUT", "/v1/cron/s"), ("DELETE", "/v1/cron/s")];
    let posts = ["/v1/cron/s/run", "/v1/cron/s/pause", "/v1/cron/s/resume"].map(|path| ("POST", path));
    let forms = ["run", "pause", "resume", "delete"].map(|action| format!("/do/cron/{action}"));
    let forms: Vec<_> = forms.iter().map(|path| ("FORM", path.as_str())).collect();
    for (method, path) in [&requests[..], &posts[..], &forms[..]].concat() {
        // What is to go on again is paused.
        let is_paused = path.contains("resume");
        scheduler.set_if(&schedule("mine.a"), is_paused, &Precondition::Anything).await.unwrap();
        let theirs = scheduler.clone();
        store.after(When::Look, "cron/s", async move {
            theirs.set_if(&schedule("concealed"), is_paused, &Precondition::Anything).await.unwrap();
        });
        let answer = match method {
            "FORM" => form(&bed, &mine, path, "name=s").await,
            "PUT" => ask(&bed, &mine, method, path, &body).await,
            _ => ask(&bed, &mine, method, path, &nothing).await,
        };
        assert!(store.is_done(), "{method} {path}");
        assert_eq!(answer.status, 403, "{method} {path}");
        let there = scheduler.get("s").await.unwrap().expect("it is there");
        let is_theirs = there.schedule == schedule("concealed");
        assert!(is_theirs && there.is_paused == is_paused, "{method} {path}: {there:?}");
        assert_eq!(beside.counts("concealed").await.unwrap().ready, Some(0), "{method} {path}: pushed");
        scheduler.delete("s").await.unwrap();
    }
}

#[tokio::test]
async fn a_limit_that_becomes_one_of_another_queue_meanwhile_is_left_alone() {
    let (bed, store, mine, beside) = furnished().await;
    let limits = Limits::new(beside.control().unwrap());
    let body = json!({ "partition": "mine.a", "cap": 1 });
    for (method, path) in [("PUT", "/v1/limits/l"), ("DELETE", "/v1/limits/l"), ("FORM", "/do/limits/delete")]
    {
        for was_there in [true, false] {
            if was_there {
                limits.put("l", &Limit::partition("mine.a").unwrap().cap(2)).await.unwrap();
            }
            let theirs = limits.clone();
            store.after(When::Look, "limit/l", async move {
                theirs.put("l", &Limit::partition("concealed").unwrap().cap(3)).await.unwrap();
            });
            let answer = match method {
                "FORM" => form(&bed, &mine, path, "name=l").await,
                _ => ask(&bed, &mine, method, path, &body).await,
            };
            assert!(store.is_done(), "{method} {path}");
            assert_eq!(answer.status, 403, "{method} {path}");
            let there = limits.get("l").await.unwrap().expect("it is there");
            assert_eq!(there.cap, Some(3), "{method} {path}");
            limits.delete("l").await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_stays_with_ones_queues_is_changed_however_often_others_change_it() {
    let (bed, store, mine, beside) = furnished().await;
    let limits = Limits::new(beside.control().unwrap());
    limits.put("l", &Limit::partition("mine.a").unwrap().cap(1)).await.unwrap();
    let shown = ask(&bed, &mine, "GET", "/v1/limits/l", &json!({})).await;
    let tag = shown.head.lines().find_map(|line| line.strip_prefix("etag:")).unwrap().trim().to_owned();
    let meanwhile = |cap: u64| {
        let others = limits.clone();
        store.after(When::Look, "limit/l", async move {
            others.put("l", &Limit::partition("mine.b").unwrap().cap(cap)).await.unwrap();
        });
    };
    let body = json!({ "partition": "mine.a", "cap": 9 });
    meanwhile(2);
    let put = ask(&bed, &mine, "PUT", "/v1/limits/l", &body).await;
    assert_eq!(
        (put.status, put.json()["cap"].clone(), put.json()["revision"].clone()),
        (200, json!(9), json!(3))
    );
    let bearer = format!("Bearer {mine}");
    let condition = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("if-match", tag.as_str()),
    ];
    meanwhile(4);
    let late = bed.client.send("PUT", "/v1/limits/l", &condition, body.to_string().as_bytes()).await;
    assert_eq!(late.status, 412, "it was changed since");
}

#[tokio::test]
async fn a_limit_that_is_put_is_answered_as_it_was_put() {
    let (bed, store, _, beside) = furnished().await;
    for body in [json!({ "partition": "mine.a", "cap": 5 }), json!({ "header": "customer", "cap": 5 })] {
        let others = Limits::new(beside.control().unwrap());
        store.after(When::Write, "limit/l", async move {
            others.put("l", &Limit::partition("other").unwrap().cap(7)).await.unwrap();
        });
        let put = ask(&bed, ADMIN, "PUT", "/v1/limits/l", &body).await.ok();
        assert_eq!(
            (&put["cap"], &put["partition"], &put["header"]),
            (&json!(5), &body["partition"], &body["header"])
        );
        assert!(store.is_done());
    }
}
