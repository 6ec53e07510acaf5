//! What becomes due earlier, what waits behind what is held, and what is pushed with the end of a delivery.

use std::time::{Duration, Instant};

use super::*;
use anyqueue::PushOutcome::{Duplicate, Replaced, Stored};
use anyqueue::SettleOutcome;
use anyqueue::adapter::{Action, PullQueueStorage, Settlement, Successor};

#[tokio::test]
async fn earlier_makes_ready_what_waits_before_anything_is_pushed_after_it() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let late = earlier("late", LEASE).with_group("g");
    push(&bed.queue, &p, &[late.clone(), message("a").with_group("g")]).await;
    let batch = [earlier("now", Duration::ZERO).with_priority(9), message("b").with_group("g"), message("c")];
    let outcomes = bed.queue.push(&p, &batch).await;
    assert_eq!(*outcomes[0].as_ref().unwrap(), Replaced(late.id()));
    assert_eq!(texts(&pull(&bed.queue, &p, 9).await), ["a", "c"], "its own priority, and its group's end");
    clock.advance(LEASE);
    assert_eq!(drain(&bed.queue, &p).await, ["a", "c", "now", "b"]);

    // What a consumer postponed stays the head of its group.
    push(&bed.queue, &p, &[keyed("first", OnDuplicate::Keep).with_group("g"), message("d").with_group("g")])
        .await;
    let held = pull(&bed.queue, &p, 9).await.remove(0);
    settle(&bed.queue, &held.lease, postpone(LEASE)).await;
    assert_eq!(push_one(&bed.queue, &p, earlier("sooner", SECOND)).await, Replaced(held.lease.id));
    assert_eq!(push_one(&bed.queue, &p, earlier("as soon", SECOND)).await, Duplicate(Some(held.lease.id)));
    assert!(drain(&bed.queue, &p).await.is_empty());
    clock.advance(SECOND);
    let got = pull(&bed.queue, &p, 9).await;
    assert_eq!((texts(&got), got[0].delivery_count), (vec!["sooner".to_owned()], Some(1)));
    settle(&bed.queue, &got[0].lease, Action::Remove).await;
    assert_eq!(drain(&bed.queue, &p).await, ["d"]);
}

#[tokio::test]
async fn earlier_wakes_pulls_here_and_of_other_handles() {
    const SOON: Duration = Duration::from_millis(50);
    // This handle hears it long before it would find it by looking at the file.
    let dir = tempfile::tempdir().unwrap();
    let builder = SqliteQueue::builder(dir.path().join("q.db")).poll_interval(SECOND);
    let bed = Bed { queue: builder.open().await.unwrap(), dir };
    let other = bed.other().await;
    for (waiter, delay, within) in [
        (&bed.queue, Duration::ZERO, false),
        (&bed.queue, SOON, false),
        (&bed.queue, Duration::ZERO, true),
        (&bed.queue, SOON, true),
        (&other, Duration::ZERO, false),
        (&other, SOON, true),
    ] {
        // Once of three times the machine is not busy with other things.
        let mut least = LEASE;
        for _ in 0..3 {
            let took = until_woken(&bed, waiter, delay, within).await;
            assert!(took >= delay, "{delay:?}, {within}: after {took:?}");
            least = least.min(took);
        }
        assert!(least < delay + SECOND / 2, "{delay:?}, {within}: after {least:?}");
    }
}

