//! Workers that know nothing but their own id and those of their tasks.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{Keep, ManualClock, Queue};
use anyqueue_memory::MemoryQueue;
use serde_json::{Value, json};

use crate::bed::{Bed, memory, over};
use crate::client::Answer;

async fn call(bed: &Bed, name: &str, said: &Value) -> Answer {
    bed.client.post(&format!("/v1/jobs/{name}"), said).await
}

async fn register(bed: &Bed, said: Value) -> String {
    call(bed, "RegisterWorker", &said).await.ok().as_str().unwrap().to_owned()
}

async fn enqueue(bed: &Bed, kind: &str, data: &str) -> String {
    let said = json!({ "JobKind": kind, "JobEntityId": "entity", "JobData": data });
    call(bed, "Enqueue", &said).await.ok().as_str().unwrap().to_owned()
}

async fn dequeue(bed: &Bed, worker: &str) -> Value {
    call(bed, "Dequeue", &json!({ "Id": worker })).await.ok()
}

async fn ping(bed: &Bed, worker: &str) -> Value {
    call(bed, "AlivePing", &json!({ "Id": worker })).await.ok()
}

async fn end(bed: &Bed, worker: &str, task: &Value, outcome: &str) -> Value {
    let said = json!({ "Id": task, "Outcome": outcome, "WorkerId": worker });
    call(bed, "SetOutcome", &said).await.ok()
}

#[tokio::test]
async fn a_worker_registers_with_nothing_and_does_what_was_enqueued() {
    let bed = Bed::new().await;
    let empty = bed.client.send("POST", "/v1/jobs/RegisterWorker", &[], b"").await.ok();
    let worker = empty.as_str().unwrap();
    assert_eq!(dequeue(&bed, worker).await, Value::Null);
    let id = enqueue(&bed, "report", "{\"n\":1}").await;
    let job = dequeue(&bed, worker).await;
    let expected = json!({ "Id": id, "JobKind": "report", "JobEntityId": "entity", "JobData": "{\"n\":1}" });
    assert_eq!(job, expected);
    assert_eq!(dequeue(&bed, worker).await, Value::Null, "it is somebody's");
    assert_eq!(ping(&bed, worker).await, true);
    let workers = bed.client.get("/v1/workers").await.ok();
    assert_eq!(workers["workers"][0]["held"][0]["id"], json!(id), "{workers}");
    assert_eq!(end(&bed, worker, &job["Id"], "Succeeded").await, true);
    assert_eq!(end(&bed, worker, &job["Id"], "Succeeded").await, false, "once");
    let task = bed.client.get(&format!("/v1/tasks/{id}?partition=report")).await.ok();
    let name = &workers["workers"][0]["name"];
    assert_eq!(
        (&task["state"], &task["task_id"], &task["worker"]),
        (&json!("succeeded"), &json!("entity"), name)
    );
}

#[tokio::test]
async fn what_is_no_text_arrives_whole() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({})).await;
    bed.push("a", json!({ "payload_base64": "/wA=" })).await;
    let job = dequeue(&bed, &worker).await;
    assert_eq!((&job["JobData"], &job["JobDataBase64"]), (&Value::Null, &json!("/wA=")));
}

#[tokio::test]
async fn the_oldest_task_of_a_workers_kinds_comes_first() {
    let bed = Bed::new().await;
    let mut ids = Vec::new();
    for kind in ["b", "c", "a", "other", "b"] {
        ids.push(enqueue(&bed, kind, "x").await);
        // Ages are told in milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let worker = register(&bed, json!({ "JobKinds": ["a", "b", "c"] })).await;
    for id in [&ids[0], &ids[1], &ids[2], &ids[4]] {
        assert_eq!(&dequeue(&bed, &worker).await["Id"], id);
    }
    assert_eq!(dequeue(&bed, &worker).await, Value::Null, "others have other kinds");
    let numbered = register(&bed, json!({ "jobKinds": [7] })).await;
    let id = call(&bed, "Enqueue", &json!({ "jobKind": 7, "jobData": "y" })).await.ok();
    let job = dequeue(&bed, &numbered).await;
    assert_eq!((&job["Id"], &job["JobKind"], &job["JobEntityId"]), (&id, &json!("7"), &Value::Null));
}

#[tokio::test]
async fn what_failed_is_tried_again_and_what_timed_out_is_not() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({})).await;
    for (outcome, place) in [("Failed", "delayed"), ("TimedOut", "dead")] {
        enqueue(&bed, outcome, "x").await;
        let job = dequeue(&bed, &worker).await;
        assert_eq!(end(&bed, &worker, &job["Id"], outcome).await, true);
        let counts = bed.client.get(&format!("/v1/partitions/{outcome}")).await.ok();
        assert_eq!(counts[place], 1, "{counts}");
    }
}

