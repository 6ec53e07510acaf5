//! Pages, filters and counts of what has ended.

use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use anyqueue::adapter::EndedCursor;

const STATES: [EndState; 4] = EndState::ALL;

fn query(states: &[EndState], since: Option<SystemTime>, before: Option<SystemTime>) -> EndedQuery {
    let mut query = EndedQuery::default();
    (query.states, query.since, query.before) = (states.to_vec(), since, before);
    query
}

/// Ends of all states in turn, five at each of some moments, a second apart. Newest first.
async fn ended_in_turn(bed: &Bed, clock: &anyqueue::ManualClock, p: &PartitionId) -> Vec<EndedTask> {
    let mut all = Vec::new();
    for n in 0..40 {
        let id = end_one(&bed.queue, p, TaskEnd::new(STATES[n % STATES.len()])).await;
        all.push(find(&bed.queue, p, id).await.unwrap());
        if n % 5 == 4 {
            clock.advance(SECOND);
        }
    }
    all.sort_by_key(|ended| std::cmp::Reverse(ended.cursor()));
    all
}

async fn paged(bed: &Bed, p: &PartitionId, query: &EndedQuery, limit: usize) -> Vec<EndedTask> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = bed.queue.ended(p, query, Page::of(limit).after(after)).await.unwrap();
        after = page.last().map(EndedTask::cursor);
        if page.is_empty() {
            return all;
        }
        assert!(page.len() <= limit && all.len() < 100, "it repeats");
        all.extend(page);
    }
}

#[tokio::test]
async fn pages_of_any_states_and_times_neither_skip_nor_repeat() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    end_one(&bed.queue, &part("another"), succeeded()).await;
    let all = ended_in_turn(&bed, &clock, &p).await;
    let (first, last) = (all[39].ended_at, all[0].ended_at);
    let half = Duration::from_micros(500);
    let times =
        [None, Some(first), Some(first + 3 * SECOND), Some(last), Some(last + half), Some(UNIX_EPOCH)];
    for mask in 0..16_usize {
        let states: Vec<_> = STATES.into_iter().filter(|state| mask & 1 << (state.code() - 1) != 0).collect();
        for since in times {
            for before in times {
                let query = query(&states, since, before);
                let matching = all.iter().filter(|ended| query.matches(ended.end.state, ended.ended_at));
                let matching: Vec<_> = matching.cloned().collect();
                assert_eq!(paged(&bed, &p, &query, 7).await, matching, "{query:?}");
                let count = bed.queue.count_ended(&p, &query, 1000).await.unwrap();
                assert_eq!(count, matching.len() as u64, "{query:?}");
                let capped = bed.queue.count_ended(&p, &query, 3).await.unwrap();
                assert_eq!(capped, count.min(3), "{query:?}");
            }
        }
    }
}

#[tokio::test]
async fn any_cursor_goes_on_with_what_comes_after_it() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let all = ended_in_turn(&bed, &clock, &p).await;
    let (least, greatest) = (MessageId::from_bytes([0; 16]), MessageId::from_bytes([0xFF; 16]));
    let rest = async |before, ended_at, id| {
        let page = Page::of(100).after(EndedCursor { ended_at, id });
        bed.queue.ended(&p, &query(&[], None, before), page).await.unwrap().len()
    };
    let middle = all[20].ended_at;
    let at_or_before = all.iter().filter(|ended| ended.ended_at <= middle).count();
    let micro = Duration::from_micros(1);
    assert_eq!(rest(None, middle + micro, least).await, at_or_before, "between two milliseconds");
    assert_eq!(rest(None, middle, greatest).await, at_or_before);
    assert_eq!(rest(None, middle, least).await, at_or_before - 5);
    assert_eq!(rest(None, middle - micro, greatest).await, at_or_before - 5, "between two milliseconds");
    assert_eq!(rest(None, UNIX_EPOCH, greatest).await, 0);
    assert_eq!(rest(Some(middle), all[0].ended_at, greatest).await, at_or_before - 5, "the query holds too");
}

#[tokio::test]
async fn what_ended_before_its_time_is_over_is_told_and_from_then_on_no_more() {
    let (bed, clock) = Bed::still().await;
    let p = part("p");
    let kept = end_one(&bed.queue, &p, succeeded()).await;
    let brief = end_one(&bed.queue, &p, full().with_keep(Some(SECOND))).await;
    let long = end_one(&bed.queue, &p, succeeded().with_keep(Some(Duration::MAX))).await;
    let told = async || {
        let mut ids = all_ended(&bed.queue, &p).await.into_iter().map(|ended| ended.id).collect::<Vec<_>>();
        ids.sort();
        assert_eq!(count(&bed.queue, &p).await, ids.len() as u64);
        assert_eq!(find(&bed.queue, &p, brief).await.is_some(), ids.contains(&brief));
        ids
    };
    let expires = find(&bed.queue, &p, brief).await.unwrap().expires_at.unwrap();
    // To just before the moment: what passed of the first millisecond counts.
    let left = expires.duration_since(clock.clock().wall()).unwrap();
    clock.advance(left - Duration::from_micros(1));
    assert_eq!(told().await, [kept, brief, long]);
    clock.advance(Duration::from_micros(1));
    assert_eq!(told().await, [kept, long]);
    assert!(!bed.queue.delete_ended(&p, &[brief]).await.remove(0).unwrap(), "it was told no more");
    assert_eq!(find(&bed.queue, &p, long).await.unwrap().expires_at, None, "longer than can be said");
}
