//! Ends are listed in pages, newest first, and found by id; partitions are separate.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyqueue::adapter::{EndedQuery, EndedTask, TaskEnd};
use anyqueue::{EndState, MAX_PAGE, MessageId};
use futures_util::future::join;

use super::{Ledger, NEEDS, bare, end_all, end_numbered, end_one, ending, hold, ids_of, numbered, sorted};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.newest_first", [EndedTold], newest_first)
        .needs(NEEDS)
        .kills(&[Fault::EndedOldestFirst]),
    case!(Storage, "ledger.pages", [EndedTold], pages).needs(NEEDS).deadline(MINUTE).kills(&[
        Fault::EndedListIgnoresStates,
        Fault::EndedFirstStateOnly,
        Fault::EndedPagesSkip,
        Fault::EndedPagesRepeat,
        Fault::EndedIdsAscending,
    ]),
    case!(Storage, "ledger.pages_meanwhile", [EndedTold], pages_meanwhile)
        .needs(NEEDS)
        .deadline(MINUTE)
        .kills(&[Fault::EndedPagesSkip, Fault::EndedPagesRepeat]),
    case!(Storage, "ledger.pages_after_deletion", [EndedTold], pages_after_deletion)
        .needs(NEEDS)
        .kills(&[Fault::DeletesAllEnds, Fault::EndedPagesRepeat]),
    case!(Storage, "ledger.large_pages", [EndedTold], large_pages)
        .needs(NEEDS)
        .deadline(MINUTE)
        .kills(&[Fault::RecordsFirstOnly, Fault::EndedPagesSkip]),
    case!(Storage, "ledger.find", [EndedTold], find)
        .needs(NEEDS)
        .kills(&[Fault::EndedFoundWithoutResult, Fault::EndsOfFirst]),
    case!(Storage, "ledger.partitions_apart", [EndedTold, PartitionsApart], partitions_apart)
        .needs(NEEDS)
        .kills(&[Fault::DeletesEndsAnywhere, Fault::EndedPartitionsShared]),
    case!(Storage, "ledger.living_have_none", [EndStored, EndedTold], living_have_none)
        .needs(NEEDS)
        .kills(&[Fault::EndsForgotten, Fault::EndForeverLapses]),
];

const MINUTE: Duration = Duration::from_mins(1);

fn listed_ids(listed: &[EndedTask]) -> Vec<MessageId> {
    listed.iter().map(|ended| ended.id).collect()
}

/// Tasks that ended later come first, whatever the order in which they were pushed.
async fn newest_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    c.client().push(&p, &c.messages(5, |_, message| message)).await?;
    let mut held = c.client().take(&p, 5).await?;
    let mut random = c.random();
    random.shuffle(&mut held);
    let mut expected = Vec::new();
    for (number, held) in held.iter().enumerate() {
        c.client().settle(&[ending(held, &numbered(number))]).await?;
        expected.insert(0, held.lease.id);
        tokio::time::sleep(Duration::from_millis(5)).await; // so that no two end at the same moment
    }
    let listed = Ledger::first(c, &p)?.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &expected, "the newest first:", &expected, &listed_ids(&listed))
}

/// Pages of any size have each of the tasks that ended at one moment once, in one order.
async fn pages(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let mut ids = Vec::new();
    for n in [c.size(40, 400), 1, 9] {
        ids.extend(ids_of(&end_numbered(c, &p, n).await?));
    }
    let ledger = Ledger::first(c, &p)?;
    let whole = ledger.list(&EndedQuery::default()).await?;
    c.equal(Clause::EndedTold, &[], "each once:", &sorted(ids), &sorted(listed_ids(&whole)))?;
    for limit in [1, 2, 7, whole.len(), whole.len() + 1] {
        let paged = ledger.pages(&EndedQuery::default(), limit).await?;
        c.equal(
            Clause::EndedTold,
            &[],
            &format!("the same in pages of {limit}:"),
            &listed_ids(&whole),
            &listed_ids(&paged),
        )?;
    }
    let query = super::in_states(&[EndState::Failed, EndState::Succeeded]);
    let matching: Vec<_> =
        whole.iter().filter(|ended| query.matches(ended.end.state, ended.ended_at)).map(|it| it.id).collect();
    for limit in [1, 3, MAX_PAGE] {
        let paged = listed_ids(&ledger.pages(&query, limit).await?);
        c.equal(Clause::EndedTold, &[], "those of two states, by pages:", &matching, &paged)?;
    }
    Ok(())
}

/// While other tasks end, each end that was there is seen once.
async fn pages_meanwhile(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let there = ids_of(&end_numbered(c, &p, 60).await?);
    let ledger = Ledger::first(c, &p)?;
    let reading = async {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = ledger.page(&EndedQuery::default(), 4, after).await?;
            let Some(last) = page.last() else { return CaseResult::Ok(seen) };
            after = Some(last.cursor());
            seen.extend(listed_ids(&page));
        }
    };
    let working = async {
        for number in 0..20 {
            end_one(c, &p, &numbered(number)).await?;
        }
        CaseResult::Ok(())
    };
    let (seen, worked) = join(reading, working).await;
    let seen = seen?;
    worked?;
    let distinct: HashSet<_> = seen.iter().copied().collect();
    c.equal(Clause::EndedTold, &[], "each at most once:", &seen.len(), &distinct.len())?;
    let missed: Vec<_> = there.iter().filter(|id| !distinct.contains(id)).copied().collect();
    c.equal(Clause::EndedTold, &missed, "how many were skipped:", &0, &missed.len())
}

