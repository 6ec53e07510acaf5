//! What each token may do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyqueue_server::ServerBuilder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::away::leaving;
use crate::bed::{Bed, memory};
use crate::client::Answer;

pub(crate) const ADMIN: &str = "correct-horse-battery";
const RIGHTS: [&str; 6] = ["push", "work", "read", "payloads", "manage", "admin"];

fn closed(builder: ServerBuilder) -> ServerBuilder {
    builder.token(ADMIN)
}

pub(crate) async fn ask(bed: &Bed, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    bed.client.send(method, path, &headers, body.to_string().as_bytes()).await
}

pub(crate) async fn create(bed: &Bed, name: &str, rights: &[&str], partitions: &[&str]) -> String {
    let body = json!({ "rights": rights, "partitions": partitions });
    let created = ask(bed, ADMIN, "PUT", &format!("/v1/tokens/{name}"), &body).await;
    assert_eq!(created.status, 201);
    created.json()["token"].as_str().unwrap().to_owned()
}

/// The right that each request needs, written down a second time.
pub(crate) fn needed(operation: &str) -> Option<&'static str> {
    match operation {
        "livez" | "readyz" | "startupz" | "openapi" | "preview_schedule" => None,
        "push" | "enqueue_job" => Some("push"),
        "pull"
        | "settle"
        | "extend"
        | "register_worker"
        | "beat"
        | "register_job_worker"
        | "ping_job_worker"
        | "dequeue_job"
        | "set_job_outcome" => Some("work"),
        "list_audit" | "list_tokens" | "show_token" | "create_token" | "delete_token"
        | "bind_certificate" | "unbind_certificate" | "export" => Some("admin"),
        "list_partitions"
        | "show_partition"
        | "browse_messages"
        | "list_dead_letters"
        | "list_tasks"
        | "count_tasks"
        | "task_series"
        | "show_task"
        | "wait_for_result"
        | "list_workers"
        | "show_worker"
        | "list_schedules"
        | "show_schedule"
        | "list_limits"
        | "show_limit"
        | "list_notifications"
        | "summarise_notifications"
        | "count_notifications"
        | "events"
        | "metrics" => Some("read"),
        _ => Some("manage"),
    }
}

