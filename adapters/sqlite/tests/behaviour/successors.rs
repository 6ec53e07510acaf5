//! Successors: stored with the end of their delivery, or not at all.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use anyqueue::adapter::{
    Action, InspectQueueStorage, Lease, PullQueueStorage, PullRequest, RawDelivery, Settlement, Successor,
};
use anyqueue::{ErrorKind, MessageData, PartitionId, Result, SettleOutcome};
use anyqueue_sqlite::SqliteQueue;

/// A settlement that brings these messages.
fn with(lease: &Lease, action: Action, then: &[(&PartitionId, MessageData)]) -> Settlement {
    let successor = |(partition, message): &(&PartitionId, MessageData)| Successor {
        partition: (*partition).clone(),
        message: message.clone(),
    };
    Settlement::new(lease.clone(), action).with_then(then.iter().map(successor).collect())
}

fn removal(held: &RawDelivery, then: &[(&PartitionId, MessageData)]) -> Settlement {
    with(&held.lease, Action::Remove, then)
}

async fn settle_one(queue: &SqliteQueue, settlement: Settlement) -> Result<SettleOutcome> {
    queue.settle(&[settlement]).await.remove(0)
}

fn outcomes(results: &[Result<SettleOutcome>]) -> Vec<std::result::Result<SettleOutcome, ErrorKind>> {
    results.iter().map(|result| result.as_ref().copied().map_err(anyqueue::Error::kind)).collect()
}

#[tokio::test]
async fn every_end_stores_what_follows_it_in_order_and_makes_its_partition() {
    let bed = Bed::new().await;
    let p = part("p");
    let actions = [Action::Remove, Action::Release, Action::Retry, postpone(LEASE), move_to(&part("moved"))];
    for (number, action) in actions.into_iter().enumerate() {
        let next = part(&format!("next-{number}"));
        push_text(&bed.queue, &p, &["m"]).await;
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        let then = [
            (&next, message("b")),
            (&next, message("late").with_delay(LEASE)),
            (&next, message("urgent").with_priority(9)),
            (&next, message("c")),
        ];
        let settled = settle_one(&bed.queue, with(&held.lease, action.clone(), &then)).await;
        assert_eq!(settled.unwrap(), SettleOutcome::Settled, "{action:?}");
        assert_eq!(bed.queue.counts(&next).await.unwrap().delayed, Some(1), "{action:?}");
        assert_eq!(drain(&bed.queue, &next).await, ["urgent", "b", "c"], "{action:?}");
        bed.queue.purge(&p, 9).await.unwrap();
    }
}

