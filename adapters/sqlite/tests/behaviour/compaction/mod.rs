//! Pushes whose deduplication key is taken, and which do more than leave what is there as it is.

mod content;
mod killed;
mod order;

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::PushQueueStorage;
use anyqueue::{MessageData, OnDuplicate, PartitionId, PushOutcome};
use anyqueue_sqlite::SqliteQueue;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

const SECOND: Duration = Duration::from_secs(1);

fn keyed(text: &str, what: OnDuplicate) -> MessageData {
    message(text).with_dedup_key("k").with_on_duplicate(what)
}

fn replacing(text: &str) -> MessageData {
    keyed(text, OnDuplicate::Replace)
}

fn earlier(text: &str, delay: Duration) -> MessageData {
    keyed(text, OnDuplicate::Earlier).with_delay(delay)
}

fn behind(text: &str) -> MessageData {
    keyed(text, OnDuplicate::Behind)
}

async fn push_one(queue: &SqliteQueue, p: &PartitionId, message: MessageData) -> PushOutcome {
    queue.push(p, &[message]).await.remove(0).unwrap()
}

async fn application(bed: &Bed) -> SqliteConnection {
    SqliteConnectOptions::new().filename(bed.path()).connect().await.unwrap()
}

async fn push_in(bed: &Bed, p: &PartitionId, message: MessageData) -> PushOutcome {
    let pushed = bed.queue.push_in(&mut application(bed).await, p, &[message]).await.unwrap();
    pushed.after_commit.notify();
    pushed.outcomes.into_iter().next().unwrap().unwrap()
}

/// Within an application's transaction, or by itself.
async fn push_either(bed: &Bed, within: bool, p: &PartitionId, message: MessageData) -> PushOutcome {
    if within { push_in(bed, p, message).await } else { push_one(&bed.queue, p, message).await }
}
