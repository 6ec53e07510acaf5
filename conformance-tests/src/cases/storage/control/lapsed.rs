//! Times to live: entries last until their expiry, by the server's clock, and not beyond it.

use std::time::{Duration, Instant, SystemTime};

use anyqueue::adapter::Storage;
use anyqueue::control::{Change, Entry, Expect, Key};
use anyqueue::{Clock, ManualClock, Skew};

use super::{BRIEF, Entries, LONG, LOOK, NEEDS, after, described, key, keys_of, numbered, put};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{CLOCK_GRAIN, Context};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::{CaseResult, Stop};

pub(in crate::cases::storage) const CASES: &[Case] =
    &[
        case!(Storage, "control.lapses", [EntryLapses], lapses).needs(NEEDS).kills(&[
            Fault::EntryNeverLapses,
            Fault::EntryLapsesEarly,
            Fault::EntryLapsesLate,
            Fault::EntryLapsesInSeconds,
            Fault::LapsedEntryFound,
            Fault::LapsedEntryListed,
        ]),
        case!(Storage, "control.moments", [EntryLapses], moments).needs(NEEDS).kills(&[
            Fault::EntryNeverLapses,
            Fault::EntryLapsesInSeconds,
            Fault::EntryEndUntold,
        ]),
        case!(Storage, "control.overwritten_times", [EntryLapses], overwritten_times)
            .needs(NEEDS)
            .kills(&[Fault::EntryEndKept, Fault::EntryEndDropped]),
        case!(Storage, "control.lapsed_names", [EntryLapses, EntryCompared], lapsed_names)
            .needs(NEEDS)
            .kills(&[Fault::LapsedEntryBlocks, Fault::LapsedEntryMatches, Fault::LapsedEntryTold]),
        case!(Storage, "control.lapsed_on_pages", [EntryLapses, EntriesListed], lapsed_on_pages)
            .needs(NEEDS)
            .kills(&[Fault::LapsedEntriesFillPages, Fault::LapsedEntryListed]),
        case!(Storage, "control.server_time", [EntryLapses, ServerTime], server_time)
            .needs(NEEDS)
            .kills(&[Fault::EntryClockStands, Fault::EntryClockInSeconds]),
        case!(Storage, "control.skewed_client", [EntryLapses, ServerTime], skewed_client)
            .needs(&[Need::Control, Need::SkewedClient])
            .kills(&[Fault::EntryLapsesByClientClock, Fault::EntryClockOfClient]),
        case!(Storage, "control.on_a_turned_clock", [EntryLapses], on_a_turned_clock)
            .needs(&[Need::Control, Need::ControlledClock])
            .kills(&[Fault::EntryLapsesLate, Fault::EntryNeverLapses, Fault::LapsedEntryBlocks]),
    ];

