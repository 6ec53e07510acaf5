//! Groups claimed whole while many pull and push.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyqueue::MessageData;
use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PullRequest, RawDelivery};
use anyqueue_redis::RedisQueue;

use crate::amend::assert_left_nothing;
use crate::common::{Bed, LEASE, part, push, settle};

const PUSHERS: usize = 3;
const PULLERS: usize = 6;
const GROUPS: usize = 4;
const EACH: usize = 120;

/// Who holds a group now, and what was processed, by group.
#[derive(Default)]
struct Account {
    holders: HashMap<String, usize>,
    processed: HashMap<String, Vec<String>>,
}

impl Account {
    /// Deliveries of each group follow one another, and nobody else holds the group.
    fn begin(&mut self, puller: usize, held: &[RawDelivery]) {
        for one in held {
            let holder = self.holders.insert(group_of(one), puller);
            assert!(holder.is_none_or(|holder| holder == puller), "two hold {}", group_of(one));
        }
    }

    fn end(&mut self, held: &[RawDelivery], processed: usize) {
        for (number, one) in held.iter().enumerate() {
            self.holders.remove(&group_of(one));
            if number < processed {
                let text = String::from_utf8(one.message.payload().to_vec()).unwrap();
                self.processed.entry(group_of(one)).or_default().push(text);
            }
        }
    }

    fn count(&self) -> usize {
        self.processed.values().map(Vec::len).sum()
    }
}

fn group_of(one: &RawDelivery) -> String {
    one.message.options().group.as_deref().unwrap().to_owned()
}

/// Pulls whole groups or single members, and gives the last ones back now and then.
async fn work(queue: RedisQueue, puller: usize, account: Arc<Mutex<Account>>) {
    let p = part("p");
    let mut dice = fastrand::Rng::with_seed(puller as u64);
    while account.lock().unwrap().count() < PUSHERS * GROUPS * EACH {
        let members = if puller.is_multiple_of(2) { 1 } else { dice.usize(2..6) };
        let request = PullRequest::new(dice.usize(1..9), Duration::from_millis(50), LEASE);
        let held = queue.pull(&p, request.with_group_members(members)).await.unwrap();
        account.lock().unwrap().begin(puller, &held);
        tokio::task::yield_now().await;
        let processed = if dice.u8(..3) == 0 { dice.usize(..=held.len()) } else { held.len() };
        let (done, back) = held.split_at(processed);
        // It is no longer held when the server has answered, and may be held by another even before.
        account.lock().unwrap().end(&held, processed);
        let back: Vec<_> = back.iter().rev().cloned().collect();
        settle(&queue, &back, Action::Release).await;
        settle(&queue, done, Action::Remove).await;
    }
}

async fn bring(queue: RedisQueue, pusher: usize) {
    for number in 0..EACH {
        for group in 0..GROUPS {
            let message = MessageData::new(format!("{pusher} {number:03}")).with_group(format!("g{group}"));
            push(&queue, &part("p"), &[message]).await;
        }
    }
}

/// Each was processed once, and those of one pusher in their order.
fn assert_exact(account: &Account) {
    assert_eq!(account.processed.len(), GROUPS);
    for (group, texts) in &account.processed {
        for pusher in 0..PUSHERS {
            let prefix = format!("{pusher} ");
            let own: Vec<_> = texts.iter().filter(|text| text.starts_with(&prefix)).cloned().collect();
            let expected: Vec<_> = (0..EACH).map(|number| format!("{pusher} {number:03}")).collect();
            assert_eq!(own, expected, "{group}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pullers_and_pushers_get_each_once_in_order_and_no_group_has_two_holders() {
    let Some(bed) = Bed::find().await else { return };
    let account = Arc::new(Mutex::new(Account::default()));
    let mut tasks = Vec::new();
    for pusher in 0..PUSHERS {
        tasks.push(tokio::spawn(bring(bed.open().await, pusher)));
    }
    for puller in 0..PULLERS {
        tasks.push(tokio::spawn(work(bed.open().await, puller, Arc::clone(&account))));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_exact(&account.lock().unwrap());
    let counts = bed.open().await.counts(&part("p")).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(0), Some(0)));
    assert_left_nothing(&bed, &part("p")).await;
}
