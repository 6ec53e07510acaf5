//! Workers that register over HTTP.

use std::time::Duration;

use anyqueue_control::registry::{Admission, External, Order, Registry};
use serde_json::{Value, json};

use crate::bed::{Bed, memory, over};
use crate::client::Answer;

impl Bed {
    async fn register(&self, said: Value) -> (String, String) {
        let answer = self.client.post("/v1/workers", &said).await;
        assert_eq!(answer.status, 201);
        let text = |name: &str| answer.json()[name].as_str().unwrap().to_owned();
        (text("worker"), text("session"))
    }

    async fn beat(&self, (worker, session): &(String, String), said: Value) -> Answer {
        let headers = [("content-type", "application/json"), ("worker-session", session)];
        let path = format!("/v1/workers/{worker}/beat");
        self.client.send("POST", &path, &headers, said.to_string().as_bytes()).await
    }
}

#[tokio::test]
async fn a_worker_is_shown_with_what_it_holds_and_how_far_that_is() {
    let bed = Bed::new().await;
    let said = json!({ "name": "shell 1", "partitions": ["mail"], "slots": 3, "host": "here", "pid": 7, "version": "sh" });
    let worker = bed.register(said).await;
    bed.push("mail", json!({ "payload": "x", "kind": "send" })).await;
    let mail = bed.pull("mail").await;
    let held = json!({ "held": [{ "delivery": mail["delivery"], "progress": "half" }] });
    let heard = bed.beat(&("shell%201".to_owned(), worker.1.clone()), held).await.ok();
    assert_eq!((&heard["order"], &heard["held"][0]["outcome"]), (&json!("go_on"), &json!("unchanged")));
    let shown = bed.client.get("/v1/workers/shell%201").await.ok();
    assert_eq!((&shown["host"], &shown["pid"], &shown["slots"]), (&json!("here"), &json!(7), &json!(3)));
    assert_eq!((&shown["running"], &shown["held"][0]["id"]), (&json!(1), &mail["id"]));
    assert_eq!((&shown["held"][0]["progress"], &shown["held"][0]["kind"]), (&json!("half"), &json!("send")));
    assert!(!shown.to_string().contains(&worker.1), "its secret is told to nobody else");
    let page = String::from_utf8(bed.client.get("/workers").await.body).unwrap();
    assert!(page.contains("shell 1") && page.contains(mail["id"].as_str().unwrap()), "{page}");
    let entry = bed.queue.control().unwrap().list_all("worker/", 10).await.unwrap().value;
    assert!(!String::from_utf8_lossy(&entry[0].value).contains(&worker.1), "nor kept");
}

#[tokio::test]
async fn an_order_is_said_until_the_worker_shows_that_it_heard_it() {
    let bed = Bed::new().await;
    let worker = bed.register(json!({})).await;
    let order = async |state: &str| bed.beat(&worker, json!({ "state": state })).await.ok()["order"].clone();
    let say = async |order: &str| {
        bed.client.send("POST", &format!("/v1/workers/{}/{order}", worker.0), &[], b"").await.ok()
    };
    assert_eq!(order("working").await, "go_on");
    say("quiet").await;
    assert_eq!(order("working").await, "quiet");
    assert_eq!(order("working").await, "quiet", "the answer may have been lost");
    assert_eq!(order("quiet").await, "quiet");
    say("resume").await;
    assert_eq!(order("quiet").await, "go_on");
    assert_eq!(order("working").await, "go_on");
    say("stop").await;
    assert_eq!((order("working").await, order("draining").await), (json!("stop"), json!("stop")));
    let shown = bed.client.get(&format!("/v1/workers/{}", worker.0)).await.ok();
    assert_eq!(shown["state"], "draining");
}

#[tokio::test]
async fn a_beat_extends_what_it_names_and_tells_of_requests_to_cancel() {
    let bed = Bed::new().await;
    let worker = bed.register(json!({})).await;
    let (mut held, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        ids.push(bed.push("mail", json!({ "payload": "x" })).await);
        let pulled = bed.pull_with(json!({ "partitions": ["mail"], "lease_ms": 1500 })).await;
        held.push(json!({ "delivery": pulled["deliveries"][0]["delivery"] }));
    }
    bed.client.send("POST", &format!("/v1/tasks/{}/cancel?partition=mail", ids[1]), &[], b"").await.ok();
    let to_cancel = json!({ "id": ids[2] }).to_string();
    let json_body = [("content-type", "application/json")];
    let path = format!("/v1/workers/{}/cancel", worker.0);
    bed.client.send("PUT", &path, &json_body, to_cancel.as_bytes()).await.ok();
    held.push(json!({ "delivery": "AQnonsense" }));
    let said = json!({ "held": held, "lease_ms": 60_000 });
    let heard = bed.beat(&worker, said.clone()).await.ok();
    let outcomes: Vec<_> = heard["held"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes, ["extended", "cancel_requested", "extended", "error"]);
    assert_eq!(heard["cancel"], json!([ids[1], ids[2]]));
    assert_eq!(bed.beat(&worker, said.clone()).await.ok()["cancel"], json!([ids[1], ids[2]]), "said again");
    bed.beat(&worker, json!({})).await.ok();
    let heard = bed.beat(&worker, said.clone()).await.ok();
    assert_eq!(heard["cancel"], json!([ids[1]]), "what it did not hold goes on");
    let none = bed.pull_with(json!({ "partitions": ["mail"], "wait_ms": 2500 })).await;
    assert_eq!(none["deliveries"], json!([]), "held for longer than their first leases");
}

