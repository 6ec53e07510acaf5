//! Messages of more than 16 KiB, whose records are kept apart.

use anyqueue::adapter::{Action, InspectQueueStorage, PushQueueStorage};
use anyqueue::{DeleteOutcome, MessageData, Page, PushOutcome};
use redis::Value;

use crate::common::{Bed, LEASE, part, pull, push, settle, texts};

fn bulky(text: &str) -> MessageData {
    MessageData::new(format!("{text} {}", ".".repeat(20_000)))
}

/// The first words.
fn names(texts: &[String]) -> Vec<&str> {
    texts.iter().filter_map(|text| text.split(' ').next()).collect()
}

#[tokio::test]
async fn bulky_messages_of_every_kind_come_whole_and_nothing_of_them_stays() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let key = format!("{}:{{p}}:bulky", bed.prefix);
    // Together with small ones, in a hash of their moment; alone; of a group, with a key, and moved.
    let together: Vec<_> =
        (0..40).map(|n| if n % 2 == 0 { bulky("even") } else { MessageData::new("odd") }).collect();
    push(&queue, &p, &together).await;
    let keyed = bulky("keyed").with_dedup_key("k").with_group("g");
    push(&queue, &p, &[bulky("alone"), keyed.clone(), bulky("behind").with_group("g")]).await;
    push(&queue, &p, &[bulky("delayed").with_delay(LEASE)]).await;
    assert_eq!(bed.run(&format!("HLEN {key}")).await, Value::Int(24));
    let again = queue.push(&p, &[bulky("other").with_dedup_key("k")]).await.remove(0).unwrap();
    assert_eq!(again, PushOutcome::Duplicate(Some(keyed.id())));
    let held = pull(&queue, &p, 100).await;
    let mut expected = ["even", "odd"].repeat(20);
    expected.extend(["alone", "keyed"]);
    assert_eq!(names(&texts(&held)), expected);
    assert!(held.iter().all(|held| [3, 20_005, 20_006].contains(&held.message.payload().len())), "cut short");
    let (last, rest) = held.split_last().unwrap();
    settle(&queue, rest, Action::Remove).await;
    settle(&queue, std::slice::from_ref(last), Action::Move { to: p.dead_letters(), headers: None }).await;
    let dead = queue.browse(&p.dead_letters(), Page::of(10)).await.unwrap();
    assert_eq!((dead.len(), dead[0].message.payload()), (1, keyed.payload()));
    let held = pull(&queue, &p.dead_letters(), 10).await;
    assert_eq!(held[0].message.payload(), keyed.payload());
    settle(&queue, &held, Action::Move { to: part("elsewhere"), headers: None }).await;
    assert_eq!(pull(&queue, &part("elsewhere"), 1).await[0].message.payload(), keyed.payload());
    let shown = queue.browse(&p, Page::of(10)).await.unwrap();
    assert_eq!(shown.iter().map(|shown| shown.message.payload().len()).collect::<Vec<_>>(), [20_007, 20_008]);
    let ids: Vec<_> = shown.iter().map(|shown| shown.message.id()).collect();
    assert_eq!(queue.delete(&p, &ids[..1]).await.remove(0).unwrap(), DeleteOutcome::Deleted);
    assert_eq!(queue.purge(&p, 10).await.unwrap(), 1);
    assert_eq!(bed.run(&format!("EXISTS {key}")).await, Value::Int(0));
}

/// What the server spends on a page of one, in microseconds.
async fn page_us(bed: &Bed, size: usize) -> f64 {
    const MESSAGES: usize = 2100;
    let (queue, p) = (bed.open().await, part(&format!("size-{size}")));
    for _ in 0..MESSAGES / 10 {
        // Fewer than share a hash of their moment.
        push(&queue, &p, &(0..10).map(|_| MessageData::new(vec![b'.'; size])).collect::<Vec<_>>()).await;
    }
    let mut least = f64::MAX;
    for _ in 0..3 {
        bed.run("CONFIG RESETSTAT").await;
        assert_eq!(queue.browse(&p, Page::of(1)).await.unwrap().len(), 1);
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut bed.connect().await).await.unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha")).unwrap();
        let used = line.split("usec=").nth(1).unwrap().split(',').next().unwrap();
        least = least.min(used.parse().unwrap());
    }
    least
}

#[tokio::test]
async fn a_page_costs_no_more_where_the_messages_beside_it_are_large() {
    let Some(bed) = Bed::find().await else { return };
    let (small, large) = (page_us(&bed, 100).await, page_us(&bed, 50_000).await);
    println!("a page of one takes {small} us among small messages, {large} us among large ones");
    assert!(large <= 5.0 * small + 10_000.0, "{large} us, {small} us among small ones");
}

#[tokio::test]
async fn a_page_of_large_messages_comes_in_answers_of_bounded_size() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for _ in 0..10 {
        push(&queue, &p, &[MessageData::new(vec![b'.'; 3 * 1024 * 1024])]).await;
    }
    bed.run("CONFIG RESETSTAT").await;
    assert_eq!(queue.browse(&p, Page::of(100)).await.unwrap().len(), 10);
    // One lists, and each of the others shows two: 3 MiB are not yet enough for one answer.
    let calls = bed.text_info("cmdstat_evalsha").await;
    assert!(calls.starts_with("calls=6,"), "{calls}");
}