/// A page continues from its cursor even if the end that it names is gone.
async fn pages_after_deletion(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    end_numbered(c, &p, 20).await?;
    let ledger = Ledger::first(c, &p)?;
    let whole = listed_ids(&ledger.list(&EndedQuery::default()).await?);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = ledger.page(&EndedQuery::default(), 3, after).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.cursor());
        seen.extend(listed_ids(&page));
        let deleted = ledger.delete(&listed_ids(&page)).await?;
        c.equal(Clause::EndsRemoved, &[], "deleted:", &vec![true; page.len()], &deleted)?;
    }
    c.equal(Clause::EndedTold, &[], "all of them, though the page before was deleted:", &whole, &seen)
}

/// If there are more than the largest page holds, they are returned in several pages, and counted.
async fn large_pages(c: &Context) -> CaseResult {
    let (p, n) = (c.partition("work")?, MAX_PAGE + 30);
    let ids: Vec<_> = (0..n).map(|_| MessageId::new()).collect();
    let ledger = Ledger::first(c, &p)?;
    for part in ids.chunks(MAX_PAGE) {
        let ends: Vec<_> = part.iter().map(|id| (*id, TaskEnd::new(EndState::Succeeded))).collect();
        ledger.record(&ends).await?;
    }
    let first = ledger.page(&EndedQuery::default(), MAX_PAGE, None).await?;
    c.equal(Clause::EndedTold, &[], "a full page:", &MAX_PAGE, &first.len())?;
    let listed = listed_ids(&ledger.list(&EndedQuery::default()).await?);
    c.equal(Clause::EndedTold, &[], "how many are listed:", &n, &listed.len())?;
    c.equal(Clause::EndedTold, &[], "each once:", &sorted(ids.clone()), &sorted(listed))?;
    let counted = ledger.count(&EndedQuery::default(), super::MANY).await?;
    c.equal(Clause::EndedTold, &[], "counted:", &(n as u64), &counted)?;
    let found = ledger.find(ids.get(..MAX_PAGE).unwrap_or(&ids)).await?;
    c.equal(Clause::EndedTold, &[], "found of a page:", &MAX_PAGE, &found.iter().flatten().count())
}

/// By id: unknown ones are not found, the others are, in the order of the ids, as often as they are named.
async fn find(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_numbered(c, &p, 50).await?;
    let ledger = Ledger::first(c, &p)?;
    let mut ids = ids_of(&ended);
    for at in [0, 7, 30, 53] {
        ids.insert(at, MessageId::new());
    }
    ids.extend_from_within(..4);
    ids.push(MessageId::from_bytes([0; 16]));
    ids.push(MessageId::from_bytes([0xff; 16]));
    let ends: HashMap<_, _> = ended.into_iter().collect();
    for part in ids.chunks(1).take(2).chain([ids.as_slice()]) {
        let expected: Vec<_> = part.iter().map(|id| ends.get(id).cloned()).collect();
        let found: Vec<_> = ledger.find(part).await?.iter().map(|found| found.as_ref().map(bare)).collect();
        c.equal(Clause::EndedTold, &[], "the ends of these ids, in order:", &expected, &found)?;
    }
    Ok(())
}

/// An end in one partition is neither shown nor touched in another, even if the ids are the same.
async fn partitions_apart(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("work2")?);
    let (here, there) = (end_numbered(c, &p, 5).await?, end_numbered(c, &other, 3).await?);
    let (mine, others) = (Ledger::first(c, &p)?, Ledger::first(c, &other)?);
    mine.lacks(Clause::EndedTold, &ids_of(&there), "they ended elsewhere").await?;
    others.lacks(Clause::EndedTold, &ids_of(&here), "they ended elsewhere").await?;
    for (ledger, n) in [(&mine, 5), (&others, 3)] {
        let counted = ledger.count(&EndedQuery::default(), super::MANY).await?;
        c.equal(Clause::EndedTold, &[], "counted in one partition:", &n, &counted)?;
    }
    others.record(&here.iter().map(|(id, _)| (*id, numbered(70))).collect::<Vec<_>>()).await?;
    mine.has(Clause::EndedTold, &here).await?;
    let deleted = others.delete(&ids_of(&here)).await?;
    c.equal(Clause::EndsRemoved, &[], "deleted:", &vec![true; here.len()], &deleted)?;
    mine.has(Clause::EndedTold, &here).await?;
    others.has(Clause::EndedTold, &there).await?;
    Ledger::first(c, &c.partition("unused")?)?.is_empty(Clause::EndedTold, "nobody used it").await
}

/// A live task has no end: before its settlement nothing is returned for it.
async fn living_have_none(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_all(c, &p, &[numbered(1)]).await?;
    let waiting = c.client().push(&p, &[c.message()]).await?;
    let ledger = Ledger::first(c, &p)?;
    ledger.lacks(Clause::EndStored, &waiting, "it waits").await?;
    let held = c.client().take(&p, 1).await?;
    ledger.lacks(Clause::EndStored, &waiting, "it is held").await?;
    let another = hold(c, &p, c.message()).await?;
    c.client().remove(&[another]).await?;
    ledger.has(Clause::EndedTold, &ended).await?;
    c.client().remove(&held).await
}
