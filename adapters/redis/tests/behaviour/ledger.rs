//! What becomes of tasks: ends are stored with settlements, listed, found, and gone when their time is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::{
    Action, Cancelled, EndedCursor, EndedQuery, EndedTask, InspectQueueStorage, LedgerQueueStorage,
    PullQueueStorage, PullRequest, PushQueueStorage, RawDelivery, Settlement, TaskEnd,
};
use anyqueue::{
    CancelOutcome, EndState, ErrorKind, MAX_RESULT_BYTES, MessageData, MessageId, Page, PartitionId,
    SettleOutcome,
};
use anyqueue_redis::RedisQueue;
use anyqueue_testkit::harness::is_told_of_ends;
use redis::Value;

use crate::common::{Bed, LEASE, SOON, fill, in_time, messages, part, pull, push, texts};
use crate::successors::{all, bring};

const MOMENT: Duration = Duration::from_millis(1);
const PAGE: usize = 1000;

pub(crate) fn end(state: EndState) -> TaskEnd {
    TaskEnd::new(state).with_attempt(1)
}

pub(crate) fn done() -> TaskEnd {
    end(EndState::Succeeded).with_keep(Some(LEASE))
}

pub(crate) fn with_end(held: &RawDelivery, end: TaskEnd) -> Settlement {
    Settlement::new(held.lease.clone(), Action::Remove).with_end(Some(Arc::new(end)))
}

pub(crate) async fn settle_all(queue: &RedisQueue, settlements: &[Settlement]) {
    for outcome in queue.settle(settlements).await {
        assert_eq!(outcome.unwrap(), SettleOutcome::Settled);
    }
}

pub(crate) async fn find(queue: &RedisQueue, p: &PartitionId, id: MessageId) -> Option<EndedTask> {
    queue.find_ended(p, &[id]).await.remove(0).unwrap()
}

pub(crate) async fn record(queue: &RedisQueue, p: &PartitionId, ids: &[MessageId], end: &TaskEnd) {
    let end = Arc::new(end.clone());
    for ids in ids.chunks(PAGE) {
        let ends: Vec<_> = ids.iter().map(|id| (*id, Arc::clone(&end))).collect();
        assert!(queue.record_ended(p, &ends).await.iter().all(Result::is_ok));
    }
}

fn query(states: &[EndState]) -> EndedQuery {
    let mut query = EndedQuery::default();
    query.states = states.to_vec();
    query
}

fn new_ids(count: usize) -> Vec<MessageId> {
    (0..count).map(|_| MessageId::from_bytes(fastrand::u128(..).to_be_bytes())).collect()
}

/// All pages of this size, one behind the other.
async fn list(queue: &RedisQueue, p: &PartitionId, query: &EndedQuery, size: usize) -> Vec<EndedTask> {
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let mut page = Page::of(size);
        page.after = after;
        let some = queue.ended(p, query, page).await.unwrap();
        after = some.last().map(EndedTask::cursor);
        let is_last = some.len() < size;
        listed.extend(some);
        if is_last {
            return listed;
        }
    }
}

/// The keys of this prefix, without those of counts, which the server lets go by itself.
async fn keys(bed: &Bed) -> BTreeSet<String> {
    let Value::Array(keys) = bed.run(&format!("KEYS {}:*", bed.prefix)).await else { panic!() };
    let keys = keys.into_iter().map(|key| redis::from_redis_value::<String>(key).unwrap());
    keys.filter(|key| !key.contains(":series")).collect()
}

