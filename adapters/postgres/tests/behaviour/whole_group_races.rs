//! Many ends, pulls and pushes of the same groups at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyqueue::adapter::{
    Action, InspectQueueStorage, PullQueueStorage, PushQueueStorage, RawDelivery, Settlement,
};
use anyqueue::{MessageData, SettleOutcome};
use anyqueue_postgres::PostgresQueue;
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use crate::common::{Bed, SOON, part, pull, texts};
use crate::successors::drain;
use crate::whole_groups::{member, pull_whole, settle};

const ROUNDS: usize = 100;

/// Two of the ways in which a member can end, or come back.
fn ends(round: usize) -> [Action; 2] {
    let way = |number: usize| match number % 4 {
        0 => Action::Remove,
        1 => Action::Release,
        2 => Action::Retry,
        _ => Action::Move { to: part("q"), headers: None },
    };
    [way(round), way(round / 4)]
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_members_that_end_at_once_exactly_one_successor_is_offered() {
    let Some(bed) = Bed::find().await else { return };
    let (one, two, p) = (bed.open().await, bed.open().await, part("p"));
    for round in 0..ROUNDS {
        one.push(&p, &["a", "b", "c"].map(member)).await;
        let held = pull_whole(&one, &p, 2, 9).await;
        assert_eq!(texts(&held), ["a", "b"], "round {round}");
        let [first, second] = ends(round);
        tokio::join!(settle(&one, &held[0], first.clone()), settle(&two, &held[1], second.clone()));
        let is_back = |action: &Action| matches!(action, Action::Release | Action::Retry);
        let mut left = Vec::from(["c"]);
        if is_back(&second) {
            left.insert(0, "b");
        }
        if is_back(&first) {
            left.insert(0, "a");
        }
        let offered = pull(&two, &p, 9).await;
        assert_eq!(texts(&offered), left[..1], "round {round}");
        settle(&one, &offered[0], Action::Remove).await;
        assert_eq!(drain(&two, &p).await, left[1..], "round {round}");
    }
    let groups = format!("SELECT count(*) FROM {}.message_group", bed.schema);
    assert_eq!(crate::locks::number(&mut bed.connect().await, groups).await, 1, "but that of what was moved");
}

/// One member's lease has run out and somebody's pull ends it, while the other is settled and another pushed.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_beside_the_end_of_a_lease_and_a_push_leaves_one_on_offer() {
    let Some(bed) = Bed::find().await else { return };
    let (one, two, three, p) = (bed.open().await, bed.open().await, bed.open().await, part("p"));
    for round in 0..ROUNDS {
        one.push(&p, &["lapsed", "b"].map(member)).await;
        let held = pull_whole(&one, &p, 2, 9).await;
        assert_eq!(texts(&held), ["lapsed", "b"], "round {round}");
        bed.run(format!(
            "UPDATE {}.message SET until = now(), due = now() WHERE position('lapsed'::bytea IN body) > 0",
            bed.schema
        ))
        .await;
        let [c] = ["c"].map(member);
        let pushed = std::slice::from_ref(&c);
        let (found, (), _) = tokio::join!(
            pull_whole(&two, &p, 1, 9),
            settle(&one, &held[1], Action::Remove),
            three.push(&p, pushed)
        );
        let mut all = texts(&found);
        for found in &found {
            settle(&two, found, Action::Remove).await;
        }
        all.extend(drain(&two, &p).await);
        assert_eq!(all, ["lapsed", "c"], "round {round}");
    }
}

const GROUPS: usize = 3;
const MESSAGES: usize = 400;

/// Who holds what of each group, and what of it ended, in order.
#[derive(Default)]
struct Account {
    holders: HashMap<String, (usize, usize)>,
    ended: HashMap<String, Vec<String>>,
}

