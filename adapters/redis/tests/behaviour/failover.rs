//! Masters that die while others stand ready: in a cluster, and under a sentinel.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyqueue::{DurabilityLevel, MoveGuarantee, QueueStorage, Strictness};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Redis, RedisCluster, RedisSentinel, start_if_installed};

use crate::common::{command, messages, part, pull, push, texts};
use crate::faults::Load;

/// Each of six partitions, which are on different servers.
const MESSAGES: usize = 6000;
/// For the others to notice, to vote, and for a busy machine.
const HEALED: Duration = Duration::from_secs(40);

/// Until each load has gone on since then.
async fn go_on(loads: &[Load], since: Instant) {
    let goes_on = |load: &Load| load.is_over() || (load.stored.since(since) && load.taken.since(since));
    while !loads.iter().all(goes_on) {
        let which: Vec<_> = loads.iter().map(goes_on).collect();
        assert!(since.elapsed() < HEALED, "the handles do not go on: {which:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn reach(loads: &[Load], count: usize) {
    while loads.iter().any(|load| load.stored.count.load(Ordering::Relaxed) < count) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!loads.iter().any(Load::is_pushed), "the load was over before the server was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_heals_by_itself_and_only_what_was_not_replicated_is_lost() {
    let redis = Redis::new().setting("cluster-node-timeout", "1500");
    let Some(cluster) = RedisCluster::start_if_installed(redis).await.unwrap() else { return };
    let (first, second) =
        (RedisQueue::open(cluster.url()).await.unwrap(), RedisQueue::open(cluster.url()).await.unwrap());
    let dying = &cluster.nodes()[0];
    let (mut loads, mut were_there) = (Vec::new(), Vec::new());
    for number in 0..6 {
        let name = format!("p{number}");
        let slot = command(dying, &format!("CLUSTER KEYSLOT {{{name}}}")).await;
        // The first of three masters has the first third of the slots.
        were_there.push(matches!(slot, redis::Value::Int(..5461)));
        loads.push(Load::start(&first, &second, &part(&name), MESSAGES));
    }
    assert!(were_there.contains(&true) && were_there.contains(&false));
    reach(&loads, MESSAGES / 10).await;
    let killed = Instant::now();
    dying.kill().await.unwrap();
    let voted = tokio::time::sleep(Duration::from_secs(1)); // what was answered on the way is no healing
    voted.await;
    go_on(&loads, Instant::now()).await;
    println!("every partition went on {:?} after the master was killed", killed.elapsed());
    let mut all = 0;
    for (load, was_there) in loads.into_iter().zip(were_there) {
        let (acknowledged, seen) = load.end().await;
        let lost = acknowledged.difference(&seen).count();
        println!(
            "of {} acknowledged messages {lost} were lost, on the killed server: {was_there}",
            acknowledged.len()
        );
        assert!(was_there || lost == 0, "{lost} were lost though their server lived");
        all += acknowledged.len();
    }
    assert_eq!(all, 6 * MESSAGES);
    // The old master comes back as a replica of the new one, and nothing changes.
    dying.restart().await.unwrap();
    push(&first, &part("p0"), &messages(&["after"])).await;
    assert_eq!(texts(&pull(&second, &part("p0"), 1).await), ["after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_handle_goes_on_with_the_master_that_the_sentinel_made() {
    let Some(master) = start_if_installed(Redis::new()).await.unwrap() else { return };
    let _replica = start_if_installed(Redis::new().replica_of(master.addr())).await.unwrap().unwrap();
    let sentinel = start_if_installed(RedisSentinel::new("mine", master.addr())).await.unwrap().unwrap();
    let (first, second) =
        (RedisQueue::open(sentinel.url()).await.unwrap(), RedisQueue::open(sentinel.url()).await.unwrap());
    let loads = [Load::start(&first, &second, &part("p"), 100_000)];
    reach(&loads, 5000).await;
    let killed = Instant::now();
    master.kill().await.unwrap();
    go_on(&loads, Instant::now()).await;
    println!("the handles went on {:?} after the master was killed", killed.elapsed());
    let [load] = loads;
    let (acknowledged, seen) = load.end().await;
    let lost = acknowledged.difference(&seen).count();
    println!("of {} acknowledged messages {lost} were lost", acknowledged.len());
    assert_eq!(acknowledged.len(), 100_000);
    // The old master becomes a replica, and refuses writes from then on.
    master.restart().await.unwrap();
    let demoted = Instant::now();
    while RedisQueue::open(master.url()).await.is_ok() {
        assert!(demoted.elapsed() < HEALED, "the sentinel forgot the old master");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    push(&first, &part("p"), &messages(&["after"])).await;
    assert_eq!(texts(&pull(&second, &part("p"), 1).await), ["after"]);
}

#[tokio::test]
async fn what_a_fail_over_may_take_is_declared() {
    let always = Redis::new().setting("appendfsync", "always");
    let Some(master) = start_if_installed(always.clone()).await.unwrap() else { return };
    let _replica = start_if_installed(always.clone().replica_of(master.addr())).await.unwrap().unwrap();
    let sentinel = start_if_installed(RedisSentinel::new("mine", master.addr())).await.unwrap().unwrap();
    let cluster = RedisCluster::start_if_installed(always).await.unwrap().unwrap();
    for (url, level, exclusive, moves) in [
        (master.url(), DurabilityLevel::PowerLoss, Strictness::Strict, MoveGuarantee::Atomic),
        (sentinel.url(), DurabilityLevel::None, Strictness::BestEffort, MoveGuarantee::Atomic),
        (cluster.url(), DurabilityLevel::None, Strictness::BestEffort, MoveGuarantee::AtLeastOnce),
    ] {
        let queue = RedisQueue::open(url).await.unwrap();
        let declared = queue.capabilities();
        let durability = declared.durability;
        assert_eq!([durability.push, durability.claim, durability.settle], [level; 3], "{url}");
        assert_eq!((declared.exclusive, declared.moves), (exclusive, moves), "{url}");
        assert!(queue.check().await.unwrap().server_version.is_some());
    }
}

#[tokio::test]
async fn who_takes_one_topology_for_another_is_told() {
    let Some(server) = start_if_installed(Redis::new()).await.unwrap() else { return };
    let cluster = RedisCluster::start_if_installed(Redis::new()).await.unwrap().unwrap();
    let node = cluster.nodes()[1].url();
    for (url, said) in [
        (node.to_owned(), "redis-cluster://"),
        (server.url().replace("redis:", "redis-cluster:"), "redis://"),
        (format!("{}?master=mine", server.url().replace("redis:", "redis-sentinel:")), "sentinel"),
        (format!("redis-cluster://{}/3", cluster.nodes()[0].addr()), "database 0"),
    ] {
        let error = RedisQueue::open(&url).await.unwrap_err();
        assert!(error.message().contains(said), "{url}: {error}");
    }
    // One node is enough to find the others.
    let queue = RedisQueue::open(&node.replace("redis:", "redis-cluster:")).await.unwrap();
    for number in 0..6 {
        push(&queue, &part(&format!("p{number}")), &messages(&["x"])).await;
    }
}
