//! Amendments while something is damaged, full, old, or sent twice.

use std::time::{Duration, Instant};

use anyqueue::adapter::{
    AmendQueueStorage, InspectQueueStorage, PullQueueStorage, PullRequest, PushQueueStorage,
};
use anyqueue::{Amend, AmendOutcome, ErrorKind, MessageData, MessageState, OnDuplicate, Page, PushOutcome};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::{Fault, Proxy, Redis};
use redis::Value;

use crate::amend::{SHORT, amend, amend_one};
use crate::common::{Bed, LEASE, SOON, command, fill, messages, part, pull, push, texts};
use crate::compaction::{keyed, push_one};
use crate::successors_across_slots::Beds;

/// Whatever bytes are in its record: no call fails as a whole, and what cannot be read stays as it is.
#[tokio::test]
async fn a_damaged_message_is_left_as_it_is_and_others_are_amended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = [MessageData::new("first").with_dedup_key("k").with_group("g"), MessageData::new("second")];
    push(&queue, &p, &all).await;
    let (key, id, mut conn) = (format!("{}:{{p}}:messages", bed.prefix), all[0].id(), bed.connect().await);
    let record: Vec<u8> =
        redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
    for length in 0..record.len() {
        let mut put = redis::cmd("HSET");
        let damaged = &record[..length];
        let _: u64 = put.arg(&key).arg(id.as_bytes()).arg(damaged).query_async(&mut conn).await.unwrap();
        let ids = [id, all[1].id()];
        let answers = queue.amend(&p, &ids, &Amend::new().with_priority(3).with_group("h")).await;
        let refused = answers[0].as_ref().unwrap_err().kind();
        assert!(
            matches!(refused, ErrorKind::Corrupt | ErrorKind::Incompatible),
            "{refused:?} of {length} bytes"
        );
        assert_eq!(answers[1].as_ref().unwrap(), &AmendOutcome::Amended);
        let now: Vec<u8> =
            redis::cmd("HGET").arg(&key).arg(id.as_bytes()).query_async(&mut conn).await.unwrap();
        assert_eq!(now, damaged);
    }
    let mut put = redis::cmd("HSET");
    let _: u64 = put.arg(&key).arg(id.as_bytes()).arg(&record).query_async(&mut conn).await.unwrap();
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["second", "first"]);
}

#[tokio::test]
async fn a_full_server_changes_nothing() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0", "1"]);
    push(&queue, &p, &all).await;
    bed.run("CONFIG SET maxmemory 1").await;
    let change = Amend::new().with_priority(3).disable();
    let error = queue.amend(&p, &[all[1].id()], &change).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    bed.run("CONFIG SET maxmemory 0").await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["0", "1"]);
}

/// Releases before amendments refuse the third layout, and go on with the second.
#[tokio::test]
async fn older_releases_are_refused_once_something_was_amended_and_not_before() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0"]);
    let layout = || async { bed.run(&format!("ZSCORE {}:partitions p", bed.prefix)).await };
    push(&queue, &p, &all).await;
    assert_eq!(
        amend_one(&queue, &p, MessageData::new("").id(), Amend::new().now()).await,
        AmendOutcome::NotFound
    );
    assert_eq!(layout().await, Value::BulkString(b"2".to_vec()));
    amend(&queue, &p, &all[..1].iter().collect::<Vec<_>>(), Amend::new().disable()).await;
    assert_eq!(layout().await, Value::BulkString(b"3".to_vec()));
    bed.open().await;
    queue.push(&part("u"), &[MessageData::new("x").with_urgent_after(LEASE)]).await.remove(0).unwrap();
    let urgent = bed.run(&format!("ZSCORE {}:partitions u", bed.prefix)).await;
    assert_eq!(urgent, Value::BulkString(b"3".to_vec()));
}

/// As they are in queues that an older release wrote, which notes nothing of what it releases or what matures.
#[tokio::test]
async fn messages_of_an_older_release_are_amended() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let all = messages(&["0", "1", "2", "3"]);
    push(&queue, &p, &all).await;
    bed.run(&format!("DEL {}:{{p}}:since", bed.prefix)).await;
    amend(&queue, &p, &[&all[3], &all[1]], Amend::new().with_priority(1)).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["1", "3", "0", "2"]);
}

