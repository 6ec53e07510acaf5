//! Calls that the cluster client sends again by itself, because their connection broke before the answer came.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Extension, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy, Redis, Server};
use redis::Value;

use crate::common::{SOON, command, messages, part, pull, pull_wait, push, settle, texts};
use crate::successors_across_slots::Beds;

/// Longer than all takes that happens before it ends.
const LEASE: Duration = Duration::from_secs(8);

/// Pulls two through a proxy that breaks the connection when so many are held, before the answer comes.
async fn pull_twice(queue: &RedisQueue, name: &str, proxy: &Proxy, server: &Server) -> Vec<RawDelivery> {
    proxy.set(Fault::DropReplies).await.unwrap();
    let breaking = async {
        let (leased, started) = (format!("HLEN resent:{{{name}}}:leases"), Instant::now());
        while command(server, &leased).await != Value::Int(3) {
            assert!(started.elapsed() < SOON, "it was not sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.set(Fault::Pass).await.unwrap();
        proxy.reset_all();
    };
    let partition = part(name);
    let pulling = queue.pull(&partition, PullRequest::new(2, Duration::ZERO, LEASE));
    tokio::join!(pulling, breaking).0.unwrap()
}

#[tokio::test]
async fn what_a_pull_took_that_ran_twice_comes_back_when_its_lease_ends() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let (server, name) = (&beds.cluster.nodes()[0], beds.names()[0]);
    let proxy = Proxy::start(server.addr()).unwrap();
    // Clients that ask this server for the cluster's servers meet it behind the proxy.
    command(server, "CONFIG SET cluster-announce-ip 127.0.0.1").await;
    command(server, &format!("CONFIG SET cluster-announce-port {}", proxy.addr().port())).await;
    let url = format!("redis-cluster://{}?prefix=resent", proxy.addr());
    let (queue, p) = (RedisQueue::open(&url).await.unwrap(), part(name));
    assert!(pull(&queue, &p, 1).await.is_empty()); // now the server knows the script
    push(&queue, &p, &messages(&["1", "2", "3", "4", "5"])).await;
    let held = pull_twice(&queue, name, &proxy, server).await;
    assert_eq!(texts(&held), ["3", "4"], "the client did not send it again");
    // One that is extended and one that is settled leave the claim, which goes on with those that nobody knows of.
    let extension = Extension { lease: held[0].lease.clone(), duration: 10 * LEASE };
    assert!(queue.extend(&[extension]).await.remove(0).is_ok());
    settle(&queue, &held[1..], Action::Remove).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["5"]);
    assert_eq!(texts(&pull_wait(&queue, &p, 9).await), ["1", "2"]);
    settle(&queue, &held[..1], Action::Remove).await;
}