#[tokio::test]
async fn an_order_to_cancel_waits_for_a_beat_of_the_instance_that_can_name_the_task() {
    let storage = memory().storage().clone();
    let (one, two) = (Bed::over(over(storage.clone())).await, Bed::over(over(storage)).await);
    let worker = one.register(json!({})).await;
    // Too large to be sealed: it stays with the instance that handed it out.
    let large = json!({ "payload": "x", "headers": { "h": "y".repeat(9 << 10) } });
    let id = one.push("mail", large).await;
    let held = json!({ "held": [{ "delivery": one.pull("mail").await["delivery"] }] });
    let to_cancel = json!({ "id": id }).to_string();
    let json_body = [("content-type", "application/json")];
    let path = format!("/v1/workers/{}/cancel", worker.0);
    two.client.send("PUT", &path, &json_body, to_cancel.as_bytes()).await.ok();
    for _ in 0..2 {
        let elsewhere = two.beat(&worker, held.clone()).await.ok();
        assert_eq!(
            (&elsewhere["held"][0]["problem"]["status"], &elsewhere["cancel"]),
            (&json!(421), &json!([]))
        );
        let shown = two.client.get(&format!("/v1/workers/{}", worker.0)).await.ok();
        assert_eq!((&shown["running"], &shown["cancel"]), (&json!(1), &json!([id])));
        assert_eq!(one.beat(&worker, held.clone()).await.ok()["cancel"], json!([id]));
    }
    one.beat(&worker, json!({})).await.ok();
    assert_eq!(one.beat(&worker, held).await.ok()["cancel"], json!([]), "it did not hold it any more");
}

#[tokio::test]
async fn a_pull_that_was_not_received_goes_back_with_the_next_beat() {
    let bed = Bed::new().await;
    let worker = bed.register(json!({})).await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let request = json!({ "partitions": ["mail"], "worker": worker.0 });
    let first = bed.pull_with(request.clone()).await;
    assert_eq!(first["deliveries"].as_array().unwrap().len(), 1);
    bed.beat(&worker, json!({})).await.ok();
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["leased"], 1, "it says nothing of it");
    let other = (worker.0.clone(), "another session".to_owned());
    assert_eq!(bed.beat(&other, json!({ "received": "" })).await.status, 410);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["leased"], 1, "that was no beat of it");
    bed.beat(&worker, json!({ "received": "" })).await.ok();
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 1);
    let again = bed.pull_with(request).await;
    bed.beat(&worker, json!({ "received": again["pull"] })).await.ok();
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["leased"], 1, "it has this one");
}