#[tokio::test]
async fn each_request_is_refused_without_a_token_and_without_the_right_that_it_needs() {
    let bed = Bed::with(memory(), closed).await;
    let mut tokens = Vec::new();
    for right in RIGHTS {
        tokens.push((right, create(&bed, right, &[right], &["*"]).await));
    }
    let description: Value = serde_json::from_str(&anyqueue_server::openapi()).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, request) in methods.as_object().unwrap() {
            let operation = request["operationId"].as_str().unwrap();
            let (path, method) = (path.replace(['{', '}'], ""), method.to_uppercase());
            let open = matches!(operation, "livez" | "readyz" | "startupz");
            let without = bed.client.send(&method, &path, &[], b"").await;
            assert_eq!(without.status == 401, !open, "{method} {path}");
            for (right, token) in &tokens {
                let enough = needed(operation).is_none_or(|needed| needed == *right || *right == "admin");
                // Events end with the service.
                if enough && operation == "events" {
                    continue;
                }
                let answer = ask(&bed, token, &method, &path, &json!({})).await;
                assert_ne!(answer.status, 401, "{method} {path} with {right}");
                let body = String::from_utf8_lossy(&answer.body);
                assert_eq!(answer.status == 403, !enough, "{method} {path} with {right}: {body}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_reaches_no_queue_but_its_own() {
    let bed = Bed::with(memory(), closed).await;
    for queue in ["mine.a", "concealed"] {
        ask(&bed, ADMIN, "POST", &format!("/v1/partitions/{queue}/messages"), &json!({ "payload": "x" }))
            .await
            .ok();
    }
    let all = ["push", "work", "read", "payloads", "manage"];
    let mine = create(&bed, "mine", &all, &["mine.*"]).await;
    let pulled = ask(&bed, ADMIN, "POST", "/v1/pull", &json!({ "partitions": ["concealed"] })).await.ok();
    let delivery = &pulled["deliveries"][0]["delivery"];
    let limit = json!({ "partition": "concealed", "cap": 1 });
    ask(&bed, ADMIN, "PUT", "/v1/limits/theirs", &limit).await.ok();
    let cron = json!({ "spec": "0 0 * * *", "partition": "concealed", "payload": "x" });
    ask(&bed, ADMIN, "PUT", "/v1/cron/theirs", &cron).await.ok();
    let id = "00000000-0000-0000-0000-000000000000";
    let refused = [
        ("POST", "/v1/partitions/concealed/messages".to_owned(), json!({ "payload": "x" })),
        ("POST", "/v1/pull".to_owned(), json!({ "partitions": ["mine.a", "concealed"] })),
        ("GET", "/v1/partitions/concealed".to_owned(), json!({})),
        ("POST", "/v1/partitions/concealed/pause".to_owned(), json!({})),
        ("GET", "/v1/partitions/concealed/messages".to_owned(), json!({})),
        ("DELETE", "/v1/partitions/concealed/messages?confirm=concealed".to_owned(), json!({})),
        ("POST", "/v1/partitions/mine.a/dead/redrive".to_owned(), json!({ "to": "concealed" })),
        ("GET", "/v1/tasks?partition=concealed".to_owned(), json!({})),
        ("GET", "/v1/tasks/count?partition=concealed".to_owned(), json!({})),
        ("GET", "/v1/tasks/series?partition=concealed".to_owned(), json!({})),
        ("GET", format!("/v1/tasks/{id}?partition=concealed"), json!({})),
        (
            "POST",
            "/v1/tasks/bulk".to_owned(),
            json!({ "partition": "concealed", "action": "cancel", "limit": 1 }),
        ),
        ("GET", "/v1/workers".to_owned(), json!({})),
        ("PUT", "/v1/limits/new".to_owned(), limit.clone()),
        ("PUT", "/v1/limits/theirs".to_owned(), json!({ "partition": "mine.a", "cap": 1 })),
        ("DELETE", "/v1/limits/theirs".to_owned(), json!({})),
        ("GET", "/v1/limits/theirs".to_owned(), json!({})),
        ("PUT", "/v1/cron/new".to_owned(), cron.clone()),
        ("POST", "/v1/cron/theirs/run".to_owned(), json!({})),
        ("POST", "/v1/cron/theirs/pause".to_owned(), json!({})),
        ("DELETE", "/v1/cron/theirs".to_owned(), json!({})),
        ("GET", "/v1/cron/theirs".to_owned(), json!({})),
    ];
    for (method, path, body) in &refused {
        let answer = ask(&bed, &mine, method, path, body).await;
        assert_eq!((answer.status, &answer.json()["kind"]), (403, &json!("forbidden")), "{method} {path}");
    }
    for (path, more) in
        [("/v1/settle", json!({ "status": "processed" })), ("/v1/extend", json!({ "lease_ms": 9000 }))]
    {
        let mut item = more;
        item["delivery"] = delivery.clone();
        let answer = ask(&bed, &mine, "POST", path, &json!([item])).await.ok();
        assert_eq!(answer[0]["problem"]["kind"], "forbidden", "{path}");
    }
    let seen = ask(&bed, &mine, "GET", "/v1/partitions", &json!({})).await.ok();
    assert_eq!(seen["partitions"].as_array().unwrap().len(), 1);
    assert_eq!(ask(&bed, &mine, "GET", "/v1/limits", &json!({})).await.ok()["limits"], json!([]));
    assert_eq!(ask(&bed, &mine, "GET", "/v1/cron", &json!({})).await.ok()["schedules"], json!([]));
    // What a page shows of the queues is up to a second old.
    let page = async {
        loop {
            let page = ask(&bed, &mine, "GET", "/", &json!({})).await;
            let page = String::from_utf8(page.body).unwrap();
            if page.contains("mine.a") {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let page = tokio::time::timeout(Duration::from_mins(1), page).await.unwrap();
    assert!(!page.contains("concealed"), "{page}");
    ask(&bed, &mine, "POST", "/v1/partitions/mine.a/messages", &json!({ "payload": "y" })).await.ok();
    let own = ask(&bed, &mine, "POST", "/v1/pull", &json!({ "partitions": ["mine.a"] })).await.ok();
    assert_eq!(own["deliveries"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_messages_hold_is_shown_with_the_right_to_it_alone() {
    let bed = Bed::with(memory(), closed).await;
    let push = json!({ "payload": "confidential" });
    let pushed = ask(&bed, ADMIN, "POST", "/v1/partitions/mail/messages", &push).await.ok();
    let id = pushed[0]["id"].as_str().unwrap();
    let blind = create(&bed, "blind", &["read"], &["*"]).await;
    let sees = create(&bed, "sees", &["read", "payloads"], &["*"]).await;
    let browse = "/v1/partitions/mail/messages?payloads=true";
    assert_eq!(ask(&bed, &blind, "GET", browse, &json!({})).await.status, 403);
    assert_eq!(
        ask(&bed, &sees, "GET", browse, &json!({})).await.ok()["messages"][0]["payload"],
        "confidential"
    );
    let page = format!("/tasks/{id}?partition=mail");
    let text =
        async |token: &str| String::from_utf8(ask(&bed, token, "GET", &page, &json!({})).await.body).unwrap();
    assert!(text(&sees).await.contains("confidential") && !text(&blind).await.contains("confidential"));
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let bed = Bed::with(memory(), closed).await;
    let token = create(&bed, "person", &["read"], &["*"]).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let entered = bed.client.send("POST", "/login", &form, format!("token={token}").as_bytes()).await;
    let cookie = entered.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let seen =
        async || bed.client.send("GET", "/v1/partitions", &[("cookie", cookie.as_str())], b"").await.status;
    assert_eq!(seen().await, 200);
    assert_eq!(ask(&bed, ADMIN, "DELETE", "/v1/tokens/person", &json!({})).await.status, 204);
    let ended = async {
        while seen().await == 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap();
    assert_eq!(seen().await, 401);
    assert_eq!(ask(&bed, &token, "GET", "/v1/partitions", &json!({})).await.status, 401);
}

#[tokio::test]
async fn a_service_asks_for_tokens_from_the_first_on_and_after_the_last() {
    let queue = memory();
    let bed = Bed::over(queue.clone()).await;
    let body = json!({ "rights": ["admin"], "partitions": ["*"] });
    let created = ask(&bed, "", "PUT", "/v1/tokens/root", &body).await.ok();
    let root = created["token"].as_str().unwrap();
    assert_eq!(bed.client.get("/v1/partitions").await.status, 401);
    let other = Bed::over(queue).await;
    assert_eq!(other.client.get("/v1/partitions").await.status, 401, "a service that begins later");
    assert_eq!(ask(&other, root, "DELETE", "/v1/tokens/root", &json!({})).await.status, 204);
    assert_eq!(other.client.get("/v1/partitions").await.status, 401);
}

#[tokio::test]
async fn while_the_store_is_away_nobody_is_let_in_with_its_tokens() {
    let (queue, away) = leaving();
    let bed = Bed::with(queue, closed).await;
    let token = create(&bed, "ci", &["read"], &["*"]).await;
    away.store(true, Ordering::SeqCst);
    let refused = ask(&bed, &token, "GET", "/v1/partitions", &json!({})).await;
    assert_eq!((refused.status, &refused.json()["retry"]), (503, &json!("safe")));
    assert!(refused.head.contains("retry-after"), "{refused:?}");
    assert_eq!(ask(&bed, ADMIN, "GET", "/v1/partitions", &json!({})).await.status, 200, "of the file");
    assert_eq!(bed.client.get("/livez").await.status, 200);
    away.store(false, Ordering::SeqCst);
    assert_eq!(ask(&bed, &token, "GET", "/v1/partitions", &json!({})).await.status, 200);
}

#[tokio::test]
async fn events_end_once_their_token_is_deleted() {
    let bed = Bed::with(memory(), closed).await;
    let token = create(&bed, "person", &["read"], &["*"]).await;
    let mut events = TcpStream::connect(bed.client.0).await.unwrap();
    let request =
        format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n", bed.client.0);
    events.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    let first = async {
        while !said.contains("event: sample") {
            let mut bytes = [0; 4096];
            let count = events.read(&mut bytes).await.unwrap();
            assert_ne!(count, 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    tokio::time::timeout(Duration::from_secs(30), first).await.unwrap();
    assert_eq!(ask(&bed, ADMIN, "DELETE", "/v1/tokens/person", &json!({})).await.status, 204);
    // There is always something to tell, until there is nobody to be told.
    let changes = async {
        loop {
            ask(&bed, ADMIN, "POST", "/v1/partitions/mail/messages", &json!({ "payload": "x" })).await.ok();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = async {
        let mut rest = String::new();
        while !rest.ends_with("0\r\n\r\n") {
            let mut bytes = [0; 4096];
            let count = events.read(&mut bytes).await.unwrap();
            if count == 0 {
                break;
            }
            rest.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    tokio::select! {
        () = changes => {}
        ended = tokio::time::timeout(Duration::from_secs(30), ended) => ended.expect("the events end"),
    }
}
