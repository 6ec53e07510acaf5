//! Clients that leave before a managing request of theirs is answered: the audit trail says so, and of what.

use std::time::Duration;

use anyqueue::Page;
use anyqueue_control::audit::{Audit, Outcome};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::away::holding;
use crate::bed::Bed;

const FORM: &str = "application/x-www-form-urlencoded";
const LEFT: u16 = 499;

/// Sends a request whose body may be shorter than it says.
async fn begin(bed: &Bed, what: &str, content_type: &str, body: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(bed.client.0).await.unwrap();
    let host = bed.client.0;
    let head = format!("{what} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {content_type}\r\n");
    let request = format!("{head}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// What came of the newest request, once that is entered.
async fn outcome(bed: &Bed, number: u64) -> Outcome {
    let audit = Audit::new(bed.queue.control().unwrap());
    let ended = async {
        loop {
            let newest = audit.list(Page::of(1)).await.unwrap().entries.pop();
            let newest = newest.filter(|entry| entry.number == number);
            if let Some(outcome) = newest.and_then(|entry| entry.outcome) {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("an outcome")
}

#[tokio::test]
async fn who_leaves_within_a_body_is_entered_as_gone_with_the_queue_that_was_named() {
    let bed = Bed::new().await;
    for (number, (what, content_type, body, queues)) in [
        ("PUT /v1/limits/smtp", "application/json", "{\"partition\":", &[][..]),
        ("POST /v1/partitions/mail/dead/redrive", "application/json", "{", &["mail"]),
        ("POST /v1/import?dry_run=true", "application/x-ndjson", "{}\n", &[]),
        ("POST /do/dead/purge", FORM, "partition=ma", &[]),
        ("POST /do/tasks/cancel?partition=mail", FORM, "partition=ma", &["mail"]),
    ]
    .into_iter()
    .enumerate()
    {
        drop(begin(&bed, what, content_type, body, body.len() + 10).await);
        let outcome = outcome(&bed, number as u64 + 1).await;
        assert_eq!(
            (outcome.status, outcome.queues.as_slice()),
            (LEFT, &queues.iter().map(|&queue| queue.to_owned()).collect::<Vec<_>>()[..]),
            "{what}"
        );
    }
}

#[tokio::test]
async fn who_leaves_before_the_answer_is_entered_as_gone_with_what_was_asked_for() {
    let (queue, hold) = holding();
    let bed = Bed::over(queue).await;
    let limit = json!({ "partition": "mail", "cap": 1 });
    bed.client
        .send("PUT", "/v1/limits/smtp", &[("content-type", "application/json")], limit.to_string().as_bytes())
        .await
        .ok();
    hold.prefix.send_replace(Some("limit"));
    let asked = begin(&bed, "POST /do/limits/delete", FORM, "name=smtp", 9).await;
    hold.waiting.acquire().await.unwrap().forget();
    drop(asked);
    let outcome = outcome(&bed, 2).await;
    assert_eq!(outcome.status, LEFT);
    assert_eq!(outcome.details, [("limit".to_owned(), "smtp".to_owned())]);
}

#[tokio::test]
async fn what_is_refused_since_the_store_is_slow_and_entered_later_is_entered_as_refused() {
    let (queue, hold) = holding();
    let bed = Bed::over(queue).await;
    hold.prefix.send_replace(Some("audit/"));
    let refused = bed.client.post("/v1/partitions/mail/pause", &json!({})).await;
    assert_eq!(refused.status, 503);
    hold.prefix.send_replace(None);
    let outcome = outcome(&bed, 1).await;
    assert_eq!((outcome.status, outcome.queues), (503, vec!["mail".to_owned()]));
    assert!(!bed.queue.is_paused("mail").await.unwrap());
}

#[tokio::test]
async fn a_body_that_is_wrong_or_late_is_no_client_that_left() {
    let bed = Bed::with(crate::bed::memory(), |builder| builder.patience(Duration::from_millis(300))).await;
    let late = begin(&bed, "POST /do/dead/purge", FORM, "partition=ma", 100).await;
    assert_ne!(outcome(&bed, 1).await.status, LEFT);
    drop(late);
    let head = format!("POST /do/dead/purge HTTP/1.1\r\nhost: {}\r\ncontent-type: {FORM}\r\n", bed.client.0);
    let request = format!("{head}connection: close\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n");
    let answer = bed.client.raw(request.as_bytes()).await;
    assert_eq!(outcome(&bed, 2).await.status, answer.status);
}
