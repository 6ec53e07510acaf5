//! RabbitMQ.

use anyqueue_testkit::{RabbitMq, start_if_installed};

use crate::fixture::{Client, folder, is_refused};

const HELLO: &[u8] = b"AMQP\0\0\x09\x01";
/// The name of the method's first field with content is in the node's first frame.
const START: &[u8] = b"RabbitMQ";

#[tokio::test]
async fn it_comes_back_after_stop_and_kill_and_leaves_nothing() {
    let Some(server) = start_if_installed(RabbitMq::new()).await.unwrap() else { return };
    let addr = server.addr();
    assert!(server.version().starts_with(|c: char| c.is_ascii_digit()), "{}", server.version());
    Client::connect(addr).await.ask(HELLO, START).await;

    server.freeze().await.unwrap();
    let mut client = Client::connect(addr).await;
    client.send(HELLO).await;
    client.hears_nothing().await;
    server.thaw().await.unwrap();
    client.read_until(START).await;

    server.kill().await.unwrap();
    client.ends().await;
    is_refused(addr).await;
    server.restart().await.unwrap();
    Client::connect(addr).await.ask(HELLO, START).await;
    server.stop().await.unwrap();
    is_refused(addr).await;
    let log = std::fs::read_to_string(server.log()).unwrap();
    assert!(log.contains("stopped") || log.contains("shutting down"), "it did not stop in order: {log}");
    server.restart().await.unwrap();
    Client::connect(addr).await.ask(HELLO, START).await;

    let folder = folder(&server);
    drop(server);
    is_refused(addr).await;
    assert!(!folder.exists());
}