#[tokio::test]
async fn a_task_that_runs_for_too_long_is_ended_with_the_next_ping_and_not_tried_again() {
    let clock = ManualClock::new();
    let builder = Queue::builder(MemoryQueue::new()).ledger(Keep::default()).clock(clock.clock());
    let bed = Bed::over(builder.build().unwrap()).await;
    let worker = register(&bed, json!({})).await;
    bed.push("mail", json!({ "payload": "x", "max_duration_ms": 60_000, "max_retries": 9 })).await;
    let job = dequeue(&bed, &worker).await;
    clock.advance(Duration::from_secs(50));
    assert_eq!(ping(&bed, &worker).await, true);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["leased"], 1);
    clock.advance(Duration::from_secs(20));
    assert_eq!(ping(&bed, &worker).await, true);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["dead"], 1);
    assert_eq!(end(&bed, &worker, &job["Id"], "Succeeded").await, false);
}

#[tokio::test]
async fn who_asks_for_more_than_fits_has_not_received_the_last_one() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({ "Slots": 2 })).await;
    let (first, second) = (enqueue(&bed, "a", "1").await, enqueue(&bed, "a", "2").await);
    assert_eq!(dequeue(&bed, &worker).await["Id"], json!(first));
    assert_eq!(dequeue(&bed, &worker).await["Id"], json!(second));
    assert_eq!(dequeue(&bed, &worker).await["Id"], json!(second), "the answer was lost");
    assert_eq!(end(&bed, &worker, &json!(second), "Succeeded").await, true);
    assert_eq!(end(&bed, &worker, &json!(first), "Succeeded").await, true);
    assert_eq!(ping(&bed, &worker).await, true);
}

#[tokio::test]
async fn a_ping_holds_tasks_and_forgets_those_that_are_lost() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({})).await;
    let id = enqueue(&bed, "a", "x").await;
    dequeue(&bed, &worker).await;
    assert_eq!(ping(&bed, &worker).await, true);
    // It ends behind its back: whoever holds its lease can do that.
    let registry = anyqueue_control::registry::Registry::new(bed.queue.control().unwrap());
    let session = worker.replace('-', "");
    let name = registry.list().await.unwrap().workers[0].name.clone();
    let (_, kept) = registry.admitted(&name, &session).await.unwrap().unwrap();
    let sealed = kept.get(id.parse().unwrap()).unwrap();
    let settled = bed.settle(json!({ "delivery": sealed, "status": "processed" })).await;
    assert_eq!(settled["outcome"], "settled");
    assert_eq!(ping(&bed, &worker).await, true);
    assert!(registry.admitted(&name, &session).await.unwrap().unwrap().1.is_empty());
    assert_eq!(registry.list().await.unwrap().workers[0].running, 0);
}

#[tokio::test]
async fn orders_are_heard_by_what_the_calls_answer() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({})).await;
    let name = bed.client.get("/v1/workers").await.ok()["workers"][0]["name"].as_str().unwrap().to_owned();
    let order = async |order: &str| {
        bed.client.send("POST", &format!("/v1/workers/{name}/{order}"), &[], b"").await.ok();
    };
    let id = enqueue(&bed, "a", "x").await;
    order("quiet").await;
    assert_eq!(dequeue(&bed, &worker).await, Value::Null);
    assert_eq!((ping(&bed, &worker).await, dequeue(&bed, &worker).await), (json!(true), Value::Null));
    order("resume").await;
    assert_eq!(dequeue(&bed, &worker).await["Id"], json!(id));
    order("recycle").await;
    assert_eq!(ping(&bed, &worker).await, true, "it has something to finish");
    assert_eq!(end(&bed, &worker, &json!(id), "Succeeded").await, true);
    assert_eq!(ping(&bed, &worker).await, false);
    assert_eq!(bed.client.get("/v1/workers").await.ok()["workers"], json!([]));
    assert_eq!(call(&bed, "Dequeue", &json!({ "Id": worker })).await.status, 410);
}

#[tokio::test]
async fn any_instance_serves_each_call() {
    let storage = Arc::new(MemoryQueue::new());
    let (one, two) = (Bed::over(over(storage.clone())).await, Bed::over(over(storage)).await);
    let worker = register(&one, json!({})).await;
    let id = enqueue(&two, "a", "x").await;
    assert_eq!(dequeue(&one, &worker).await["Id"], json!(id));
    assert_eq!(ping(&two, &worker).await, true);
    one.end().await;
    assert_eq!(end(&two, &worker, &json!(id), "Succeeded").await, true);
}

