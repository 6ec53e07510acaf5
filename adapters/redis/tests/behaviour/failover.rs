//! Masters that die while others stand ready: in a cluster, and under a sentinel.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyqueue::adapter::{
    Action, DurabilityLevel, InspectQueueStorage, MoveGuarantee, PullQueueStorage, PullRequest, QueueStorage,
    Strictness,
};
use anyqueue::{ErrorKind, Headers, MessageData, RetryClass};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Redis, RedisCluster, RedisSentinel, start_if_installed};

use crate::common::{LEASE, command, messages, part, pull, pull_wait, push, settle, texts};
use crate::faults::Load;

/// Each of six partitions, which are on different servers.
const MESSAGES: usize = 6000;
/// For the others to notice, to vote, and for a busy machine.
const HEALED: Duration = Duration::from_mins(2);

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
async fn what_the_replica_had_not_read_is_lost_and_the_rest_is_there_in_order() {
    let Some(master) = start_if_installed(Redis::new()).await.unwrap() else { return };
    let replica = start_if_installed(Redis::new().replica_of(master.addr())).await.unwrap().unwrap();
    let sentinel = start_if_installed(RedisSentinel::new("mine", master.addr())).await.unwrap().unwrap();
    let (queue, p) = (RedisQueue::open(sentinel.url()).await.unwrap(), part("p"));
    replica.freeze().await.unwrap();
    let mut acknowledged = Vec::new();
    for _ in 0..12 {
        // Together more than the system keeps for a process that does not read.
        let large: Vec<_> = (0..5).map(|_| MessageData::new(vec![b'.'; 1024 * 1024])).collect();
        push(&queue, &p, &large).await;
        acknowledged.extend(large.iter().map(MessageData::id));
    }
    master.kill().await.unwrap();
    replica.thaw().await.unwrap();
    let killed = Instant::now();
    let mut seen = Vec::new();
    loop {
        assert!(killed.elapsed() < HEALED, "the handle does not go on");
        match queue.pull(&p, PullRequest::new(100, Duration::ZERO, LEASE)).await {
            Ok(held) if held.is_empty() => break,
            Ok(held) => seen.extend(held.iter().map(|delivery| delivery.lease.id)),
            Err(error) => assert_ne!(error.retry(), RetryClass::Never, "{error}"),
        }
    }
    let lost = acknowledged.len() - seen.len();
    println!("of {} acknowledged messages of a MiB each {lost} were lost", acknowledged.len());
    assert!(lost > 0, "then a fail-over would take nothing");
    assert_eq!(seen, acknowledged[..seen.len()]);
}

#[tokio::test]
async fn rights_that_sentinels_and_clusters_need_beside_are_told() {
    let cluster = RedisCluster::start_if_installed(Redis::new()).await.unwrap();
    let Some(cluster) = cluster else { return };
    let rights = "~anyqueue:* &anyqueue:* +@read +@write +@scripting +@connection +publish +subscribe +info +time +config|get";
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://app:secret-word@");
    for node in cluster.nodes() {
        command(node, &format!("ACL SETUSER app reset resetchannels on >secret-word {rights}")).await;
    }
    let error = RedisQueue::open(&url).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(error.message().contains("cluster"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret-word"), "{error:?}");
    for node in cluster.nodes() {
        command(node, "ACL SETUSER app +cluster|slots").await;
    }
    let (queue, other, p) =
        (RedisQueue::open(&url).await.unwrap(), RedisQueue::open(&url).await.unwrap(), part("p"));
    let waiting = tokio::spawn({
        let p = p.clone();
        async move { pull_wait(&queue, &p, 1).await }
    });
    push(&other, &p, &messages(&["allowed"])).await;
    assert_eq!(texts(&waiting.await.unwrap()), ["allowed"]);
    let wrong = url.replace("secret-word", "wrong-word");
    let error = RedisQueue::open(&wrong).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::AccessDenied, RetryClass::Never), "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong-word"), "{error:?}");
}

#[tokio::test]
async fn in_a_cluster_waiting_pulls_are_woken_by_pushes_to_any_server() {
    let Some(cluster) = RedisCluster::start_if_installed(Redis::new()).await.unwrap() else { return };
    // No pull would find anything by looking in the time of the test.
    let rarely = RedisQueue::builder(cluster.url()).unwrap().poll_interval(Duration::from_mins(1));
    let (queue, other) = (rarely.open().await.unwrap(), RedisQueue::open(cluster.url()).await.unwrap());
    for number in 0..6 {
        let p = part(&format!("p{number}"));
        let waiting = tokio::spawn({
            let (queue, p) = (queue.clone(), p.clone());
            async move { pull_wait(&queue, &p, 1).await }
        });
        // It waits when it has left its mark.
        let mark = format!("anyqueue:{{{}}}:waits", p.name());
        while cluster_command(&cluster, &["EXISTS", &mark]).await != redis::Value::Int(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        push(&other, &p, &messages(&["hint"])).await;
        assert_eq!(texts(&waiting.await.unwrap()), ["hint"], "partition {number}");
    }
}

async fn cluster_command(cluster: &RedisCluster, words: &[&str]) -> redis::Value {
    let nodes: Vec<_> = cluster.nodes().iter().map(|node| node.url().to_owned()).collect();
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query_async(&mut client.get_async_connection().await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_move_to_another_server_takes_all_along_but_the_key() {
    let Some(cluster) = RedisCluster::start_if_installed(Redis::new()).await.unwrap() else { return };
    let queue = RedisQueue::open(cluster.url()).await.unwrap();
    let from = part("from");
    let message =
        MessageData::new("body").with_header("old", "1").with_group("g").with_dedup_key("k").with_priority(7);
    push(&queue, &from, std::slice::from_ref(&message)).await;
    let held = pull(&queue, &from, 1).await;
    let headers: Headers = [("new".to_owned(), "2".to_owned())].into_iter().collect();
    settle(&queue, &held, Action::Postpone { delay: Duration::ZERO, headers: Some(headers) }).await;
    for number in 0..6 {
        let to = part(&format!("p{number}"));
        let here = if number == 0 { from.clone() } else { part(&format!("p{}", number - 1)) };
        let held = pull(&queue, &here, 1).await;
        settle(&queue, &held, Action::Move { to: to.clone(), headers: None }).await;
        assert!(pull(&queue, &here, 1).await.is_empty(), "it is still in {here:?}");
        assert_eq!(queue.counts(&to).await.unwrap().ready, Some(1));
    }
    push(&queue, &part("p5"), &[MessageData::new("next").with_group("g").with_priority(7)]).await;
    push(&queue, &part("p5"), &[MessageData::new("keyed").with_dedup_key("k")]).await;
    let held = pull(&queue, &part("p5"), 9).await;
    assert_eq!(texts(&held), ["body", "keyed"], "its group's next waits, and its key is free");
    assert_eq!(held[0].lease.id, message.id());
    assert_eq!(held[0].message.headers().get("new").map(String::as_str), Some("2"));
    assert_eq!(held[0].message.headers().get("old"), None);
    assert_eq!(held[0].message.options().priority, 7);
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
