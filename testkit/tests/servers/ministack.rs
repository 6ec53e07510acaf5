//! ministack.

use anyqueue_testkit::{Ministack, Server, start_if_installed};

use crate::fixture::{Client, is_refused};

async fn request(server: &Server, query: &str, answer: &[u8]) -> String {
    let mut client = Client::connect(server.addr()).await;
    let text = format!("GET /?{query}&Version=2012-11-05 HTTP/1.1\r\nHost: sqs\r\nConnection: close\r\n\r\n");
    client.send(text.as_bytes()).await;
    String::from_utf8_lossy(&client.read_until(answer).await).into_owned()
}

#[tokio::test]
async fn queues_survive_a_stop_if_wanted_and_never_a_kill() {
    let Some(server) = start_if_installed(Ministack::new().persistent()).await.unwrap() else { return };
    request(&server, "Action=CreateQueue&QueueName=kept", b"</CreateQueueResponse>").await;
    server.stop().await.unwrap();
    is_refused(server.addr()).await;
    server.restart().await.unwrap();
    let queues = request(&server, "Action=ListQueues", b"</ListQueuesResponse>").await;
    assert!(queues.contains("kept"), "{queues}");
    request(&server, "Action=CreateQueue&QueueName=lost", b"</CreateQueueResponse>").await;
    server.kill().await.unwrap();
    is_refused(server.addr()).await;
    server.restart().await.unwrap();
    let queues = request(&server, "Action=ListQueues", b"</ListQueuesResponse>").await;
    assert!(!queues.contains("lost"), "{queues}");
}

#[tokio::test]
async fn frozen_it_answers_when_it_is_thawed() {
    let Some(server) = start_if_installed(Ministack::new()).await.unwrap() else { return };
    server.freeze().await.unwrap();
    let mut client = Client::connect(server.addr()).await;
    client.send(b"GET /?Action=ListQueues HTTP/1.1\r\nHost: sqs\r\nConnection: close\r\n\r\n").await;
    client.hears_nothing().await;
    server.thaw().await.unwrap();
    client.read_until(b"HTTP/1.1 200").await;
}
