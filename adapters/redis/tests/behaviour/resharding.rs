//! A slot of a cluster that is moved between its servers, to and fro, while its messages are pushed and taken.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage};
use anyqueue::{ErrorKind, MessageData, RetryClass};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Redis, RedisCluster, Server};
use redis::Value;

use crate::common::{LEASE, command, connect, messages, part, pull, push, settle, texts};
use crate::faults::Load;

/// Pushed and taken while the slot is moved.
const LOAD: usize = 20_000;
/// A slot of much more would take so long: time for calls to meet it.
const BETWEEN_KEYS: Duration = Duration::from_millis(3);
/// How long a server that was started again may take to be one of its cluster.
const BACK: Duration = Duration::from_mins(2);

async fn text(server: &Server, words: &str) -> String {
    match command(server, words).await {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        other => panic!("{words}: {other:?}"),
    }
}

/// Moves a slot key by key, as `redis-cli --cluster reshard` does.
pub(crate) async fn move_slot(cluster: &RedisCluster, slot: i64, from: &Server, to: &Server) {
    let (from_id, to_id) = (text(from, "CLUSTER MYID").await, text(to, "CLUSTER MYID").await);
    command(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await;
    command(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await;
    while let Value::Array(keys) = command(from, &format!("CLUSTER GETKEYSINSLOT {slot} 1")).await {
        let Some(Value::BulkString(key)) = keys.into_iter().next() else { break };
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg(to.addr().ip().to_string()).arg(to.addr().port()).arg(&key).arg(0).arg(5000);
        // A key that is at both ends, or one that went away, is an error here.
        let moved: String = migrate.query_async(&mut connect(from).await).await.unwrap();
        assert_eq!(moved, "OK", "{:?}", String::from_utf8_lossy(&key));
        tokio::time::sleep(BETWEEN_KEYS).await;
    }
    let mut told = vec![to, from];
    told.extend(&cluster.nodes()[..3]);
    for node in told {
        command(node, &format!("CLUSTER SETSLOT {slot} NODE {to_id}")).await;
    }
}

/// The first partition of the first server, and its slot.
pub(crate) async fn partition_of_first(cluster: &RedisCluster) -> (String, i64) {
    for number in 0.. {
        let name = format!("p{number}");
        let slot = command(&cluster.nodes()[0], &format!("CLUSTER KEYSLOT {{{name}}}")).await;
        if let Value::Int(slot @ ..5461) = slot {
            return (name, slot);
        }
    }
    unreachable!()
}

/// Its keys stand in no order of age then, as after any restart from a file that was rewritten.
async fn restart_from_rewritten_file(server: &Server, queue: &RedisQueue, name: &str) {
    command(server, "BGREWRITEAOF").await;
    while text(server, "INFO persistence").await.contains("aof_rewrite_in_progress:1") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill().await.unwrap();
    server.restart().await.unwrap();
    let started = Instant::now();
    while !text(server, "CLUSTER INFO").await.contains("cluster_state:ok")
        || queue.counts(&part(name)).await.is_err()
    {
        assert!(started.elapsed() < BACK, "the server does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Messages of every kind: pushed together and alone, large, tried before, of a group, with a key, held, delayed, and dead.
async fn fill_with_all_kinds(queue: &RedisQueue, name: &str) {
    let p = part(name);
    push(queue, &p, &messages(&["tried"])).await;
    let tried = pull(queue, &p, 1).await;
    settle(queue, &tried, Action::Retry).await;
    push(queue, &p, &messages(&["dead"]).into_iter().map(|m| m.with_priority(1)).collect::<Vec<_>>()).await;
    settle(queue, &pull(queue, &p, 1).await, Action::Move { to: p.dead_letters(), headers: None }).await;
    let together: Vec<_> = (0..200).map(|number| MessageData::new(format!("together {number}"))).collect();
    push(queue, &p, &together).await;
    push(queue, &p, &messages(&["alone"])).await;
    push(queue, &p, &[MessageData::new(vec![b'.'; 300_000])]).await;
    let grouped = messages(&["head", "behind"]).into_iter().map(|message| message.with_group("g"));
    push(queue, &p, &grouped.collect::<Vec<_>>()).await;
    push(queue, &p, &[MessageData::new("keyed").with_dedup_key("k")]).await;
    push(queue, &p, &[MessageData::new("delayed").with_delay(10 * LEASE)]).await;
    push(queue, &p, &[MessageData::new("held").with_priority(9)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_where_a_slot_is_moved_to_and_fro_under_load() {
    let redis = Redis::new().setting("cluster-node-timeout", "15000");
    let Some(cluster) = RedisCluster::start_if_installed(redis).await.unwrap() else { return };
    let (name, slot) = partition_of_first(&cluster).await;
    let p = part(&name);
    let (first, second) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    // Of the same slot, with another prefix: what nobody touches meanwhile.
    let kept = RedisQueue::builder(cluster.url()).unwrap().prefix("kept").open().await.unwrap();
    fill_with_all_kinds(&kept, &name).await;
    let held = kept.pull(&p, PullRequest::new(1, Duration::ZERO, 10 * LEASE)).await.unwrap();
    let before = kept.counts(&p).await.unwrap();
    let (pusher, puller) =
        (RedisQueue::open(cluster.url()).await.unwrap(), RedisQueue::open(cluster.url()).await.unwrap());
    let mut preloaded = Vec::new();
    for _ in 0..500 {
        let some: Vec<_> = (0..20).map(|_| MessageData::new("load")).collect();
        preloaded.extend(some.iter().map(MessageData::id));
        push(&pusher, &p, &some).await;
    }
    restart_from_rewritten_file(first, &kept, &name).await;
    let load = Load::start(&pusher, &puller, &p, LOAD);
    for (from, to) in [(first, second), (second, first), (first, second)] {
        let moved = Instant::now();
        move_slot(&cluster, slot, from, to).await;
        println!("the slot was moved in {:?}", moved.elapsed());
        while !(load.is_over() || load.stored.since(moved) && load.taken.since(moved)) {
            assert!(moved.elapsed() < BACK, "the handles do not go on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(!load.is_pushed(), "the load was over before the slot was moved three times");
    let (mut acknowledged, seen) = load.end().await;
    acknowledged.extend(preloaded);
    let lost = acknowledged.difference(&seen).count();
    assert_eq!((acknowledged.len(), lost), (LOAD + 10_000, 0), "acknowledged, and lost of these");
    let left = puller.counts(&p).await.unwrap();
    assert_eq!((left.ready, left.leased, left.delayed, left.dead), (Some(0), Some(0), Some(0), Some(0)));
    // What nobody touched is as it was.
    assert_eq!(kept.counts(&p).await.unwrap(), before);
    settle(&kept, &held, Action::Remove).await;
    let rest = pull(&kept, &p, 1000).await;
    let mut expected = vec!["tried".to_owned()];
    expected.extend((0..200).map(|number| format!("together {number}")));
    expected.extend(["alone".to_owned(), ".".repeat(300_000), "head".to_owned(), "keyed".to_owned()]);
    let mut came = rest.clone();
    while let more @ [_, ..] = &pull(&kept, &p, 1000).await[..] {
        came.extend_from_slice(more);
    }
    assert_eq!(texts(&came), expected);
    assert_eq!(came[0].delivery_count, Some(2));
    assert_eq!(texts(&pull(&kept, &p.dead_letters(), 10).await), ["dead"]);
    settle(&kept, &came, Action::Remove).await;
    assert_eq!(texts(&pull(&kept, &p, 10).await), ["behind"]);
}

#[tokio::test]
async fn while_a_slot_is_open_calls_fail_as_a_whole_and_can_be_repeated() {
    let Some(cluster) = RedisCluster::start_if_installed(Redis::new()).await.unwrap() else { return };
    let (name, slot) = partition_of_first(&cluster).await;
    let (queue, p) = (RedisQueue::open(cluster.url()).await.unwrap(), part(&name));
    push(&queue, &p, &messages(&["a", "b"])).await;
    let held = pull(&queue, &p, 1).await;
    let (from, to) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let (from_id, to_id) = (text(from, "CLUSTER MYID").await, text(to, "CLUSTER MYID").await);
    command(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}")).await;
    command(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}")).await;
    let state = format!("anyqueue:{{{name}}}:state");
    for moved in [false, true] {
        if moved {
            let target = format!("{} {}", to.addr().ip(), to.addr().port());
            command(from, &format!("MIGRATE {target} {state} 0 5000")).await;
        }
        let late = messages(&["c"]);
        let request = PullRequest::new(1, Duration::ZERO, LEASE);
        let (pushed, pulled, counted) =
            tokio::join!(queue.push(&p, &late), queue.pull(&p, request), queue.counts(&p));
        for error in
            [pushed.into_iter().next().unwrap().unwrap_err(), pulled.unwrap_err(), counted.unwrap_err()]
        {
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, RetryClass::Safe), "{error}");
        }
    }
    move_slot(&cluster, slot, from, to).await;
    settle(&queue, &held, Action::Remove).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["b"]);
}