/// How long a waiting pull takes from the push that lets it have a message that was due later.
async fn until_woken(bed: &Bed, waiter: &SqliteQueue, delay: Duration, within: bool) -> Duration {
    let p = part("p");
    push(&bed.queue, &p, &[earlier("late", LEASE)]).await;
    let waiting = tokio::spawn({
        let (waiter, p) = (waiter.clone(), p.clone());
        async move { pull_wait(&waiter, &p, 1).await }
    });
    // It finds nothing, and waits.
    pull(waiter, &part("elsewhere"), 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let pushed = Instant::now();
    assert!(matches!(push_either(bed, within, &p, earlier("newer", delay)).await, Replaced(_)));
    let got = waiting.await.unwrap();
    let took = pushed.elapsed();
    assert_eq!(texts(&got), ["newer"]);
    settle(&bed.queue, &got[0].lease, Action::Remove).await;
    took
}

#[tokio::test]
async fn behind_what_is_held_one_waits_and_has_the_key_whatever_becomes_of_the_other() {
    let (bed, clock) = Bed::still().await;
    for within in [false, true] {
        let push = async |p: &PartitionId, message| push_either(&bed, within, p, message).await;
        let ends = ["Remove", "Release", "Retry", "Postpone", "Move", "Lapse"];
        for end in ends {
            let p = part(&format!("{end}-{within}"));
            let stored = |message: &MessageData| Stored(message.id());
            let (first, second) = (behind("first").with_group("g"), behind("second").with_group("g"));
            assert_eq!(push(&p, first.clone()).await, stored(&first));
            let held = pull(&bed.queue, &p, 1).await.remove(0);
            assert_eq!(push(&p, second.clone()).await, stored(&second));
            assert_eq!(push(&p, behind("third")).await, Duplicate(Some(second.id())));
            assert_eq!(push(&p, first.clone()).await, Duplicate(Some(first.id())), "a repetition");
            assert!(pull(&bed.queue, &p, 9).await.is_empty(), "members of a group do not run at once");
            match end {
                "Remove" => drop(settle(&bed.queue, &held.lease, Action::Remove).await),
                "Release" => drop(settle(&bed.queue, &held.lease, Action::Release).await),
                "Retry" => drop(settle(&bed.queue, &held.lease, Action::Retry).await),
                "Postpone" => drop(settle(&bed.queue, &held.lease, postpone(SECOND)).await),
                "Move" => drop(settle(&bed.queue, &held.lease, move_to(&p.dead_letters())).await),
                _ => clock.advance(LEASE),
            }
            assert_eq!(push(&p, keyed("kept out", OnDuplicate::Keep)).await, Duplicate(Some(second.id())));
            assert_eq!(push(&p, replacing("newer")).await, Replaced(second.id()), "{end}");
            clock.advance(SECOND);
            let expected: &[&str] = match end {
                "Remove" | "Move" => &["newer"],
                _ => &["first", "newer"],
            };
            assert_eq!(drain(&bed.queue, &p).await, expected, "{end}");
            assert!(matches!(push(&p, behind("free")).await, Stored(_)), "{end}");
        }
    }
}

#[tokio::test]
async fn successors_do_it_after_the_end() {
    let bed = Bed::new().await;
    let (p, q) = (part("p"), part("q"));
    let end = async |action: Action, to: &PartitionId, then: MessageData| {
        let held = pull(&bed.queue, &p, 1).await.remove(0);
        let successor = Successor { partition: to.clone(), message: then };
        let settlement = Settlement::new(held.lease, action).with_then(vec![successor]);
        assert_eq!(bed.queue.settle(&[settlement]).await.remove(0).unwrap(), SettleOutcome::Settled);
    };
    push(&bed.queue, &p, &[replacing("a")]).await;
    end(Action::Release, &p, replacing("released, and replaced")).await;
    end(Action::Release, &p, behind("nothing is held any more")).await;
    assert_eq!(drain(&bed.queue, &p).await, ["released, and replaced"]);

    push(&bed.queue, &q, &[earlier("late", LEASE)]).await;
    for (text, what) in [("1", OnDuplicate::Replace), ("2", OnDuplicate::Keep), ("3", OnDuplicate::Earlier)] {
        push_text(&bed.queue, &p, &["m"]).await;
        end(Action::Remove, &q, keyed(text, what)).await;
    }
    assert_eq!(drain(&bed.queue, &q).await, ["3"]);
    push(&bed.queue, &q, &[behind("held")]).await;
    pull(&bed.queue, &q, 1).await;
    push_text(&bed.queue, &p, &["m"]).await;
    end(Action::Remove, &q, behind("after it")).await;
    assert_eq!(drain(&bed.queue, &q).await, ["after it"]);
}
