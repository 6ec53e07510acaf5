//! The same commands on private servers.

use crate::bed::Bed;

/// A queue's way through the commands, and a move there and back.
#[cfg(any(feature = "postgres", feature = "redis"))]
async fn a_queues_way(url: &str) {
    let bed = Bed::at(url);
    bed.ok(&["push", "q", "0", "65"]).await;
    bed.ok(&["push", "q", "later", "--delay", "1h"]).await;
    assert_eq!(bed.counts("q").await, [2, 1, 0, 0]);
    assert_eq!(bed.ok(&["peek", "q", "--json"]).await.objects().len(), 3);
    bed.ok(&["doctor", "--probe"]).await;
    bed.ok(&["work", "q", "--once", "--exec", "exit $(cat)"]).await;
    assert_eq!(bed.counts("q").await, [0, 1, 0, 1]);
    bed.ok(&["move", url, "sqlite:file.db", "q", "--dead"]).await;
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    bed.ok(&["move", "sqlite:file.db", url, "q", "--dead"]).await;
    assert_eq!(bed.counts("q").await, [0, 1, 0, 1]);
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(letter["dead_reason"].as_str().unwrap().contains("exited with 65"), "{letter}");
    bed.ok(&["dead", "redrive", "q"]).await;
    assert_eq!(bed.ok(&["pull", "q"]).await.out, "65\n");
    bed.ok(&["pause", "q"]).await;
    bed.ok(&["resume", "q"]).await;
    bed.ok(&["purge", "q", "--yes"]).await;
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_queue_on_postgres() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}schema=command_{}", std::process::id());
    a_queues_way(&url).await;
    let bed = Bed::at(&url);
    let facts = bed.ok(&["doctor", "--json"]).await.objects();
    assert!(facts.iter().any(|fact| fact["check"] == "wear" && fact["verdict"] == "ok"), "{facts:?}");
    #[cfg(feature = "conformance")]
    bed.ok(&["conformance", "--case", "push.single"]).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_queue_on_redis() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    let separator = if url.contains('?') { '&' } else { '?' };
    a_queues_way(&format!("{url}{separator}prefix=command_{}", std::process::id())).await;
}