const HOUR: Duration = Duration::from_hours(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Writes the entry, and judges that it expires its time to live after the server handled it.
async fn written(c: &Context, entries: &Entries<'_>, change: &Change, ttl: Duration) -> CaseResult<Entry> {
    let before = entries.now().await?;
    entries.done(std::slice::from_ref(change)).await?;
    let found = entries.get(std::slice::from_ref(change.key())).await?;
    let after = found.now;
    let Some(entry) = found.value.into_iter().next().flatten() else {
        return Err(if after + MILLISECOND < before + ttl {
            c.failed(Clause::EntryLapses, &[], format!("an entry that lives for {ttl:?}"), "none is found")
        } else {
            too_slow(ttl)
        });
    };
    // The server may read the time anywhere within the call, and round it either way.
    let (first, last) = (before + ttl - MILLISECOND, after + ttl + MILLISECOND);
    let right = entry.expires_at.is_some_and(|end| (first..=last).contains(&end));
    let told = format!("a moment between {first:?} and {last:?}");
    c.check(Clause::EntryLapses, &[], right, told, described(&entry))?;
    Ok(entry)
}

/// The entry may have expired before it could be read: that proves nothing.
fn too_slow(ttl: Duration) -> Stop {
    Stop::Inconclusive(format!("this machine was too slow to act within {ttl:?}"))
}

/// Returns the expiry of an entry that must have one.
fn moment(c: &Context, entry: &Entry) -> CaseResult<SystemTime> {
    let missing = || c.failed(Clause::EntryLapses, &[], "a moment at which it lapses", described(entry));
    entry.expires_at.ok_or_else(missing)
}

/// Judges that each answer until the entry's expiry has it, and none from then on.
async fn watch(c: &Context, entries: &Entries<'_>, entry: &Entry) -> CaseResult {
    let end = moment(c, entry)?;
    loop {
        let found = entries.get(std::slice::from_ref(&entry.key)).await?;
        let there = found.value.first().is_some_and(Option::is_some);
        let told = format!("found as long as it is before {end:?}");
        c.check(Clause::EntryLapses, &[], there == (found.now < end), told, format!("{found:?}"))?;
        let listed = entries.page(entry.key.as_str(), 1, None).await?;
        let told = format!("listed as long as it is before {end:?}");
        let right = listed.value.is_empty() == (listed.now >= end);
        c.check(Clause::EntryLapses, &[], right, told, format!("{listed:?}"))?;
        if found.now >= end {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// An entry is returned up to its expiry and not from then on, according to the time in the answers; and that
/// time passes as real time does.
async fn lapses(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    for (number, ttl) in [BRIEF, MILLISECOND * 120, MILLISECOND * 777].into_iter().enumerate() {
        let change = put(&key(&format!("brief/{number}"))?, Expect::Absent).with_ttl(ttl);
        let start = Instant::now();
        let entry = written(c, &entries, &change, ttl).await?;
        watch(c, &entries, &entry).await?;
        let bounds = (ttl, c.timing().latest(ttl));
        c.took(Clause::EntryLapses, &[], "its end", start.elapsed(), bounds)?;
        entries.lacks(Clause::EntryLapses, &entry.key, "its time is over").await?;
    }
    Ok(())
}

/// The expiry is exact for times of every length, and the same wherever it is returned.
async fn moments(c: &Context) -> CaseResult {
    let (entries, day) = (Entries::first(c)?, HOUR * 24);
    let times = [HOUR + MILLISECOND, MILLISECOND * 59_999, day * 30 + MILLISECOND * 123, day * 365 * 99];
    for (number, ttl) in times.into_iter().enumerate() {
        let name = key(&format!("moment/{number}"))?;
        let change = put(&name, Expect::Absent).with_ttl(ttl);
        let entry = written(c, &entries, &change, ttl).await?;
        whole_millis(c, moment(c, &entry)?)?;
        let listed = entries.page(name.as_str(), 1, None).await?.value.pop();
        c.equal(Clause::EntryLapses, &[], "listed:", &Some(&entry), &listed.as_ref())?;
        let there = entries.conflict(&put(&name, Expect::Absent)).await?;
        c.equal(Clause::EntryLapses, &[], "in a conflict:", &Some(&entry), &there.as_ref())?;
    }
    let forever = put(&key("forever")?, Expect::Absent);
    entries.done(std::slice::from_ref(&forever)).await?;
    let kept = entries.one(forever.key()).await?.map(|entry| entry.expires_at);
    c.equal(Clause::EntryLapses, &[], "the moment of what has none:", &Some(None), &kept)
}

fn whole_millis(c: &Context, time: SystemTime) -> CaseResult {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let whole = since.subsec_nanos().is_multiple_of(1_000_000);
    c.check(Clause::EntryLapses, &[], whole, "whole milliseconds", format!("{since:?}"))
}

/// An entry that is written again lives as long as its new content says, not its former one: longer, forever,
/// or shorter.
async fn overwritten_times(c: &Context) -> CaseResult {
    let entries = Entries::first(c)?;
    let names =
        ["longer", "forever", "unasked", "again"].map(key).into_iter().collect::<CaseResult<Vec<_>>>()?;
    let brief: Vec<_> = names.iter().map(|name| put(name, Expect::Absent).with_ttl(BRIEF)).collect();
    let begun = entries.now().await?;
    entries.done(&brief).await?;
    let over = entries.now().await? + BRIEF;
    let mut kept = Vec::new();
    for (number, former) in brief.iter().enumerate() {
        let name = former.key().clone();
        match number {
            0 => kept.push(put(&name, after(former)).with_ttl(LONG)),
            1 => kept.push(put(&name, after(former))),
            2 => kept.push(put(&name, Expect::Any)),
            _ => {
                entries.done(&[Change::delete(name.clone(), Expect::Any)]).await?;
                kept.push(put(&name, Expect::Absent));
            }
        }
    }
    if entries.apply(&kept).await?.now + MILLISECOND >= begun + BRIEF {
        return Err(too_slow(BRIEF));
    }
    entries.until(over + CLOCK_GRAIN).await?;
    for written in &kept {
        entries.has(Clause::EntryLapses, written).await?;
    }
    entries.lists("", 100, &sorted(&names)).await?;
    let moments: Vec<_> =
        entries.get(&names).await?.value.into_iter().flatten().map(|it| it.expires_at.is_some()).collect();
    c.equal(Clause::EntryLapses, &[], "which lapse:", &vec![true, false, false, false], &moments)?;
    for name in &names {
        written_brief(c, &entries, name).await?;
    }
    Ok(())
}

/// An entry that was to live long lives briefly if it is written so.
async fn written_brief(c: &Context, entries: &Entries<'_>, name: &Key) -> CaseResult {
    let entry = written(c, entries, &put(name, Expect::Any).with_ttl(BRIEF), BRIEF).await?;
    entries.until(moment(c, &entry)?).await?;
    entries.lacks(Clause::EntryLapses, name, "the time of its new content is over").await
}

fn sorted(names: &[Key]) -> Vec<Key> {
    let mut names = names.to_vec();
    names.sort();
    names
}

/// An expired entry is no entry: its version does not match, a conflict returns none, it can be created, and
/// lives anew.
async fn lapsed_names(c: &Context) -> CaseResult {
    let (entries, name) = (Entries::first(c)?, key("name")?);
    for round in 0..3 {
        let brief = put(&name, Expect::Absent).with_ttl(BRIEF);
        let entry = written(c, &entries, &brief, BRIEF).await?;
        entries.until(moment(c, &entry)?).await?;
        for change in [put(&name, after(&brief)), Change::delete(name.clone(), after(&brief))] {
            let there = entries.conflict(&change).await?;
            c.check(Clause::EntryLapses, &[], there.is_none(), "nothing there", format!("{there:?}"))?;
        }
        entries.lacks(Clause::EntryLapses, &name, "its time is over").await?;
        let again = put(&name, if round == 1 { Expect::Any } else { Expect::Absent });
        entries.done(std::slice::from_ref(&again)).await?;
        entries.has(Clause::EntryLapses, &again).await?;
        entries.done(&[Change::delete(name.clone(), after(&again))]).await?;
    }
    Ok(())
}

/// An expired entry takes no place on a page, in the middle of it or at its end.
async fn lapsed_on_pages(c: &Context) -> CaseResult {
    let (entries, names) = (Entries::first(c)?, numbered("mixed/", 60)?);
    let stays = |number: usize| number % 4 == 1 || number > 55;
    let changes: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let change = put(name, Expect::Absent);
            if stays(number) { change } else { change.with_ttl(BRIEF) }
        })
        .collect();
    entries.done(&changes).await?;
    entries.until(entries.now().await? + BRIEF).await?;
    let living: Vec<_> =
        names.iter().enumerate().filter(|(number, _)| stays(*number)).map(|(_, name)| name.clone()).collect();
    for limit in [1, 2, 5, living.len() - 1, living.len(), living.len() + 1] {
        let page = keys_of(&entries.page("mixed/", limit, None).await?.value);
        let expected: Vec<_> = living.iter().take(limit).cloned().collect();
        c.equal(Clause::EntriesListed, &[], "the first page:", &expected, &page)?;
        entries.lists("mixed/", limit, &living).await?;
    }
    Ok(())
}

/// The time in each answer is from one clock for all clients, in milliseconds, and moves on as real time
/// does.
async fn server_time(c: &Context) -> CaseResult {
    let other = c.fresh().await?;
    let (one, other) = (Entries::first(c)?, Entries::of(c, &other)?);
    let mut latest = SystemTime::UNIX_EPOCH;
    for round in 0..4 {
        let start = Instant::now();
        let first = one.now().await?;
        tokio::time::sleep(MILLISECOND * 130).await;
        let applied = other.apply(&[put(&key(&format!("time/{round}"))?, Expect::Any)]).await?.now;
        let listed = one.page("time/", 1, None).await?.now;
        let most = start.elapsed() + CLOCK_GRAIN;
        let rising = [latest, first, applied, listed];
        c.check(Clause::EntryLapses, &[], rising.is_sorted(), "a clock that rises", format!("{rising:?}"))?;
        for time in [first, applied, listed] {
            whole_millis(c, time)?;
        }
        let passed = applied.duration_since(first).unwrap_or_default();
        let right = passed + CLOCK_GRAIN >= MILLISECOND * 130 && passed <= most;
        let told = format!("130 ms to {most:?} between the answers");
        c.check(Clause::EntryLapses, &[], right, told, format!("{passed:?}"))?;
        latest = listed;
    }
    Ok(())
}

/// A client whose clock is wrong writes, reads and expects as others do.
async fn skewed_client(c: &Context) -> CaseResult {
    let right = Entries::first(c)?;
    for skew in [Skew::Ahead(HOUR), Skew::Behind(HOUR)] {
        let client = c.fresh_skewed(Clock::system().skewed(skew)).await?;
        let wrong = Entries::of(c, &client)?;
        let (start, first) = (Instant::now(), right.now().await?);
        let told = wrong.now().await?;
        let apart = told.duration_since(first).unwrap_or_else(|error| error.duration());
        let most = start.elapsed() + CLOCK_GRAIN;
        let expected = format!("the server's time, within {most:?}");
        c.check(Clause::ServerTime, &[], apart <= most, expected, format!("{apart:?} off"))?;
        for (number, (writer, reader)) in [(wrong, right), (right, wrong)].into_iter().enumerate() {
            // For less time than the clock is wrong.
            let change = put(&key(&format!("{skew:?}/long/{number}"))?, Expect::Absent).with_ttl(HOUR / 2);
            let by_writer = written(c, &writer, &change, HOUR / 2).await?;
            let by_reader = reader.one(change.key()).await?;
            c.equal(Clause::ServerTime, &[], "what both see:", &Some(&by_writer), &by_reader.as_ref())?;
            reader.conflict(&put(change.key(), Expect::Absent)).await?;
            let change = put(&key(&format!("{skew:?}/brief/{number}"))?, Expect::Absent).with_ttl(BRIEF);
            let entry = written(c, &writer, &change, BRIEF).await?;
            watch(c, &reader, &entry).await?;
            writer.lacks(Clause::ServerTime, change.key(), "its time is over").await?;
        }
    }
    Ok(())
}

/// On a clock that stands still: returned a millisecond before its expiry, and not at it.
async fn on_a_turned_clock(c: &Context) -> CaseResult {
    let (clock, harness) = (ManualClock::new(), c.harness());
    let namespace = format!("turned_{}", uuid::Uuid::new_v4().simple());
    let opening = harness.open_on(&namespace, clock.clock());
    let opening = opening.ok_or_else(|| Stop::NotApplicable("a controlled clock".to_owned()))?;
    let storage = c.ok(Clause::Init, "a storage on a controlled clock", opening.await)?;
    c.ok(Clause::Init, "initialising it", storage.init().await)?;
    let judged = turned(c, &clock, &*storage).await;
    c.ok(Clause::Close, "close", storage.close().await)?;
    drop(storage);
    harness.remove(&namespace).await;
    judged
}

async fn turned(c: &Context, clock: &ManualClock, storage: &dyn Storage) -> CaseResult {
    let (entries, name) = (Entries::over(c, storage)?, key("turned")?);
    for ttl in [HOUR * 36, MILLISECOND, HOUR * 24 * 365] {
        let brief = put(&name, Expect::Absent).with_ttl(ttl);
        let entry = written(c, &entries, &brief, ttl).await?;
        let left = moment(c, &entry)?.duration_since(clock.clock().wall()).unwrap_or_default();
        clock.advance(left.saturating_sub(MILLISECOND));
        entries.has(Clause::EntryLapses, &brief).await?;
        let there = entries.conflict(&put(&name, Expect::Absent)).await?;
        c.equal(Clause::EntryLapses, &[], "a moment before its end:", &Some(&entry), &there.as_ref())?;
        clock.advance(MILLISECOND);
        entries.lacks(Clause::EntryLapses, &name, "its time is over").await?;
        let again = put(&name, Expect::Absent);
        entries.done(std::slice::from_ref(&again)).await?;
        clock.advance(ttl);
        entries.has(Clause::EntryLapses, &again).await?;
        entries.done(&[Change::delete(name.clone(), after(&again))]).await?;
    }
    Ok(())
}
