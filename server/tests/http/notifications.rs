//! The management of a queue of notifications.

use anyqueue::Page;
use anyqueue_control::audit::Audit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::bed::{Bed, memory};
use crate::client::Answer;

pub(crate) const PATH: &str = "/management/queue/notifications";

/// The name of a task of a tenant.
pub(crate) fn name(parts: &[&str]) -> String {
    let encoded = |part: &&str| if part.is_empty() { "\"\"".to_owned() } else { BASE64.encode(part) };
    parts.iter().map(encoded).collect::<Vec<_>>().join(":")
}

async fn notify(bed: &Bed, parts: &[&str], more: Value) -> String {
    let mut item = json!({ "json": [{ "id": "Kitchen" }], "kind": "insert", "task_id": name(parts) });
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bed.push("notifications", item).await
}

async fn ask(bed: &Bed, method: &str, path: &str, tenant: &[(&str, &str)]) -> Answer {
    bed.client.send(method, &format!("{PATH}{path}"), tenant, b"").await
}

async fn settle_next(bed: &Bed, status: &str) {
    let delivery = bed.pull("notifications").await["delivery"].clone();
    let settled = bed.settle(json!({ "delivery": delivery, "status": status, "error": "no room" })).await;
    assert_eq!(settled["outcome"], "settled");
}

const T1: [(&str, &str); 2] = [("fiware-service", "t1"), ("fiware-servicepath", "/a")];

/// Of the tenant t1 one that succeeded, one that failed, and one that waits; and one each of others.
async fn furnished() -> Bed {
    let bed = Bed::new().await;
    notify(&bed, &["t1", "/a", "c1", "1"], json!({})).await;
    settle_next(&bed, "processed").await;
    notify(&bed, &["t1", "/a", "c1", "2"], json!({ "max_retries": 0 })).await;
    settle_next(&bed, "failed").await;
    notify(&bed, &["t1", "/a", "c2", "3"], json!({ "max_retries": 4 })).await;
    notify(&bed, &["t1", "/ab", "", "4"], json!({})).await;
    notify(&bed, &["", "", "", "5"], json!({})).await;
    bed.push("notifications", json!({ "payload": "x" })).await;
    bed
}

#[tokio::test]
async fn the_tasks_of_a_tenant_are_listed_with_how_they_stand_and_what_they_are_to_do() {
    let bed = furnished().await;
    let listed = ask(&bed, "GET", "", &T1).await.ok();
    let of = |status: &str| {
        let mut found = listed.as_array().unwrap().iter().filter(|one| one["runtime"]["status"] == status);
        (found.next().unwrap().clone(), found.count())
    };
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    let (pending, _) = of("pending");
    assert_eq!(
        pending,
        json!({
            "runtime": { "task_id": name(&["t1", "/a", "c2", "3"]), "task_type": "insert", "status": "pending", "retries_left": 4, "errors": [] },
            "input": { "fiware_service": "t1", "fiware_service_path": "/a", "fiware_correlator": "c2", "payload": [{ "id": "Kitchen" }] }
        })
    );
    let (failed, _) = of("failed");
    assert_eq!(failed["runtime"]["retries_left"], 0);
    assert!(failed["runtime"]["errors"][0].as_str().unwrap().contains("no room"), "{failed}");
    assert_eq!(of("succeeded").0["input"]["payload"], Value::Null, "its message is gone");
    let summary = ask(&bed, "GET", "/summary?taskStatus=failed", &T1).await.ok();
    assert_eq!(summary, json!([failed["runtime"]]));
    let correlated = [T1[0], T1[1], ("fiware-correlator", "c1")];
    assert_eq!(ask(&bed, "GET", "", &correlated).await.ok().as_array().unwrap().len(), 2);
    assert_eq!(ask(&bed, "GET", "", &[]).await.ok().as_array().unwrap().len(), 1, "of nobody");
    let none = ask(&bed, "GET", "", &[("fiware-service", "t2")]).await;
    assert_eq!((none.status, none.body.as_slice()), (200, &b"[]"[..]));
}

#[tokio::test]
async fn tasks_are_counted_by_tenant_and_status_and_without_a_tenant_all_are() {
    let bed = furnished().await;
    let count = async |query: &str, tenant: &[(&str, &str)]| {
        ask(&bed, "GET", &format!("/count{query}"), tenant).await.ok()
    };
    assert_eq!(count("", &T1).await, 3);
    for status in ["pending", "succeeded", "failed"] {
        assert_eq!(count(&format!("?taskStatus={status}"), &T1).await, 1, "{status}");
    }
    assert_eq!(count("", &[]).await, 6);
    assert_eq!(count("?partition=other", &[]).await, 0);
    for query in ["?taskStatus=done", "?taskStatus=unknown", "?status=failed"] {
        let refused = ask(&bed, "GET", &format!("/count{query}"), &[]).await;
        assert_eq!((refused.status, &refused.json()["kind"]), (400, &json!("invalid_input")), "{query}");
    }
}

