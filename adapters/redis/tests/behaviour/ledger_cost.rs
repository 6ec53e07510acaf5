//! What ends cost: no further call, and those who have none pay nothing.

use anyqueue::adapter::{Action, EndedQuery, InspectQueueStorage, LedgerQueueStorage, Settlement};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Proxy, Redis};

use crate::common::{Bed, fill, part, pull, settle};
use crate::ledger::{done, record, settle_all, with_end};
use crate::successors_cost::scripts;

const MESSAGES: usize = 100;

#[tokio::test]
async fn an_end_needs_no_further_call_and_without_ends_nothing_else_is_done() {
    let Some(bed) = Bed::find().await else { return };
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let (queue, p) = (RedisQueue::open(&url).await.unwrap(), part("p"));
    fill(&queue, &p, 2 * MESSAGES, |message| message).await;
    for has_ends in [false, true] {
        let held = pull(&queue, &p, MESSAGES).await;
        let plain =
            |held: &anyqueue::adapter::RawDelivery| Settlement::new(held.lease.clone(), Action::Remove);
        let settlements: Vec<_> =
            held.iter().map(|held| if has_ends { with_end(held, done()) } else { plain(held) }).collect();
        bed.run("CONFIG RESETSTAT").await;
        let before = proxy.traffic().to_server_bytes;
        settle_all(&queue, &settlements).await;
        let sent = proxy.traffic().to_server_bytes - before;
        assert_eq!(scripts(&bed).await.0, 1);
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
        let of_ends =
            ["hset", "zadd", "zcard", "hmget"].map(|name| stats.contains(&format!("cmdstat_{name}:")));
        if has_ends {
            assert_eq!(of_ends, [true; 4], "{stats}");
        } else {
            assert_eq!(of_ends, [false, false, false, true], "{stats}"); // the leases are read
            assert!(sent <= 100 * 16 + 18 * 20 + 200, "{sent} bytes");
        }
    }
}

/// The least time that the server spends on removing a hundred messages, in microseconds for each of them.
async fn least_us(bed: &Bed, queue: &RedisQueue, has_ends: bool) -> f64 {
    let (p, mut least) = (part("p"), f64::MAX);
    for _ in 0..30 {
        fill(queue, &p, MESSAGES, |message| message).await;
        let held = pull(queue, &p, MESSAGES).await;
        bed.run("CONFIG RESETSTAT").await;
        if has_ends {
            let ends: Vec<_> = held.iter().map(|held| with_end(held, done())).collect();
            settle_all(queue, &ends).await;
        } else {
            settle(queue, &held, Action::Remove).await;
        }
        least = least.min(scripts(bed).await.1 / 100.0);
    }
    least
}

#[tokio::test]
async fn an_end_costs_the_server_a_few_microseconds_however_many_are_kept() {
    const KEPT: usize = 100_000;
    let Some(bed) = Bed::with(Redis::new().setting("appendonly", "no")).await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let (bare, few) = (least_us(&bed, &queue, false).await, least_us(&bed, &queue, true).await);
    let ids: Vec<_> = (0..KEPT).map(|_| anyqueue::MessageId::new()).collect();
    let before = bed.info("used_memory").await;
    record(&queue, &p, &ids, &done()).await;
    let each = bed.info("used_memory").await.saturating_sub(before) / KEPT as u64;
    let many = least_us(&bed, &queue, true).await;
    println!(
        "a removal takes {bare} us of the server, with an end {few} us, beside {KEPT} others {many} us; an end takes {each} bytes"
    );
    assert!(few <= bare + 15.0 && many <= 2.0 * few + 5.0, "{bare} {few} {many}");
    assert!(each <= 600, "{each} bytes");
    let counts = queue.counts(&p).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(0), Some(0)));
    bed.run("CONFIG RESETSTAT").await;
    assert!(queue.count_ended(&p, &EndedQuery::default(), u64::MAX).await.unwrap() >= KEPT as u64);
    assert_eq!(scripts(&bed).await.0, 1, "the server knows how many there are");
}