#[tokio::test]
async fn ends_come_with_settlements_of_every_kind_and_under_a_lost_lease_there_is_none() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let sent = ["plain", "keyed", "lost", "moved", "back", "bare"];
    let sent: Vec<_> = messages(&sent)
        .into_iter()
        .map(|message| if message.payload() == &b"keyed"[..] { message.with_dedup_key("k") } else { message })
        .collect();
    push(&queue, &p, &sent).await;
    push(&queue, &p, &[MessageData::new("grouped").with_group("g")]).await;
    let held = pull(&queue, &p, 10).await;
    queue.settle(&[Settlement::new(held[2].lease.clone(), Action::Release)]).await.remove(0).unwrap();
    let result = vec![b'r'; MAX_RESULT_BYTES];
    let moved = Action::Move { to: p.dead_letters(), headers: None };
    let bare = |held: &RawDelivery, action| Settlement::new(held.lease.clone(), action);
    let settlements = [
        with_end(&held[0], done().with_result(result.clone())),
        with_end(&held[1], done().with_result("").with_reason("why")),
        with_end(&held[2], done()),
        bare(&held[3], moved).with_end(Some(Arc::new(done()))),
        bare(&held[4], Action::Retry).with_end(Some(Arc::new(done()))),
        bare(&held[5], Action::Remove),
        with_end(&held[6], end(EndState::Failed)),
    ];
    let outcomes: Vec<_> = queue.settle(&settlements).await.into_iter().map(Result::unwrap).collect();
    let (lost, settled) = (SettleOutcome::Lost, SettleOutcome::Settled);
    assert_eq!(outcomes, [settled, settled, lost, settled, settled, settled, settled]);
    let ids: Vec<_> = held.iter().map(|held| held.lease.id).collect();
    let found: Vec<_> = queue.find_ended(&p, &ids).await.into_iter().map(Result::unwrap).collect();
    let is_there: Vec<_> = found.iter().map(Option::is_some).collect();
    assert_eq!(is_there, [true, true, false, false, false, false, true]);
    let results: Vec<_> = found.iter().flatten().map(|ended| ended.end.result.as_deref()).collect();
    assert_eq!(results, [Some(&result[..]), Some(&[][..]), None]);
    let first = found[0].as_ref().unwrap();
    assert_eq!(first.expires_at, Some(first.ended_at + LEASE));
    assert_eq!(found[6].as_ref().unwrap().expires_at, None);
    let listed = list(&queue, &p, &EndedQuery::default(), 2).await;
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|ended| ended.end.result.is_none()), "lists have no results");
}

#[tokio::test]
async fn an_exchange_stores_ends_together_with_successors_and_the_next_claim() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["1", "2", "3"])).await;
    let held = pull(&queue, &p, 2).await;
    let first = bring(&held[0], Action::Remove, [("p", MessageData::new("child"))]);
    let settlements = [first.with_end(Some(Arc::new(done()))), with_end(&held[1], done().with_result("r"))];
    for some in settlements.chunks(1) {
        let request = PullRequest::new(1, Duration::ZERO, LEASE);
        let (outcomes, pulled) = queue.exchange(some, &p, request).await;
        assert_eq!(outcomes[0].as_ref().unwrap(), &SettleOutcome::Settled);
        assert_eq!(pulled.unwrap().len(), 1);
        assert!(find(&queue, &p, some[0].lease.id).await.is_some());
    }
    assert_eq!(all(&queue, "p").await, Vec::<String>::new());
}

#[tokio::test]
async fn pages_neither_skip_nor_repeat_at_thousands_of_equal_moments() {
    const ENDS: usize = 5000;
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let ids = new_ids(ENDS);
    // So many at one moment that it need not be made: the ends of one call have one moment.
    for (number, ids) in ids.chunks(PAGE).enumerate() {
        let state = EndState::ALL[number % 4];
        record(&queue, &p, ids, &end(state).with_keep(Some(LEASE))).await;
    }
    for (states, size, expected) in [
        (&[][..], 333, ENDS),
        (&[][..], 1000, ENDS),
        (&EndState::ALL[..1], 7, 2 * PAGE),
        (&[EndState::Failed, EndState::Succeeded], 250, 2 * PAGE),
    ] {
        let query = query(states);
        let listed = list(&queue, &p, &query, size).await;
        let order: Vec<_> = listed.iter().map(|ended| (ended.ended_at, ended.id)).collect();
        assert!(order.is_sorted_by(|one, next| one > next), "in their order, each once");
        assert_eq!(
            (listed.len(), queue.count_ended(&p, &query, 100_000).await.unwrap()),
            (expected, expected as u64)
        );
        assert!(listed.iter().all(|ended| query.matches(ended.end.state, ended.ended_at)));
    }
    assert_eq!(queue.count_ended(&p, &EndedQuery::default(), 17).await.unwrap(), 17);
    let mut moments = BTreeSet::new();
    moments.extend(list(&queue, &p, &EndedQuery::default(), PAGE).await.iter().map(|ended| ended.ended_at));
    assert!(moments.len() <= ENDS / 50, "few moments: {}", moments.len());
}