#[tokio::test]
async fn a_tenants_tasks_are_deleted_and_nobody_elses() {
    let bed = furnished().await;
    let deleted = ask(&bed, "DELETE", "", &T1).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(ask(&bed, "GET", "", &T1).await.body, b"[]");
    assert_eq!(ask(&bed, "GET", "/count", &[]).await.ok(), 3);
    // Once more is harmless.
    assert_eq!(ask(&bed, "DELETE", "", &T1).await.status, 204);
    assert_eq!(ask(&bed, "DELETE", "?taskStatus=succeeded", &[]).await.status, 204, "there is none");
    assert_eq!(ask(&bed, "GET", "/count", &[]).await.ok(), 3);
}

#[tokio::test]
async fn the_audit_trail_says_which_were_deleted_and_how_many() {
    let bed = furnished().await;
    // Somebody holds the one that waits.
    let held = bed.pull("notifications").await;
    let audit = Audit::new(bed.queue.control().unwrap());
    let details = async |query: &str, tenant: &[(&str, &str)]| {
        assert_eq!(ask(&bed, "DELETE", query, tenant).await.status, 204);
        let outcome = audit.list(Page::of(1)).await.unwrap().entries.remove(0).outcome.unwrap();
        assert_eq!(outcome.queues, ["notifications"]);
        outcome.details.into_iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    let correlated = [T1[0], T1[1], ("fiware-correlator", "c1")];
    assert_eq!(
        details("?taskStatus=failed", &correlated).await,
        [
            "fiware-service: t1",
            "fiware-servicepath: /a",
            "fiware-correlator: c1",
            "status: failed",
            "deleted: 1",
            "ends deleted: 0"
        ]
    );
    let named = ["fiware-service: t1", "fiware-servicepath: /a", "status: any"];
    assert_eq!(details("", &T1).await, [&named[..], &["deleted: 0", "ends deleted: 1"]].concat());
    assert!(held["id"].is_string());
    let nobody = ["fiware-service: none", "fiware-servicepath: none", "status: any"];
    assert_eq!(details("", &[]).await, [&nobody[..], &["deleted: 1", "ends deleted: 0"]].concat());
}

#[tokio::test]
async fn a_list_of_more_than_a_page_is_valid_json() {
    let bed = Bed::new().await;
    let items: Vec<Value> = (0..450)
        .map(|n| json!({ "payload": "x", "task_id": name(&["t", "", "", &n.to_string()]) }))
        .collect();
    bed.client.post("/v1/partitions/notifications/messages", &json!(items)).await.ok();
    let answer = ask(&bed, "GET", "/summary", &[("fiware-service", "t")]).await;
    assert!(answer.head.contains("transfer-encoding: chunked"), "{}", answer.head);
    let found: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(found.len(), 450);
}

#[tokio::test]
async fn payloads_are_for_those_who_may_see_them_and_a_service_that_only_reads_deletes_nothing() {
    let admin = "correct-horse-battery";
    let bed = Bed::with(memory(), |builder| builder.token(admin)).await;
    let send = async |token: &str, method: &str, path: &str, said: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        bed.client.send(method, path, &headers, said.to_string().as_bytes()).await
    };
    let item = json!({ "payload": "confidential", "task_id": name(&["", "", "", "1"]) });
    send(admin, "POST", "/v1/partitions/notifications/messages", item).await.ok();
    let token = async |name: &str, rights: &[&str], queue: &str| {
        let said = json!({ "rights": rights, "partitions": [queue] });
        let made = send(admin, "PUT", &format!("/v1/tokens/{name}"), said).await.ok();
        made["token"].as_str().unwrap().to_owned()
    };
    let blind = token("blind", &["read"], "*").await;
    let sees = token("sees", &["read", "payloads"], "*").await;
    let other = token("other", &["read", "payloads", "manage"], "other").await;
    let list = async |token: &str| send(token, "GET", PATH, json!({})).await;
    assert!(String::from_utf8_lossy(&list(&sees).await.body).contains("confidential"));
    let without = list(&blind).await;
    assert_eq!((without.status, &without.json()[0]["input"]["payload"]), (200, &Value::Null));
    assert_eq!((list(&other).await.status, send(&other, "DELETE", PATH, json!({})).await.status), (403, 403));
    let reads = Bed::with(bed.queue.clone(), |builder| builder.read_only(true).token(admin)).await;
    let bearer = format!("Bearer {admin}");
    let refused = reads.client.send("DELETE", PATH, &[("authorization", bearer.as_str())], b"").await;
    assert_eq!(refused.json()["kind"], "read_only");
}
