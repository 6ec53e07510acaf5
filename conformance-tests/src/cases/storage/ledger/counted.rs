//! Ends are counted by the minute: each once, whether it is kept or not, and none that was not settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{
    Action, Cancelled, EndedQuery, Lease, RawDelivery, SeriesCell, SeriesKey, Settlement, TaskEnd, Token,
    minute_of,
};
use anyqueue::{EndState, MAX_PAGE, MessageId, Page, PartitionId, SettleOutcome};
use futures_util::future::join_all;

use super::super::helpers::push_one;
use super::{LONG, Ledger, end_all, ending, hold, numbered};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases::storage) const CASES: &[Case] = &[
    case!(Storage, "ledger.counted", [EndsCounted], counted).needs(SERIES).kills(&[
        Fault::SeriesForgotten,
        Fault::SeriesMergesKinds,
        Fault::SeriesMergesStates,
        Fault::SeriesInMillis,
        Fault::SeriesWrongBucket,
        Fault::SeriesOfFirst,
    ]),
    case!(Storage, "ledger.counted_in_its_minute", [EndsCounted, ServerTime], in_its_minute)
        .needs(SERIES)
        .kills(&[Fault::SeriesWrongMinute, Fault::SeriesForgotten]),
    case!(Storage, "ledger.counted_unkept", [EndsCounted], unkept)
        .needs(SERIES)
        .kills(&[Fault::SeriesForgetsUnkept, Fault::SeriesForgotten]),
    case!(Storage, "ledger.counted_dead", [EndsCounted, DeadLetters], dead)
        .needs(SERIES)
        .kills(&[Fault::SeriesForgetsDead, Fault::SeriesForgotten]),
    case!(Storage, "ledger.counted_lost", [EndsCounted, Fencing], lost)
        .needs(&[Need::Series, Need::AtomicLedger])
        .kills(&[Fault::SeriesCountsLost]),
    case!(Storage, "ledger.counted_recorded", [EndsCounted, EndsMerge], recorded)
        .needs(SERIES)
        .kills(&[Fault::SeriesCountsRepeats, Fault::SeriesCountsFacts]),
    case!(Storage, "ledger.counted_cancelled", [EndsCounted, EndsRemoved], cancelled)
        .needs(SERIES)
        .kills(&[Fault::CancelForgetsEnd, Fault::CancelEndsUnknown]),
    case!(Storage, "ledger.counted_at_once", [EndsCounted], at_once)
        .needs(SERIES)
        .kills(&[Fault::SeriesRace]),
    case!(Storage, "ledger.counted_pages", [EndsCounted], pages).needs(SERIES).kills(&[
        Fault::SeriesPagesSkip,
        Fault::SeriesPagesRepeat,
        Fault::SeriesPartitionsShared,
        Fault::SeriesIgnoresMinutes,
    ]),
    case!(Storage, "ledger.counted_for_all", [EndsCounted, Init], for_all)
        .needs(SERIES)
        .kills(&[Fault::SeriesDieWithEnds, Fault::SeriesForgotten]),
];

const SERIES: &[Need] = &[Need::Ledger, Need::Series];

/// The counts of ends, whatever the minute: how many are alike, and their times in total.
type Counts = BTreeMap<SeriesKey, (u64, Duration, Duration)>;

fn without_minutes(cells: impl IntoIterator<Item = SeriesCell>) -> Counts {
    let mut counts = Counts::new();
    for SeriesCell { key, tasks, ran, waited, .. } in cells {
        let sum = counts.entry(SeriesKey { minute: 0, ..key }).or_default();
        *sum = (sum.0 + tasks, sum.1 + ran, sum.2 + waited);
    }
    counts
}