#[tokio::test]
async fn pushes_of_its_key_find_a_disabled_message_and_leave_it_disabled() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let first = keyed("first", OnDuplicate::Keep).with_delay(LEASE);
    push(&queue, &p, std::slice::from_ref(&first)).await;
    amend(&queue, &p, &[&first], Amend::new().disable()).await;
    let state = || async {
        let browsed = queue.browse(&p, Page::of(9)).await.unwrap().remove(0);
        assert_eq!(browsed.state, MessageState::Disabled);
        (browsed.message.payload().to_vec(), browsed.due_in)
    };
    let replaced = PushOutcome::Replaced(first.id());
    assert_eq!(push_one(&queue, keyed("replace", OnDuplicate::Replace)).await, replaced);
    let (payload, due) = state().await;
    assert!(payload == b"replace" && due > Some(LEASE / 2), "{due:?}");
    let late = keyed("late", OnDuplicate::Earlier).with_delay(2 * LEASE);
    assert_eq!(push_one(&queue, late).await, PushOutcome::Duplicate(Some(first.id())));
    let earlier = keyed("earlier", OnDuplicate::Earlier).with_delay(LEASE / 4);
    assert_eq!(push_one(&queue, earlier).await, replaced);
    let (payload, due) = state().await;
    assert!(payload == b"earlier" && due < Some(LEASE / 2) && due.is_some(), "{due:?}");
    assert_eq!(push_one(&queue, keyed("now", OnDuplicate::Earlier)).await, replaced);
    assert_eq!(state().await, (b"now".to_vec(), None));
    assert!(pull(&queue, &p, 9).await.is_empty());
    amend(&queue, &p, &[&first], Amend::new().enable()).await;
    assert_eq!(texts(&pull(&queue, &p, 9).await), ["now"]);
}

