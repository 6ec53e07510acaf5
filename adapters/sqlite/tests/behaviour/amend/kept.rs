//! What amendments leave as it was, and what the file keeps of them.

use super::*;
use anyqueue::adapter::{Action, InspectQueueStorage, PushQueueStorage, QueueStorage};
use anyqueue::{ErrorKind, MessageState, OnDuplicate, Page, PushOutcome};

#[tokio::test]
async fn what_is_set_aside_stays_so_over_a_restart_and_keeps_its_place_its_key_and_its_count() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let keyed = message("keyed").with_dedup_key("k").with_header("h", "1");
    let ids = push(&bed.queue, &p, &[keyed, message("late").with_delay(LEASE), message("last")]).await;
    let held = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &held[0].lease, Action::Retry).await;
    clock.advance(SECOND);
    amended(&bed.queue, &p, &ids[..2], Amend::new().disable()).await;
    bed.queue.close().await.unwrap();

    let again = SqliteQueue::builder(bed.path()).clock(clock.clock()).open().await.unwrap();
    let counts = again.counts(&p).await.unwrap();
    assert_eq!((counts.disabled, counts.ready, counts.delayed), (Some(2), Some(1), Some(0)));
    let shown = again.browse(&p, Page::of(9)).await.unwrap();
    let shown: Vec<_> = shown.iter().map(|it| (it.state, it.due_in, it.delivery_count, it.age)).collect();
    let late = Some(LEASE - SECOND);
    let disabled = MessageState::Disabled;
    assert_eq!(shown[0], (disabled, None, Some(1), SECOND));
    assert!(shown[1].0 == disabled && shown[1].1 >= late, "{shown:?}");
    assert_eq!(shown[2].0, MessageState::Ready);

    let twin = [message("twin").with_dedup_key("k")];
    assert_eq!(again.push(&p, &twin).await[0].clone().unwrap(), PushOutcome::Duplicate(Some(ids[0])));
    amended(&again, &p, &ids, Amend::new().enable()).await;
    let got = pull(&again, &p, 9).await;
    assert_eq!((texts(&got), got[0].delivery_count), (vec!["keyed".to_owned(), "last".to_owned()], Some(2)));
    assert_eq!(got[0].message.headers()["h"], "1");
    clock.advance(LEASE);
    assert!(drain(&again, &p).await.contains(&"late".to_owned()));
}

#[tokio::test]
async fn what_comes_to_stand_behind_a_head_keeps_its_count_and_comes_back_first() {
    let bed = Bed::new().await;
    let p = part("p");
    let grouped = |text| message(text).with_group("g");
    let early = push_text(&bed.queue, &p, &["never delivered"]).await;
    amended(&bed.queue, &p, &early, Amend::new().disable()).await;
    let ids = push(&bed.queue, &p, &[grouped("1"), grouped("2"), grouped("3")]).await;
    let held = pull(&bed.queue, &p, 1).await;
    settle(&bed.queue, &held[0].lease, Action::Retry).await;
    amended(&bed.queue, &p, &ids[..1], Amend::new().disable()).await;
    let two = pull(&bed.queue, &p, 9).await;
    assert_eq!(texts(&two), ["2"], "the group goes on past it");
    amended(&bed.queue, &p, &ids[..1], Amend::new().enable()).await;
    amended(&bed.queue, &p, &early, Amend::new().enable()).await;
    let shown = bed.queue.browse(&p, Page::of(9)).await.unwrap();
    assert_eq!((shown[1].state, shown[1].delivery_count), (MessageState::Ready, Some(1)));
    settle(&bed.queue, &two[0].lease, Action::Remove).await;
    let got = pull(&bed.queue, &p, 9).await; // what was released comes first, though it was pushed later
    assert_eq!(
        (texts(&got), got[0].delivery_count),
        (vec!["1".to_owned(), "never delivered".to_owned()], Some(2))
    );
}

#[tokio::test]
async fn a_message_that_cannot_be_read_stays_as_it_is_and_harms_no_other() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["whole", "cut", "newer"]).await;
    let conn = Connection::open(bed.path()).unwrap();
    for (id, body) in
        [(ids[1], "substr(body, 1, length(body) - 3)"), (ids[2], "x'F6415102' || substr(body, 5)")]
    {
        let update = format!("UPDATE anyqueue_message SET body = CAST({body} AS BLOB) WHERE id = ?");
        assert_eq!(conn.execute(&update, [id.as_bytes()]).unwrap(), 1);
    }
    let kinds = async |change| {
        let outcomes = amend(&bed.queue, &p, &ids, change).await;
        let told = |error: &anyqueue::Error| error.backend() == Some("sqlite") && error.operation().is_some();
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().map_or_else(told, |_| true)), "{outcomes:?}");
        outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind())).collect::<Vec<_>>()
    };
    let refused = [Ok(AmendOutcome::Amended), Err(ErrorKind::Corrupt), Err(ErrorKind::Incompatible)];
    assert_eq!(kinds(Amend::new().with_priority(3).disable()).await, refused);
    assert_eq!(kinds(Amend::new().with_group("g")).await, refused);
    assert_eq!(bed.queue.counts(&p).await.unwrap().disabled, Some(1));
    assert_eq!(
        kinds(Amend::new().disable()).await,
        [Ok(AmendOutcome::Amended); 3],
        "nothing is read for that"
    );
    assert_whole(&bed.path());
}

#[tokio::test]
async fn what_stands_aside_is_found_deleted_cancelled_and_purged() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["deleted", "cancelled", "purged"]).await;
    amended(&bed.queue, &p, &ids, Amend::new().disable()).await;
    let deleted = bed.queue.delete(&p, &ids[..1]).await.remove(0).unwrap();
    let cancelled = bed.queue.request_cancel(&p, &ids[1..2]).await.remove(0).unwrap();
    assert_eq!(deleted, anyqueue::DeleteOutcome::Deleted);
    assert_eq!(cancelled, anyqueue::CancelOutcome::Removed);
    assert_eq!(bed.queue.purge(&p, 9).await.unwrap(), 1);
    let left: i64 = Connection::open(bed.path())
        .unwrap()
        .query_row("SELECT count(*) FROM anyqueue_disabled", (), |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    let outcomes = amend(&bed.queue, &p, &ids, Amend::new().enable()).await;
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == AmendOutcome::NotFound));
}

#[tokio::test]
async fn a_push_in_an_applications_transaction_treats_what_is_set_aside_as_any_other_push() {
    let (bed, clock) = Bed::still().await;
    for within in [false, true] {
        let p = part(if within { "in" } else { "out" });
        let late = message("late").with_dedup_key("k").with_delay(LEASE);
        let ids = push(&bed.queue, &p, &[late]).await;
        amended(&bed.queue, &p, &ids, Amend::new().disable()).await;
        let sooner = |text, delay| {
            let sooner = message(text).with_dedup_key("k").with_delay(delay);
            sooner.with_on_duplicate(OnDuplicate::Earlier)
        };
        let replaced = PushOutcome::Replaced(ids[0]);
        assert_eq!(push_either(&bed, within, &p, sooner("sooner", SECOND * 5)).await, replaced);
        assert_eq!(
            push_either(&bed, within, &p, sooner("later", SECOND * 9)).await,
            PushOutcome::Duplicate(Some(ids[0]))
        );
        clock.advance(LEASE);
        assert!(pull(&bed.queue, &p, 1).await.is_empty(), "it is disabled");
        amended(&bed.queue, &p, &ids, Amend::new().enable()).await;
        assert_eq!(drain(&bed.queue, &p).await, ["sooner"]);
    }
}
