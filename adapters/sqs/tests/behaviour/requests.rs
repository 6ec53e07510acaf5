//! Whole requests that fail, queues that come and go, and what is never shown.

use std::time::Duration;

use anyqueue::adapter::{PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, Queue, RetryClass};
use anyqueue_sqs::SqsQueue;

use crate::common::{Bed, LEASE, SOON, messages, nothing, part, push, take};
use crate::wire::Trick;

const NOW: Duration = Duration::ZERO;

#[tokio::test]
async fn throttling_and_expired_credentials_are_told_and_safe_to_repeat() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    for (status, code, kind, word) in [
        (400, "RequestThrottled", ErrorKind::Unavailable, "throttles"),
        (400, "ThrottlingException", ErrorKind::Unavailable, "throttles"),
        (403, "ExpiredTokenException", ErrorKind::AccessDenied, "expired"),
        (403, "OverLimit", ErrorKind::Full, "in flight"),
    ] {
        bed.wire.play("ReceiveMessage", Trick::Refuse(status, code));
        let error = queue.pull(&part("p"), PullRequest::new(1, NOW, LEASE)).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (kind, RetryClass::Safe), "{code}");
        assert!(error.to_string().contains(word), "{code}: {error}");
        bed.wire.play("SendMessageBatch", Trick::Refuse(status, code));
        let error = queue.push(&part("p"), &messages(1)).await.remove(0).unwrap_err();
        assert_eq!((error.kind(), error.retry()), (kind, RetryClass::Safe), "{code}");
    }
    take(&queue, &part("p"), 1).await;
}

#[tokio::test]
async fn a_server_failure_may_have_stored_a_push_and_missing_rights_never_do() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    for (status, code, kind, retry) in [
        (500, "InternalFailure", ErrorKind::Unavailable, RetryClass::MayDuplicate),
        (503, "ServiceUnavailable", ErrorKind::Unavailable, RetryClass::MayDuplicate),
        (403, "AccessDeniedException", ErrorKind::AccessDenied, RetryClass::Never),
        (403, "InvalidClientTokenId", ErrorKind::AccessDenied, RetryClass::Never),
    ] {
        bed.wire.play("SendMessageBatch", Trick::Refuse(status, code));
        for answer in queue.push(&part("p"), &messages(2)).await {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{code}");
        }
    }
    bed.wire.play("SendMessageBatch", Trick::LoseAnswer);
    let error = queue.push(&part("p"), &messages(1)).await.remove(0).unwrap_err();
    assert_eq!(error.retry(), RetryClass::MayDuplicate, "it was stored, and nobody said so");
    take(&queue, &part("p"), 2).await;
}

#[tokio::test]
async fn a_pull_is_repeated_by_the_queue_over_throttling() {
    let Some(bed) = Bed::find().await else { return };
    let queue = Queue::new(bed.open().await).unwrap();
    queue.push_many("p", messages(1)).await.unwrap();
    bed.wire.play("ReceiveMessage", Trick::Refuse(400, "RequestThrottled"));
    bed.wire.play("ReceiveMessage", Trick::Refuse(503, "ServiceUnavailable"));
    let held = queue.pull("p").wait(SOON).await.unwrap();
    assert_eq!(held.len(), 1);
    assert!(bed.wire.is_done());
}

#[tokio::test]
async fn a_queue_that_was_deleted_is_looked_up_anew() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    let client = aws_sdk_sqs::Client::new(&bed.sdk());
    let url = client.get_queue_url().queue_name("test_p0-p").send().await.unwrap().queue_url.unwrap();
    client.delete_queue().queue_url(url).send().await.unwrap();
    let error = queue.push(&part("p"), &messages(1)).await.remove(0).unwrap_err();
    assert_eq!(error.retry(), RetryClass::Safe, "{error}");
    let sent = messages(1);
    push(&queue, "p", &sent).await;
    assert_eq!(take(&queue, &part("p"), 1).await[0].lease.id, sent[0].id());
}