#[tokio::test]
async fn a_successor_takes_over_what_its_delivery_had_and_a_duplicate_is_left_out() {
    let bed = Bed::new().await;
    let p = part("p");
    let first = message("1").with_dedup_key("k").with_group("g");
    push(&bed.queue, &p, &[first.clone(), message("2").with_group("g")]).await;
    let held = pull(&bed.queue, &p, 9).await.remove(0);
    let again = |text: &str| MessageData::with_id(first.id(), text.to_owned());
    let then = [
        (&p, again("3").with_dedup_key("k").with_group("g")),
        (&p, message("same key").with_dedup_key("k")),
        (&p, again("same id")),
    ];
    assert_eq!(settle_one(&bed.queue, removal(&held, &then)).await.unwrap(), SettleOutcome::Settled);
    assert_eq!(drain(&bed.queue, &p).await, ["2", "3"], "behind the group, one by one");

    // What stays in the partition keeps its id and its key.
    push(&bed.queue, &p, std::slice::from_ref(&first)).await;
    let held = pull(&bed.queue, &p, 1).await.remove(0);
    let then = [(&p, message("same key").with_dedup_key("k")), (&p, again("same id"))];
    let released = settle_one(&bed.queue, with(&held.lease, Action::Release, &then)).await;
    assert_eq!(released.unwrap(), SettleOutcome::Settled);
    assert_eq!(bed.queue_ready(&p).await, 1);

    // A dead letter keeps its id alone, also from others of the same call.
    push_text(&bed.queue, &p, &["other"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    let then = [(&p, again("same id")), (&p, message("key").with_dedup_key("k"))];
    let ends = [
        removal(&held[1], &[(&p, message("beside"))]),
        with(&held[0].lease, move_to(&p.dead_letters()), &then),
    ];
    assert_eq!(outcomes(&bed.queue.settle(&ends).await), [Ok(SettleOutcome::Settled); 2]);
    assert_eq!(drain(&bed.queue, &p).await, ["beside", "key"]);
}

#[tokio::test]
async fn a_lost_lease_brings_nothing_and_neither_does_the_second_end_of_one() {
    let (bed, clock) = Bed::still().await;
    let (p, next) = (part("p"), part("next"));
    push_text(&bed.queue, &p, &["a", "b"]).await;
    let held = pull(&bed.queue, &p, 2).await;
    let end = |held: &RawDelivery, text: &str| removal(held, &[(&next, message(text))]);
    let twice = [end(&held[0], "first"), end(&held[0], "second")];
    let settled = bed.queue.settle(&twice).await;
    assert_eq!(outcomes(&settled), [Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost)]);
    clock.advance(LEASE);
    let late = [end(&held[1], "late"), removal(&held[1], &[(&next, message("x").with_priority(99))])];
    assert_eq!(outcomes(&bed.queue.settle(&late).await), [Ok(SettleOutcome::Lost); 2]);
    assert_eq!(drain(&bed.queue, &next).await, ["first"]);
    assert_eq!(drain(&bed.queue, &p).await, ["b"]);
}

#[tokio::test]
async fn a_successor_that_cannot_be_stored_leaves_its_delivery_held_and_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let queue = SqliteQueue::builder(dir.path().join("q.db")).max_bytes(512 * 1024).open().await.unwrap();
    let (p, next) = (part("p"), part("next"));
    push_text(&queue, &p, &["a", "b", "c", "d"]).await;
    let held = pull(&queue, &p, 4).await;
    let large = || MessageData::new(vec![7; 600_000]);
    let ends = [
        removal(&held[0], &[(&next, message("before"))]),
        removal(&held[1], &[(&next, message("lost with it")), (&next, large())]),
        removal(&held[2], &[]),
        removal(&held[3], &[(&next, message("m").with_priority(99))]),
    ];
    // With a pull in the same transaction, and without.
    let request = PullRequest::new(9, Duration::ZERO, LEASE);
    let (settled, pulled) = queue.exchange(&ends, &next, request).await;
    let (done, full, wrong) =
        (Ok(SettleOutcome::Settled), Err(ErrorKind::Full), Err(ErrorKind::InvalidInput));
    assert_eq!(outcomes(&settled), [done, full, done, wrong]);
    assert_eq!(texts(&pulled.unwrap()), ["before"]);
    let again = [removal(&held[1], &[(&next, large())]), removal(&held[3], &[])];
    assert_eq!(outcomes(&queue.settle(&again).await), [full, done]);
    assert_eq!(outcomes(&queue.settle(&[removal(&held[1], &[])]).await), [done], "it was held until then");
    assert_eq!(queue.counts(&next).await.unwrap().ready, Some(0));
}

#[tokio::test]
async fn a_successor_wakes_pulls_here_and_of_other_handles() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let (p, next) = (part("p"), part("next"));
    for waiter in [bed.queue.clone(), other] {
        push_text(&bed.queue, &p, &["m"]).await;
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        let waiting = tokio::spawn({
            let (waiter, next) = (waiter.clone(), next.clone());
            async move { pull_wait(&waiter, &next, 1).await }
        });
        pull(&waiter, &part("elsewhere"), 1).await;
        tokio::task::yield_now().await;
        let settled = Instant::now();
        settle_one(&bed.queue, removal(&held, &[(&next, message("next"))])).await.unwrap();
        let got = waiting.await.unwrap();
        assert!(settled.elapsed() < SOON / 2, "{:?}", settled.elapsed());
        assert_eq!(texts(&got), ["next"]);
        settle(&waiter, &got[0].lease, Action::Remove).await;
    }
}