impl Account {
    /// Nobody else may hold members of the group.
    fn hold(&mut self, group: &str, puller: usize) {
        let (holder, held) = self.holders.entry(group.to_owned()).or_insert((puller, 0));
        assert!(*held == 0 || *holder == puller, "{group} is held by {holder} and {puller}");
        (*holder, *held) = (puller, *held + 1);
    }

    /// Before it is settled: who gets the next is noted later.
    fn let_go(&mut self, group: &str) {
        self.holders.get_mut(group).unwrap().1 -= 1;
    }
}

async fn work(queue: PostgresQueue, puller: usize, account: Arc<Mutex<Account>>) {
    let (p, mut round) = (part("p"), puller);
    let is_over = || account.lock().unwrap().ended.values().map(Vec::len).sum::<usize>() == MESSAGES * GROUPS;
    while !is_over() {
        round += 1;
        let held = if puller.is_multiple_of(2) {
            pull_whole(&queue, &p, 1 + round % 9, 5).await
        } else {
            pull(&queue, &p, 2).await
        };
        let group = |held: &RawDelivery| held.message.options().group.clone().unwrap();
        for held in &held {
            account.lock().unwrap().hold(&group(held), puller);
        }
        // All from one on are released, and come again in order.
        let kept = if round.is_multiple_of(3) { held.len() / 2 } else { held.len() };
        let (kept, back) = held.split_at(kept);
        for (some, action) in [(kept, Action::Remove), (back, Action::Release)] {
            let mut settlements = Vec::new();
            for held in some {
                let mut account = account.lock().unwrap();
                account.let_go(&group(held));
                if action == Action::Remove {
                    let text = texts(std::slice::from_ref(held)).remove(0);
                    account.ended.entry(group(held).to_string()).or_default().push(text);
                }
                settlements.push(Settlement::new(held.lease.clone(), action.clone()));
            }
            for outcome in queue.settle(&settlements).await {
                assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn push_numbers(bed: &Bed, queue: PostgresQueue, group: usize) {
    let (p, name) = (part("p"), format!("g{group}"));
    let message = |n: &usize| MessageData::new(n.to_string()).with_group(name.clone());
    let mut conn = bed.connect().await;
    let numbers: Vec<_> = (0..MESSAGES).collect();
    for (round, some) in numbers.chunks(4).enumerate() {
        let some: Vec<_> = some.iter().map(message).collect();
        if round.is_multiple_of(3) {
            queue.push_in(&mut conn, &p, &some).await.unwrap().after_commit.notify();
        } else {
            queue.push(&p, &some).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pulls_and_pushes_end_each_member_once_in_order_and_under_one_holder_at_a_time() {
    const PULLERS: usize = 6;
    let Some(bed) = Bed::find().await else { return };
    let (bed, account) = (Arc::new(bed), Arc::new(Mutex::new(Account::default())));
    let mut tasks = JoinSet::new();
    for puller in 0..PULLERS {
        tasks.spawn(work(bed.open().await, puller, Arc::clone(&account)));
    }
    for group in 0..GROUPS {
        let (bed, queue) = (Arc::clone(&bed), bed.open().await);
        tasks.spawn(async move { push_numbers(&bed, queue, group).await });
    }
    tokio::time::timeout(SOON * 3, tasks.join_all()).await.expect("nothing is stuck");
    let expected: Vec<_> = (0..MESSAGES).map(|n| n.to_string()).collect();
    for group in 0..GROUPS {
        assert_eq!(account.lock().unwrap().ended[&format!("g{group}")], expected);
    }
    let queue = bed.open().await;
    let counts = queue.counts(&part("p")).await.unwrap();
    assert_eq!((counts.ready, counts.leased), (Some(0), Some(0)));
    let left = format!("SELECT count(*) FROM {}.message_group", bed.schema);
    let left: i64 =
        sqlx::query_scalar(AssertSqlSafe(left)).fetch_one(&mut bed.connect().await).await.unwrap();
    assert_eq!(left, 0, "groups without members");
}
