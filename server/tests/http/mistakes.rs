//! Requests that make no sense, and some that mean harm.

use serde_json::{Value, json};

use crate::bed::Bed;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let bed = Bed::new().await;
    let post = |path: &'static str, body: Value| {
        let client = bed.client;
        async move { client.post(path, &body).await }
    };
    let wrong = [
        (post("/v1/partitions/a%00b/messages", json!({})).await, 400, ""),
        (post("/v1/partitions/%ff/messages", json!({})).await, 400, ""),
        (post("/v1/pull", json!({ "partitions": [] })).await, 400, "1 to 64"),
        (post("/v1/pull", json!({ "partitions": ["a"], "max": 0 })).await, 400, "max is 0"),
        (post("/v1/pull", json!({ "partitions": ["a"], "max": 1001 })).await, 400, "1 to 1000"),
        (post("/v1/pull", json!({ "partitions": ["a"], "wait_ms": 30_001 })).await, 400, "30000"),
        (post("/v1/pull", json!({ "partitions": ["a"], "wait": 1 })).await, 400, "unknown field `wait`"),
        (post("/v1/pull", json!({ "partitions": ["a"], "lease_ms": 0 })).await, 400, ""),
        (post("/v1/pull", json!({ "partitions": ["a"], "worker": "" })).await, 400, "a worker's name"),
        (
            post("/v1/settle", json!([{ "delivery": "x", "status": "done" }])).await,
            400,
            "unknown variant `done`",
        ),
        (post("/v1/nothing", json!({})).await, 404, "/openapi.json"),
        (bed.client.get("/v1/tasks").await, 400, "partition"),
        (bed.client.get("/v1/tasks/17?partition=mail").await, 400, "UUID"),
        (bed.client.get("/v1/partitions?limit=many").await, 400, "limit"),
        (bed.client.get("/v1/tasks?partition=mail&since=yesterday").await, 400, "2026-01-31T08:00:00Z"),
        (bed.client.delete("/v1/tasks?partition=mail").await, 400, "give a limit"),
        (bed.client.delete("/v1/tasks?partition=mail&limit=0").await, 400, "at least 1"),
        // As from a script whose variable is not set: the rest of the queue would be gone.
        (bed.client.delete("/v1/tasks?partition=mail&limit=9&kind=").await, 400, "kind is empty"),
    ];
    for (place, (answer, status, detail)) in wrong.iter().enumerate() {
        let problem = answer.json();
        assert_eq!(answer.status, *status, "{place}: {problem}");
        assert_eq!(problem["status"], *status, "{place}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{place}: {problem}");
        assert!(answer.head.contains("application/problem+json"), "{place}");
    }
}

#[tokio::test]
async fn items_that_make_no_sense_are_refused_each_by_itself() {
    let bed = Bed::new().await;
    let two = json!({ "payload": "x", "json": 1 });
    let late = json!({ "payload": "x", "delay_ms": 1, "not_before": "2030-01-01T00:00:00Z" });
    let header = json!({ "payload": "x", "headers": { "anyqueue-dead-reason": "forged" } });
    let answers = bed.client.post("/v1/partitions/mail/messages", &json!([two, late, header])).await.ok();
    for answer in answers.as_array().unwrap() {
        assert_eq!(
            (&answer["outcome"], &answer["problem"]["status"]),
            (&json!("error"), &json!(400)),
            "{answer}"
        );
    }
    let settled =
        bed.client.post("/v1/settle", &json!([{ "delivery": "forged", "status": "processed" }])).await.ok();
    assert_eq!(settled[0]["problem"]["kind"], "invalid_input");
    let large = json!({ "payload": "x".repeat(300 << 10) });
    let pushed = bed.client.post("/v1/partitions/mail/messages", &large).await.ok();
    assert!(
        pushed[0]["outcome"] == "stored" || pushed[0]["problem"]["status"] == 413,
        "{}",
        pushed[0]["outcome"]
    );
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused_and_the_message_is_still_held() {
    let bed = Bed::new().await;
    bed.push("mail", json!({ "payload": "x" })).await;
    let mail = bed.pull("mail").await;
    let settle =
        |result: Value| json!({ "delivery": mail["delivery"], "status": "processed", "result": result });
    let refused = bed.settle(settle(json!("x".repeat(300 << 10)))).await;
    assert_eq!((&refused["outcome"], &refused["problem"]["status"]), (&json!("error"), &json!(413)));
    assert_eq!(bed.settle(settle(json!("short"))).await["outcome"], "settled");
}

#[tokio::test]
async fn hostile_bodies_are_refused_and_the_service_goes_on() {
    let bed = Bed::new().await;
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"{\"payload\":\"\xff\"}",
        deep.as_bytes(),
        b"{\"payload\":1}",
        b"{\"priority\":1e400}",
    ];
    for body in bodies {
        let answer = bed.client.send("POST", "/v1/partitions/mail/messages", &JSON, body).await;
        assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(&body[..body.len().min(20)]));
    }
    let many = format!("[{}]", vec!["{}"; 1001].join(","));
    let answer = bed.client.send("POST", "/v1/partitions/mail/messages", &JSON, many.as_bytes()).await;
    assert_eq!(answer.status, 400);
    let large = vec![b' '; (16 << 20) + 1];
    let answer = bed.client.send("POST", "/v1/partitions/mail/messages", &JSON, &large).await;
    assert_eq!(answer.status, 413);
    assert_eq!(bed.client.get("/v1/partitions/mail").await.ok()["ready"], 0, "nothing was stored");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_the_service_goes_on() {
    let bed = Bed::new().await;
    let long = |bytes: usize| vec![("x-long".to_owned(), "y".repeat(bytes))];
    let many =
        |count: usize| (0..count).map(|number| (format!("x-{number}"), "y".to_owned())).collect::<Vec<_>>();
    let heads = [(long(30 << 10), 200), (long(100 << 10), 431), (many(50), 200), (many(150), 431)];
    for (head, status) in &heads {
        let head: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = bed.client.send("GET", "/v1/partitions", &head, b"").await;
        assert_eq!(answer.status, *status, "{} headers", head.len());
        assert_eq!(bed.client.get("/livez").await.status, 200);
    }
    let far = format!("/v1/partitions?after={}", "y".repeat(100 << 10));
    assert_eq!(bed.client.get(&far).await.status, 431);
    assert_eq!(bed.client.get("/livez").await.status, 200);
}

#[tokio::test]
async fn random_bytes_never_harm_it() {
    let bed = Bed::new().await;
    let mut random = fastrand_seeded();
    for _ in 0..200 {
        let length = random.usize(..400);
        let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        let answer = bed.client.send("POST", "/v1/settle", &JSON, &body).await;
        assert_eq!(answer.status, 400);
    }
    assert_eq!(bed.client.get("/livez").await.status, 200);
}

fn fastrand_seeded() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}
