//! Pulls beside settlements. What is released while a pull looks for messages must neither be passed over nor served where it was.

use std::collections::HashMap;
use std::time::Duration;

use anyqueue::adapter::{Action, Lease, PullQueueStorage, QueueStorage, Settlement, Token};
use anyqueue::{MessageId, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::common::{Bed, part, pull, push, remove};

const MESSAGES: usize = 400;
const BATCH: usize = 5;
const HANDLES: usize = 4;
const TASKS: usize = 16;
const ROUNDS: usize = 100;

/// Pulls and releases, over and over, from many tasks. The ids of each pull, in about the order of the answers.
async fn churn(bed: &Bed, action: Action) -> Vec<Vec<MessageId>> {
    let queues: Vec<PostgresQueue> = futures_util::future::join_all((0..HANDLES).map(|_| bed.open())).await;
    push(&bed.open().await, &part("work"), &["x"; MESSAGES]).await;
    let mut tasks = JoinSet::new();
    let (pulled, mut answers) = mpsc::channel(TASKS * ROUNDS);
    for queue in queues.iter().cycle().take(TASKS) {
        let (queue, pulled, action) = (queue.clone(), pulled.clone(), action.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let held = pull(&queue, &part("work"), BATCH).await;
                pulled.send(held.iter().map(|held| held.lease.id).collect()).await.unwrap();
                let back = held.into_iter().map(|held| Settlement::new(held.lease, action.clone()));
                for outcome in queue.settle(&back.collect::<Vec<_>>()).await {
                    assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
                }
            }
        });
    }
    drop(pulled);
    let mut all = Vec::new();
    while let Some(ids) = answers.recv().await {
        all.push(ids);
    }
    tasks.join_all().await;
    for queue in queues {
        queue.close().await.unwrap();
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_among_many_that_give_back_gets_as_many_as_it_asks_for() {
    let Some(bed) = Bed::find().await else { return };
    for action in [Action::Release, Action::Postpone { delay: Duration::ZERO, headers: None }] {
        let short = churn(&bed, action.clone()).await.iter().filter(|ids| ids.len() < BATCH).count();
        assert_eq!(short, 0, "of {} pulls, with {action:?}", TASKS * ROUNDS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_postponed_while_a_pull_looks_is_served_behind_the_others() {
    let Some(bed) = Bed::find().await else { return };
    let pulled = churn(&bed, Action::Postpone { delay: Duration::ZERO, headers: None }).await;
    let (mut last, mut early) = (HashMap::new(), Vec::new());
    for (number, id) in pulled.into_iter().flatten().enumerate() {
        // All others came in between, but those that were held then, twice.
        let passed = last.insert(id, number).map(|before| number - before);
        early.extend(passed.filter(|passed| *passed <= MESSAGES / 2));
    }
    // A server process that a busy machine halts between taking a place at the end and giving it free, is passed by the others.
    let halted = TASKS * ROUNDS * BATCH / 100;
    assert!(early.len() <= halted, "{} came early: after so many others: {early:?}", early.len());
}

#[tokio::test]
async fn who_knows_where_a_message_is_but_not_its_secret_removes_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    push(&queue, &part("work"), &["x"]).await;
    let held = pull(&queue, &part("work"), 1).await.remove(0).lease;
    let mut token = held.token.as_bytes().to_vec();
    *token.first_mut().unwrap() ^= 1;
    let forged = Lease { token: Token::from_bytes(token), ..held.clone() };
    assert_eq!(remove(&queue, &forged).await, SettleOutcome::Lost);
    assert_eq!(remove(&queue, &held).await, SettleOutcome::Settled);
}
