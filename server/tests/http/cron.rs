//! Schedules over HTTP.

use anyqueue::Queue;
use anyqueue::adapter::{Capabilities, ControlStorage, Forward, Storage};
use anyqueue_memory::MemoryQueue;
use serde_json::{Value, json};

use crate::bed::{Bed, memory};
use crate::client::{Answer, Client};

const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) async fn put(client: Client, path: &str, body: &Value) -> Answer {
    client.send("PUT", path, &[JSON], body.to_string().as_bytes()).await
}

async fn post(bed: &Bed, path: &str) -> Answer {
    bed.client.send("POST", path, &[], b"").await
}

fn report() -> Value {
    json!({
        "spec": "0 7 * * MON-FRI", "zone": "Europe/Berlin", "gap": "skip", "overlap_hour": "last", "partition": "reports",
        "json": { "full": true }, "kind": "daily", "headers": { "h": "1" }, "priority": 3, "missed": "all:2",
        "deadline_ms": 90_000, "running": "allow"
    })
}

#[tokio::test]
async fn a_schedule_is_put_shown_listed_and_deleted() {
    let bed = Bed::new().await;
    let stored = put(bed.client, "/v1/cron/re%2Fport", &report()).await.ok();
    let shown = bed.client.get("/v1/cron/re%2Fport").await.ok();
    assert_eq!(stored, shown);
    let mut said = report();
    said.as_object_mut().unwrap().remove("json");
    for (name, value) in said.as_object().unwrap().iter().filter(|(name, _)| *name != "headers") {
        assert_eq!(&shown[name], value, "{name}");
    }
    assert_eq!((&shown["name"], &shown["payload"]), (&json!("re/port"), &json!(r#"{"full":true}"#)));
    assert_eq!(
        (&shown["headers"]["h"], &shown["paused"], &shown["last"]),
        (&json!("1"), &json!(false), &json!(null))
    );
    assert!(shown["next_at"].as_str().unwrap().ends_with("00:00.000Z"), "{shown}");
    let listed = bed.client.get("/v1/cron").await.ok();
    assert_eq!((&listed["schedules"][0]["name"], &listed["unreadable"]), (&json!("re/port"), &json!([])));
    assert_eq!(listed["schedules"][0]["payload"], json!(null), "a list has no payloads");
    assert_eq!(bed.client.delete("/v1/cron/re%2Fport").await.status, 204);
    assert_eq!(bed.client.get("/v1/cron").await.ok()["schedules"], json!([]));
}

#[tokio::test]
async fn a_schedule_counts_from_the_end_of_its_last_run_and_cancels_an_earlier_one() {
    let bed = Bed::new().await;
    let body = json!({ "spec": "@after 10m", "partition": "p", "running": "cancel_old" });
    let shown = put(bed.client, "/v1/cron/r", &body).await.ok();
    assert_eq!((&shown["spec"], &shown["running"]), (&body["spec"], &body["running"]));
    let all = json!({ "spec": "@after 10m", "partition": "p", "running": "allow", "missed": "all:2" });
    let refused = put(bed.client, "/v1/cron/r", &all).await;
    assert_eq!(refused.status, 400);
    let first = post(&bed, "/v1/cron/r/run").await.ok();
    let second = post(&bed, "/v1/cron/r/run").await.ok();
    assert_eq!((&first["outcome"], &second["outcome"]), (&json!("stored"), &json!("stored")));
    assert_eq!(bed.pull("p").await["id"], second["id"], "the first is cancelled");
}

#[tokio::test]
async fn a_schedule_is_run_now_beside_its_times() {
    let bed = Bed::new().await;
    put(
        bed.client,
        "/v1/cron/r",
        &json!({ "spec": "@yearly", "partition": "reports", "payload": "x", "kind": "k" }),
    )
    .await
    .ok();
    let ran = post(&bed, "/v1/cron/r/run").await.ok();
    assert_eq!(ran["outcome"], "stored");
    assert_eq!(post(&bed, "/v1/cron/r/run").await.ok()["outcome"], "duplicate", "the first still waits");
    let task = bed.pull("reports").await;
    assert_eq!((&task["id"], &task["payload"], &task["kind"]), (&ran["id"], &json!("x"), &json!("k")));
}

#[tokio::test]
async fn a_schedule_stays_paused_until_it_is_resumed() {
    let bed = Bed::new().await;
    let body = json!({ "spec": "@daily", "partition": "reports" });
    put(bed.client, "/v1/cron/r", &body).await.ok();
    assert_eq!(post(&bed, "/v1/cron/r/pause").await.ok()["paused"], true);
    let changed = json!({ "spec": "@hourly", "partition": "reports" });
    assert_eq!(put(bed.client, "/v1/cron/r", &changed).await.ok()["paused"], true);
    assert_eq!(post(&bed, "/v1/cron/r/resume").await.ok()["paused"], false);
}

#[tokio::test]
async fn what_is_not_there_is_404() {
    let bed = Bed::new().await;
    let all = [
        bed.client.get("/v1/cron/none").await,
        bed.client.delete("/v1/cron/none").await,
        post(&bed, "/v1/cron/none/run").await,
        post(&bed, "/v1/cron/none/pause").await,
        post(&bed, "/v1/cron/none/resume").await,
    ];
    for (place, answer) in all.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["kind"]), (404, &json!("not_found")), "{place}");
    }
}

