//! Messages that get the highest priority at their moment.

use super::*;
use anyqueue::adapter::Action;
use anyqueue::{MessageData, OnDuplicate};

fn urgent(text: &str) -> MessageData {
    message(text).with_urgent_after(SECOND)
}

#[tokio::test]
async fn it_is_lifted_at_its_moment_however_it_was_pushed_and_wherever_it_stands() {
    let (bed, clock) = Bed::still().await;
    for within in [false, true] {
        let p = part(if within { "in" } else { "out" });
        let push = async |message: MessageData| push_either(&bed, within, &p, message).await;
        push(message("highest").with_priority(9)).await;
        for text in ["a", "b"] {
            push(urgent(text)).await;
        }
        push(urgent("delayed").with_delay(SECOND * 2)).await;
        push(message("head").with_priority(1).with_group("g")).await;
        push(urgent("blocked").with_group("g")).await;
        let got = pull(&bed.queue, &p, 2).await;
        assert_eq!(texts(&got), ["highest", "head"], "not earlier");
        push(message("also highest").with_priority(9)).await;
        clock.advance(SECOND);
        for held in got {
            settle(&bed.queue, &held.lease, Action::Remove).await;
        }
        let got = pull(&bed.queue, &p, 9).await;
        assert_eq!(texts(&got), ["a", "b", "blocked", "also highest"], "in push order among their equals");
        assert!(got[..3].iter().all(|it| it.message.options().priority == 0));
        push(message("8").with_priority(8)).await;
        clock.advance(SECOND);
        assert_eq!(drain(&bed.queue, &p).await, ["delayed", "8"]);
    }
}

#[tokio::test]
async fn the_moment_counts_for_what_is_held_set_aside_or_dead_and_an_amendment_for_what_is_lifted() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let ids =
        push(&bed.queue, &p, &[urgent("held"), urgent("aside"), urgent("dead"), urgent("lowered")]).await;
    amended(&bed.queue, &p, &ids[1..2], Amend::new().disable()).await;
    let held = pull(&bed.queue, &p, 2).await;
    let dead = p.dead_letters();
    settle(&bed.queue, &held[1].lease, move_to(&dead)).await;
    push(&bed.queue, &p, &[message("8").with_priority(8)]).await;
    clock.advance(SECOND);
    settle(&bed.queue, &held[0].lease, Action::Retry).await;
    let letter = pull(&bed.queue, &dead, 1).await;
    settle(&bed.queue, &letter[0].lease, move_to(&p)).await;
    amended(&bed.queue, &p, &ids[1..2], Amend::new().enable()).await;
    amended(&bed.queue, &p, &ids[3..], Amend::new().with_priority(1)).await;
    assert_eq!(drain(&bed.queue, &p).await, ["held", "aside", "dead", "8", "lowered"]);
}

#[tokio::test]
async fn more_than_one_transaction_lifts_come_with_the_next_ones() {
    const MANY: usize = 12_000;
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    for _ in 0..MANY / 1000 {
        push(&bed.queue, &p, &vec![(); 1000].into_iter().map(|()| urgent("m")).collect::<Vec<_>>()).await;
    }
    push(&bed.queue, &p, &[message("8").with_priority(8)]).await;
    clock.advance(SECOND);
    pull(&bed.queue, &part("elsewhere"), 1).await;
    for _ in 0..MANY / 1000 {
        assert!(texts(&pull(&bed.queue, &p, 1000).await).iter().all(|text| text == "m"));
    }
    assert_eq!(drain(&bed.queue, &p).await, ["8"]);
}

#[tokio::test]
async fn what_gets_the_content_of_an_urgent_message_keeps_its_own_priority_and_nothing_is_left_of_what_is_gone()
 {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    push(&bed.queue, &p, &[message("old").with_dedup_key("k"), urgent("gone").with_priority(1)]).await;
    let newer = urgent("newer").with_dedup_key("k").with_on_duplicate(OnDuplicate::Replace);
    push_either(&bed, false, &p, newer).await;
    let gone = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &gone[0].lease, Action::Remove).await;
    push(&bed.queue, &p, &[message("1").with_priority(1)]).await;
    clock.advance(SECOND);
    assert_eq!(drain(&bed.queue, &p).await, ["1", "newer"]);
    let conn = Connection::open(bed.path()).unwrap();
    let next: Option<i64> =
        conn.query_row("SELECT urgent_ms FROM anyqueue_counter", (), |row| row.get(0)).unwrap();
    assert_eq!(next, None, "nobody looks for it any more");
}
