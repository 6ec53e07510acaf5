//! What successors cost: no further call; and those who have none pay nothing.

use anyqueue::MessageData;
use anyqueue::adapter::{Action, PullQueueStorage};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::Proxy;

use crate::common::{Bed, fill, part, pull, push, settle};
use crate::successors::bring;

/// How many scripts the server ran, and how long it took for them, in microseconds, since it was asked to count anew.
pub(crate) async fn scripts(bed: &Bed) -> (u64, f64) {
    let line = bed.text_info("cmdstat_evalsha").await;
    let number = |name: &str| line.split(name).nth(1).unwrap().split(',').next().unwrap().to_owned();
    (number("calls=").parse().unwrap(), number("usec=").parse().unwrap())
}

#[tokio::test]
async fn a_settlement_is_one_call_and_without_successors_nothing_else() {
    let Some(bed) = Bed::find().await else { return };
    let proxy = Proxy::start(bed.server.addr()).unwrap();
    let url = bed.url().replace(&bed.server.addr().to_string(), &proxy.addr().to_string());
    let (queue, p) = (RedisQueue::open(&url).await.unwrap(), part("p"));
    fill(&queue, &p, 1000, |message| message).await;
    let plain = pull(&queue, &p, 100).await;
    bed.run("CONFIG RESETSTAT").await;
    let before = proxy.traffic().to_server_bytes;
    settle(&queue, &plain, Action::Remove).await;
    let sent = proxy.traffic().to_server_bytes - before;
    assert_eq!(scripts(&bed).await.0, 1);
    // Ids, a token for each window of them, and what every call has.
    assert!(sent <= 100 * 16 + 18 * 20 + 200, "{sent} bytes");
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
    assert!(!stats.contains("cmdstat_zadd"), "what successors need was done: {stats}");
    for names in [["next", "p"], ["next", "another"]] {
        let held = pull(&queue, &p, 100).await;
        let then = || names.map(|name| (name, MessageData::new("child")));
        let settlements: Vec<_> = held.iter().map(|held| bring(held, Action::Remove, then())).collect();
        bed.run("CONFIG RESETSTAT").await;
        assert!(queue.settle(&settlements).await.into_iter().all(|outcome| outcome.is_ok()));
        assert_eq!(scripts(&bed).await.0, 1);
    }
}

#[tokio::test]
async fn an_end_with_a_successor_takes_the_server_hardly_longer_than_an_end_and_a_push() {
    const MESSAGES: usize = 100;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let mut least = [f64::MAX; 2];
    for round in 0..60 {
        fill(&queue, &p, MESSAGES, |message| message).await;
        let held = pull(&queue, &p, MESSAGES).await;
        let next: Vec<_> = (0..MESSAGES).map(|_| MessageData::new([b'.'; 100])).collect();
        bed.run("CONFIG RESETSTAT").await;
        if round % 2 == 0 {
            settle(&queue, &held, Action::Remove).await;
            push(&queue, &part("next"), &next).await;
        } else {
            let both = held.iter().zip(next);
            let both: Vec<_> =
                both.map(|(held, next)| bring(held, Action::Remove, [("next", next)])).collect();
            assert!(queue.settle(&both).await.into_iter().all(|outcome| outcome.is_ok()));
        }
        let (_, used) = scripts(&bed).await;
        least[round % 2] = least[round % 2].min(used);
    }
    println!("two calls take {} us of the server, one takes {} us", least[0], least[1]);
    assert!(least[1] <= 1.3 * least[0] + 50.0, "{least:?}");
}
