//! Conditions on changes: `ETag`, `If-Match`, `If-None-Match`.

use anyqueue_control::cron::Scheduler;
use anyqueue_control::limits::Limits;
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::client::{Answer, Client};

const LIMIT: &str = "/v1/limits/smtp";
const SCHEDULE: &str = "/v1/cron/report";

async fn put(client: Client, path: &str, body: &Value, condition: &[(&str, &str)]) -> Answer {
    let headers = [&[("content-type", "application/json")], condition].concat();
    client.send("PUT", path, &headers, body.to_string().as_bytes()).await
}

fn limit(cap: u64) -> Value {
    json!({ "partition": "mail", "cap": cap })
}

fn schedule(hour: u64) -> Value {
    json!({ "spec": format!("0 {hour} * * *"), "partition": "reports", "payload": "x" })
}

fn tag(answer: &Answer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("etag:"));
    line.unwrap_or_else(|| panic!("no tag: {}", answer.head)).trim().to_owned()
}

#[tokio::test]
async fn of_two_who_change_the_same_the_second_notices() {
    let bed = Bed::new().await;
    for (path, of) in [(LIMIT, limit as fn(u64) -> Value), (SCHEDULE, schedule)] {
        let first = tag(&put(bed.client, path, &of(1), &[]).await);
        assert_eq!(tag(&bed.client.get(path).await), first, "{path}");
        let second = put(bed.client, path, &of(2), &[("if-match", &first)]).await;
        assert_eq!(second.status, 200, "{path}");
        assert_ne!(tag(&second), first, "{path}");
        let late = put(bed.client, path, &of(3), &[("if-match", &first)]).await;
        assert_eq!((late.status, late.json()["kind"].clone()), (412, json!("precondition_failed")), "{path}");
        assert_eq!(tag(&bed.client.get(path).await), tag(&second), "nothing was changed: {path}");
        let either = format!("{first}, {}", tag(&second));
        assert_eq!(put(bed.client, path, &of(4), &[("if-match", &either)]).await.status, 200, "{path}");
        let weak = format!("W/{}", tag(&bed.client.get(path).await));
        assert_eq!(put(bed.client, path, &of(5), &[("if-match", &weak)]).await.status, 412, "{path}");
        assert_eq!(put(bed.client, path, &of(5), &[("if-match", "no tag")]).await.status, 400, "{path}");
        assert_eq!(put(bed.client, path, &of(5), &[]).await.status, 200, "whatever is there: {path}");
    }
}

#[tokio::test]
async fn what_has_to_be_new_or_there_is_refused_where_it_is_not() {
    let bed = Bed::new().await;
    for (path, of) in [(LIMIT, limit as fn(u64) -> Value), (SCHEDULE, schedule)] {
        assert_eq!(put(bed.client, path, &of(1), &[("if-match", "*")]).await.status, 412, "{path}");
        assert_eq!(put(bed.client, path, &of(1), &[("if-match", "\"1\"")]).await.status, 412, "{path}");
        assert_eq!(bed.client.get(path).await.status, 404, "{path}");
        assert_eq!(put(bed.client, path, &of(1), &[("if-none-match", "*")]).await.status, 200, "{path}");
        assert_eq!(put(bed.client, path, &of(2), &[("if-none-match", "*")]).await.status, 412, "{path}");
        assert_eq!(put(bed.client, path, &of(2), &[("if-match", "*")]).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn only_what_was_meant_is_deleted() {
    let bed = Bed::new().await;
    for (path, of) in [(LIMIT, limit as fn(u64) -> Value), (SCHEDULE, schedule)] {
        let delete =
            async |tag: &str| bed.client.send("DELETE", path, &[("if-match", tag)], b"").await.status;
        let first = tag(&put(bed.client, path, &of(1), &[]).await);
        assert_eq!(delete(&first).await, 204, "{path}");
        let second = tag(&put(bed.client, path, &of(2), &[]).await);
        assert_eq!(delete(&first).await, 412, "made anew meanwhile: {path}");
        assert_eq!(delete(&second).await, 204, "{path}");
        assert_eq!(delete("*").await, 412, "{path}");
        assert_eq!(bed.client.delete(path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_change_the_same_at_once_succeed_one_at_a_time() {
    let bed = Bed::new().await;
    for (path, of) in [(LIMIT, limit as fn(u64) -> Value), (SCHEDULE, schedule)] {
        for round in 0..20 {
            let first = tag(&put(bed.client, path, &of(1), &[]).await);
            let all = (2..12).map(|number| {
                let (client, first) = (bed.client, first.clone());
                tokio::spawn(async move { put(client, path, &of(number), &[("if-match", &first)]).await })
            });
            let (mut done, mut refused) = (Vec::new(), 0);
            for one in all.collect::<Vec<_>>() {
                let answer = one.await.unwrap();
                if answer.status == 200 {
                    done.push(answer);
                } else {
                    refused += u64::from(answer.status == 412);
                }
            }
            assert_eq!((done.len(), refused), (1, 9), "{path}, round {round}");
            assert_eq!(tag(&bed.client.get(path).await), tag(&done[0]), "{path}");
        }
    }
}

#[tokio::test]
async fn what_others_write_into_the_entry_is_no_change_of_its_content() {
    let bed = Bed::new().await;
    let first = tag(&put(bed.client, LIMIT, &limit(3), &[]).await);
    let limits = Limits::new(bed.queue.control().unwrap());
    let entry = async || bed.queue.control().unwrap().list_all("limit/", 10).await.unwrap().value[0].version;
    let before = entry().await;
    let permits = limits.permits(anyqueue_control::limits::PermitOptions::default()).unwrap();
    let worker = anyqueue_worker::Worker::builder(bed.queue.clone())
        .partition(anyqueue_worker::Partition::new("mail"))
        .handler("k", |(): (), _| async { Ok(()) })
        .permits(permits)
        .build()
        .unwrap();
    bed.queue.push("mail", anyqueue_worker::task("k", &()).unwrap()).await.unwrap();
    worker.run_once().await.unwrap();
    assert_ne!(entry().await, before, "it was used");
    assert_eq!(put(bed.client, LIMIT, &limit(4), &[("if-match", &first)]).await.status, 200);
    let first = tag(&put(bed.client, SCHEDULE, &schedule(3), &[]).await);
    Scheduler::new(&bed.queue).unwrap().pause("report").await.unwrap();
    assert_eq!(put(bed.client, SCHEDULE, &schedule(4), &[("if-match", &first)]).await.status, 200);
    assert_eq!(bed.client.get(SCHEDULE).await.ok()["paused"], true, "and stays so");
}