#[tokio::test]
async fn a_workers_id_is_told_to_nobody_and_another_one_ends_nothing() {
    let bed = Bed::new().await;
    let (worker, other) = (register(&bed, json!({})).await, register(&bed, json!({})).await);
    let id = enqueue(&bed, "a", "x").await;
    dequeue(&bed, &worker).await;
    assert_eq!(end(&bed, &other, &json!(id), "Succeeded").await, false);
    let shown = bed.client.get("/v1/workers").await.ok().to_string();
    let entries = bed.queue.control().unwrap().list_all("worker/", 10).await.unwrap().value;
    for secret in [worker.clone(), worker.replace('-', "")] {
        assert!(!shown.contains(&secret));
        for entry in &entries {
            assert!(!format!("{} {}", entry.key, String::from_utf8_lossy(&entry.value)).contains(&secret));
        }
    }
    assert!(!shown.contains("kept"), "what it holds can be ended by whoever has it: {shown}");
    let strange = uuid::Uuid::new_v4().to_string();
    assert_eq!(ping(&bed, &strange).await, false);
    assert_eq!(call(&bed, "Dequeue", &json!({ "Id": strange })).await.status, 410);
    let said = json!({ "Id": id, "Outcome": "Succeeded", "WorkerId": strange });
    assert_eq!(call(&bed, "SetOutcome", &said).await.status, 410);
}

#[tokio::test]
async fn a_worker_gets_tasks_of_those_queues_alone_that_its_token_is_for() {
    let admin = "correct-horse-battery";
    let bed = Bed::with(memory(), |builder| builder.token(admin)).await;
    let ask = async |token: &str, method: &str, path: &str, said: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        bed.client.send(method, path, &headers, said.to_string().as_bytes()).await
    };
    let rights = json!({ "rights": ["work", "push"], "partitions": ["mine.*"] });
    let token = ask(admin, "PUT", "/v1/tokens/w", rights).await.ok()["token"].as_str().unwrap().to_owned();
    ask(admin, "POST", "/v1/jobs/Enqueue", json!({ "JobKind": "concealed" })).await.ok();
    assert_eq!(ask(&token, "POST", "/v1/jobs/Enqueue", json!({ "JobKind": "concealed" })).await.status, 403);
    let named = json!({ "JobKinds": ["concealed"] });
    assert_eq!(ask(&token, "POST", "/v1/jobs/RegisterWorker", named).await.status, 403);
    let worker = ask(&token, "POST", "/v1/jobs/RegisterWorker", json!({})).await.ok();
    let dequeue = async || ask(&token, "POST", "/v1/jobs/Dequeue", json!({ "Id": worker })).await.ok();
    assert_eq!(dequeue().await, Value::Null);
    let id = ask(&token, "POST", "/v1/jobs/Enqueue", json!({ "JobKind": "mine.a" })).await.ok();
    assert_eq!(dequeue().await["Id"], id);
}

#[tokio::test]
async fn bad_calls_say_what_to_do_and_a_service_that_only_reads_refuses_all() {
    let bed = Bed::new().await;
    let worker = register(&bed, json!({})).await;
    let id = enqueue(&bed, "a", "x").await;
    for (name, said) in [
        ("RegisterWorker", json!({ "Slots": 0 })),
        ("RegisterWorker", json!({ "Slots": 65 })),
        ("RegisterWorker", json!({ "JobKinds": vec!["a"; 65] })),
        ("RegisterWorker", json!({ "JobKinds": [""] })),
        ("AlivePing", json!({ "Id": "w" })),
        ("Dequeue", json!({})),
        ("SetOutcome", json!({ "Id": id, "Outcome": "Done", "WorkerId": worker })),
        ("SetOutcome", json!({ "Id": "7", "Outcome": "Failed", "WorkerId": worker })),
        ("Enqueue", json!({ "JobData": "x" })),
        ("Enqueue", json!({ "JobKind": "\u{0}" })),
    ] {
        let refused = call(&bed, name, &said).await;
        assert_eq!(
            (refused.status, &refused.json()["kind"]),
            (400, &json!("invalid_input")),
            "{name} {said}"
        );
    }
    let reads = Bed::with(bed.queue.clone(), |builder| builder.read_only(true)).await;
    for (name, said) in [
        ("RegisterWorker", json!({})),
        ("AlivePing", json!({ "Id": worker })),
        ("Dequeue", json!({ "Id": worker })),
        ("SetOutcome", json!({ "Id": id, "Outcome": "Failed", "WorkerId": worker })),
        ("Enqueue", json!({ "JobKind": "a" })),
    ] {
        assert_eq!(call(&reads, name, &said).await.json()["kind"], "read_only", "{name}");
    }
}