#[tokio::test]
async fn times_are_bounded_to_the_nanosecond() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let ids = new_ids(3);
    record(&queue, &p, &ids, &done()).await;
    let at = find(&queue, &p, ids[0]).await.unwrap().ended_at;
    let nano = Duration::from_nanos(1);
    for (since, before, expected) in [
        (Some(at), None, 3),
        (Some(at + nano), None, 0),
        (Some(at - nano), Some(at + nano), 3),
        (None, Some(at), 0),
        (Some(SystemTime::UNIX_EPOCH), Some(at + MOMENT), 3),
        (Some(at + MOMENT), Some(at), 0),
    ] {
        let mut query = query(&[]);
        (query.since, query.before) = (since, before);
        assert_eq!(queue.count_ended(&p, &query, 100).await.unwrap(), expected, "{query:?}");
        assert_eq!(list(&queue, &p, &query, 2).await.len() as u64, expected, "{query:?}");
    }
    let mut page = Page::of(9);
    page.after = Some(EndedCursor { ended_at: at + nano, id: MessageId::from_bytes([0; 16]) });
    assert_eq!(queue.ended(&p, &query(&[]), page).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_new_end_takes_the_place_of_the_former_one_in_every_list() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let message = MessageData::new("again");
    for (state, keep, result) in [
        (EndState::Failed, Some(LEASE), Some("first")),
        (EndState::Succeeded, None, None),
        (EndState::Cancelled, Some(LEASE), None),
        (EndState::Cancelled, Some(2 * LEASE), Some("last")),
    ] {
        push(&queue, &p, std::slice::from_ref(&message)).await;
        let held = pull(&queue, &p, 1).await;
        let mut new = end(state).with_keep(keep);
        new.result = result.map(Into::into);
        settle_all(&queue, &[with_end(&held[0], new)]).await;
        let ended = find(&queue, &p, message.id()).await.unwrap();
        assert_eq!((ended.end.state, ended.end.result.as_deref()), (state, result.map(str::as_bytes)));
        assert_eq!(ended.expires_at, keep.map(|keep| ended.ended_at + keep));
        assert_eq!(list(&queue, &p, &query(&[]), 9).await.len(), 1);
        assert_eq!(queue.count_ended(&p, &query(&[state]), 9).await.unwrap(), 1);
    }
    assert!(queue.delete_ended(&p, &[message.id()]).await.remove(0).unwrap());
    assert!(!queue.delete_ended(&p, &[message.id()]).await.remove(0).unwrap());
    assert!(keys(&bed).await.iter().all(|key| !key.contains("ended")), "{:?}", keys(&bed).await);
}

#[tokio::test]
async fn of_recorded_ends_the_greatest_is_left_however_great_its_rank() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    // Ranks that are equal as floating point numbers.
    let great = |state| end(state).with_generation(40_000).with_attempt(70_000).with_delivery_count(1 << 30);
    let id = MessageId::new();
    for (new, left) in [
        (great(EndState::Failed), EndState::Failed),
        (great(EndState::Cancelled), EndState::Failed),
        (great(EndState::TimedOut), EndState::TimedOut),
        (great(EndState::TimedOut).with_reason("equal"), EndState::TimedOut),
        (end(EndState::Succeeded), EndState::TimedOut),
        (great(EndState::Succeeded), EndState::Succeeded),
    ] {
        record(&queue, &p, &[id], &new).await;
        let ended = find(&queue, &p, id).await.unwrap();
        assert_eq!((ended.end.state, ended.end.reason.as_deref()), (left, None));
    }
}

#[tokio::test]
async fn what_has_lapsed_is_in_no_answer_and_a_purge_leaves_no_key_behind() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let before = keys(&bed).await;
    let (short, long) = (new_ids(1500), new_ids(700));
    record(&queue, &p, &short, &done().with_keep(Some(MOMENT)).with_result("r")).await;
    record(&queue, &part("other"), &short[..10], &done().with_keep(Some(MOMENT))).await;
    record(&queue, &p, &long, &done()).await;
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(list(&queue, &p, &query(&[]), 100).await.len(), 700);
    for (cap, expected) in [(10_000, 700), (300, 300)] {
        assert_eq!(queue.count_ended(&p, &query(&[]), cap).await.unwrap(), expected);
    }
    assert!(find(&queue, &p, short[0]).await.is_none());
    assert!(!queue.delete_ended(&p, &short[..1]).await.remove(0).unwrap());
    assert_eq!(queue.purge_ended(600).await.unwrap(), 600);
    assert_eq!(queue.purge_ended(10_000).await.unwrap(), 909);
    assert_eq!(queue.purge_ended(10_000).await.unwrap(), 0);
    assert_eq!(queue.count_ended(&p, &query(&[]), 10_000).await.unwrap(), 700);
    for deleted in queue.delete_ended(&p, &long).await {
        assert!(deleted.unwrap());
    }
    assert_eq!(keys(&bed).await, before);
}

