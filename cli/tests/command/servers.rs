//! The same commands on private servers.

#[cfg(feature = "redis")]
use std::time::Duration;

use crate::bed::{Bed, until};

/// A queue's way through the commands, and a move there and back.
#[cfg(any(feature = "postgres", feature = "redis"))]
async fn a_queues_way(url: &str) {
    let bed = Bed::at(url);
    bed.ok(&["push", "q", "0", "65"]).await;
    bed.ok(&["push", "q", "later", "--delay", "1h"]).await;
    assert_eq!(bed.counts("q").await, [2, 1, 0, 0]);
    assert_eq!(bed.ok(&["peek", "q", "--json"]).await.objects().len(), 3);
    let checked = bed.ok(&["doctor", "--probe", "--max-clock-skew", "1s", "--json"]).await.objects();
    assert!(checked.iter().any(|fact| fact["check"] == "clock" && fact["verdict"] == "ok"), "{checked:?}");
    bed.ok(&["work", "q", "--once", "--exec", "exit $(cat)"]).await;
    assert_eq!(bed.counts("q").await, [0, 1, 0, 1]);
    bed.ok(&["move", url, "sqlite:file.db", "q", "--dead"]).await;
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    bed.ok(&["move", "sqlite:file.db", url, "q", "--dead"]).await;
    assert_eq!(bed.counts("q").await, [0, 1, 0, 1]);
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(letter["dead_reason"].as_str().unwrap().contains("exited with 65"), "{letter}");
    let shown = bed.ok(&["dead", "show", "q", letter["id"].as_str().unwrap(), "--json"]).await.objects();
    assert_eq!(shown[0]["payload"], "65", "{shown:?}");
    bed.ok(&["dead", "redrive", "q"]).await;
    assert_eq!(bed.ok(&["pull", "q"]).await.out, "65\n");
    bed.ok(&["pause", "q"]).await;
    bed.ok(&["resume", "q"]).await;
    bed.ok(&["purge", "q", "--yes"]).await;
    assert_eq!(bed.counts("q").await, [0, 0, 0, 0]);
    bed.ok(&["tokens", "create", "mailer", "--right", "push"]).await;
    assert_eq!(bed.ok(&["tokens", "list", "--json"]).await.objects()[0]["name"], "mailer");
    bed.ok(&["tokens", "delete", "mailer"]).await;
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
    assert!(
        facts.iter().any(|fact| fact["check"] == "oldest transaction" && fact["verdict"] == "ok"),
        "{facts:?}"
    );
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

/// The way of a queue on a broker, which cannot be looked into: as far as it goes there, and a move there and back.
#[cfg(any(feature = "rabbitmq", feature = "sqs"))]
async fn a_brokers_way(url: &str) {
    const FILE: &str = "sqlite:file.db";
    let bed = Bed::at(url);
    bed.ok(&["push", "q", "0", "65"]).await;
    has_count(&bed, url, "ready", 2).await;
    let checked =
        bed.ok(&["doctor", "--probe", "--json", "--queue", "q", "--max-ready", "2"]).await.objects();
    assert!(checked.iter().all(|finding| finding["verdict"] != "failed"), "{checked:?}");
    let create = ["tokens", "create", "mailer", "--right", "push"];
    let nowhere = bed.run(&create).await.ended_with(1);
    assert!(nowhere.err.contains("(unsupported)") && nowhere.err.contains("--control-url"), "{nowhere:?}");
    #[cfg(feature = "serve")]
    {
        let serve = bed.run(&["serve", "--listen", "127.0.0.1:0", "--require-tokens"]).await.ended_with(2);
        assert!(serve.err.contains("tokens are required, and this backend keeps none"), "{serve:?}");
    }
    let control = ["--control-url", "sqlite:control.db"];
    bed.ok(&[&create[..], &control].concat()).await;
    bed.ok(&[&["tokens", "delete", "mailer"][..], &control].concat()).await;
    let peek = bed.run(&["peek", "q"]).await;
    assert!(peek.code == Some(1) && peek.err.contains("(unsupported)"), "it cannot be browsed: {peek:?}");
    bed.ok(&["work", "q", "--once", "--exec", "exit $(cat)"]).await;
    has_count(&bed, url, "dead", 1).await;
    has_count(&bed, url, "ready", 0).await;
    let letter = bed.ok(&["dead", "list", "q", "--json"]).await.objects().remove(0);
    assert!(letter["dead_reason"].as_str().unwrap().contains("exited with 65"), "{letter}");
    bed.ok(&["push", "q", "live"]).await;
    let moved = bed.run(&["move", url, FILE, "q", "--dead"]).await.ended_with(1);
    assert!(moved.err.contains("cannot tell whether delayed messages are left"), "{moved:?}");
    bed.ok(&["move", url, FILE, "q", "--dead", "--accept-unknown"]).await;
    has_count(&bed, FILE, "ready", 1).await;
    has_count(&bed, FILE, "dead", 1).await;
    bed.ok(&["move", FILE, url, "q", "--dead"]).await;
    has_count(&bed, FILE, "dead", 0).await;
    has_count(&bed, url, "dead", 1).await;
    assert_eq!(bed.ok(&["pull", "q", "--wait", "10s"]).await.out, "live\n");
    bed.ok(&["dead", "redrive", "q"]).await;
    assert_eq!(bed.ok(&["pull", "q", "--wait", "10s"]).await.out, "65\n");
    has_count(&bed, url, "dead", 0).await;
    a_ledger_beside(url).await;
}

/// What becomes of a broker's tasks is kept in a file.
#[cfg(any(feature = "rabbitmq", feature = "sqs"))]
async fn a_ledger_beside(url: &str) {
    let bed = Bed::at(url);
    let beside = ["--ledger-url", "sqlite:ends.db?create=true", "--json"];
    let said = bed.ok(&["push", "kept", "fine", "65", "--json"]).await.objects();
    let exec = "it=$(cat); printf %s $it; [ $it = fine ] || exit $it";
    bed.ok(&[&["work", "kept", "--once", "--keep-output", "--exec", exec][..], &beside].concat()).await;
    let states = async |id: &str| {
        let shown = bed.run(&[&["tasks", "show", "kept", id][..], &beside].concat()).await;
        shown.objects().first().map(|task| (task["state"].clone(), task["result"].clone()))
    };
    let ids: Vec<_> = said.iter().map(|line| line["id"].as_str().unwrap()).collect();
    let (state, result) = states(ids[0]).await.expect("its end is kept");
    assert_eq!((state, result), ("succeeded".into(), "fine".into()));
    let (state, _) = states(ids[1]).await.expect("that it is dead is kept");
    assert_eq!(state, "failed");
    let push = ["push", "kept", "later", "--delay", "5m"];
    let later = bed.ok(&[&push[..], &beside].concat()).await.objects();
    let (state, _) = states(later[0]["id"].as_str().unwrap()).await.expect("that it waits is kept");
    assert_eq!(state, "scheduled");
    let reconcile = ["ledger", "reconcile", "kept", "--older-than", "0s"];
    let reconciled = async |more: &[&str]| {
        let said = bed.ok(&[&reconcile[..], more, &beside].concat()).await.objects();
        (said[0]["forgotten"].as_u64(), said[0]["would_forget"].as_u64())
    };
    assert_eq!(reconciled(&[]).await, (Some(0), None), "one is dead, and one is not due");
    assert_eq!(reconciled(&["--dead", "--dry-run"]).await, (None, Some(1)));
    assert_eq!(reconciled(&["--dead"]).await, (Some(1), None), "it was there still");
    let count = bed.ok(&[&["tasks", "count", "kept", "--state", "succeeded"][..], &beside].concat()).await;
    assert_eq!(count.objects()[0]["count"], 1);
    let checked = bed.ok(&[&["doctor"][..], &beside].concat()).await.objects();
    let beside_is_fine =
        |finding: &serde_json::Value| finding["check"] == "ledger beside" && finding["verdict"] == "ok";
    assert!(checked.iter().any(beside_is_fine), "{checked:?}");
}

/// Waits until the backend counts so many: its counts may be a moment old.
#[cfg(any(feature = "rabbitmq", feature = "sqs"))]
async fn has_count(bed: &Bed, url: &str, state: &str, count: u64) {
    until(&format!("{count} {state} in {url}"), async || {
        let rows = bed.ok(&["stats", "q", "--json", "--url", url]).await.objects();
        (rows[0][state].as_u64() == Some(count)).then_some(())
    })
    .await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test]
async fn a_queue_on_rabbitmq() {
    let Some(url) = crate::bed::rabbitmq().await else { return };
    let separator = if url.contains('?') { '&' } else { '?' };
    a_brokers_way(&format!("{url}{separator}prefix=command_{}", std::process::id())).await;
}

#[cfg(feature = "sqs")]
#[tokio::test]
async fn a_queue_on_sqs() {
    let server = anyqueue_testkit::provide(anyqueue_testkit::Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    a_brokers_way(&format!("sqs://test:test@us-east-1/command_{}?endpoint={endpoint}", std::process::id()))
        .await;
}

#[cfg(feature = "sqs")]
#[tokio::test]
async fn a_fifo_queue_drops_a_key_that_comes_again_and_a_move_trusts_it_with_none() {
    const FILE: &str = "sqlite:file.db";
    let server = anyqueue_testkit::provide(anyqueue_testkit::Ministack::new()).await.unwrap();
    let Some(endpoint) = server.url() else { return };
    let prefix = format!("command_fifo_{}", std::process::id());
    let fifo = format!("sqs://test:test@us-east-1/{prefix}?endpoint={endpoint}&fifo=true");
    let bed = Bed::at(&fifo);
    let push = ["push", "q", "--dedup-key", "k"];
    bed.ok(&[&push[..], &["first"]].concat()).await;
    assert_eq!(bed.ok(&["pull", "q", "--wait", "10s"]).await.out, "first\n");
    bed.ok(&[&push[..], &["again"]].concat()).await;
    bed.ok(&["push", "q", "without a key"]).await;
    assert_eq!(bed.ok(&["pull", "q", "--wait", "10s"]).await.out, "without a key\n");

    bed.ok(&[&push[..], &["moved", "--url", "sqlite:file.db?create=true"]].concat()).await;
    let refused = bed.run(&["move", FILE, &fifo, "q"]).await;
    assert!(refused.err.contains("--without dedup-key"), "{refused:?}");
    has_count(&bed, FILE, "ready", 1).await;
    bed.ok(&["move", FILE, &fifo, "q", "--without", "dedup-key"]).await;
    has_count(&bed, FILE, "ready", 0).await;
    assert_eq!(bed.ok(&["pull", "q", "--wait", "10s"]).await.out, "moved\n");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn watched_counts_outlive_an_outage() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let redis = anyqueue_testkit::Redis::new().setting("appendfsync", "always");
    let Some(server) = anyqueue_testkit::start_if_installed(redis).await.unwrap() else { return };
    let bed = Bed::at(server.url());
    bed.ok(&["push", "q", "x"]).await;
    let mut watch = bed.command(&["stats", "q", "--watch", "50ms", "--json"]).spawn().unwrap();
    let mut rows = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut told = BufReader::new(watch.stderr.take().unwrap()).lines();
    let begin = async {
        rows.next_line().await.unwrap().unwrap();
        server.kill().await.unwrap();
        let trouble = told.next_line().await.unwrap().unwrap();
        assert!(trouble.contains("redis"), "{trouble}");
        server.restart().await.unwrap();
        // Many may have been written before the end.
        while rows.next_line().await.unwrap().unwrap().contains("\"ready\":1") {
            if bed.run(&["push", "q", "y"]).await.code == Some(0) {
                break;
            }
        }
        while !rows.next_line().await.unwrap().unwrap().contains("\"ready\":2") {}
    };
    tokio::time::timeout(crate::bed::PATIENCE, begin).await.expect("it goes on after the outage");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn an_outage_is_told_while_every_slot_is_taken() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    let Some(server) = anyqueue_testkit::start_if_installed(anyqueue_testkit::Redis::new()).await.unwrap()
    else {
        return;
    };
    let bed = Bed::at(server.url());
    bed.ok(&["push", "q", "1", "2"]).await;
    // The commands end when the server has.
    let exec = "echo begun > begun$(cat); while [ -d $PWD ] && [ ! -e down ]; do sleep 0.1; done";
    let mut worker = bed.command(&["work", "q", "-j", "2", "--drain", "0s", "--exec", exec]).spawn().unwrap();
    bed.line_of("begun1").await;
    bed.line_of("begun2").await;
    server.kill().await.unwrap();
    std::fs::write(bed.path("down"), "").unwrap();
    let mut told = BufReader::new(worker.stderr.take().unwrap()).lines();
    // Long before the leases end, after half a minute: then pulls would fail and be told.
    let line = tokio::time::timeout(Duration::from_secs(25), told.next_line()).await;
    let line = line.expect("the outage is told").unwrap().unwrap();
    assert!(line.contains("q: the backend fails, trying again: redis"), "{line}");
}

/// The address of a server in a URL, under another scheme.
#[cfg(all(feature = "postgres", feature = "redis", feature = "rabbitmq"))]
fn at_scheme(scheme: &str, url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    let address = rest.rsplit('@').next().unwrap().split(['/', '?']).next().unwrap();
    format!("{scheme}://{address}/")
}

#[cfg(all(feature = "postgres", feature = "redis", feature = "rabbitmq"))]
#[tokio::test]
async fn another_server_at_the_port_is_named() {
    let (postgres, redis, rabbitmq) = tokio::join!(
        anyqueue_testkit::provide(anyqueue_testkit::Postgres::new()),
        anyqueue_testkit::provide(anyqueue_testkit::Redis::new()),
        crate::bed::rabbitmq(),
    );
    let (postgres, redis) = (postgres.unwrap(), redis.unwrap());
    let bed = Bed::new();
    for (name, url) in [("PostgreSQL", postgres.url()), ("Redis", redis.url()), ("RabbitMQ", rabbitmq)] {
        let Some(url) = url else { continue };
        for (own, scheme) in [("PostgreSQL", "postgres"), ("Redis", "redis"), ("RabbitMQ", "amqp")] {
            if own != name {
                let ran = bed.run(&["stats", "--url", &at_scheme(scheme, url)]).await.ended_with(1);
                assert!(
                    ran.err.contains(&format!("a {name} server is there")),
                    "{scheme} at {name}: {ran:?}"
                );
            }
        }
    }
    for scheme in ["postgres", "redis", "amqp"] {
        let ran = bed.run(&["doctor", &format!("{scheme}://127.0.0.1:1/")]).await.ended_with(3);
        assert!(ran.out.contains("port 1 of 127.0.0.1: nothing listens there"), "{ran:?}");
    }
}
