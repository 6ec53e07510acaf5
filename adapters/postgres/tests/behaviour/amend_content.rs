//! What is stored of a message that is amended: whatever else it says is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyqueue::OnDuplicate::Replace;
use anyqueue::adapter::{Action, AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PushQueueStorage};
use anyqueue::{Amend, AmendOutcome, ErrorKind, MessageData, MessageId, Page};

use crate::amend::{amend, amend_one};
use crate::common::{Bed, LEASE, part, pull, remove, run, texts};
use crate::successors::{drain, with};

/// Headers that a settlement replaced stand beside what is stored, which is encoded anew.
#[tokio::test]
async fn what_others_changed_or_wrote_is_kept_and_what_cannot_be_read_is_left_alone() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p, schema) = (bed.open().await, part("p"), &bed.schema);
    let [kept, newer, broken] = ["kept", "newer", "broken"].map(MessageData::new);
    queue.push(&p, std::slice::from_ref(&kept)).await;
    let held = pull(&queue, &p, 1).await.remove(0);
    let headers = Some([("new".to_owned(), "header".to_owned())].into());
    let postpone = Action::Postpone { delay: Duration::ZERO, headers };
    queue.settle(&[with(&held.lease, postpone, &[])]).await.remove(0).unwrap();
    queue.push(&p, &[newer.clone(), broken.clone()]).await;
    let mut conn = bed.connect().await;
    let damage = |how: &str, text: &str| {
        format!("UPDATE {schema}.message SET body = {how} WHERE position('{text}'::bytea IN body) > 0")
    };
    run(&mut conn, damage("set_byte(body, 3, 2)", "newer")).await;
    run(&mut conn, damage("set_byte(body, 4, 255)", "broken")).await;
    run(
        &mut conn,
        format!(
            "INSERT INTO {schema}.message (id, part, lane, pos, state, pushed_at, body)
             SELECT '01890000-0000-7000-8000-000000000000', part, 19, 1, 0, now(), 'plain' FROM {schema}.partition"
        ),
    )
    .await;
    let foreign = MessageId::from_bytes([1, 0x89, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    let ids = [kept.id(), newer.id(), broken.id(), foreign];
    let outcomes = queue.amend(&p, &ids, &Amend::new().with_priority(7)).await;
    let kinds: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_err(anyqueue::Error::kind)).collect();
    let amended = Ok(&AmendOutcome::Amended);
    assert_eq!(kinds, [amended, Err(ErrorKind::Incompatible), Err(ErrorKind::Corrupt), amended]);
    // What does not show in what is stored needs no reading.
    for outcome in queue.amend(&p, &[newer.id(), broken.id()], &Amend::new().due_in(LEASE)).await {
        assert_eq!(outcome.unwrap(), AmendOutcome::Amended);
    }
    let held = pull(&queue, &p, 9).await;
    assert_eq!(texts(&held), ["plain", "kept"]);
    assert!(held.iter().all(|held| held.message.options().priority == 7 && held.unreadable.is_none()));
    assert!(held[0].message.headers().contains_key(anyqueue::header::FOREIGN_ID));
    assert_eq!(held[1].message.headers()["new"], "header");
}

#[tokio::test]
async fn a_thousand_large_messages_are_amended_in_parts_and_in_order() {
    const EACH: usize = 40 * 1024;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let messages: Vec<_> =
        (0..1000).map(|n| MessageData::new(vec![u8::try_from(n % 256).unwrap(); EACH])).collect();
    for some in messages.chunks(500) {
        for pushed in queue.push(&p, some).await {
            pushed.unwrap();
        }
    }
    let met = amend(&queue, &p, &messages.iter().collect::<Vec<_>>(), Amend::new().with_group("g")).await;
    assert_eq!(met, vec![AmendOutcome::Amended; 1000]);
    for expected in &messages {
        let held = pull(&queue, &p, 9).await;
        assert_eq!((held.len(), held[0].message.id()), (1, expected.id()));
        remove(&queue, &held[0].lease).await;
        if expected.id() == messages[20].id() {
            break;
        }
    }
}

/// Between reading what is stored and changing it, it gets another content again and again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_replaced_while_it_is_amended_keeps_both() {
    const ROUNDS: u8 = 60;
    let Some(bed) = Bed::find().await else { return };
    let (queue, pusher, p) = (bed.open().await, bed.open().await, part("p"));
    let first = MessageData::new("0").with_dedup_key("k");
    queue.push(&p, std::slice::from_ref(&first)).await;
    let (over, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let pushing = tokio::spawn({
        let (p, over, last) = (p.clone(), Arc::clone(&over), Arc::clone(&last));
        async move {
            while !over.load(Ordering::Relaxed) {
                let number = last.load(Ordering::Relaxed) + 1;
                let message = MessageData::new(format!("{number}")).with_dedup_key("k");
                pusher.push(&p, &[message.with_on_duplicate(Replace)]).await.remove(0).unwrap();
                last.store(number, Ordering::Relaxed);
            }
        }
    });
    for round in 0..ROUNDS {
        let change = Amend::new().with_priority(round % 10).with_group(format!("g{round}"));
        let stored_before = last.load(Ordering::Relaxed);
        amend_one(&queue, &p, &first, change).await;
        let seen = queue.browse(&p, Page::of(9)).await.unwrap().remove(0).message;
        assert_eq!(seen.options().priority, round % 10);
        assert_eq!(seen.options().group.as_deref(), Some(&*format!("g{round}")));
        let content: usize = String::from_utf8(seen.payload().to_vec()).unwrap().parse().unwrap();
        assert!(content >= stored_before, "{content} is older than {stored_before}");
    }
    over.store(true, Ordering::Relaxed);
    pushing.await.unwrap();
    assert_eq!(drain(&queue, &p).await, [last.load(Ordering::Relaxed).to_string()]);
}