/// The second run must not disable what somebody enabled after the first.
#[tokio::test]
async fn an_amendment_that_the_client_of_a_cluster_sends_twice_is_done_once() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let (server, name) = (&beds.cluster.nodes()[0], beds.names()[0]);
    let proxy = Proxy::start(server.addr()).unwrap();
    let direct = beds.open().await;
    command(server, "CONFIG SET cluster-announce-ip 127.0.0.1").await;
    command(server, &format!("CONFIG SET cluster-announce-port {}", proxy.addr().port())).await;
    let url = format!("redis-cluster://{}", proxy.addr());
    let (queue, p) = (RedisQueue::open(&url).await.unwrap(), part(name));
    let all = messages(&["0"]);
    push(&queue, &p, &all).await;
    amend(&queue, &p, &[&all[0]], Amend::new().enable()).await; // now the server knows the script
    proxy.set(Fault::DropReplies).await.unwrap();
    let ids = [all[0].id()];
    let change = Amend::new().disable();
    let amending = queue.amend(&p, &ids, &change);
    let breaking = async {
        let (disabled, started) = (format!("HLEN anyqueue:{{{name}}}:disabled"), Instant::now());
        while command(server, &disabled).await != Value::Int(1) {
            assert!(started.elapsed() < SOON, "it was not sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        amend(&direct, &p, &[&all[0]], Amend::new().enable()).await;
        proxy.set(Fault::Pass).await.unwrap();
        proxy.reset_all();
    };
    let (answers, ()) = tokio::join!(amending, breaking);
    assert_eq!(answers[0].as_ref().unwrap(), &AmendOutcome::Amended);
    assert_eq!(direct.counts(&p).await.unwrap().disabled, Some(0));
    assert_eq!(texts(&pull(&direct, &p, 9).await), ["0"]);
}

#[tokio::test]
async fn partitions_in_any_slot_are_amended_and_listed_as_such() {
    let Some(beds) = Beds::with(Redis::new()).await else { return };
    let queue = beds.open().await;
    for name in beds.names() {
        let (p, all) = (part(name), [MessageData::new("0"), MessageData::new("1")]);
        push(&queue, &p, &all).await;
        amend(&queue, &p, &[&all[1]], Amend::new().with_priority(1)).await;
        push(&queue, &p, &[MessageData::new("urgent").with_urgent_after(Duration::ZERO)]).await;
        assert_eq!(texts(&pull(&queue, &p, 9).await), ["urgent", "1", "0"]);
    }
    let connect = redis::cluster::ClusterClient::new([beds.cluster.url().replace("redis-cluster", "redis")]);
    let mut conn = connect.unwrap().get_async_connection().await.unwrap();
    let mut scores = redis::cmd("ZRANGE");
    scores.arg("anyqueue:partitions").arg(0).arg(-1).arg("WITHSCORES");
    let scores: Vec<(String, u32)> = scores.query_async(&mut conn).await.unwrap();
    assert!(scores.len() == 3 && scores.iter().all(|(_, layout)| *layout == 3), "{scores:?}");
    RedisQueue::open(beds.cluster.url()).await.unwrap();
}

/// Amendments beside pulls, settlements and deletions: each message comes once, and nothing is left of it.
#[tokio::test]
async fn nothing_is_lost_and_nothing_comes_twice_where_all_is_amended_at_once() {
    const MANY: usize = 3000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, other, p) = (bed.open().await, bed.open().await, part("p"));
    let all: Vec<_> = (0..3_u8)
        .cycle()
        .zip(0..MANY)
        .map(|(level, number)| {
            let message = MessageData::new(number.to_string()).with_priority(level);
            let message = if number % 4 == 0 { message.with_urgent_after(SHORT) } else { message };
            if number % 5 == 0 { message.with_group(format!("g{}", number % 50)) } else { message }
        })
        .collect();
    for some in all.chunks(1000) {
        push(&queue, &p, some).await;
    }
    let amending = async {
        for round in 0..600 {
            let ids: Vec<_> = (0..20).map(|_| all[fastrand::usize(..MANY)].id()).collect();
            let change = match round % 6 {
                0 => Amend::new().disable(),
                1 => Amend::new().with_priority(fastrand::u8(..10)),
                2 => Amend::new().due_in(SHORT / 10),
                3 => Amend::new().with_group(format!("g{}", fastrand::u8(..9))),
                4 => Amend::new().without_group().now(),
                _ => Amend::new().enable(),
            };
            assert!(other.amend(&p, &ids, &change).await.into_iter().all(|outcome| outcome.is_ok()));
        }
        for ids in all.chunks(1000) {
            let ids: Vec<_> = ids.iter().map(MessageData::id).collect();
            assert!(other.amend(&p, &ids, &Amend::new().enable()).await.into_iter().all(|it| it.is_ok()));
        }
    };
    let pulling = async {
        let mut seen = std::collections::HashSet::new();
        let started = Instant::now();
        while seen.len() < MANY {
            assert!(started.elapsed() < SOON * 3, "{} of {MANY} came", seen.len());
            let held = queue.pull(&p, PullRequest::new(7, SHORT, LEASE)).await.unwrap();
            for one in &held {
                assert!(seen.insert(one.lease.id), "one came twice");
            }
            crate::common::settle(&queue, &held, anyqueue::adapter::Action::Remove).await;
        }
    };
    tokio::join!(amending, pulling);
    let counts = queue.counts(&p).await.unwrap();
    let left = [counts.ready, counts.delayed, counts.leased, counts.disabled];
    assert_eq!(left, [Some(0); 4]);
    assert!(pull(&queue, &p, 9).await.is_empty());
    crate::amend::assert_left_nothing(&bed, &p).await;
}

/// Far apart from where they are put: the server looks for no message.
#[tokio::test]
async fn pulls_merge_what_was_placed_in_few_commands() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let first = MessageData::new("first");
    push(&queue, &p, std::slice::from_ref(&first)).await;
    fill(&queue, &p, 20_000, |message| message.with_priority(1)).await;
    amend(&queue, &p, &[&first], Amend::new().with_priority(1)).await;
    fill(&queue, &p, 1000, |message| message).await;
    let before = bed.info("total_commands_processed").await;
    assert_eq!(texts(&pull(&queue, &p, 1).await), ["first"]);
    pull(&queue, &p, 1000).await;
    let commands = bed.info("total_commands_processed").await - before;
    assert!(commands < 150, "{commands} commands");
}
