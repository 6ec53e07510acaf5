//! Pushes that change what waits, while something is damaged, full or killed; and what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyqueue::adapter::{InspectQueueStorage, PushQueueStorage};
use anyqueue::{Error, ErrorKind, MessageData, OnDuplicate, PushOutcome, RetryClass};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy, Redis};
use tokio::task::JoinHandle;

use crate::common::{Bed, LEASE, part, pull, push, texts};
use crate::compaction::{keyed, push_one};

/// Whatever bytes are in its record: no call fails, and what cannot be read stays as it is.
#[tokio::test]
async fn a_damaged_message_is_left_as_it_is() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let first = keyed("first", OnDuplicate::Keep).with_group("g").with_header("name", "value");
    push(&queue, &part("p"), std::slice::from_ref(&first)).await;
    let (key, id, mut conn) = (format!("{}:{{p}}:messages", bed.prefix), first.id(), bed.connect().await);
    let record: Vec<u8> =
        redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
    // With each, whether it surely cannot be read.
    let mut all: Vec<_> = (0..record.len()).map(|length| (record[..length].to_vec(), true)).collect();
    let front = record.windows(3).position(|bytes| bytes == b"\xf6AQ").unwrap();
    for at in 0..record.len() {
        for byte in [0x00, 0x5b, 0x81, 0x9b, 0xa1, 0xbb, 0xff] {
            let mut other = record.clone();
            other[at] = byte;
            all.push((other, at == front + 4)); // another number of fields than there are
        }
    }
    // Items in items, without an end.
    for endless in [0x81, 0xbb] {
        all.push(([&record[..front + 4], &[0xa1, 0x00], &vec![endless; 100_000]].concat(), true));
    }
    for (damaged, is_lost) in all {
        let mut put = redis::cmd("HSET");
        let _: u64 = put.arg(&key).arg(id.as_bytes()).arg(&damaged).query_async(&mut conn).await.unwrap();
        for how in [OnDuplicate::Earlier, OnDuplicate::Replace] {
            let outcome = push_one(&queue, keyed("newer", how)).await;
            if outcome == PushOutcome::Duplicate(Some(id)) {
                let now: Vec<u8> =
                    redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
                assert_eq!(now, damaged);
            } else {
                assert!(!is_lost, "{damaged:x?}");
                assert_eq!(outcome, PushOutcome::Replaced(id));
            }
        }
    }
}

#[tokio::test]
async fn a_full_server_changes_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &[keyed("first", OnDuplicate::Keep).with_delay(LEASE)]).await;
    bed.run("CONFIG SET maxmemory 1").await;
    for how in [OnDuplicate::Replace, OnDuplicate::Earlier] {
        for size in [1, 20_000] {
            let outcome = queue.push(&p, &[keyed(vec![b'.'; size], how)]).await.remove(0);
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Full);
        }
    }
    bed.run("CONFIG SET maxmemory 0").await;
    assert_eq!(queue.counts(&p).await.unwrap().delayed, Some(1));
    let waits = PushOutcome::Replaced;
    let outcome = push_one(&queue, keyed("second", OnDuplicate::Earlier)).await;
    let held = pull(&queue, &p, 9).await;
    assert_eq!((texts(&held), outcome), (vec!["second".to_owned()], waits(held[0].lease.id)));
}

/// Which commands this push makes the server carry out, and how often.
async fn commands(bed: &Bed, queue: &RedisQueue, message: MessageData) -> String {
    bed.run("CONFIG RESETSTAT").await;
    queue.push(&part("p"), &[message]).await.remove(0).unwrap();
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let is_of_test = name.starts_with("client") || name.starts_with("config") || name == "info";
        (!is_of_test).then(|| format!("{name} {}", rest.split(',').next().unwrap_or_default()))
    };
    let mut counts: Vec<_> = stats.lines().filter_map(count).collect();
    counts.sort();
    counts.join(", ")
}

