//! Of many processes that enter calls at once none is lost, on each backend that keeps a trail.

use std::collections::BTreeSet;

use anyqueue::control::ControlStore;
use anyqueue::{Page, Queue};
use anyqueue_control::audit::{Audit, Outcome};
use anyqueue_testkit::{Postgres, Redis, provide};
use futures_util::future::join_all;

use crate::{call, store};

/// Eight processes, each with ten calls at once, three times.
async fn of_many_who_enter_calls_at_once_none_is_lost(stores: Vec<ControlStore>) {
    let audits: Vec<_> = stores.into_iter().map(Audit::new).collect();
    let all = audits.iter().cloned().zip(0..).map(|(audit, instance)| {
        tokio::spawn(async move {
            for round in 0..3_u64 {
                let calls: Vec<_> =
                    (0..10_u64).map(|place| call(instance * 100 + round * 10 + place)).collect();
                let entered = join_all(calls.iter().map(|call| audit.begin(call))).await;
                for one in entered {
                    audit.end(one.unwrap(), &Outcome::new(200)).await.unwrap();
                }
            }
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let (mut entries, mut before) = (Vec::new(), None);
    loop {
        let page = audits[0].list(Page::of(100).after(before)).await.unwrap();
        entries.extend(page.entries);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let paths: BTreeSet<_> = entries.iter().map(|entry| entry.path.clone()).collect();
    assert_eq!((entries.len(), paths.len()), (240, 240));
    assert!(entries.iter().map(|entry| entry.number).eq((1..=240).rev()), "without a gap");
    assert!(entries.iter().all(|entry| entry.outcome.as_ref().is_some_and(|outcome| outcome.status == 200)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_in_memory_none_is_lost() {
    let store = store();
    of_many_who_enter_calls_at_once_none_is_lost(vec![store; 8]).await;
}

/// The same with a connection for each.
async fn of_many_with_connections_none_is_lost(url: &str) {
    let (mut queues, mut stores) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let queue = Queue::new(anyqueue_backends::open(url).await.unwrap()).unwrap();
        queue.init().await.unwrap();
        stores.push(queue.control().unwrap());
        queues.push(queue);
    }
    of_many_who_enter_calls_at_once_none_is_lost(stores).await;
    for queue in queues {
        queue.close().await.unwrap();
    }
}

fn apart(url: &str, option: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{option}=audit_{}", std::process::id())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_on_sqlite_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    of_many_with_connections_none_is_lost(&format!("sqlite:{}?busy_timeout=30s", file.display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_on_postgres_none_is_lost() {
    let server = provide(Postgres::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    of_many_with_connections_none_is_lost(&apart(url, "schema")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_on_redis_none_is_lost() {
    let server = provide(Redis::new()).await.unwrap();
    let Some(url) = server.url() else { return };
    of_many_with_connections_none_is_lost(&apart(url, "prefix")).await;
}
