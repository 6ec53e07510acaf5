//! Encrypted connections, and brokers that are not who they should be.

use anyqueue::{Error, ErrorKind, RetryClass};
use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{Certificates, RabbitMq, Server, start_if_installed};

use crate::common::{messages, part, push, take, texts};

async fn server(certificates: &Certificates) -> Option<Server> {
    start_if_installed(RabbitMq::new().tls(certificates)).await.unwrap()
}

fn url(server: &Server, authority: &Certificates) -> String {
    format!("{}?ca_file={}", server.url(), authority.authority().display())
}

async fn refused(url: &str) -> Error {
    let error = RabbitMqQueue::open(&url.replace("guest:guest", "guest:secret-word")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Never), "{error:?}");
    assert!(error.message().contains("certificate"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret-word"), "{error:?}");
    error
}

/// A waiting pull is woken by a push of another handle.
async fn works(url: &str) {
    let (queue, other, p) =
        (RabbitMqQueue::open(url).await.unwrap(), RabbitMqQueue::open(url).await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { texts(&take(&queue, &p, 1).await) }
    });
    push(&other, &p, &messages(1)).await;
    assert_eq!(waiting.await.unwrap(), ["0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_whose_certificate_is_right_is_talked_to_and_one_of_another_authority_is_refused() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    works(&url(&server, &certificates)).await;
    let others = Certificates::make().await.unwrap();
    refused(&url(&server, &others)).await;
    refused(server.url()).await; // whom this system trusts
    // Whoever speaks in the clear learns it soon: by what is answered, or as the server hangs up before that is read.
    let plain = RabbitMqQueue::open(&server.url().replace("amqps:", "amqp:")).await.unwrap_err();
    assert!(matches!(plain.kind(), ErrorKind::Incompatible | ErrorKind::Unavailable), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_of_another_name_is_refused() {
    let certificates = Certificates::make_for("elsewhere.invalid").await.unwrap();
    let Some(server) = server(&certificates).await else { return };
    refused(&url(&server, &certificates)).await;
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_told() {
    for (url, said) in [
        ("amqps://127.0.0.1:1/?ca_file=/no/such/file", "/no/such/file"),
        ("amqp://127.0.0.1:1/?ca_file=/no/such/file", "amqps://"),
    ] {
        let error = RabbitMqQueue::open(url).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidInput, RetryClass::Never), "{error}");
        assert!(error.message().contains(said), "{error}");
    }
}
