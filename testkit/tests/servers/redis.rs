//! Redis.

use anyqueue_testkit::{Certificates, Error, Redis, RedisCluster, RedisSentinel, start_if_installed};

use crate::fixture::{Client, LIMIT, folder, is_refused};

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

#[tokio::test]
async fn a_cluster_serves_each_slot_and_a_replica_takes_over() {
    let redis = Redis::new().setting("cluster-node-timeout", "1000");
    let Some(cluster) = RedisCluster::start_if_installed(redis).await.unwrap() else { return };
    let nodes = cluster.nodes();
    assert!(cluster.url().starts_with(&format!("redis-cluster://{}/?nodes=", nodes[0].addr())));
    // Of the slots 12182 and 4687.
    Client::connect(nodes[2].addr()).await.ask(b"SET foo 1\r\n", b"+OK\r\n").await;
    let moved = format!("-MOVED 12182 {}\r\n", nodes[2].addr());
    Client::connect(nodes[0].addr()).await.ask(b"SET foo 1\r\n", moved.as_bytes()).await;
    Client::connect(nodes[0].addr()).await.ask(b"SET hello 1\r\n", b"+OK\r\n").await;
    Client::connect(nodes[2].addr()).await.ask(b"WAIT 1 20000\r\n", b":1\r\n").await;
    nodes[2].kill().await.unwrap();
    let took_over = async {
        while !Client::connect(nodes[5].addr()).await.answer(b"INCR foo\r\n").await.starts_with(":2") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, took_over).await.unwrap();
}

#[tokio::test]
async fn a_sentinel_makes_the_replica_the_master() {
    let Some(master) = start_if_installed(Redis::new()).await.unwrap() else { return };
    Client::connect(master.addr()).await.ask(b"SET before 1\r\n", b"+OK\r\n").await;
    let replica = start_if_installed(Redis::new().replica_of(master.addr())).await.unwrap().unwrap();
    Client::connect(replica.addr()).await.ask(b"GET before\r\n", b"$1\r\n1\r\n").await;
    Client::connect(replica.addr()).await.ask(b"SET before 2\r\n", b"-READONLY").await;
    let sentinel = start_if_installed(RedisSentinel::new("mine", master.addr())).await.unwrap().unwrap();
    assert_eq!(sentinel.url(), format!("redis-sentinel://{}/?master=mine", sentinel.addr()));
    master.kill().await.unwrap();
    let took_over = async {
        while !Client::connect(replica.addr()).await.answer(b"INCR before\r\n").await.starts_with(":2") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, took_over).await.unwrap();
}

#[tokio::test]
async fn with_certificates_it_does_not_speak_in_the_clear() {
    let certificates = Certificates::make().await.unwrap();
    let Some(server) = start_if_installed(Redis::new().tls(&certificates)).await.unwrap() else { return };
    assert_eq!(server.url(), format!("rediss://{}/", server.addr()));
    let mut client = Client::connect(server.addr()).await;
    client.send(b"PING\r\n").await;
    client.ends().await;
}