#[tokio::test]
async fn an_end_that_took_the_place_of_one_that_lapsed_sooner_is_freed_at_its_own_time() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, ids) = (bed.open().await, new_ids(2));
    let (p, purged) = in_time(300 * MOMENT, async |p| {
        bed.run("FLUSHALL").await;
        record(&queue, &p, &ids, &done().with_keep(Some(MOMENT))).await;
        record(&queue, &p, &ids[1..], &done().with_attempt(2).with_keep(Some(300 * MOMENT))).await;
        tokio::time::sleep(2 * MOMENT).await;
        [queue.purge_ended(1).await.unwrap(), queue.purge_ended(9).await.unwrap()]
    })
    .await;
    assert_eq!(purged, [1, 0]);
    let started = Instant::now();
    while find(&queue, &p, ids[1]).await.is_some() {
        assert!(started.elapsed() < SOON, "it does not lapse");
        tokio::time::sleep(MOMENT).await;
    }
    assert_eq!(queue.purge_ended(9).await.unwrap(), 1);
    assert_eq!(keys(&bed).await, BTreeSet::new());
}

#[tokio::test]
async fn a_purge_beside_settlements_takes_nothing_that_is_kept() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, other, p) = (bed.open().await, bed.open().await, part("p"));
    fill(&queue, &p, 4000, |message| message).await;
    let settling = async {
        let mut kept = Vec::new();
        for number in 0..40 {
            let held = pull(&queue, &p, 100).await;
            let keep = if number % 2 == 0 { MOMENT } else { LEASE };
            let ends: Vec<_> = held.iter().map(|held| with_end(held, done().with_keep(Some(keep)))).collect();
            settle_all(&queue, &ends).await;
            kept.extend(held.iter().filter(|_| keep == LEASE).map(|held| held.lease.id));
        }
        kept
    };
    let purging = async {
        let (mut purged, started) = (0, Instant::now());
        while purged < 1000 {
            assert!(started.elapsed() < SOON, "only {purged} were purged");
            purged += other.purge_ended(30).await.unwrap();
        }
        purged
    };
    let (kept, purged) = tokio::join!(settling, purging);
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(purged + other.purge_ended(10_000).await.unwrap(), 2000);
    let listed = list(&queue, &p, &query(&[]), 500).await;
    let listed: BTreeSet<_> = listed.iter().map(|ended| ended.id).collect();
    assert_eq!(listed, kept.into_iter().collect());
}

#[tokio::test]
async fn a_cancellation_stores_the_end_of_what_waits_and_of_nothing_else() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["held", "waits", "bare"])).await;
    let held = pull(&queue, &p, 1).await;
    let waiting = queue.browse(&p, Page::of(9)).await.unwrap();
    let id = |text: &str| {
        waiting.iter().find(|one| one.message.payload() == text.as_bytes()).unwrap().message.id()
    };
    let ids = [held[0].lease.id, id("waits"), id("bare"), MessageId::new()];
    let ends = [true, true, false, true].map(|has_end| has_end.then(|| Arc::new(end(EndState::Cancelled))));
    let tasks: Vec<_> = ids.into_iter().zip(ends).map(|(id, end)| Cancelled { id, end }).collect();
    let outcomes: Vec<_> = queue.cancel(&p, &tasks).await.into_iter().map(Result::unwrap).collect();
    let (requested, removed, missing) =
        (CancelOutcome::Requested, CancelOutcome::Removed, CancelOutcome::NotFound);
    assert_eq!(outcomes, [requested, removed, removed, missing]);
    let found = queue.find_ended(&p, &ids).await;
    let found: Vec<_> = found.into_iter().map(|ended| ended.unwrap().is_some()).collect();
    assert_eq!(found, [false, true, false, false]);
    let bare = Cancelled { id: ids[0], end: None };
    assert_eq!(queue.cancel(&p, &[bare]).await.remove(0).unwrap(), requested);
    assert_eq!(texts(&pull(&queue, &p, 9).await), Vec::<String>::new());
}

#[tokio::test]
async fn an_end_that_cannot_be_read_is_an_error_of_its_page_and_of_its_id_only() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    let ids = new_ids(3);
    record(&queue, &p, &ids, &done()).await;
    let stored = format!("{}:{{p}}:ended", bed.prefix);
    let mut conn = bed.connect().await;
    let record: Vec<u8> =
        redis::cmd("HGET").arg(&stored).arg(ids[1].as_bytes()).query_async(&mut conn).await.unwrap();
    for length in [3, 21, 22, record.len() - 1] {
        let mut damage = redis::cmd("HSET");
        damage.arg(&stored).arg(ids[1].as_bytes()).arg(&record[..length]);
        let _: Value = damage.query_async(&mut conn).await.unwrap();
        let page = queue.ended(&p, &query(&[]), Page::of(9)).await.unwrap_err();
        assert_eq!(page.kind(), ErrorKind::Corrupt, "{page}");
        let found = queue.find_ended(&p, &ids).await;
        let kinds: Vec<_> = found.into_iter().map(|found| found.err().map(|error| error.kind())).collect();
        assert_eq!(kinds, [None, Some(ErrorKind::Corrupt), None]);
    }
    assert!(queue.delete_ended(&p, &ids[1..2]).await.remove(0).unwrap());
    assert_eq!(list(&queue, &p, &query(&[]), 9).await.len(), 2);
}

