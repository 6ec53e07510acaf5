//! Limits over HTTP.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::MessageData;
use anyqueue_control::limits::{Limits, PermitOptions};
use anyqueue_worker::{Partition, Worker};
use serde_json::json;
use tokio::sync::Notify;

use crate::bed::Bed;
use crate::cron::put;
use crate::pages::page;

#[tokio::test]
async fn a_limit_is_set_changed_and_deleted() {
    let bed = Bed::new().await;
    let set = json!({ "partition": "mail", "cap": 5, "rate": { "per_second": 10.0, "burst": 20 } });
    let limit = put(bed.client, "/v1/limits/smtp%20server", &set).await.ok();
    assert_eq!((&limit["cap"], &limit["rate"], &limit["available"]), (&json!(5), &set["rate"], &json!(20)));
    assert_eq!((&limit["revision"], &limit["held"], &limit["holders"]), (&json!(1), &json!(0), &json!([])));
    assert_eq!(bed.client.get("/v1/limits/smtp%20server").await.ok(), limit);
    let slower = json!({ "partition": "mail", "rate": { "per_second": 0.5 } });
    let limit = put(bed.client, "/v1/limits/smtp%20server", &slower).await.ok();
    assert_eq!(
        (&limit["cap"], &limit["rate"]["burst"], &limit["revision"]),
        (&json!(null), &json!(1), &json!(2))
    );
    let listed = bed.client.get("/v1/limits").await.ok();
    assert_eq!((&listed["limits"], &listed["unreadable"]), (&json!([limit]), &json!([])));
    assert_eq!(bed.client.delete("/v1/limits/smtp%20server").await.status, 204);
    assert_eq!(bed.client.delete("/v1/limits/smtp%20server").await.status, 404);
    assert_eq!(bed.client.get("/v1/limits/smtp%20server").await.status, 404);
}

#[tokio::test]
async fn a_limit_is_for_a_queue_a_kind_or_the_values_of_a_header() {
    let bed = Bed::new().await;
    for of in [json!({ "partition": "mail" }), json!({ "kind": "render" }), json!({ "header": "customer" })] {
        let mut body = of.clone();
        body["cap"] = json!(2);
        let limit = put(bed.client, "/v1/limits/l", &body).await.ok();
        for name in ["partition", "kind", "header"] {
            assert_eq!(limit[name], of[name], "{limit}");
        }
        assert_eq!((&limit["held"], &limit["keys"]), (&json!(0), &json!([])));
    }
    let page = String::from_utf8(bed.client.get("/limits").await.body).unwrap();
    assert!(page.contains("each value of the header customer"), "{page}");
}

#[tokio::test]
async fn a_limit_that_makes_no_sense_is_refused_with_why() {
    let bed = Bed::new().await;
    let refused = [
        (json!({ "partition": "mail" }), "limits nothing"),
        (json!({ "partition": "mail", "cap": 0 }), "pause the partition"),
        (json!({ "partition": "mail", "rate": { "per_second": 0.0 } }), "a rate of 0"),
        (json!({ "partition": "mail", "rate": { "per_second": 1.0, "burst": 0 } }), "a burst of 0"),
        (json!({ "partition": "", "cap": 1 }), "partition"),
        (json!({ "partition": "mail", "cup": 1 }), "cup"),
        (json!({ "cap": 1 }), "partition"),
        (json!({ "partition": "mail", "kind": "k", "cap": 1 }), "one of partition, kind and header"),
        (json!({ "kind": "", "cap": 1 }), "a kind of 0 bytes"),
        (json!({ "header": "", "cap": 1 }), "a header's name of 0 bytes"),
    ];
    for (body, why) in refused {
        let answer = put(bed.client, "/v1/limits/l", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(why), "{detail}");
    }
    assert_eq!(bed.client.get("/v1/limits").await.ok()["limits"], json!([]));
}

#[tokio::test]
async fn who_holds_a_limit_is_shown() {
    let bed = Bed::new().await;
    put(bed.client, "/v1/limits/l", &json!({ "partition": "mail", "cap": 3 })).await.ok();
    bed.queue.push("mail", MessageData::new("x")).await.unwrap();
    let (began, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (began.clone(), may_end.clone());
    let limits = Limits::new(bed.queue.control().unwrap());
    let worker = Worker::builder(bed.queue.clone())
        .name("w1")
        .partition(Partition::new(anyqueue::PartitionId::new("mail").unwrap()))
        .any_handler(move |_, _| {
            let (begins, ends) = (begins.clone(), ends.clone());
            async move {
                begins.notify_one();
                ends.notified().await;
                Ok(())
            }
        })
        .permits(limits.permits(PermitOptions::default()).unwrap())
        .build()
        .unwrap();
    let running = tokio::spawn(async move { worker.run_once().await.unwrap() });
    tokio::time::timeout(Duration::from_secs(30), began.notified()).await.expect("it begins");
    let limit = bed.client.get("/v1/limits/l").await.ok();
    let holder = &limit["holders"][0];
    assert!(holder["held"].as_u64().unwrap() >= 1 && limit["held"] == holder["held"], "{limit}");
    assert_eq!(holder["who"], "w1");
    assert!(holder["valid_ms"].as_u64().unwrap() > 0, "{limit}");
    let shown = page(&bed, "/limits").await;
    for text in ["<th scope=\"row\">w1</th>", " of 3 held</dd>", "<span class=\"faint\">in "] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    may_end.notify_one();
    assert_eq!(running.await.unwrap().processed, 1);
    assert_eq!(bed.client.get("/v1/limits/l").await.ok()["held"], 0);
}
