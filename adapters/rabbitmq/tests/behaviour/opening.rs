//! Addresses, logins and settings that do not fit are told clearly, and show no password.

use std::time::{Duration, Instant};

use anyqueue::adapter::{PushQueueStorage, QueueStorage};
use anyqueue::{Error, ErrorKind};
use anyqueue_rabbitmq::{QueueType, RabbitMqQueue};

use anyqueue_testkit::RabbitMq;

use crate::common::{Bed, SOON, messages, part, push};

async fn refused(url: &str) -> Error {
    let error = RabbitMqQueue::open(url).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    error
}

#[tokio::test]
async fn a_wrong_login_or_virtual_host_is_told_as_such() {
    let Some(bed) = Bed::shared().await else { return };
    let login = refused(&bed.plain_url().replace("guest:guest", "guest:secret")).await;
    assert_eq!(login.kind(), ErrorKind::AccessDenied);
    assert!(login.to_string().contains("user and password"), "{login}");
    let vhost = refused(&bed.plain_url().replace("%2f", "nowhere")).await;
    assert_eq!(vhost.kind(), ErrorKind::AccessDenied);
    assert!(vhost.to_string().contains("nowhere"), "{vhost}");
}

#[tokio::test]
async fn an_address_without_a_broker_is_an_error_in_bounded_time() {
    let start = Instant::now();
    let nobody = refused("amqp://user:secret@127.0.0.1:9/?connect_timeout=2s").await;
    assert_eq!(nobody.kind(), ErrorKind::Unavailable);
    assert!(nobody.to_string().contains("127.0.0.1:9"), "{nobody}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // takes connections, and is silent
    let silent = format!("amqp://user:secret@{}/?connect_timeout=500ms", listener.local_addr().unwrap());
    assert_eq!(refused(&silent).await.kind(), ErrorKind::Unavailable);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_queue_of_another_type_is_incompatible() {
    let Some(bed) = Bed::shared().await else { return };
    let (p, quorum) = (part("work"), bed.open().await);
    push(&quorum, &p, &messages(1)).await;
    let classic = bed.builder().queue_type(QueueType::Classic).open().await.unwrap();
    let error = classic.push(&p, &messages(1)).await.pop().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    push(&quorum, &p, &messages(1)).await;
}

#[tokio::test]
async fn a_broker_that_is_looked_after_tells_its_version() {
    let Some(bed) = Bed::lent(RabbitMq::new()).await else { return };
    let told = bed.open().await.check().await.unwrap().server_version;
    assert_eq!(told.as_deref(), Some(bed.server().version()));
}

#[tokio::test]
async fn a_closed_handle_lets_go_of_its_connections() {
    let Some(bed) = Bed::shared().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("work"), &messages(1)).await;
    tokio::time::timeout(Duration::from_secs(15), queue.close()).await.unwrap().unwrap();
    assert_eq!(queue.check().await.unwrap_err().kind(), ErrorKind::Closed);
}