#[tokio::test]
async fn a_schedule_that_makes_no_sense_is_refused_with_what_comes_near() {
    let bed = Bed::new().await;
    let refused = [
        (json!({ "spec": "0 0 31 2 *", "partition": "p" }), "February has 29 days; similar specs"),
        (json!({ "spec": "61 * * * *", "partition": "p" }), "61"),
        (json!({ "spec": "@daily", "partition": "p", "zone": "Europe/Berln" }), "Europe/Berlin"),
        (json!({ "spec": "@daily", "partition": "" }), "partition"),
        (json!({ "spec": "@daily", "partition": "p", "missed": "all:x" }), "latest, none, or all:N"),
        (json!({ "spec": "@daily", "partition": "p", "missed": "all:2" }), "`allow`"),
        (json!({ "spec": "@daily", "partition": "p", "deadline_ms": 10 }), "less than a second"),
        (json!({ "spec": "@daily", "partition": "p", "payload": "a", "json": 1 }), "one of payload"),
        (json!({ "spec": "@daily", "partition": "p", "zoen": "UTC" }), "zoen"),
    ];
    for (body, why) in refused {
        let answer = put(bed.client, "/v1/cron/r", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{detail}");
    }
    assert_eq!(bed.client.get("/v1/cron/r").await.status, 404, "nothing was stored");
}

#[tokio::test]
async fn a_preview_shows_times_by_the_clocks_of_the_zone() {
    let bed = Bed::new().await;
    // The clocks skip from two to three o'clock that night.
    let path =
        "/v1/cron/preview?spec=30%202%20*%20*%20*&zone=Europe%2FBerlin&after=2027-03-27T12:00:00Z&count=2";
    let times = bed.client.get(path).await.ok()["times"].clone();
    assert_eq!((&times[0]["at"], &times[0]["shifted"]), (&json!("2027-03-28T01:00:00.000Z"), &json!(true)));
    assert_eq!((&times[1]["at"], &times[1]["shifted"]), (&json!("2027-03-29T00:30:00.000Z"), &json!(false)));
    assert!(times[1]["local"].as_str().unwrap().starts_with("2027-03-29T02:30"), "{times}");
    let skipped = bed.client.get(&format!("{path}&gap=skip")).await.ok()["times"].clone();
    assert_eq!(skipped[0], times[1]);
    let many = bed.client.get("/v1/cron/preview?spec=*%20*%20*%20*%20*&count=100000").await.ok();
    assert_eq!(many["times"].as_array().unwrap().len(), 100);
    let never = bed.client.get("/v1/cron/preview?spec=0%200%2031%202%20*").await;
    assert_eq!(never.status, 400);
    assert!(never.json()["detail"].as_str().unwrap().contains("similar specs"));
}

/// Keeps no control entries.
#[derive(Debug)]
struct NoEntries(MemoryQueue, Capabilities);

impl Forward for NoEntries {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn control(&self) -> Option<&dyn ControlStorage> {
        None
    }
}

#[tokio::test]
async fn where_no_entries_are_kept_it_says_so() {
    let memory = MemoryQueue::new();
    let mut capabilities = anyqueue::adapter::QueueStorage::capabilities(&memory).clone();
    capabilities.control = false;
    let bed = Bed::over(Queue::new(NoEntries(memory, capabilities)).unwrap()).await;
    let all = [
        bed.client.get("/v1/cron").await,
        put(bed.client, "/v1/cron/r", &report()).await,
        post(&bed, "/v1/cron/r/run").await,
        bed.client.get("/v1/limits").await,
        put(bed.client, "/v1/limits/l", &json!({ "partition": "p", "cap": 1 })).await,
    ];
    for (place, answer) in all.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["kind"]), (501, &json!("unsupported")), "{place}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("control store of another"), "{place}");
    }
    assert_eq!(bed.client.get("/v1/cron/preview?spec=@daily").await.status, 200, "needs no entries");
}

#[tokio::test]
async fn a_service_that_only_reads_shows_schedules_and_limits_and_changes_none() {
    let queue = memory();
    let writes = Bed::over(queue.clone()).await;
    put(writes.client, "/v1/cron/r", &report()).await.ok();
    put(writes.client, "/v1/limits/l", &json!({ "partition": "p", "cap": 1 })).await.ok();
    let bed = Bed::with(queue, |builder| builder.read_only(true)).await;
    let all = [
        put(bed.client, "/v1/cron/r", &report()).await,
        bed.client.delete("/v1/cron/r").await,
        post(&bed, "/v1/cron/r/run").await,
        post(&bed, "/v1/cron/r/pause").await,
        post(&bed, "/v1/cron/r/resume").await,
        put(bed.client, "/v1/limits/l", &json!({ "partition": "p", "cap": 2 })).await,
        bed.client.delete("/v1/limits/l").await,
    ];
    for (place, answer) in all.iter().enumerate() {
        assert_eq!((answer.status, &answer.json()["kind"]), (403, &json!("read_only")), "{place}");
    }
    assert_eq!(bed.client.get("/v1/cron/r").await.ok()["paused"], false);
    assert_eq!(bed.client.get("/v1/limits/l").await.ok()["cap"], 1);
}