#[tokio::test]
async fn a_worker_that_is_silent_is_gone_and_registers_anew() {
    let bed = Bed::new().await;
    let registry = Registry::new(bed.queue.control().unwrap());
    let worker = bed.register(json!({ "name": "w", "valid_ms": 4000 })).await;
    let taken = bed.client.post("/v1/workers", &json!({ "name": "w" })).await;
    assert_eq!((taken.status, taken.json()["kind"].clone()), (409, json!("conflict")));
    let mail = bed.push("mail", json!({ "payload": "x" })).await;
    let held = bed.pull("mail").await["delivery"].clone();
    bed.beat(&worker, json!({ "held": [{ "delivery": held }] })).await.ok();
    // The service looks for the silent by itself.
    let missed = async {
        loop {
            if let Some(lost) = registry.lost().await.unwrap().pop() {
                return lost;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let lost = tokio::time::timeout(Duration::from_secs(30), missed).await.expect("somebody misses it");
    assert_eq!((lost.name.as_str(), &lost.held[0].id), ("w", &mail));
    assert!(registry.list().await.unwrap().workers.is_empty());
    let gone = bed.beat(&worker, json!({})).await;
    assert_eq!((gone.status, gone.json()["kind"].clone()), (410, json!("gone")));
    let successor = bed.register(json!({ "name": "w" })).await;
    assert_eq!(bed.beat(&worker, json!({})).await.status, 410, "the name is another one's now");
    assert_eq!(bed.beat(&successor, json!({})).await.status, 200);
}

#[tokio::test]
async fn a_worker_that_ends_takes_nobody_else_along() {
    let bed = Bed::new().await;
    let first = bed.register(json!({ "name": "w" })).await;
    let leave = async |session: &str| {
        bed.client.send("DELETE", "/v1/workers/w", &[("worker-session", session)], b"").await.status
    };
    assert_eq!(leave(&first.1).await, 204);
    let second = bed.register(json!({ "name": "w" })).await;
    assert_eq!(leave(&first.1).await, 410, "that one has ended before");
    assert_eq!(bed.beat(&second, json!({})).await.status, 200);
    assert_eq!(bed.client.delete("/v1/workers/w").await.status, 204, "somebody who manages forgets it");
    assert_eq!(bed.beat(&second, json!({})).await.status, 410);
}

#[tokio::test]
async fn a_worker_needs_no_right_but_to_work() {
    let admin = "correct-horse-battery";
    let bed = Bed::with(memory(), |builder| builder.token(admin)).await;
    let ask = async |token: &str, method: &str, path: &str, session: &str, said: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("worker-session", session),
        ];
        bed.client.send(method, path, &headers, said.to_string().as_bytes()).await
    };
    let rights = json!({ "rights": ["work"], "partitions": ["mine.*"] });
    let token =
        ask(admin, "PUT", "/v1/tokens/w", "-", rights).await.ok()["token"].as_str().unwrap().to_owned();
    let other = ask(&token, "POST", "/v1/workers", "-", json!({ "partitions": ["other"] })).await;
    assert_eq!(other.status, 403, "a queue that its token is not for");
    let said = json!({ "name": "w", "partitions": ["mine.a"] });
    let registered = ask(&token, "POST", "/v1/workers", "-", said).await.ok();
    let session = registered["session"].as_str().unwrap();
    assert_eq!(ask(&token, "POST", "/v1/workers/w/beat", session, json!({})).await.status, 200);
    let plain = [("authorization", format!("Bearer {token}"))];
    let plain: Vec<_> = plain.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(bed.client.send("DELETE", "/v1/workers/w", &plain, b"").await.status, 403, "others manage");
    assert_eq!(ask(&token, "DELETE", "/v1/workers/w", session, json!({})).await.status, 204);
}

#[tokio::test]
async fn a_service_that_only_reads_registers_nobody() {
    let queue = memory();
    let registry = Registry::new(queue.control().unwrap());
    let silent = External::new("w").with_valid_for(Duration::from_secs(1));
    assert!(matches!(registry.admit(&silent).await.unwrap(), Admission::Admitted { .. }));
    let bed = Bed::with(queue, |builder| builder.read_only(true)).await;
    assert_eq!(bed.client.post("/v1/workers", &json!({})).await.json()["kind"], "read_only");
    let worker = ("w".to_owned(), "x".to_owned());
    assert_eq!(bed.beat(&worker, json!({})).await.json()["kind"], "read_only");
}

#[tokio::test]
async fn beats_of_two_instances_meet_and_orders_are_not_lost_between_them() {
    let storage = memory().storage().clone();
    let (one, two) = (Bed::over(over(storage.clone())).await, Bed::over(over(storage)).await);
    let worker = one.register(json!({})).await;
    let registry = Registry::new(two.queue.control().unwrap());
    let beats = async |bed: &Bed| {
        for _ in 0..50 {
            assert_eq!(bed.beat(&worker, json!({})).await.status, 200);
        }
    };
    let orders = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(registry.order(&worker.0, Order::Quiet).await.unwrap());
    };
    tokio::join!(beats(&one), beats(&two), orders);
    assert_eq!(one.beat(&worker, json!({})).await.ok()["order"], "quiet");
}

#[tokio::test]
async fn a_bad_registration_or_beat_says_what_to_do() {
    let bed = Bed::new().await;
    for said in [
        json!({ "name": "" }),
        json!({ "name": "x".repeat(10_000) }),
        json!({ "valid_ms": 0 }),
        json!({ "valid_ms": 86_400_000 }),
        json!({ "partitions": ["\u{0}"] }),
        json!({ "host": "x".repeat(1000) }),
        json!({ "unknown": 1 }),
    ] {
        let refused = bed.client.post("/v1/workers", &said).await;
        assert_eq!((refused.status, refused.json()["kind"].clone()), (400, json!("invalid_input")), "{said}");
    }
    let worker = bed.register(json!({})).await;
    let without = bed.client.post(&format!("/v1/workers/{}/beat", worker.0), &json!({})).await;
    assert_eq!(without.status, 400);
    let other = (worker.0.clone(), "0123456789abcdef0123456789abcdef".to_owned());
    assert_eq!(bed.beat(&other, json!({})).await.status, 410);
    let many: Vec<_> = (0..513).map(|_| json!({ "delivery": "x" })).collect();
    assert_eq!(bed.beat(&worker, json!({ "held": many })).await.status, 400);
    let long = json!({ "held": [{ "delivery": "x", "progress": "y".repeat(2000) }] });
    assert_eq!(bed.beat(&worker, long).await.status, 400);
}
