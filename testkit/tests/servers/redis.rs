//! Redis.

use anyqueue_testkit::{Error, Redis, start_if_installed};

use crate::fixture::{Client, folder, is_refused};

#[tokio::test]
async fn data_survives_stop_kill_and_restart_at_the_same_address() {
    let program = Redis::new().setting("appendfsync", "always");
    let Some(server) = start_if_installed(program).await.unwrap() else { return };
    let (addr, url) = (server.addr(), server.url().to_owned());
    Client::connect(addr).await.ask(b"SET first 1\r\n", b"+OK\r\n").await;
    server.stop().await.unwrap();
    is_refused(addr).await;
    server.stop().await.unwrap();
    server.restart().await.unwrap();

    let mut client = Client::connect(addr).await;
    client.ask(b"GET first\r\n", b"$1\r\n1\r\n").await;
    client.ask(b"SET second 2\r\n", b"+OK\r\n").await;
    server.kill().await.unwrap();
    client.ends().await;
    is_refused(addr).await;
    server.kill().await.unwrap();
    server.restart().await.unwrap();

    let mut client = Client::connect(addr).await;
    client.ask(b"GET second\r\n", b"$1\r\n2\r\n").await;
    server.restart().await.unwrap();
    client.ends().await;
    Client::connect(addr).await.ask(b"GET second\r\n", b"$1\r\n2\r\n").await;
    assert_eq!((server.addr(), server.url()), (addr, &*url));
}

#[tokio::test]
async fn frozen_it_answers_when_it_is_thawed() {
    let Some(server) = start_if_installed(Redis::new()).await.unwrap() else { return };
    let mut client = Client::connect(server.addr()).await;
    client.ask(b"PING\r\n", b"+PONG\r\n").await;
    server.freeze().await.unwrap();
    server.freeze().await.unwrap();
    client.send(b"PING\r\n").await;
    client.hears_nothing().await;
    server.thaw().await.unwrap();
    client.read_until(b"+PONG\r\n").await;
}

#[tokio::test]
async fn frozen_it_can_be_stopped_killed_and_dropped() {
    let Some(server) = start_if_installed(Redis::new()).await.unwrap() else { return };
    server.freeze().await.unwrap();
    server.stop().await.unwrap();
    assert!(matches!(server.freeze().await, Err(Error::Down { .. })));
    assert!(matches!(server.thaw().await, Err(Error::Down { .. })));
    server.restart().await.unwrap();
    server.freeze().await.unwrap();
    server.kill().await.unwrap();
    server.restart().await.unwrap();
    Client::connect(server.addr()).await.ask(b"PING\r\n", b"+PONG\r\n").await;
    server.freeze().await.unwrap();
    let (addr, folder) = (server.addr(), folder(&server));
    drop(server);
    is_refused(addr).await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_start_that_fails_tells_what_the_server_said() {
    let wrong = Redis::new().setting("no-such-option", "1");
    let error = match start_if_installed(wrong).await {
        Ok(None) => return,
        Ok(Some(_)) => panic!("it started"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("exit status 1") && error.contains("no-such-option"), "{error}");
}

#[tokio::test]
async fn version_and_url_are_told() {
    let Some(server) = start_if_installed(Redis::new()).await.unwrap() else { return };
    assert!(server.version().split('.').count() >= 3, "{}", server.version());
    assert_eq!(server.url(), format!("redis://{}/", server.addr()));
}