#[tokio::test]
async fn who_only_keeps_pays_nothing_and_a_change_is_one_call() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("p"), &[MessageData::new("x")]).await;
    let plain = commands(&bed, &queue, MessageData::new("x")).await;
    let keeps = commands(&bed, &queue, keyed("x", OnDuplicate::Keep)).await;
    let again = commands(&bed, &queue, keyed("x", OnDuplicate::Keep)).await;
    let replaces = commands(&bed, &queue, keyed("x", OnDuplicate::Replace)).await;
    assert_eq!(plain, "evalsha 1, exists 2, getdel 1, hmget 3, hset 1, rpush 1, time 1, zrangebyscore 1");
    assert_eq!(
        keeps,
        "evalsha 1, exists 2, getdel 1, hget 1, hmget 3, hset 2, rpush 1, time 1, zrangebyscore 1"
    );
    assert_eq!(again, "evalsha 1, exists 1, hget 1, hmget 2, time 1, zrangebyscore 1");
    assert_eq!(replaces, "evalsha 1, exists 1, hdel 1, hget 4, hmget 2, hset 1, time 1, zrangebyscore 1");
}

/// Pushes numbers under one key, small ones and bulky ones in turn, each with its number as a header too, until it is stopped.
struct Pusher {
    acknowledged: Arc<AtomicU64>,
    is_stopped: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

fn numbered(number: u64) -> MessageData {
    let size = if number.is_multiple_of(2) { 10 } else { 20_000 };
    let text = format!("{number} {}", ".".repeat(size));
    keyed(text, OnDuplicate::Replace).with_header("number", number.to_string())
}

impl Pusher {
    fn start(queue: RedisQueue) -> Self {
        let (acknowledged, is_stopped) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (last, stop) = (Arc::clone(&acknowledged), Arc::clone(&is_stopped));
        let task = tokio::spawn(async move {
            let mut number = 1;
            while !stop.load(Ordering::Relaxed) {
                match queue.push(&part("p"), &[numbered(number)]).await.remove(0) {
                    Ok(_) => last.store(number, Ordering::Relaxed),
                    Err(error) => wait_after(&error).await,
                }
                number += 1;
            }
            number - 1
        });
        Self { acknowledged, is_stopped, task }
    }

    async fn reach(&self, number: u64) {
        let started = Instant::now();
        while self.acknowledged.load(Ordering::Relaxed) < number {
            assert!(started.elapsed() < Duration::from_mins(2), "it does not go on");
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    }

    /// Returns the last number that was acknowledged, and the last one.
    async fn stop(self) -> [u64; 2] {
        self.is_stopped.store(true, Ordering::Relaxed);
        let last = self.task.await.unwrap();
        [self.acknowledged.load(Ordering::Relaxed), last]
    }
}

async fn wait_after(error: &Error) {
    assert_ne!(error.retry(), RetryClass::Never, "{error}");
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// One message is there, whole, and no older than the last that was acknowledged.
async fn check(bed: &Bed, acknowledged: u64, last: u64) {
    let held = pull(&bed.open().await, &part("p"), 9).await;
    assert_eq!(held.len(), 1);
    let number: u64 = held[0].message.headers()["number"].parse().unwrap();
    assert_eq!(held[0].message.payload(), numbered(number).payload());
    assert!((acknowledged..=last).contains(&number), "{number}, of {acknowledged} to {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_has_old_or_new_content_and_it_is_whole() {
    let Some(bed) = Bed::with(Redis::new().setting("appendfsync", "always")).await else { return };
    for kill in 1..=5 {
        let pusher = Pusher::start(bed.open().await);
        pusher.reach(40 * kill).await;
        bed.server.kill().await.unwrap();
        let [acknowledged, last] = pusher.stop().await;
        bed.server.restart().await.unwrap();
        check(&bed, acknowledged, last).await;
        bed.run("FLUSHALL").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_connections_break_there_is_old_or_new_content_and_it_is_whole() {
    let Some(bed) = Bed::find().await else { return };
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let pusher = Pusher::start(RedisQueue::open(&url).await.unwrap());
    for cut in 1..=20 {
        pusher.reach(30 * cut).await;
        // Now and then the call is done and nobody is told.
        proxy.set(if cut % 2 == 0 { Fault::DropReplies } else { Fault::Pass }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        proxy.reset_all();
        proxy.set(Fault::Pass).await.unwrap();
        proxy.reset_all();
    }
    let [acknowledged, last] = pusher.stop().await;
    check(&bed, acknowledged, last).await;
}