/// Returns every counter, in pages of this size, each in order and after the one before.
async fn cells(ledger: Ledger<'_>, limit: usize) -> CaseResult<Vec<SeriesCell>> {
    let (mut all, mut after): (Vec<SeriesCell>, _) = (Vec::new(), None);
    loop {
        let page = ledger.storage.series(ledger.p, 0..u64::MAX, Page::of(limit).after(after)).await;
        let page = ledger.c.ok(Clause::EndsCounted, "a page of counts", page)?;
        let told = format!("at most {limit} on a page");
        ledger.c.check(Clause::EndsCounted, &[], page.len() <= limit, told, page.len().to_string())?;
        let is_last = page.len() < limit;
        after = page.last().map(|cell| cell.key.clone());
        all.extend(page);
        let in_order = all.is_sorted_by(|one, next| one.key < next.key);
        let told = "counts in the order of their keys, each once";
        ledger.c.check(Clause::EndsCounted, &[], in_order, told, format!("{all:?}"))?;
        if is_last {
            return Ok(all);
        }
    }
}

/// Judges that exactly these ends are counted.
async fn counts(ledger: Ledger<'_>, ends: &[TaskEnd]) -> CaseResult {
    let expected = without_minutes(ends.iter().map(|end| SeriesCell::of(end, std::time::UNIX_EPOCH)));
    let seen = without_minutes(cells(ledger, MAX_PAGE).await?);
    ledger.c.equal(Clause::EndsCounted, &[], "what is counted:", &expected, &seen)
}

/// Returns an end of this kind with these times.
fn timed(state: EndState, kind: Option<&str>, ran: Duration, waited: Duration) -> TaskEnd {
    let mut end = TaskEnd::new(state).with_keep(LONG);
    (end.kind, end.ran, end.waited) = (kind.map(Arc::from), ran, waited);
    end
}

/// Returns ends in every state, of similar kinds, and with times on both sides of bounds.
fn various() -> Vec<TaskEnd> {
    let kinds =
        [None, Some("mail"), Some("mail "), Some("Mail"), Some("Grüße, 東京 '; \\ %"), Some("m\u{0}a")];
    let times = [0, 1, 1_023, 1_024, 1_999_999, 3_600_000_000, 30 << 38].map(Duration::from_micros);
    let mut ends = Vec::new();
    for (number, state) in EndState::ALL.into_iter().cycle().take(2 * kinds.len()).enumerate() {
        let (kind, time) = (kinds.iter().cycle().nth(number), |at| times.iter().cycle().nth(at).copied());
        let (ran, waited) = (time(number).unwrap_or_default(), time(number * 3 + 1).unwrap_or_default());
        ends.push(timed(state, kind.copied().flatten(), ran, waited));
    }
    ends.push(timed(EndState::Succeeded, Some(""), Duration::ZERO, Duration::from_nanos(1_999)));
    ends
}

/// Each end is counted by its state, its kind and its times, in batches and one by one.
async fn counted(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    counts(ledger, &[]).await?;
    let mut ends = various();
    end_all(c, &p, &ends).await?;
    counts(ledger, &ends).await?;
    for end in various().into_iter().take(3) {
        end_all(c, &p, std::slice::from_ref(&end)).await?;
        ends.push(end);
    }
    counts(ledger, &ends).await
}

/// Each end is counted in the minute of its own timestamp.
async fn in_its_minute(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    end_all(c, &p, &various()).await?;
    let mut expected = BTreeMap::new();
    for ended in ledger.list(&EndedQuery::default()).await? {
        *expected.entry(minute_of(ended.ended_at)).or_insert(0) += 1;
    }
    let mut seen = BTreeMap::new();
    for cell in cells(ledger, MAX_PAGE).await? {
        *seen.entry(cell.key.minute).or_insert(0) += cell.tasks;
    }
    c.equal(Clause::EndsCounted, &[], "how many ended in each minute:", &expected, &seen)
}

/// An end that is kept for no time is counted, beside those that are kept, and not shown.
async fn unkept(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let mut ends = various();
    for end in ends.iter_mut().step_by(2) {
        end.keep = Some(Duration::ZERO);
    }
    let ended = end_all(c, &p, &ends).await?;
    counts(ledger, &ends).await?;
    let (kept, unkept): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(_, end)| end.is_kept());
    ledger.has(Clause::EndStored, &kept).await?;
    ledger.lacks(Clause::EndStored, &super::ids_of(&unkept), "it was to be kept for no time").await
}

