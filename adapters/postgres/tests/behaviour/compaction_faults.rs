//! Connections that are cut and servers that are killed while what waits is replaced: it has its old content or the new one, whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyqueue::OnDuplicate::Replace;
use anyqueue::adapter::PushQueueStorage;
use anyqueue::{MessageData, PushOutcome, RetryClass};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Direction, Fault, Postgres, Proxy, start_if_installed};

use crate::common::{part, pull, remove};
use crate::compaction::{keyed, push_one};
use crate::faults::{RECOVERY, client, recovered};
use crate::successors::drain;

/// After as many bytes as are needed for all of it, in steps: to the server, then back.
#[tokio::test]
async fn a_connection_cut_anywhere_leaves_the_old_content_or_the_new() {
    const TO_SERVER: u64 = 1800;
    const TO_CLIENT: u64 = 240;
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let proxy = Proxy::start(server.addr()).unwrap();
    let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
    assert_ne!(url, server.url());
    let direct = PostgresQueue::open(server.url()).await.unwrap();
    let cut_off = PostgresQueue::builder(&url).unwrap().max_connections(1).open().await.unwrap();
    let (p, mut failed, mut replaced) = (part("p"), 0, 0);
    let cuts = (0..TO_SERVER).step_by(60).map(|bytes| (Direction::ToServer, bytes));
    for (direction, bytes) in cuts.chain((0..TO_CLIENT).step_by(20).map(|bytes| (Direction::ToClient, bytes)))
    {
        let (old, new) = ("o".repeat(500), "n".repeat(500));
        let first = keyed(&old, Replace);
        assert_eq!(push_one(&direct, &p, first.clone()).await, PushOutcome::Stored(first.id()));
        pull(&cut_off, &part("none"), 1).await; // so that it has a connection
        proxy.set(Fault::CutAfter { direction, bytes }).await.unwrap();
        let pushed = cut_off.push(&p, &[keyed(&new, Replace)]).await.remove(0);
        proxy.set(Fault::Pass).await.unwrap();
        let held = pull(&direct, &p, 9).await;
        assert_eq!(held.len(), 1, "{direction:?} after {bytes} bytes");
        let is_new = held[0].message.payload() == new.as_bytes();
        assert!(is_new || held[0].message.payload() == old.as_bytes());
        match pushed {
            Ok(outcome) => assert!(is_new && outcome == PushOutcome::Replaced(first.id())),
            Err(error) => {
                assert_eq!(error.retry(), RetryClass::Safe, "{error}");
                failed += 1;
            }
        }
        replaced += u32::from(is_new);
        remove(&direct, &held[0].lease).await;
    }
    assert!(failed > 10 && replaced > 5, "{failed} calls failed, {replaced} replaced");
}

const PUSHERS: u64 = 8;

/// Each pusher has a key of its own, so its last push that was acknowledged, or one that was under way, is what is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_replacements_loses_none_that_was_acknowledged() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let queue = client(server.url()).await;
    let (over, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let pushers = (0..PUSHERS).map(|owner| {
        let (queue, over, total) = (queue.clone(), Arc::clone(&over), Arc::clone(&total));
        tokio::spawn(async move {
            let (mut number, mut acknowledged) = (0_u64, 0);
            while !over.load(Ordering::Relaxed) {
                number += 1;
                let content = number.to_string().repeat(usize::try_from(number % 900).unwrap());
                let message = MessageData::new(format!("{owner} {number} {content}"));
                let message = message.with_dedup_key(format!("k{owner}")).with_on_duplicate(Replace);
                if queue.push("p", message).await.is_ok() {
                    acknowledged = number;
                    total.fetch_add(1, Ordering::Relaxed);
                }
            }
            acknowledged..=number
        })
    });
    let pushers: Vec<_> = pushers.collect();
    for share in [300, 600] {
        let reached = async {
            while total.load(Ordering::Relaxed) < share {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(3), reached).await.expect("pushes go on");
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        let took = recovered(&[&queue]).await;
        assert!(took < RECOVERY, "recovery after a kill took {took:?}");
    }
    over.store(true, Ordering::Relaxed);
    let mut last = Vec::new();
    for running in pushers {
        last.push(running.await.unwrap());
    }
    let left = drain(&PostgresQueue::open(server.url()).await.unwrap(), &part("p")).await;
    assert_eq!(left.len(), last.len());
    for text in left {
        let [owner, digits, content] = text.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let (owner, number): (usize, u64) = (owner.parse().unwrap(), digits.parse().unwrap());
        assert!(last[owner].contains(&number), "{number} is left, not one of {:?}", last[owner]);
        assert_eq!(content, digits.repeat(usize::try_from(number % 900).unwrap()));
    }
}