#[tokio::test]
async fn a_handle_that_may_not_create_names_what_is_missing_and_works_with_what_is_there() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().create(false).open().await.unwrap();
    let error = queue.push(&part("p"), &messages(1)).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("test_p0-p"), "{error}");
    nothing(&queue, &part("p")).await;
    assert!(bed.wire.seen("CreateQueue").is_empty());
    push(&bed.open().await, "p", &messages(1)).await;
    let made = bed.wire.seen("CreateQueue").len();
    push(&queue, "p", &messages(1)).await;
    take(&queue, &part("p"), 2).await;
    assert_eq!(bed.wire.seen("CreateQueue").len(), made);
}

#[tokio::test]
async fn a_queue_that_many_push_to_at_once_is_made_once() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.builder().linger(Duration::ZERO).open().await.unwrap();
    let (p, all) = (part("p"), messages(10));
    let answers = futures_util::future::join_all(all.chunks(1).map(|one| queue.push(&p, one))).await.concat();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let times = |action: &str| bed.wire.seen(action).len();
    assert_eq!((times("CreateQueue"), times("GetQueueAttributes")), (2, 1), "it and its dead letters");
    // Who waits for a failure is told of it, and does not try again one after the other.
    bed.wire.play("CreateQueue", Trick::Refuse(403, "AccessDeniedException"));
    let q = part("q");
    let answers = futures_util::future::join_all(all.chunks(1).map(|one| queue.push(&q, one))).await.concat();
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(times("CreateQueue"), 3);
    push(&queue, "q", &all).await;
}

#[tokio::test]
async fn a_made_queue_keeps_as_long_as_can_be_and_has_a_backstop() {
    let Some(bed) = Bed::find().await else { return };
    push(&bed.open().await, "p", &messages(1)).await;
    let made = bed.wire.seen("CreateQueue");
    let live = made.iter().find(|seen| seen.body["QueueName"] == "test_p0-p").unwrap();
    let attributes = &live.body["Attributes"];
    assert_eq!(attributes["MessageRetentionPeriod"], "1209600");
    let policy: serde_json::Value =
        serde_json::from_str(attributes["RedrivePolicy"].as_str().unwrap()).unwrap();
    assert!(policy["deadLetterTargetArn"].as_str().unwrap().ends_with(":test_d0-p"));
    assert_eq!(policy["maxReceiveCount"], "1000");
}

#[tokio::test]
async fn what_something_else_put_there_is_delivered_as_it_is() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, "p", &messages(1)).await;
    take(&queue, &part("p"), 1).await;
    let client = aws_sdk_sqs::Client::new(&bed.sdk());
    let url = client.get_queue_url().queue_name("test_p0-p").send().await.unwrap().queue_url.unwrap();
    let sent = client.send_message().queue_url(url).message_body("{\"größe\": 1}").send().await.unwrap();
    let held = take(&queue, &part("p"), 1).await;
    assert_eq!(held[0].message.payload(), "{\"größe\": 1}".as_bytes());
    assert_eq!(held[0].message.headers()[anyqueue::header::FOREIGN_ID], sent.message_id.unwrap());
}

#[tokio::test]
async fn an_endpoint_where_nobody_is_is_an_error_in_bounded_time() {
    // Bound, so that it is given to nobody, and never listening.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = held.local_addr().unwrap();
    let url = format!("sqs://key:the-secret@us-east-1/p?endpoint=http://{free}");
    let queue = SqsQueue::open(&url).await.unwrap();
    for error in [queue.init().await.unwrap_err(), queue.check().await.unwrap_err()] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe));
        assert!(!format!("{error:?} {queue:?}").contains("the-secret"));
    }
}

#[tokio::test]
async fn urls_and_options_that_cannot_be_used_say_what_is_allowed() {
    for (url, allowed) in [
        ("sqs:///jobs", "sqs://eu-central-1/jobs"),
        ("https://sqs.eu-central-1.amazonaws.com/jobs", "write sqs://region/prefix"),
        ("redis://localhost/jobs", "write sqs://region/prefix"),
        ("sqs://r/a.b", "A-Z a-z 0-9 _ -"),
        ("sqs://r/p?levels=11", "1 to 10"),
        ("sqs://r/p?message_bytes=1", "message_bytes must be from"),
        ("sqs://r/p?linger=2s", "at most 1s"),
        ("sqs://r/p?call_timeout=0s", "1ms to 1h"),
        ("sqs://r/p?create=maybe", "bool"),
    ] {
        let error = SqsQueue::open(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        assert!(error.to_string().contains(allowed), "{url}: {error}");
    }
}