/// The end of a task whose message becomes a dead letter is counted and not stored; a message that moves
/// elsewhere, or is released, has not ended.
async fn dead(c: &Context) -> CaseResult {
    let (p, elsewhere) = (c.partition("work")?, c.partition("elsewhere")?);
    let ledger = Ledger::first(c, &p)?;
    let end = timed(EndState::Failed, Some("mail"), Duration::from_millis(3), Duration::from_secs(1));
    let end = end.with_keep(Some(Duration::ZERO));
    let to = |to: PartitionId| Action::Move { to, headers: None };
    let actions = [to(p.dead_letters()), to(elsewhere.clone()), Action::Release, to(p.dead_letters())];
    let mut batch = Vec::new();
    for action in actions {
        let held = hold(c, &p, c.message()).await?;
        batch.push(settlement(&held, action).with_end(Some(Arc::new(end.clone()))));
    }
    c.client().settle(&batch).await?;
    counts(ledger, &[end.clone(), end]).await?;
    ledger.is_empty(Clause::EndStored, "none of the messages was removed").await?;
    counts(Ledger::first(c, &elsewhere)?, &[]).await?;
    for (p, n) in [(&p, 1), (&p.dead_letters(), 2), (&elsewhere, 1)] {
        let held = c.client().take(p, n).await?;
        c.client().remove(&held).await?;
    }
    Ok(())
}

/// Nothing is counted under a lost lease, and a delivery that is settled twice counts once.
async fn lost(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let held = hold(c, &p, c.message()).await?;
    let forged =
        RawDelivery::new(Lease { token: Token::random(), ..held.lease.clone() }, held.message.clone());
    let dies = |held: &RawDelivery| {
        let action = Action::Move { to: p.dead_letters(), headers: None };
        settlement(held, action).with_end(Some(Arc::new(numbered(3))))
    };
    is_lost(c, &[ending(&forged, &numbered(1)), dies(&forged)]).await?;
    counts(ledger, &[]).await?;
    let batch = [ending(&held, &numbered(0)), ending(&held, &numbered(1)), dies(&held)];
    let answers = c.client().storage().settle(&batch).await;
    let right = matches!(
        answers.as_slice(),
        [Ok(SettleOutcome::Settled), Ok(SettleOutcome::Lost), Ok(SettleOutcome::Lost)]
    );
    c.check(Clause::SettleTwice, &[held.lease.id], right, "Settled, then Lost", format!("{answers:?}"))?;
    is_lost(c, &[ending(&held, &numbered(2)), dies(&held)]).await?;
    counts(ledger, &[numbered(0)]).await
}

async fn is_lost(c: &Context, batch: &[Settlement]) -> CaseResult {
    let answers = c.client().storage().settle(batch).await;
    let right = answers.iter().all(|answer| matches!(answer, Ok(SettleOutcome::Lost)));
    c.check(Clause::Fencing, &[], right, "Lost", format!("{answers:?}"))
}

/// A recorded end counts once for each generation of a task, however often and in whatever order it comes.
/// Facts of tasks that go on do not count.
async fn recorded(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let ids = [MessageId::new(), MessageId::new()];
    let (first, second) = (numbered(1).with_keep(LONG), numbered(2).with_keep(LONG));
    for _ in 0..3 {
        ledger.record(&[(ids[0], first.clone()), (ids[1], second.clone())]).await?;
    }
    ledger.record(&[(ids[0], second.clone()), (ids[1], first.clone())]).await?;
    counts(ledger, &[first.clone(), second.clone()]).await?;
    let again = numbered(1).with_keep(LONG).with_generation(1);
    for _ in 0..2 {
        ledger.record(&[(ids[1], again.clone())]).await?;
    }
    counts(ledger, &[first.clone(), second, again]).await?;
    let facts = c.partition("work.-live")?;
    let facts = Ledger::first(c, &facts)?;
    facts.record(&[(ids[0], first.clone())]).await?;
    facts.has(Clause::EndsMerge, &[(ids[0], first)]).await?;
    counts(facts, &[]).await
}

