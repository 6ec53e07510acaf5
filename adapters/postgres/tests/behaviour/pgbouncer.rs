//! Behind a real `PgBouncer` that hands out its connections per transaction.

use std::time::Duration;

use anyqueue::adapter::{
    Action, Extension, LedgerQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage, QueueStorage,
    Settlement,
};
use anyqueue::{ExtendOutcome, MessageData, PushOutcome, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use anyqueue_testkit::{PgBouncer, Postgres, Server, start_if_installed};

use crate::common::{LEASE, part, pull, pull_wait, push, texts};
use crate::control;
use crate::ledger::{all, count, done, ending, find};

/// The pool, and what is behind it. Two connections for all: whoever relied on having one of his own would be found out.
async fn start() -> Option<(Server, Server)> {
    let postgres = start_if_installed(Postgres::new()).await.unwrap()?;
    let program = PgBouncer::new(postgres.addr()).setting("default_pool_size", "2");
    let pool = start_if_installed(program).await.unwrap()?;
    Some((pool, postgres))
}

async fn open(pool: &Server) -> PostgresQueue {
    let url = format!("{}?notify=false&prepared=false", pool.url());
    PostgresQueue::open(&url).await.unwrap()
}

#[tokio::test]
async fn every_call_works_through_a_pool_that_shares_connections_between_transactions() {
    let Some((pool, _postgres)) = start().await else { return };
    let (queue, other, p) = (open(&pool).await, open(&pool).await, part("p"));
    let waiting = tokio::spawn({
        let (other, p) = (other.clone(), p.clone());
        async move { pull_wait(&other, &p, 1).await }
    });
    push(&queue, &p, &["waited for"]).await;
    let held = waiting.await.unwrap();
    assert_eq!(texts(&held), ["waited for"]);

    let lease = held[0].lease.clone();
    let longer = Extension { lease: lease.clone(), duration: LEASE * 2 };
    assert_eq!(queue.extend(&[longer]).await.remove(0).unwrap(), ExtendOutcome::Extended);
    push(&other, &p, &["next"]).await;
    let removals = [Settlement::new(lease, Action::Remove)];
    let (settled, next) = queue.exchange(&removals, &p, PullRequest::new(5, Duration::ZERO, LEASE)).await;
    assert_eq!(*settled[0].as_ref().unwrap(), SettleOutcome::Settled);
    let next = next.unwrap();
    assert_eq!(texts(&next), ["next"]);
    let back = [Settlement::new(next[0].lease.clone(), Action::Retry)];
    assert_eq!(other.settle(&back).await.remove(0).unwrap(), SettleOutcome::Settled);
    let held = pull(&queue, &p, 5).await.remove(0);
    assert_eq!(held.delivery_count, Some(2));
    let id = held.message.id();
    queue.settle(&[ending(&held, &done())]).await.remove(0).unwrap();
    let greater = std::sync::Arc::new(done().with_attempt(2));
    other.record_ended(&p, &[(id, greater)]).await.remove(0).unwrap();
    assert_eq!(find(&queue, &p, id).await.unwrap().end.attempt, 2);
    assert_eq!(
        (all(&other, &p).await.len(), count(&queue, &p).await, queue.purge_ended(9).await.unwrap()),
        (1, 1, 0)
    );
    assert!(other.delete_ended(&p, &[id]).await.remove(0).unwrap());
    control::put(&queue, "k").await;
    assert_eq!(control::get(&other, "k").await.unwrap().value, "k");
    assert_eq!(control::walk(&other, "", 1).await, ["k"]);
    queue.check().await.unwrap();
}

#[tokio::test]
async fn many_tasks_share_two_connections_without_loss() {
    let Some((pool, _postgres)) = start().await else { return };
    let (queue, p) = (open(&pool).await, part("p"));
    let pushes = (0..20).map(|task| {
        let (queue, p) = (queue.clone(), p.clone());
        tokio::spawn(async move {
            for number in 0..10 {
                let message = MessageData::new(format!("{task} {number}"));
                let outcome = queue.push(&p, &[message]).await.remove(0);
                assert!(matches!(outcome, Ok(PushOutcome::Stored(_))), "{outcome:?}");
            }
        })
    });
    for push in pushes.collect::<Vec<_>>() {
        push.await.unwrap();
    }
    let other = open(&pool).await;
    let mut got: Vec<_> = texts(&pull(&other, &p, 1000).await);
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), 200);
}