#[tokio::test]
async fn ends_survive_a_killed_server_and_are_stored_where_the_scripts_were_forgotten() {
    let Some(bed) = Bed::with(anyqueue_testkit::Redis::new().setting("appendfsync", "always")).await else {
        return;
    };
    let p = part("p");
    for number in 1..=2 {
        let queue = bed.open().await;
        bed.run("SCRIPT FLUSH").await;
        fill(&queue, &p, 100, |message| message).await;
        let held = pull(&queue, &p, 100).await;
        let ends: Vec<_> = held.iter().map(|held| with_end(held, done().with_result("r"))).collect();
        settle_all(&queue, &ends).await;
        bed.server.kill().await.unwrap();
        bed.server.restart().await.unwrap();
        let queue = bed.open().await;
        assert_eq!(list(&queue, &p, &query(&[]), 70).await.len(), 100 * number);
        assert_eq!(find(&queue, &p, held[0].lease.id).await.unwrap().end.result.as_deref(), Some(&b"r"[..]));
    }
}

#[tokio::test]
async fn where_ends_cannot_be_stored_nothing_is_removed_and_other_settlements_go_on() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    for key in ["{p}:ended:4", "{p}:ended:results", "ended"] {
        let key = format!("{}:{key}", bed.prefix);
        bed.run(&format!("SET {key} somebody's")).await;
        push(&queue, &p, &messages(&["1", "2", "3"])).await;
        let held = pull(&queue, &p, 3).await;
        let child = bring(&held[2], Action::Remove, [("p", MessageData::new("child"))]);
        let settlements =
            [with_end(&held[0], done()), Settlement::new(held[1].lease.clone(), Action::Remove), child];
        let [refused, settled, followed]: [_; 3] = queue.settle(&settlements).await.try_into().unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incompatible);
        assert_eq!(settled.unwrap(), SettleOutcome::Settled);
        assert_eq!(followed.unwrap_err().kind(), ErrorKind::Incompatible, "it was in the same script");
        assert_eq!(queue.counts(&p).await.unwrap().leased, Some(2));
        bed.run(&format!("DEL {key}")).await;
        settle_all(&queue, &[with_end(&held[0], done()), settlements[2].clone()]).await;
        assert_eq!(all(&queue, "p").await, ["child"]);
        queue.purge(&p, 9).await.unwrap();
        bed.run("FLUSHALL").await;
    }
}

#[tokio::test]
async fn a_server_without_memory_settles_and_keeps_the_ends_but_records_no_others() {
    let Some(bed) = Bed::find().await else { return };
    let (queue, p) = (bed.open().await, part("p"));
    push(&queue, &p, &messages(&["1", "2"])).await;
    let held = pull(&queue, &p, 1).await;
    bed.run("CONFIG SET maxmemory 1").await;
    assert_eq!(queue.push(&p, &messages(&["3"])).await.remove(0).unwrap_err().kind(), ErrorKind::Full);
    settle_all(&queue, &[with_end(&held[0], done())]).await;
    assert!(find(&queue, &p, held[0].lease.id).await.is_some());
    let refused = queue.record_ended(&p, &[(MessageId::new(), Arc::new(done()))]).await.remove(0);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Full);
    assert!(queue.delete_ended(&p, &[held[0].lease.id]).await.remove(0).unwrap());
}

#[tokio::test]
async fn ends_are_of_their_partition_which_is_listed_only_for_its_messages() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let id = MessageId::new();
    record(&queue, &part("only"), &[id], &done()).await;
    assert!(find(&queue, &part("other"), id).await.is_none());
    assert_eq!(list(&queue, &part("other"), &query(&[]), 9).await, []);
    assert_eq!(queue.partitions(Page::of(9)).await.unwrap(), []);
    assert_eq!(find(&queue, &part("only"), id).await.unwrap().id, id);
}

#[tokio::test]
async fn who_waits_in_one_process_is_told_when_another_ends_the_task() {
    let Some(bed) = Bed::find().await else { return };
    is_told_of_ends(bed.open().await, bed.open().await).await.unwrap();
}