/// A task that is cancelled while it waits is counted, whether its end is kept or not; an unknown one is not.
async fn cancelled(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ledger = Ledger::first(c, &p)?;
    let kept = timed(EndState::Cancelled, Some("mail"), Duration::ZERO, Duration::from_secs(1));
    let unkept = kept.clone().with_keep(Some(Duration::ZERO));
    let mut tasks = vec![Cancelled { id: MessageId::new(), end: Some(Arc::new(kept.clone())) }];
    for end in [Some(&kept), Some(&unkept), None] {
        let id = push_one(c, &p, c.message()).await?;
        tasks.push(Cancelled { id, end: end.cloned().map(Arc::new) });
    }
    for _ in 0..2 {
        ledger.each("cancelling", tasks.len(), ledger.storage.cancel(&p, &tasks).await)?;
    }
    counts(ledger, &[kept, unkept]).await
}

/// Clients that count at once lose nothing, and keep nobody waiting for long.
async fn at_once(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let clients = join_all((0..6).map(|_| c.fresh())).await.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let (rounds, each) = (c.size(6, 40), 5);
    c.client().push(&p, &c.messages(clients.len() * rounds * each, |_, message| message)).await?;
    let end = timed(EndState::Succeeded, Some("mail"), Duration::from_micros(3), Duration::from_micros(5));
    let working = clients.iter().map(|client| async {
        for _ in 0..rounds {
            let held = client.take(&p, each).await?;
            let other = timed(EndState::Failed, None, Duration::from_micros(9), Duration::from_micros(2));
            let of = |at: usize| if at.is_multiple_of(2) { &end } else { &other };
            let batch: Vec<_> = held.iter().enumerate().map(|(at, held)| ending(held, of(at))).collect();
            client.settle(&batch).await?;
        }
        Ok(())
    });
    join_all(working).await.into_iter().collect::<CaseResult>()?;
    let tasks: u64 = cells(Ledger::first(c, &p)?, MAX_PAGE).await?.iter().map(|cell| cell.tasks).sum();
    c.equal(
        Clause::EndsCounted,
        &[],
        "how many are counted:",
        &((clients.len() * rounds * each) as u64),
        &tasks,
    )
}

/// Pages of any size return each counter once, for the requested partition and minutes.
async fn pages(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    let ledger = Ledger::first(c, &p)?;
    end_all(c, &p, &various()).await?;
    end_all(c, &other, &[numbered(1)]).await?;
    let all = cells(ledger, MAX_PAGE).await?;
    for limit in [1, 2, 5] {
        let seen = cells(ledger, limit).await?;
        c.equal(Clause::EndsCounted, &[], &format!("pages of {limit}:"), &all, &seen)?;
    }
    counts(ledger, &various()).await?;
    counts(Ledger::first(c, &other)?, &[numbered(1)]).await?;
    let minutes = || all.iter().map(|cell| cell.key.minute);
    let (first, last) = (minutes().min().unwrap_or(0), minutes().max().unwrap_or(0));
    for (asked, any) in [(0..first, false), (last + 1..u64::MAX, false), (first..last + 1, true)] {
        let page = ledger.storage.series(&p, asked.clone(), Page::of(MAX_PAGE)).await;
        let page = c.ok(Clause::EndsCounted, "a page of counts", page)?;
        let expected = if any { &all[..] } else { &[] };
        c.equal(Clause::EndsCounted, &[], &format!("of minutes {asked:?}:"), &expected, &&page[..])?;
    }
    Ok(())
}

/// Every client returns the same, before and after an `init`, and when the ends are gone.
async fn for_all(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let ended = end_all(c, &p, &various()).await?;
    let other = c.fresh().await?;
    counts(Ledger::of(c, &other, &p)?, &various()).await?;
    c.ok(Clause::Init, "an init", other.storage().init().await)?;
    Ledger::first(c, &p)?.delete(&super::ids_of(&ended)).await?;
    Ledger::first(c, &p)?.purge(MAX_PAGE).await?;
    counts(Ledger::of(c, &c.fresh().await?, &p)?, &various()).await
}
