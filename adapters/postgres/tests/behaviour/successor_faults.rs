//! Connections that are cut and servers that are killed while deliveries end: either both are there, the end and its successor, or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyqueue::QueueMessageStatus::Processed;
use anyqueue::adapter::PullQueueStorage;
use anyqueue::{MessageData, Queue, RetryClass, SettleOutcome, Successors};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{Direction, Fault, Postgres, Proxy, start_if_installed};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use crate::common::{part, pull, push};
use crate::faults::{RECOVERY, client, recovered};
use crate::successors::removal;

async fn all_messages(conn: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM anyqueue.message").fetch_one(conn).await.unwrap()
}

/// After as many bytes as are needed for all of it, in steps: to the server, then back.
#[tokio::test]
async fn a_connection_cut_anywhere_leaves_a_delivery_or_its_successor() {
    const TO_SERVER: u64 = 900;
    const TO_CLIENT: u64 = 240;
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let proxy = Proxy::start(server.addr()).unwrap();
    let url = server.url().replace(&server.addr().to_string(), &proxy.addr().to_string());
    assert_ne!(url, server.url());
    let direct = PostgresQueue::open(server.url()).await.unwrap();
    let cut_off = PostgresQueue::builder(&url).unwrap().max_connections(1).open().await.unwrap();
    let mut conn = PgConnection::connect(server.url()).await.unwrap();
    let (p, next) = (part("p"), part("next"));
    let (mut failed, mut stored) = (0, 0);
    let cuts = (0..TO_SERVER).step_by(30).map(|bytes| (Direction::ToServer, bytes));
    for (direction, bytes) in cuts.chain((0..TO_CLIENT).step_by(20).map(|bytes| (Direction::ToClient, bytes)))
    {
        push(&direct, &p, &["m"]).await;
        let held = pull(&direct, &p, 1).await.remove(0);
        let then = [(&next, MessageData::new("next").with_dedup_key("k"))];
        // The statement is known to the server before the cut.
        pull(&cut_off, &part("none"), 1).await;
        proxy.set(Fault::CutAfter { direction, bytes }).await.unwrap();
        let settled = cut_off.settle(&[removal(&held, &then)]).await.remove(0);
        proxy.set(Fault::Pass).await.unwrap();
        assert_eq!(all_messages(&mut conn).await, 1, "{direction:?} after {bytes} bytes");
        if let Err(error) = settled {
            assert_eq!(error.retry(), RetryClass::Safe, "{error}");
            failed += 1;
        }
        // Once more, as core does: whatever came of it, the successor is there once.
        let again = cut_off.settle(&[removal(&held, &then)]).await.remove(0).unwrap();
        stored += u32::from(again == SettleOutcome::Settled);
        let next = pull(&direct, &next, 9).await;
        assert_eq!(next.len(), 1, "{direction:?} after {bytes} bytes");
        direct.settle(&[removal(&next[0], &[])]).await.remove(0).unwrap();
        assert_eq!(all_messages(&mut conn).await, 0);
    }
    assert!(failed > 10 && stored > 5, "{failed} calls failed, {stored} of them before they did anything");
}

const CHAINS: u64 = 10;
const LINKS: u64 = 150;

/// Ends one delivery after the other, each with a successor that takes over its key, and tells how many there were.
async fn follow(queue: Queue, chain: String, ended: Arc<AtomicU64>) {
    let mut least = 0;
    loop {
        let pulled = queue.pull(&*chain).max(1).wait(Duration::from_millis(200)).await.unwrap_or_default();
        for mut held in pulled {
            let link: u64 = std::str::from_utf8(held.payload()).unwrap().parse().unwrap();
            assert!(link == least || link == least + 1, "{link} comes after {least} was there");
            least = link;
            if link == LINKS {
                return;
            }
            let next = MessageData::new((link + 1).to_string()).with_dedup_key("the chain");
            let then = Successors::new().then(&*chain, next).unwrap();
            if let Ok(SettleOutcome::Settled) = held.settle_with(Processed, then).await {
                least = link + 1;
                ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_twice_under_chains_of_successors_breaks_none_and_doubles_none() {
    let Some(server) = start_if_installed(Postgres::new()).await.unwrap() else { return };
    let (queue, ended) = (client(server.url()).await, Arc::new(AtomicU64::new(0)));
    let mut chains = JoinSet::new();
    for chain in 0..CHAINS {
        let chain = format!("chain-{chain}");
        queue.push(&*chain, MessageData::new("0").with_dedup_key("the chain")).await.unwrap();
        chains.spawn(follow(queue.clone(), chain, Arc::clone(&ended)));
    }
    for share in [CHAINS * LINKS / 3, CHAINS * LINKS * 2 / 3] {
        let reached = async {
            while ended.load(Ordering::Relaxed) < share {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(3), reached).await.expect("the chains go on");
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        let mut conn = PgConnection::connect(server.url()).await.unwrap();
        assert_eq!(all_messages(&mut conn).await, i64::try_from(CHAINS).unwrap(), "one of each chain");
        let took = recovered(&[&queue]).await;
        assert!(took < RECOVERY, "recovery after a kill took {took:?}");
    }
    tokio::time::timeout(Duration::from_mins(3), chains.join_all()).await.expect("all chains end");
    let mut conn = PgConnection::connect(server.url()).await.unwrap();
    assert_eq!(all_messages(&mut conn).await, i64::try_from(CHAINS).unwrap());
}
