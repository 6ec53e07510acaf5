//! Traces that go on from a request to the tasks that it pushes.

use serde_json::{Value, json};

use crate::bed::Bed;

const OF_REQUEST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// Posts JSON with a trace context.
async fn post(bed: &Bed, path: &str, trace: &str, body: &Value) -> Value {
    let headers = [("content-type", "application/json"), ("traceparent", trace)];
    bed.client.send("POST", path, &headers, body.to_string().as_bytes()).await.ok()
}

/// The trace context of the next message, and whether the service knows the task by it.
async fn next(bed: &Bed, queue: &str) -> Option<String> {
    let pulled = bed.pull(queue).await;
    let task = format!("/v1/tasks/{}?partition={queue}", pulled["id"].as_str().unwrap());
    assert_eq!(bed.client.get(&task).await.ok()["trace"], pulled["headers"]["traceparent"]);
    pulled["headers"]["traceparent"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_message_without_a_trace_has_that_of_the_request_that_pushes_it() {
    let bed = Bed::new().await;
    let own = json!({ "payload": "x", "headers": { "traceparent": OWN } });
    let items = json!([{ "payload": "x" }, own, { "payload": "x", "headers": { "mine": "kept" } }]);
    post(&bed, "/v1/partitions/mail/messages", OF_REQUEST, &items).await;
    for expected in [OF_REQUEST, OWN, OF_REQUEST] {
        assert_eq!(next(&bed, "mail").await.as_deref(), Some(expected));
    }
    post(&bed, "/v1/jobs/Enqueue", OF_REQUEST, &json!({ "JobKind": "jobs", "JobData": "x" })).await;
    assert_eq!(next(&bed, "jobs").await.as_deref(), Some(OF_REQUEST));
}

#[tokio::test]
async fn what_is_no_trace_context_is_left_out_and_the_message_is_pushed_all_the_same() {
    let bed = Bed::new().await;
    for nonsense in ["nonsense", "", &OF_REQUEST[..54], &OF_REQUEST.to_uppercase()] {
        let pushed =
            post(&bed, "/v1/partitions/mail/messages", nonsense, &json!({ "payload": nonsense })).await;
        assert_eq!(pushed[0]["outcome"], "stored");
        assert_eq!(next(&bed, "mail").await, None, "{nonsense:?}");
    }
}