#[tokio::test]
async fn ends_and_what_they_bring_take_one_transaction_and_the_pull_beside_them_gets_it() {
    const MESSAGES: usize = 100;
    let bed = Bed::new().await;
    let (p, next) = (part("p"), part("next"));
    push_text(&bed.queue, &p, &["m"; MESSAGES]).await;
    let held = pull(&bed.queue, &p, MESSAGES).await;
    let before = commits(&bed);
    let ends: Vec<_> = held.iter().map(|held| removal(held, &[(&next, message("next"))])).collect();
    let request = PullRequest::new(MESSAGES, Duration::ZERO, LEASE);
    let (settled, pulled) = bed.queue.exchange(&ends, &next, request).await;
    assert!(settled.iter().all(Result::is_ok));
    assert_eq!(pulled.unwrap().len(), MESSAGES);
    assert_eq!(commits(&bed) - before, 1);
}

const CHAIN: &str = "ANYQUEUE_TEST_CHAIN";
const CHAIN_LEASE: Duration = Duration::from_millis(100);

/// What [`kill_chain`] kills: ends one delivery after the other, each with a successor elsewhere. Does nothing in a run of the tests.
#[tokio::test]
async fn a_chain_of_successors() {
    let Ok(path) = std::env::var(CHAIN) else { return };
    let queue = SqliteQueue::open(PathBuf::from(path)).await.unwrap();
    let (links, mut settled) = ([part("even"), part("odd")], 0);
    loop {
        for (link, next) in [(&links[0], &links[1]), (&links[1], &links[0])] {
            let request = PullRequest::new(1, Duration::ZERO, CHAIN_LEASE);
            for held in queue.pull(link, request).await.unwrap() {
                let number: u64 = texts(std::slice::from_ref(&held))[0].parse().unwrap();
                let then = [(next, message(&(number + 1).to_string()).with_dedup_key("the chain"))];
                // Where it took too long the message is there for the next pull.
                if settle_one(&queue, removal(&held, &then)).await.unwrap() == SettleOutcome::Settled {
                    settled += 1;
                    if settled == 2 {
                        tell_at_work();
                    }
                }
            }
        }
    }
}

/// Lets a chain go on in another process, for so long after its first links.
fn kill_chain(path: &Path, after: Duration) {
    let mut chain = start_work("successors::a_chain_of_successors", CHAIN, path);
    std::thread::sleep(after);
    chain.kill().unwrap();
    chain.wait().unwrap();
}

#[tokio::test]
async fn a_process_killed_at_any_moment_leaves_a_delivery_or_its_successor() {
    const KILLS: u64 = 30;
    let bed = Bed::new().await;
    let links = [part("even"), part("odd")];
    push(&bed.queue, &links[0], &[message("0").with_dedup_key("the chain")]).await;
    for kill in 0..KILLS {
        kill_chain(&bed.path(), Duration::from_millis(100 + 7 * kill));
        let mut there = 0;
        for link in &links {
            let counts = bed.queue.counts(link).await.unwrap();
            there += counts.ready.unwrap() + counts.leased.unwrap();
        }
        assert_eq!(there, 1, "after kill {kill}");
    }
    tokio::time::sleep(CHAIN_LEASE).await;
    let mut last = pull(&bed.queue, &links[0], 1).await;
    last.extend(pull(&bed.queue, &links[1], 1).await);
    let number: u64 = texts(&last)[0].parse().unwrap();
    assert!(number > 2 * KILLS, "the chain had {number} links");
}
