//! Pushes whose deduplication key is taken, and which do more than leave what is there as it is.

mod content;
mod killed;
mod order;

use std::time::Duration;

use crate::common::*;
use anyqueue::adapter::PushQueueStorage;
use anyqueue::{MessageData, OnDuplicate, PartitionId};
use anyqueue_sqlite::SqliteQueue;

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
